# SPDX-License-Identifier: Apache-2.0
"""A real container of runc with the mount bound as the documents describe, with and without the run directory."""

import json
import shutil
import subprocess

import pytest

USER = 20001
OF_THE_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc")
OF_THE_RUNTIME = ("/proc", "/dev", "/dev/pts", "/dev/shm")

pytestmark = pytest.mark.skipif(shutil.which("runc") is None, reason="no runc")


def bind(source, target=None, *options):
    return {"destination": str(target or source), "type": "bind", "source": str(source),
            "options": ["rbind", *options]}


@pytest.fixture
def contain(scratch, library, site_mount):
    """contain(script, *further) runs a shell script as USER, with the library preloaded, in a runc container. The
    container has cacheshim's mount and the mounts in `further`."""
    bundle, state = scratch / "bundle", scratch / "runc"
    (bundle / "rootfs").mkdir(parents=True)
    directory = scratch / "lib"
    directory.mkdir()
    shutil.copy(library, directory / "libcacheshim.so")
    subprocess.run(["runc", "spec", "--bundle", bundle], check=True)
    names = []

    def run(script, *further):
        config = json.loads((bundle / "config.json").read_text())
        config["process"].update(
            terminal=False, args=["sh", "-c", script], user={"uid": USER, "gid": USER}, rlimits=[],
            env=["PATH=/usr/bin:/bin", "HOME=/tmp", "CACHESHIM_JOB=contained",
                 f"CACHESHIM_MOUNT={site_mount.path}", "LD_PRELOAD=/shim/libcacheshim.so"])
        config["root"] = {"path": "rootfs", "readonly": False}
        own = [one for one in config["mounts"] if one["destination"] in OF_THE_RUNTIME]
        config["mounts"] = [
            *own, *(bind(path, None, "ro") for path in OF_THE_SYSTEM),
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
            bind(directory, "/shim", "ro"), bind(site_mount.path), *further]
        (bundle / "config.json").write_text(json.dumps(config))
        names.append(f"cacheshim-test-{scratch.name}-{len(names)}")
        return subprocess.run(["runc", "--root", state, "run", "--bundle", bundle, names[-1]],
                              text=True, capture_output=True, timeout=60, stdin=subprocess.DEVNULL,
                              check=False)
    yield run
    for name in names:  # the containers still exist only if the test was interrupted
        subprocess.run(["runc", "--root", state, "delete", "--force", name], check=False,
                       stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("with_run_directory", [False, True])
def test_a_container_has_the_routes_of_site_profiles(site_mount, contain, with_run_directory):
    further = [bind(site_mount.run_directory().parent, "/run/cacheshim")] if with_run_directory else []
    done = contain("mkdir -p ~/.site-cache/K && echo x > ~/.site-cache/K/file && echo $SITE_CACHE_DIR",
                   *further)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"{site_mount.path}/site"
    assert site_mount.job("contained")["uid"] == USER
    assert site_mount.base("site/K/file").exists() or \
        "site/K/file" in site_mount.layer_files("contained")
