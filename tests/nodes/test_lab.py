# SPDX-License-Identifier: Apache-2.0
"""Tests the laboratory itself: the properties of nodes, their NFS mounts and their commands that the other tests
assume."""

import concurrent.futures
import os
import subprocess
import sys
import time

import jobs
import lab
import mounts
import node
import pytest

NETWORK_TIMEOUT_S = 30

# Takes a lock with flock(2), prints "locked", and exits when its standard input ends.
HOLD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""

TRY_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free")
except BlockingIOError:
    print("locked")
"""

# Calls renameat2 (316 on x86-64) with RENAME_NOREPLACE, and prints the errno.
RENAME_NOREPLACE = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(316, -100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 1)
print(ctypes.get_errno() if result else 0)
"""

# Prints whether the name exists whenever a line arrives on standard input. The line "sync" first makes the client
# fetch the attributes of the directory: statx(directory, AT_STATX_FORCE_SYNC).
LOOK = """
import ctypes, os, sys
libc, directory = ctypes.CDLL(None, use_errno=True), os.path.dirname(sys.argv[1])
for line in sys.stdin:
    if line == "sync\\n" and libc.statx(-100, directory.encode(), 0x2000, 0x7ff, ctypes.create_string_buffer(256)):
        sys.exit("statx: " + os.strerror(ctypes.get_errno()))
    print(os.path.exists(sys.argv[1]), flush=True)
"""


def test_nodes_see_the_servers_files(two_nodes, export):
    here, there = export
    (here / "hello").write_text("from the server\n")
    for one in two_nodes:
        assert one.run(f"cat {there}/hello", check=True).stdout == "from the server\n"


def test_export_is_mounted_with_default_options(two_nodes):
    for one in two_nodes:
        options = one.run(f"findmnt -n -o FSTYPE,OPTIONS {lab.MOUNT_POINT}", check=True).stdout
        assert options.startswith("nfs4 ") and "vers=4.2" in options and "local_lock=none" in options
        assert "actimeo" not in options and "lookupcache" not in options and ",ac" not in options


def test_a_file_of_one_node_is_visible_on_the_other(two_nodes, export):
    here, there = export
    first, second = two_nodes
    first.run(f"echo data > {there}/file", check=True)
    assert second.run(f"cat {there}/file", check=True).stdout == "data\n"
    assert (here / "file").read_text() == "data\n"


def test_a_lock_of_one_node_excludes_the_other_until_its_process_exits(two_nodes, export):
    path = f"{export[1]}/lock"
    first, second = two_nodes
    holder = first.start([node.PYTHON, "-c", HOLD_LOCK, path])
    assert holder.read_line() == "locked\n"
    assert second.python(TRY_LOCK, path) == "locked"
    holder.close_input()
    assert holder.wait().returncode == 0
    jobs.wait_until(lambda: second.python(TRY_LOCK, path) == "free", what="the unlock")


def test_rename_noreplace_fails_on_the_export_alone(two_nodes, export):
    for one in two_nodes:
        for directory, expected in ((export[1], "22"), (lab.LOCAL, "0")):  # 22: EINVAL
            old, new = f"{directory}/{one.name}.old", f"{directory}/{one.name}.new"
            one.run(f"touch {old}", check=True)
            assert one.python(RENAME_NOREPLACE, old, new) == expected


def test_statx_of_the_directory_ends_a_stale_negative(two_nodes, export):
    path = f"{export[1]}/name"
    first, second = two_nodes
    looking = second.start([node.PYTHON, "-c", LOOK, path])

    def look(word):
        begin = time.monotonic()
        looking.write(f"{word}\n")
        found = looking.read_line()
        print(f"{word}: {found.strip()} after {(time.monotonic() - begin) * 1000:.0f} ms")
        return found

    assert look("plain") == "False\n"
    first.run(f"touch {path}", check=True)
    look("plain")  # look() prints whether the node still reports the name as absent
    assert look("sync") == "True\n"
    looking.close_input()
    assert looking.wait().returncode == 0


