# SPDX-License-Identifier: Apache-2.0
"""When the store is full, publishing stops, and the daemon logs this once; when there is space again, publishing
continues automatically."""

import os

from jobs import wait_until

USER = 20001
MIB = 1 << 20


def log_of(mount):
    with open(os.path.join(mount.status()["run_dir"], "log"), encoding="utf-8") as log:
        return log.read()


def publishing_line(mount):
    [line] = [line for line in mount.cli("status").stdout.splitlines() if line.startswith("publishing")]
    return line


def test_publishing_stops_and_goes_on(disk, scratch, mount_store, job_of):
    store = disk("store", 32)
    layers = scratch / "layers"
    layers.mkdir()
    mount = mount_store(store, "--layers", layers)
    job = job_of(mount, "j", USER)
    job.put_group("A", {"kernel.so": b"x" * 100_000})
    wait_until(lambda: (store / "triton/A").exists(), what="the first entry")
    with open(store / "ballast", "wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
    names = list("BCDEF")
    for name in names:
        job.put_group(name, {"kernel.so": b"x" * 100_000})
    wait_until(lambda: mount.status()["store_full_since"], what="the notice of the full store")
    assert "stopped" in publishing_line(mount) and "the store is full" in publishing_line(mount)
    assert all(job.exists(f"triton/{name}/kernel.so") for name in names)
    assert not any((store / "triton" / name).exists() for name in names)
    assert log_of(mount).count("the store is full") == 1
    (store / "ballast").unlink()
    wait_until(lambda: all((store / "triton" / name).exists() for name in names), what="the postponed entries")
    assert mount.status()["store_full_since"] is None
    assert "complete" in publishing_line(mount)
