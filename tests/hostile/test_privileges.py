# SPDX-License-Identifier: Apache-2.0
"""The daemon keeps only the capabilities that it needs, in each of its threads, and cannot regain others. The processes
of jobs keep their capabilities."""

import errno
import os
import pathlib
import signal
import stat
import subprocess

import injected_call
import mounts
import pytest
from jobs import as_user, threads, wait_until
from privileges import capabilities, capabilities_in_the_document, capabilities_of_the_unit, status_of, statuses_of

USER = 20001
NEEDED, NEEDED_WITH_OWNERS_KEPT, NEEDED_WITH_REMOTE_TIER = capabilities_in_the_document()

# Prints the privileges of each thread of the mount's daemon, then those of the daemon's guard process, then those of
# this shell.
SHOW = r"""
pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "${CACHESHIM_MOUNT:-/ci-cache}/.cacheshim/status")
cat /proc/"$pid"/task/*/status
for child in $(cat /proc/"$pid"/task/*/children); do
    grep -qx 'Name:.cacheshim-guard' /proc/"$child"/status && cat /proc/"$child"/status
done
cat /proc/$$/status
"""


def check(statuses, given, needed=NEEDED):
    """Asserts that each thread has exactly the capabilities in both `given` and `needed`, and cannot gain others."""
    assert statuses
    for status in statuses:
        for which in ("Prm", "Eff", "Bnd"):
            assert capabilities(status, which) == given & needed, (which, status["Name"])
        assert not capabilities(status, "Inh") and not capabilities(status, "Amb")
        assert status["NoNewPrivs"] == "1"


def statuses_in(text):
    """Returns the fields of each thread in the output of SHOW."""
    found = []
    for line in text.splitlines():
        name, _, value = line.partition(":\t")
        if name == "Name":
            found.append({})
        if found:
            found[-1][name] = value
    return found


def own_capabilities():
    return capabilities(status_of("/proc/self"), "Prm")


def test_the_unit_and_the_document_name_the_same_capabilities():
    assert capabilities_of_the_unit() == NEEDED


@pytest.mark.parametrize("owner", ["squash", "keep"])
def test_each_thread_of_a_daemon_keeps_only_the_needed_capabilities(mount_store, store, owner):
    mount = mount_store(store, "-o", f"owner={owner}")
    statuses = statuses_of(mount.daemon_pid())
    assert len(statuses) > 4 and "cacheshim-guard" in [status["Name"] for status in statuses]
    check(statuses, own_capabilities(), NEEDED_WITH_OWNERS_KEPT if owner == "keep" else NEEDED)


def test_a_daemon_with_a_remote_tier_keeps_only_the_needed_capabilities(mount_store, store, scratch):
    config = scratch / "cacheshim.toml"
    config.write_text(f'[remote]\nurl = "file://{scratch}"\n')
    mount = mount_store(store, "--config", config)
    wait_until(lambda: mount.status()["remote"]["used"], what="the use of the tier")
    statuses = statuses_of(mount.daemon_pid())
    helper = [status for status in statuses if status["Name"].startswith("cacheshim-remot")]
    check([status for status in statuses if status not in helper], own_capabilities(), NEEDED_WITH_REMOTE_TIER)
    assert helper and all(not capabilities(status, which) for status in helper for which in ("Prm", "Eff", "Inh", "Amb"))


def test_each_thread_of_an_overlay_keeps_only_the_needed_capabilities(overlay, scratch):
    overlay.mount()
    processes = {pid for pid in mounts.processes_naming(f"{scratch}/")
                 if pathlib.Path(f"/proc/{pid}/exe").resolve().name == "cacheshim"}
    check([status_of(thread) for pid in processes for thread in threads(pid)], own_capabilities(),
          NEEDED_WITH_OWNERS_KEPT)


@pytest.mark.parametrize("command", ["mount", "standby"])
def test_a_daemon_in_the_foreground_keeps_only_the_needed_capabilities(program, store, scratch, command):
    point = scratch / "point"
    point.mkdir()
    option = "--standby" if command == "standby" else "--foreground"
    with open(scratch / "log", "w", encoding="utf-8") as log:
        daemon = subprocess.Popen([program, "mount", option, "--store", store, point], stderr=log)
    try:
        wait_until((point / ".cacheshim/version").exists, what="a mount")
        check(statuses_of(daemon.pid), own_capabilities())
    finally:
        mounts.run(program, "unmount", point)
        assert daemon.wait(20) == 0


