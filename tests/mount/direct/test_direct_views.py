# SPDX-License-Identifier: Apache-2.0
"""Direct answers with several users and owners, after the end of a job or of a daemon, and after a process has changed
its user."""

import errno
import os
import pathlib
import subprocess

import mounts
import pytest
from direct import KEY, UID, Count, opens_as_the_views_directory, warm
from jobs import PYTHON, wait_until


def test_another_user_is_served_nothing_of_a_job(mount, shimmed, shimmed_job_of):
    shimmed("write_file", shimmed.path(KEY, "own"), b"x")
    intruder = shimmed_job_of(mount, "j", 20002)  # works in the job uid-20002.j
    for _ in range(5):
        assert not intruder.exists(f"{KEY}/own")
        assert intruder("os.stat", intruder.path(KEY, "file")).st_uid == 20002
        assert intruder.read(f"{KEY}/file") == b"of the base"
    assert shimmed.read(f"{KEY}/own") == b"x"


def test_root_has_a_view_of_its_own_in_the_job_of_another(mount, shimmed, shimmed_job_of):
    root = shimmed_job_of(mount, "j", 0)
    for _ in range(5):
        assert root("os.stat", root.path(KEY, "file")).st_uid == 0


def test_root_has_a_view_of_its_own_once_another_user_comes(mount, shimmed_job_of):
    root = warm(mount, shimmed_job_of(mount, "k", 0))
    assert root("os.stat", root.path(KEY, "file")).st_uid == 0
    user = shimmed_job_of(mount, "k", UID)
    assert user.read(f"{KEY}/file") == b"of the base"
    assert root("os.stat", root.path(KEY, "file")).st_uid == 0
    warm(mount, user)


def test_root_gets_no_direct_answers_if_the_daemon_cannot_read_its_job(mount, shimmed_job_of):
    """The daemon reads the job of a root process from the process's environment. If the daemon cannot read the
    environment, the process gets a job other than the one that the library assumes."""
    warm(mount, shimmed_job_of(mount, "h", 0))
    hidden = shimmed_job_of(mount, "h", 0)
    hidden("hide_environment")
    for number in range(5):
        name = f"{KEY}/new{number}"
        hidden.write(name, b"its own")
        assert hidden.read(name) == b"its own"


@pytest.mark.parametrize("options", [("-o", "owner=keep"), ()], ids=["keep", "shared-uids"])
def test_views_of_several_owners_are_left_to_the_mount(mount_store, base, shimmed_job_of, options):
    mount = mount_store(base, *options)
    if not options:
        mount.cli("job", "start", "j", "--shared-uids")
    for uid in (UID, 20002):
        process = shimmed_job_of(mount, "j", uid)
        for _ in range(5):
            if not options:
                assert process.read(f"{KEY}/file") == b"of the base"
                assert process("os.stat", process.path(KEY, "file")).st_uid == uid
    assert mount.stats()["hits_direct"] == 0


def test_a_process_that_becomes_another_user_is_not_served_any_more(mount, shimmed_job_of):
    process = warm(mount, shimmed_job_of(mount, "r", 0))
    assert process("os.stat", process.path(KEY, "file")).st_uid == 0
    process("os.setresuid", UID, UID, 0)  # the job of root has no owner yet, so this user becomes its owner
    assert process("os.stat", process.path(KEY, "file")).st_uid == UID
    process("write_file", process.path(KEY, "own"), b"x")
    warm(mount, process)
    process("os.setresuid", 0, 0, 0)
    process("os.setresuid", 20002, 20002, 0)
    for _ in range(40):
        assert not process.exists(f"{KEY}/own")
        assert process("os.stat", process.path(KEY, "file")).st_uid == 20002


def test_in_a_chroot_nothing_is_served(mount, scratch, shimmed_job_of):
    process = warm(mount, shimmed_job_of(mount, "r", 0))
    (scratch / "empty").mkdir()
    path = process.path(KEY, "file")
    process("os.chroot", str(scratch / "empty"))
    assert not process("os.path.lexists", path)
    with pytest.raises(FileNotFoundError):
        process("read_file", path)


def test_the_end_of_a_job_ends_its_filter(mount, shimmed, plain):
    shimmed.write(f"{KEY}/file", b"of the layer")
    opens = mount.job("j")["direct_opens"]
    shimmed.read("other/file")
    mount.end_job("j", "failure")
    assert not (mount.run_directory() / "views/j").exists()
    assert shimmed.read(f"{KEY}/file") == b"of the base"  # this call begins the job again
    plain.write(f"{KEY}/file", b"of the second layer")
    assert shimmed.read(f"{KEY}/file") == b"of the second layer"
    warm(mount, shimmed)
    shimmed.read("other/file")
    assert mount.job("j")["direct_opens"] >= opens + 2
    mount.cli("job", "discard", "j")
    assert shimmed.read(f"{KEY}/file") == b"of the base"
    plain.write(f"{KEY}/file", b"of the third layer")
    assert shimmed.read(f"{KEY}/file") == b"of the third layer"