def test_nodes_see_changes_by_programs_on_the_servers_machine(two_nodes, export):
    here, there = export
    looking = two_nodes[0].start([node.PYTHON, "-c", LOOK, f"{there}/name"])
    looking.write("plain\n")
    assert looking.read_line() == "False\n"
    (here / "name").touch()
    looking.write("sync\n")
    assert looking.read_line() == "True\n"
    (here / "name").unlink()
    looking.write("sync\n")
    assert looking.read_line() == "False\n"


def test_nodes_have_their_own_kernel_name_and_local_file_systems(two_nodes, nodes_lab):
    first, second = two_nodes
    assert first.run("hostname").stdout.strip() == first.name
    assert first.run("uname -r").stdout != os.uname().release
    for directory in ("/tmp", "/run", "/var/tmp", "/var/lib/cacheshim", lab.LOCAL, "/usr/local"):
        first.run(f"echo mine > {directory}/of-node", check=True)
        assert second.run(f"test -e {directory}/of-node").returncode == 1
        assert not os.path.exists(f"{directory}/of-node")
    (nodes_lab.shared / "script").write_text("later than the boot\n")
    assert second.run(f"cat {nodes_lab.shared}/script").stdout == "later than the boot\n"


def test_nodes_reach_each_other_by_name(two_nodes):
    first, second = two_nodes
    assert first.run(f"getent hosts {second.name}").stdout.split()[1] == second.name
    code = f"import socket, sys; socket.create_connection((sys.argv[1], {node.PORT}), {NETWORK_TIMEOUT_S})"
    first.python(code, second.name)