def test_a_command_on_a_private_mount_keeps_its_privileges(program, store, library):
    """`run --store` as root starts the daemon and the command; only the daemon gives up capabilities."""
    shown = mounts.run(program, "run", "--store", store, "--", "sh", "-c", SHOW)
    assert shown.returncode == 0, shown.stderr
    *daemon, command = statuses_in(shown.stdout)
    check(daemon, own_capabilities())
    assert command["NoNewPrivs"] == "0"
    for which in ("Prm", "Eff", "Bnd"):
        assert capabilities(command, which) == capabilities(status_of("/proc/self"), which)


@pytest.mark.usefixtures("device", "library")
def test_a_users_command_on_a_private_mount_keeps_its_privileges(program, store, scratch):
    os.chown(store, USER, USER)
    runtime = scratch / "runtime"
    runtime.mkdir(mode=0o700)
    os.chown(runtime, USER, USER)
    shown = as_user(USER, [program, "run", "--store", store, "--", "sh", "-c", SHOW],
                    env={"XDG_RUNTIME_DIR": str(runtime)})
    assert shown.returncode == 0, shown.stderr
    *daemon, command = statuses_in(shown.stdout)
    in_a_user_namespace = capabilities({"CapPrm": "ffffffffffffffff"}, "Prm")
    assert daemon and all(capabilities(status, "Eff") <= NEEDED for status in daemon)
    assert all(status["NoNewPrivs"] == "1" for status in daemon)
    assert command["NoNewPrivs"] == "0"
    assert capabilities(command, "Bnd") >= own_capabilities() - in_a_user_namespace


def test_a_command_on_a_mount_keeps_its_privileges(program, mount, library):
    shown = mounts.run(program, "run", "--mount", mount.path, "--", "sh", "-c", SHOW)
    assert shown.returncode == 0, shown.stderr
    command = statuses_in(shown.stdout)[-1]
    assert command["NoNewPrivs"] == "0"
    assert capabilities(command, "Eff") == own_capabilities()


# The numbers of the calls on x86_64, and arguments with which the calls change nothing even if they are permitted.
ADJUST_TICK = (0x4000).to_bytes(4, "little") + bytes(204)  # struct timex, with a tick that is out of range
FORBIDDEN = {
    "init_module": (175, 0, 0, b"\0"),
    "reboot": (169, 0, 0, 0, 0),
    "socket(AF_PACKET)": (41, 17, 3, 0),
    "setresgid": (119, 0, 0, USER),
    "setgroups": (116, 0, 0),
    "chroot": (161, b"/\0"),
    "adjtimex": (159, ADJUST_TICK),
    "prctl(PR_CAPBSET_DROP)": (157, 24, 0),
    "prctl(PR_SET_SECUREBITS)": (157, 28, 0),
}


@pytest.mark.skipif(not injected_call.IS_POSSIBLE, reason="calls can be injected only on x86_64")
@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_call_that_needs_another_capability_fails(mount, name):
    with injected_call.stopped_thread(mount.daemon_pid()) as thread:
        result = thread.call(*FORBIDDEN[name])
    if result == -errno.ENOSYS:
        pytest.skip("this kernel is built without the call")
    assert result == -errno.EPERM
    assert mount.path.joinpath(".cacheshim/version").read_text()


@pytest.mark.skipif(not injected_call.IS_POSSIBLE, reason="calls can be injected only on x86_64")
def test_the_daemon_cannot_signal_a_users_process(mount, job_of):
    job = job_of(mount, "j", USER)
    with injected_call.stopped_thread(mount.daemon_pid()) as thread:
        assert thread.call(62, job.pid, signal.SIGKILL) == -errno.EPERM
    assert job("os.getpid") == job.pid


@pytest.mark.skipif(not injected_call.IS_POSSIBLE, reason="calls can be injected only on x86_64")
def test_the_daemon_cannot_make_a_device_node(mount, scratch):
    device = scratch / "device"
    with injected_call.stopped_thread(mount.daemon_pid()) as thread:
        result = thread.call(133, bytes(device) + b"\0", stat.S_IFBLK | 0o600, os.makedev(7, 0))
    assert result == -errno.EPERM and not device.exists()
