# SPDX-License-Identifier: Apache-2.0
"""The daemon raises its limit of open files (RLIMIT_NOFILE) to the hard limit, however it is started. The command of a
private mount keeps its own limit."""

import os
import re
import resource
import subprocess

import mounts
import pytest
from jobs import wait_until

SOFT = 256
LOW = 512
FILES = 3 * SOFT  # the number of files that one client opens


def limited(soft, hard):
    """Returns a function that sets the limit of open files in a child before its exec."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def start(argv, log, soft, hard):
    """Runs a command that mounts; returns its exit code and output."""
    with open(log, "w+", encoding="utf-8") as file:
        code = subprocess.run([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=file,
                              stderr=file, timeout=60, check=False,
                              preexec_fn=limited(soft, hard)).returncode
        file.seek(0)
        return code, file.read()


def limits_of(pid):
    with open(f"/proc/{pid}/limits", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("Max open files"))
    return tuple(int(number) for number in re.findall(r"\d+", line))


@pytest.fixture
def hard():
    """The hard limit that tests give to daemons; skips the test if this process's own hard limit is lower."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit < 8192:
        pytest.skip(f"the hard limit here is {limit}")
    return 8192


def overlay_command(overlay):
    return [mounts.PROGRAM, "overlay", "-o", overlay.directories(), overlay.path]


def test_one_client_with_many_open_files_does_not_stop_others(overlay, scratch, hard):
    for number in range(FILES):
        (overlay.lowers[0] / str(number)).write_text("x")
    code, text = start(overlay_command(overlay), scratch / "log", SOFT, hard)
    assert (code, text) == (0, "")
    daemon = next(mounts.processes_naming(str(overlay.work)))
    assert limits_of(daemon) == (hard, hard)
    held = [os.open(overlay.path / str(number), os.O_RDWR) for number in range(FILES)]
    try:
        assert mounts.run("cat", overlay.path / "0").stdout == "x"
    finally:
        for fd in held:
            os.close(fd)


def test_mount_warns_of_a_low_limit(overlay, scratch):
    code, text = start(overlay_command(overlay), scratch / "log", SOFT, LOW)
    assert code == 0
    assert len(text.splitlines()) == 1, text
    for word in (str(LOW), "RLIMIT_NOFILE", "EMFILE"):
        assert word in text
    daemon = next(mounts.processes_naming(str(overlay.work)))
    assert limits_of(daemon) == (LOW, LOW)


def test_the_daemon_of_a_store_has_the_hard_limit(mount_store, store, hard):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, before[1]))
    try:
        mount = mount_store(store)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert hard <= before[1]
    assert limits_of(mount.daemon_pid()) == (before[1], before[1])


def test_a_daemon_in_the_foreground_has_the_hard_limit(overlay, hard):
    command = [mounts.PROGRAM, "overlay", "--foreground", "-o", overlay.directories(), overlay.path]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True,
                          preexec_fn=limited(SOFT, hard)) as daemon:
        assert any("serving" in line for line in daemon.stderr)
        assert limits_of(daemon.pid) == (hard, hard)
        mounts.run("umount", overlay.path, check=True)
        assert daemon.wait(20) == 0


def test_the_command_of_a_private_mount_keeps_its_own_limit(program, store, hard):
    result = subprocess.run([program, "run", "--store", store, "--", "sh", "-c", "ulimit -Sn"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                            check=False, preexec_fn=limited(SOFT, hard))
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{SOFT}\n", "")


def test_a_standby_that_takes_over_has_the_hard_limit(mount_store, store, scratch, hard):
    mount = mount_store(store)
    log = open(scratch / "standby.log", "w+", encoding="utf-8")  # pylint: disable=consider-using-with
    standby = subprocess.Popen(  # pylint: disable=consider-using-with
        [mounts.PROGRAM, "mount", "--standby", "--store", store, mount.path], stderr=log,
        preexec_fn=limited(SOFT, hard))
    try:
        mount.kill_daemon()
        wait_until(lambda: "serving" in (scratch / "standby.log").read_text(), 30,
                   "the standby's service")
        assert limits_of(standby.pid) == (hard, hard)
    finally:
        mount.close()
        standby.wait(30)
        log.close()