def test_a_dead_daemon_serves_nothing_and_a_new_one_does_again(mount, mount_store, base, scratch,
                                                              shimmed_job_of):
    process = warm(mount, shimmed_job_of(mount, "j", UID, env={"HOME": str(scratch / "home")}))
    process.write(f"{KEY}/file", b"of the layer")
    directory = mount.run_directory()
    mount.kill_daemon()
    with pytest.raises(OSError):
        process.read("other/file")  # `other` is not a family, so the library does not use a default path instead
    assert mounts.times_mounted(directory / "base") == 1
    mount.detach()
    mount.mount()
    again = shimmed_job_of(mount, "j", UID)
    assert again.read(f"{KEY}/file") == b"of the layer"
    warm(mount, again)
    assert again.read(f"{KEY}/file") == b"of the layer"
    with Count(mount) as count:
        assert again.read("other/file") == b"of no family"
    assert count.opens == 1
    assert mounts.times_mounted(directory / "base") == 1


def test_a_process_switches_to_a_new_daemon(mount, shimmed):
    shimmed.write(f"{KEY}/file", b"of the layer")
    assert mount.unmount().returncode == 0
    mount.mount()
    for _ in range(40):
        assert shimmed.read(f"{KEY}/file") == b"of the layer"
        shimmed.read("other/file")
    assert mount.stats()["hits_direct"] > 0


def test_a_file_that_becomes_a_directory_between_two_daemons_is_opened_as_one(mount, shimmed):
    """Each daemon counts the base's changes from 0. A record that the library made at a count of the old daemon must
    not be valid at the same count of the new daemon."""
    assert shimmed.read(f"{KEY}/file") == b"of the base"
    assert mount.unmount().returncode == 0
    (mount.store / KEY / "file").unlink()
    (mount.store / KEY / "file").mkdir()
    mount.mount()
    warm(mount, shimmed)
    assert opens_as_the_views_directory(shimmed, shimmed.path(KEY, "file"))


def test_a_daemon_without_its_mount_is_not_asked_again(mount, scratch, shimmed):
    shimmed("hold", shimmed.path(KEY))  # an open directory keeps the old daemon alive
    mount.detach()
    (scratch / "second" / KEY).mkdir(parents=True)
    (scratch / "second" / KEY / "file").write_bytes(b"of the second")
    second = mounts.Mount(scratch / "second", mount.path).mount()
    shimmed("os.setuid", UID)  # makes the library discard what it has recorded
    for _ in range(40):
        assert shimmed.read(f"{KEY}/file") == b"of the second"
        assert shimmed.exists(f"{KEY}/file")
    second.close()


def test_the_rules_of_a_new_daemon_hold_for_paths_that_were_answered_before(
        own_profiles, mount_store, base, shimmed_job_of):
    profile = own_profiles / "mine.toml"
    profile.write_text('name = "mine"\nvariable = "MINE_DIR"\nevidence = "read"\n')
    (base / "mine").mkdir()
    (base / "mine/file").write_bytes(b"of the base")
    mount = mount_store(base)
    process = warm(mount, shimmed_job_of(mount, "j", UID))
    with Count(mount) as count:
        assert process.read("mine/file") == b"of the base"
    assert count.opens == 1
    assert mount.unmount().returncode == 0
    profile.write_text(profile.read_text() + '[class]\nlock = ["file"]\n')
    mount.mount()
    warm(mount, process)
    with Count(mount) as count:
        assert process.read("mine/file") == b"of the base"
    assert count.opens == 0


def test_the_base_is_bound_read_only_and_goes_with_the_daemon(mount, shimmed):
    directory = mount.run_directory()
    table = open("/proc/self/mountinfo", encoding="utf-8").read().splitlines()
    name = f"{directory}/base".replace("\\", "\\134")
    options = next(line.split()[5] for line in table if line.split()[4] == name).split(",")
    assert {"ro", "nosymfollow", "nosuid", "nodev"} <= set(options)
    shimmed("hold", shimmed.path(KEY, "file"))  # remains open, and does not delay the unmount
    assert mount.unmount().returncode == 0
    assert not directory.exists()
    assert (mount.store / KEY / "file").read_bytes() == b"of the base"


