# SPDX-License-Identifier: Apache-2.0
"""A store on NFS 4.2 with default options, mounted by two machines."""

import json
import time

import mounts
import pytest
from lab import POINT
from storms import FIRST_UID, KERNELS, LIB, results_of, start_storm

LAYERS_OF_DEFAULT = "/var/lib/cacheshim/layers"


def status_of(node):
    return json.loads(node.run(f"cat {POINT}/.cacheshim/status", check=True).stdout)


def stats_of(node):
    return json.loads(node.run([mounts.PROGRAM, "stats", "--json", "--mount", POINT], check=True).stdout)


@pytest.mark.usefixtures("repeated")
@pytest.mark.parametrize("layers", ["local", "in the store"])
def test_each_kernel_is_built_once_by_all_machines(two_nodes, store, mount_on, layers):
    for node in two_nodes:
        mount_on(node, store, *(["--layers", f"{store}/.cacheshim/layers"] if layers != "local" else []))
    status = status_of(two_nodes[0])
    assert status["layers"].startswith(LAYERS_OF_DEFAULT) == (layers == "local")
    assert not status["base_is_local"] and not status["passthrough"]
    assert status["renames"]["base"] == "links"
    built, errors = results_of(start_storm(two_nodes, f"{POINT}/triton"))
    assert errors == []
    assert sum(built.values()) == KERNELS, [key for key, count in built.items() if count > 1]
    later, errors = results_of(start_storm(two_nodes, f"{POINT}/triton"))
    assert errors == [] and not later


@pytest.mark.usefixtures("repeated")
def test_preloaded_processes_build_each_kernel_once(two_nodes, store, mount_on):
    for node in two_nodes:
        mount_on(node, store)
    env = {"LD_PRELOAD": mounts.LIBRARY, "CACHESHIM_MOUNT": POINT}
    built, errors = results_of(start_storm(two_nodes, f"{POINT}/triton", env))
    assert errors == [] and sum(built.values()) == KERNELS
    before = stats_of(two_nodes[0])["hits_direct"]
    later, errors = results_of(start_storm(two_nodes, f"{POINT}/triton", env))
    assert errors == [] and not later
    assert stats_of(two_nodes[0])["hits_direct"] > before
    # The library does not report a name as absent without the daemon: another machine may just have created the name.
    lookups = stats_of(two_nodes[0])["lookups"]
    two_nodes[0].python("import os, sys; [os.path.exists(f'{sys.argv[1]}/absent{i}') for i in range(20)]",
                        f"{POINT}/triton/KEY0000", uid=FIRST_UID, env={**env, "CACHESHIM_JOB": "job0"})
    assert stats_of(two_nodes[0])["lookups"] >= lookups + 20


PUT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import agent_caches
for line in sys.stdin:
    entry = sys.argv[2] + "/" + line.strip()
    agent_caches.triton_put(entry, "kernel.cubin", b"x")
    group = {"child_paths": {"kernel.cubin": entry + "/kernel.cubin"}}
    agent_caches.triton_put(entry, "__grp__kernel.json", json.dumps(group).encode())
    print("done", flush=True)
"""

LOOK = """
import os, sys, time
for line in sys.stdin:
    path = sys.argv[1] + "/" + line.strip() + "/__grp__kernel.json"
    assert not os.path.exists(path)
    print("absent", flush=True)
    while not os.path.exists(path):
        time.sleep(0.01)
    print("found", flush=True)
"""


def test_an_entry_is_visible_on_the_other_machine_within_a_second(two_nodes, store, mount_on):
    """Over an idle network the longest of 50 waits is 1.1 s. The test allows for a busy machine."""
    for node in two_nodes:
        mount_on(node, store)
    builder = two_nodes[0].start(["/usr/bin/python3", "-c", PUT, LIB, f"{POINT}/triton"], uid=FIRST_UID)
    reader = two_nodes[1].start(["/usr/bin/python3", "-c", LOOK, f"{POINT}/triton"], uid=FIRST_UID + 1)
    waits = []
    for number in range(50):
        reader.write(f"KEY{number}\n")
        assert reader.read_line() == "absent\n"
        builder.write(f"KEY{number}\n")
        assert builder.read_line() == "done\n"
        began = time.monotonic()
        assert reader.read_line() == "found\n"
        waits.append(time.monotonic() - began)
    print(f"longest wait: {max(waits):.2f} s")
    assert max(waits) < 2.2


BUILD_FOREVER = """
import os, sys, time
os.makedirs(sys.argv[1] + "/KEY", exist_ok=True)
assert not os.path.exists(sys.argv[1] + "/KEY/__grp__kernel.json")
print("builds", flush=True)
time.sleep(1000)
"""


@pytest.mark.timeout_s(240)
def test_another_machine_takes_over_the_lease_of_a_dead_machine(two_nodes, store, mount_on):
    dying, alive = two_nodes
    for node in two_nodes:
        mount_on(node, store)
    builder = dying.start(["/usr/bin/python3", "-c", BUILD_FOREVER, f"{POINT}/triton"], uid=FIRST_UID)
    assert builder.read_line() == "builds\n"
    waiter = alive.start(["/usr/bin/python3", "-c", BUILD_FOREVER, f"{POINT}/triton"], uid=FIRST_UID + 1)
    try:
        deadline = time.monotonic() + 20
        while stats_of(alive)["flight_waits"] < 1:
            assert time.monotonic() < deadline, "the second process does not wait"
            time.sleep(0.1)
        dying.kill()
        died = time.monotonic()
        assert waiter.read_line(60) == "builds\n"
        print(f"takeover: {time.monotonic() - died:.1f} s")
        assert time.monotonic() - died < 25  # 15 s on an idle machine; the server keeps the lock longer
    finally:
        waiter.kill()
        dying.kill()
        dying.boot()
        dying.wait_until_booted()


def test_a_native_directory_builds_kernels_several_times(two_nodes, store):
    """Runs without cacheshim, to show that the storm can detect what cacheshim prevents."""
    two_nodes[0].run(f"mkdir -m 1777 {store}/triton", check=True)
    built, errors = results_of(start_storm(two_nodes, f"{store}/triton"))
    print(f"{sum(built.values())} builds, {len(errors)} errors")
    assert sum(built.values()) > KERNELS or errors
