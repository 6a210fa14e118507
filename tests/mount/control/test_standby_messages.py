# SPDX-License-Identifier: Apache-2.0
"""Messages about a mount whose daemon is dead or hangs: they must not advise the user to unmount it if a standby
exists."""

import fcntl
import json
import re
import subprocess

import mounts
import pytest
from jobs import standing_still, wait_until

COMMANDS = [["status"], ["stats"], ["job", "list"], ["job", "end", "x", "--failure"]]
UNMOUNT = re.compile(r"\bun?mount\b")


@pytest.fixture
def run_lock(mount):
    return mount.run_directory() / "lock"


@pytest.fixture
def standby(mount, program, store, run_lock, scratch):
    with open(scratch / "standby.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen([program, "mount", "--standby", "--store", store, mount.path],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    inode = run_lock.stat().st_ino
    wait_until(lambda: f" {process.pid} " in waiting_for(inode), what="the standby's wait")
    yield process
    process.kill()
    process.wait(10)


def waiting_for(inode):
    with open("/proc/locks", encoding="utf-8") as table:
        return "".join(line for line in table if "->" in line and f":{inode} " in line)


def advice(program, mount, check):
    report = json.loads(mounts.run(program, "doctor", "--mount", mount.path, "--json").stdout)
    return [found["advice"] for found in report["checks"]
            if found["check"] == check and found["where"] == str(mount.path)]


def dead_messages(program, mount):
    """Returns the commands' error messages and doctor's advice about the dead mount."""
    texts = [mount.cli(*argv, check=False).stderr for argv in COMMANDS]
    return texts + advice(program, mount, "mount") + advice(program, mount, "dead mounts")


def test_messages_advise_to_unmount_a_dead_mount_without_a_standby(program, mount):
    mount.kill_daemon()
    texts = dead_messages(program, mount)
    assert len(texts) == len(COMMANDS) + 2
    for text in texts:
        assert f"'cacheshim unmount {mount.path}'" in text and "standby" not in text


def test_no_message_advises_to_unmount_a_dead_mount_that_a_standby_takes_over(program, mount, run_lock):
    mount.kill_daemon()
    with open(run_lock, encoding="utf-8") as file:  # take the lock, as a standby does before it mounts
        fcntl.flock(file, fcntl.LOCK_EX)
        texts = dead_messages(program, mount)
        refused = mount.unmount()
    assert len(texts) == len(COMMANDS) + 2
    for text in texts:
        assert "standby" in text and "try again" in text and not UNMOUNT.search(text)
    assert refused.returncode == 1 and "standby" in refused.stderr
    assert "nothing was unmounted" in refused.stderr
    assert mounts.is_mounted(mount.path)
    assert mount.unmount().returncode == 0


def test_no_command_advises_to_unmount_while_a_standby_takes_over(mount, standby):
    mount.kill_daemon()
    said = []

    def serves_again():
        result = mount.cli("status", check=False)
        said.append(result.stderr)
        return result.returncode == 0
    wait_until(serves_again, seconds=20, what="the standby's mount")
    assert mount.daemon_pid() == standby.pid
    assert not [text for text in said if UNMOUNT.search(text.replace(str(mount.path), ""))], said
    assert mount.unmount().returncode == 0
    assert standby.wait(20) == 0


def test_the_advice_about_a_hanging_daemon_names_the_standby(program, mount, standby):
    with standing_still(mount.daemon_pid()):
        for check in ("mount", "dead mounts"):
            (text,) = advice(program, mount, check)
            assert str(standby.pid) in text and not UNMOUNT.search(text)


def test_the_advice_about_a_hanging_daemon_without_a_standby(program, mount):
    with standing_still(mount.daemon_pid()):
        (text,) = advice(program, mount, "mount")
        assert "umount -l" in text