@pytest.fixture
def container(mount):
    """A process in a copy of this mount namespace. The copy keeps the mount after the test has detached its own."""
    own = os.readlink("/proc/self/ns/mnt")
    with subprocess.Popen(["unshare", "-m", "sleep", "600"]) as process:
        wait_until(lambda: os.readlink(f"/proc/{process.pid}/ns/mnt") != own, what="a namespace")
        yield process
        process.kill()


def test_a_process_whose_mount_only_a_container_keeps_uses_the_next_mount(
        mount, shimmed, job_of, container):
    daemon = mount.daemon_pid()
    with Count(mount) as count:
        assert shimmed.read(f"{KEY}/file") == b"of the base"
    assert count.opens == 1
    mount.detach()
    mount.mount()
    assert mount.daemon_pid() != daemon and pathlib.Path(f"/proc/{daemon}").exists()
    job_of(mount, "j", UID).write(f"{KEY}/file", b"of the job")
    assert shimmed.read(f"{KEY}/file") == b"of the job"


def test_names_exist_although_the_librarys_base_mount_is_unmounted(mount, shimmed):
    mounts.run("umount", "-l", mount.run_directory() / "base", check=True)
    assert shimmed.exists(f"{KEY}/file")
    assert not shimmed.exists("other/missing")


LEAVES = """
import ctypes, os, signal, sys
libc, CLONE_NEWNS, MNT_DETACH = ctypes.CDLL(None, use_errno=True), 0x20000, 2
path, new, mount = sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode()
for i in range(100):
    assert os.path.exists(path)
def umount():
    assert libc.umount2(mount, MNT_DETACH) == 0, ctypes.get_errno()
"""
WAYS_OUT = {
    "pivot_root": "assert libc.pivot_root(new, new + b'/old') == 0",
    "pivot_root by number": "assert libc.syscall(155, new, new + b'/old') == 0",
    "clone": "child = libc.syscall(56, ctypes.c_long(CLONE_NEWNS | signal.SIGCHLD), None, None, None, None)\n"
             "if child > 0: os._exit(os.waitpid(child, 0)[1] != 0)\numount()",
    "clone3": "args = (ctypes.c_uint64 * 8)(CLONE_NEWNS, 0, 0, 0, signal.SIGCHLD)\n"
              "child = libc.syscall(435, args, ctypes.c_long(64))\n"
              "if child > 0: os._exit(os.waitpid(child, 0)[1] != 0)\numount()",
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls by their numbers")
@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_process_that_changes_mounts_is_not_served_from_the_old_ones(mount, scratch, shimmed_job_of,
                                                                       way):
    process = warm(mount, shimmed_job_of(mount, "r", 0))
    (scratch / "new/old").mkdir(parents=True)
    script = 'mount --make-rprivate / && mount -t tmpfs none "$0" && mkdir "$0/old" && exec "$@"'
    code = f"{LEAVES}{WAYS_OUT[way]}\nos._exit(os.path.exists(path))"
    words = [PYTHON, "-Ic", code, process.path(KEY, "file"), str(scratch / "new"), str(mount.path)]
    with Count(mount, "r") as count:
        done = process("subprocess.run", ["unshare", "-m", "sh", "-c", script, str(scratch / "new"), *words],
                       capture_output=True)
    assert done.returncode == 0, done
    assert count.looks >= 90


FILTERED = """
import ctypes, os, struct, sys
libc, path = ctypes.CDLL(None, use_errno=True), sys.argv[1]
for i in range(30):
    assert os.path.exists(path) and not os.path.exists(path + 'x')
fd = os.open(path, os.O_RDONLY)
LOAD, EQUAL, RETURN, STATX = 0x20, 0x15, 0x06, 332
code = b''.join(struct.pack('=HBBI', *one) for one in (
    (LOAD, 0, 0, 0), (EQUAL, 0, 1, STATX), (RETURN, 0, 0, 0x80000000), (RETURN, 0, 0, 0x7fff0000)))
text = ctypes.create_string_buffer(code)
program = struct.pack('HxxxxxxP', 4, ctypes.addressof(text))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.{install} == 0, ctypes.get_errno()
for i in range(100):
    assert os.path.exists(path) and not os.path.exists(path + 'x')
    assert open(path, 'rb').read() == b'of the base'
os.fstat(fd)
os._exit(0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls by their numbers")
@pytest.mark.parametrize("install", ["prctl(22, 2, program)", "syscall(157, 22, 2, program)",
                                     "syscall(317, 1, 0, program)"])
def test_a_process_with_a_call_filter_is_not_killed_for_our_calls(mount, shimmed, install):
    code = FILTERED.replace("{install}", install)
    with Count(mount) as count:
        done = shimmed("subprocess.run", [PYTHON, "-Ic", code, shimmed.path(KEY, "file")],
                       capture_output=True)
    assert done.returncode == 0, done
    assert 50 <= count.looks < 100


def test_without_a_run_directory_the_mount_answers_all_calls(mount, job_of, library, scratch):
    script = ("mount --make-rprivate / && umount -l \"$0\" && exec \"$@\"")
    code = ("import os, sys; p = sys.argv[1]\nfor i in range(5):\n"
            " assert open(p, 'rb').read() == b'of the base' and not os.path.exists(p + 'x')")
    job_of(mount, "j", UID).exists(KEY)
    copy = subprocess.run(["cp", library, scratch / "lib.so"], check=True) and scratch / "lib.so"
    path = mount.path / KEY / "file"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, mount.run_directory() / "base", "setpriv",
         f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "env", "CACHESHIM_JOB=j",
         f"CACHESHIM_MOUNT={mount.path}", f"LD_PRELOAD={copy}", PYTHON, "-Ic", code, path],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert mount.stats()["hits_direct"] == 0


def test_low_limits_and_closed_descriptors_do_no_harm(mount, shimmed, scratch):
    code = """
import os, resource, sys
p = sys.argv[1]
assert os.path.exists(p)
os.closerange(3, 1000)
assert open(p, 'rb').read() == b'of the base'
for low in (0, 1, 2): os.close(low)
fd = os.open(p, os.O_RDONLY)
assert fd == 0, fd
os.close(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 3))
try:
    os.open(p, os.O_RDONLY)
    os._exit(1)