def test_commands_return_their_output_status_and_signal(two_nodes):
    result = two_nodes[0].run("cat; echo error >&2; exit 3", stdin="input", env={"NAME": "value"})
    assert (result.returncode, result.stdout, result.stderr) == (3, "input", "error\n")
    assert two_nodes[0].run("kill -KILL $$").returncode == -9
    assert two_nodes[0].run(["/nonexistent"]).returncode == 127
    assert two_nodes[0].run("echo $NAME; pwd", env={"NAME": "value"}, cwd="/usr").stdout == "value\n/usr\n"
    assert len(two_nodes[0].run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3000000


def test_commands_run_as_another_user(two_nodes, export):
    here, there = export
    assert two_nodes[0].run(f"id -u; id -G; touch {there}/mine", uid=20001).stdout == "20001\n20001\n"
    assert (here / "mine").stat().st_uid == 20001


def test_commands_run_at_the_same_time(two_nodes):
    # Each command waits for a file that the other one creates.
    commands = ["touch /tmp/a; until test -e /tmp/b; do sleep 0.05; done",
                "touch /tmp/b; until test -e /tmp/a; do sleep 0.05; done"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert [one.returncode for one in pool.map(two_nodes[0].run, commands)] == [0, 0]


def test_a_command_that_takes_too_long_is_killed_with_its_children(two_nodes):
    one = two_nodes[0]
    with pytest.raises(subprocess.TimeoutExpired):
        one.run("sleep 12345 & sleep 12345", timeout=2)
    jobs.wait_until(lambda: "12345" not in one.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout.replace(
        "tr", ""), what="the end of the command")


def test_a_daemon_survives_its_command(two_nodes):
    one = two_nodes[0]
    pid = one.run("setsid sleep 1000 & echo $!", timeout=20, check=True).stdout.strip()
    one.run(f"kill {pid}", check=True)


@pytest.mark.timeout_s(300)
def test_a_killed_node_keeps_its_lock_until_its_lease_ends(two_nodes, export):
    path = f"{export[1]}/lock"
    first, second = two_nodes
    holder = first.start([node.PYTHON, "-c", HOLD_LOCK, path])
    assert holder.read_line() == "locked\n"
    first.run(f"touch {lab.LOCAL}/file", check=True)
    begin = time.monotonic()
    first.kill()
    assert not first.is_running()
    with pytest.raises(ConnectionError):
        holder.wait()
    assert second.python(TRY_LOCK, path) == "locked"
    jobs.wait_until(lambda: second.python(TRY_LOCK, path) == "free", 6 * lab.LEASE_S, "the end of the lease")
    print(f"the lock was free {time.monotonic() - begin:.1f} s after the node's end")
    first.boot()
    first.wait_until_booted()
    assert first.run(f"test -e {lab.LOCAL}/file").returncode == 1
    assert first.python(TRY_LOCK, path) == "free"


@pytest.mark.timeout_s(300)
def test_a_stopped_node_gives_its_locks_back_and_boots_again(two_nodes, export):
    path = f"{export[1]}/lock"
    first, second = two_nodes
    holder = first.start([node.PYTHON, "-c", HOLD_LOCK, path])
    assert holder.read_line() == "locked\n"
    first.run(f"echo data > {export[1]}/file", check=True)
    first.stop()
    assert not first.is_running()
    assert (export[0] / "file").read_text() == "data\n"
    assert second.python(TRY_LOCK, path) == "free"
    first.boot()
    first.wait_until_booted()
    assert first.run(f"cat {export[1]}/file", check=True).stdout == "data\n"


@pytest.mark.timeout_s(300)
def test_clients_reclaim_their_locks_when_the_server_starts_again(two_nodes, export, nodes_lab, capsys):
    path = f"{export[1]}/lock"
    first, second = two_nodes
    holder = first.start([node.PYTHON, "-c", HOLD_LOCK, path])
    assert holder.read_line() == "locked\n"
    nodes_lab.server.kill()
    nodes_lab.server.start_again_after_a_crash()
    assert "the NFS server has crashed" in capsys.readouterr().out
    assert second.run([node.PYTHON, "-c", TRY_LOCK, path], timeout=120, check=True).stdout == "locked\n"
    holder.close_input()
    assert holder.wait(120).returncode == 0


def test_a_paused_server_answers_when_it_is_resumed(two_nodes, export, nodes_lab):
    nodes_lab.server.machine.pause()
    try:
        command = two_nodes[0].start(["touch", f"{export[1]}/file"])
        with pytest.raises(subprocess.TimeoutExpired):
            command.wait(3)
    finally:
        nodes_lab.server.machine.resume()
    assert command.wait().returncode == 0


def test_a_node_that_cannot_mount_reports_its_console(two_nodes, scratch, nodes_lab):
    usual = two_nodes[0].description
    nodes_lab.network.add_tap("tap9")
    broken = node.Node(nodes_lab.network, scratch / "broken", "tap9", "512M", {
        **usual, "name": "broken", "hosts": {**usual["hosts"], "broken": "10.99.0.99"}, "export": "/missing"})
    broken.boot()
    try:
        with pytest.raises(RuntimeError, match="mount.nfs"):
            broken.wait_until_booted()
    finally:
        broken.kill()


@pytest.mark.timeout_s(300)
def test_everything_ends_with_a_killed_test_program(scratch):
    program = ("import pathlib, sys, time; sys.path.insert(0, sys.argv[1]); import lab\n"
               "with lab.Lab(pathlib.Path(sys.argv[2]), names=['node1']): print('up', flush=True); time.sleep(600)")
    child = subprocess.Popen([sys.executable, "-B", "-c", program, os.path.dirname(lab.__file__), scratch],
                             stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "up\n"
    assert sum(1 for _ in mounts.processes_naming(f"{scratch}/server/")) > 0
    assert sum(1 for _ in mounts.processes_naming(f"{scratch}/node1/")) > 0
    child.kill()
    child.wait()
    child.stdout.close()
    jobs.wait_until(lambda: not any(mounts.processes_naming(f"{scratch}/")), 20, "the end of all processes")