except OSError as error:
    if error.errno != 24: os._exit(2)
if not os.path.exists(p) or os.path.exists(p + 'x'): os._exit(3)
os._exit(0)
"""
    with Count(mount) as count:
        done = shimmed("subprocess.run", [PYTHON, "-Ic", code, shimmed.path(KEY, "file")],
                       capture_output=True)
    assert done.returncode == 0, done
    assert count.opens == 2 and count.looks >= 2


HOLDS = """
import os, sys
p = sys.argv[1]
def check():
    for i in range(100):
        assert os.path.exists(p) and not os.path.exists(p + 'x')
    assert open(p, 'rb').read() == b'of the base'
def held():
    links = {int(n): os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')
             if os.path.lexists(f'/proc/self/fd/{n}')}
    return [n for n, link in links.items() if n >= 500 and link.endswith('/base')]
check()
(number,) = held()
"""


@pytest.mark.parametrize("ways", [
    "os.closerange(3, 4000)\nassert held() == [number]",
    "for n in range(3, 1024):\n  try: os.close(n)\n  except OSError as e: assert e.errno == 9"
    "\nassert held() == [number]",
    "os.dup2(os.open('/', os.O_RDONLY), number)\nassert os.readlink(f'/proc/self/fd/{number}') == '/'",
    "import subprocess\nfor close in (True, False):\n  subprocess.run(['/bin/true'], close_fds=close, "
    "check=True)\nassert held() == [number]",
    "import subprocess\nout = subprocess.run(['/bin/ls', '-l', '/proc/self/fd'], close_fds=False, "
    "capture_output=True, text=True).stdout\nassert '/base' not in out, out",
    "if os.fork() == 0:\n  os.closerange(3, 4000); check(); os._exit(0)\n"
    "assert os.wait()[1] == 0",
], ids=["closerange", "close", "dup2", "subprocess", "exec", "fork"])
def test_the_held_directory_disturbs_no_call_and_no_file_replaces_it(mount, shimmed, ways):
    with Count(mount) as count:
        done = shimmed("subprocess.run", [PYTHON, "-Ic", f"{HOLDS}{ways}\ncheck()",
                                          shimmed.path(KEY, "file")], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert count.looks >= 300 and count.opens >= 2


def test_a_process_that_leaves_for_a_chroot_holds_nothing_outside(mount, scratch, shimmed_job_of):
    process = warm(mount, shimmed_job_of(mount, "r", 0))
    code = f"{HOLDS}os.chroot(sys.argv[2])\nimport errno\ntry: os.fstat(number)\n" \
           "except OSError as e: sys.exit(e.errno != errno.EBADF)\nsys.exit(2)"
    (scratch / "empty").mkdir()
    done = process("subprocess.run", [PYTHON, "-Ic", code, process.path(KEY, "file"),
                                      str(scratch / "empty")], capture_output=True)
    assert done.returncode == 0, done
