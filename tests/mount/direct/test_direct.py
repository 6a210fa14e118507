# SPDX-License-Identifier: Apache-2.0
"""Processes with the library read from the base directly, and always see the state of the view."""

import errno
import os
import random
import signal
import subprocess

import pytest
from direct import KEY, UID, Count, opens_as_the_views_directory, warm
from jobs import PYTHON, wait_until


def test_stats_and_opens_of_the_base_do_not_reach_the_daemon(mount, shimmed):
    before = mount.stats()
    for _ in range(10):
        assert shimmed.read(f"{KEY}/file") == b"of the base"
        assert shimmed.read("other/file") == b"of no family"
        assert shimmed.exists(f"{KEY}/file") and not shimmed.exists(f"{KEY}/missing")
        assert not shimmed.exists("triton/missing/x")
        with pytest.raises(FileExistsError):
            shimmed("os.mkdir", shimmed.path(KEY))
    after = mount.stats()
    assert after["hits_direct"] - before["hits_direct"] == 20
    assert after["misses"] == before["misses"] and after["opens_base"] == before["opens_base"]


@pytest.mark.parametrize("name", ["file", "sub", "sub/deep", ".", "missing", "sub/missing"])
def test_a_direct_answer_is_that_of_the_mount(mount, shimmed, plain, name):
    with Count(mount) as count:
        got = shimmed("look", shimmed.path(KEY, name))
    assert got == plain("look", plain.view(KEY, name))
    assert got == shimmed("look", shimmed.view(KEY, name))
    assert count.looks >= (0 if name == "." else 2)
    if isinstance(got["open"], tuple) and isinstance(got["open"][1], dict):
        assert (got["open"][1]["ino"], got["open"][1]["dev"]) == (got["stat"]["ino"],
                                                                  got["stat"]["dev"])
        assert count.opens == 1


def test_an_inherited_and_a_duplicated_descriptor_is_shown_as_the_views(mount, shimmed):
    fd = shimmed("hold", shimmed.path(KEY, "file"))
    shown = shimmed("os.stat", shimmed.path(KEY, "file"))
    copy = shimmed("os.dup", fd)
    for one in (fd, copy):
        status = shimmed("os.fstat", one)
        assert (status.st_dev, status.st_ino, status.st_uid) == (shown.st_dev, shown.st_ino, UID)
    code = ("import os, sys; a = os.stat(sys.argv[1]); b = os.fstat(0); "
            "print((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))")
    told = shimmed("subprocess.run", [PYTHON, "-Ic", code, shimmed.path(KEY, "file")], stdin=fd,
                   capture_output=True)
    assert told.stdout == b"True\n", told


CHANGES = {
    "overwritten": ("file", lambda at: [("write_file", at("file"), b"new")]),
    "replaced": ("file", lambda at: [("write_file", at("n"), b"new"),
                                     ("os.rename", at("n"), at("file"))]),
    "removed": ("file", lambda at: [("os.unlink", at("file"))]),
    "renamed": ("file", lambda at: [("os.rename", at("file"), at("n"))]),
    "truncated": ("file", lambda at: [("os.truncate", at("file"), 2)]),
    "given another mode": ("file", lambda at: [("os.chmod", at("file"), 0o600)]),
    "given other times": ("file", lambda at: [("os.utime", at("file"), (1, 1))]),
    "linked": ("n", lambda at: [("os.link", at("file"), at("n"))]),
    "made": ("n", lambda at: [("write_file", at("n"), b"new")]),
    "made a directory": ("n", lambda at: [("os.mkdir", at("n"))]),
    "made a link": ("n", lambda at: [("os.symlink", "file", at("n"))]),
    "below a removed directory": ("sub/deep", lambda at: [("shutil.rmtree", at("sub"))]),
    "below a directory made anew": ("sub/deep", lambda at: [("shutil.rmtree", at("sub")),
                                                         ("os.mkdir", at("sub"))]),
    "below a renamed directory": ("sub/deep", lambda at: [("os.rename", at("sub"), at("n"))]),
    "below a directory's new name": ("n/deep", lambda at: [("os.rename", at("sub"), at("n"))]),
    "below what is a file now": ("sub/deep", lambda at: [("shutil.rmtree", at("sub")),
                                                         ("write_file", at("sub"), b"new")]),
    "below a closed directory": ("sub/deep", lambda at: [("os.chmod", at("sub"), 0)]),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("by", ["a shimmed process", "a plain process"])
def test_a_change_is_seen_once_it_has_returned(mount, shimmed, shimmed_job_of, plain, what, by):
    name, changes = CHANGES[what]
    path = shimmed.path(KEY, name)
    before = shimmed("look", path)
    writer = plain if by == "a plain process" else shimmed_job_of(mount, "j", UID)
    for change in changes(lambda end: writer.path(KEY, end)):
        writer(*change)
    got = shimmed("look", path)
    assert got == plain("look", path)
    assert got != before
    with Count(mount) as count:
        assert shimmed.read("other/file") == b"of no family"
    assert count.opens == 1  # unchanged files are still answered directly


def test_an_invalid_buffer_is_an_error_and_no_crash(shimmed, plain):
    path = shimmed.path(KEY, "file")
    assert shimmed("stat_into_nowhere", path) == plain("stat_into_nowhere", path) == (-1, errno.EFAULT)


def test_a_buffer_smaller_than_declared_ends_the_program(shimmed):
    for call in ("__readlink_chk(path, out, 100, 10)", "__readlinkat_chk(-100, path, out, 100, 10)"):
        code = f"import ctypes, sys; path, out = sys.argv[1].encode(), ctypes.create_string_buffer(100)\n" \
               f"ctypes.CDLL(None).{call}"
        done = shimmed("subprocess.run", [PYTHON, "-Ic", code, shimmed.path(KEY, "file")],
                       capture_output=True)
        assert done.returncode == -signal.SIGABRT, call


def test_direct_statx_refuses_invalid_arguments(shimmed, plain):
    for process in (shimmed, plain):
        with pytest.raises(OSError) as refused:
            process("told_by_libc", 256, "statx", -100, process.path(KEY, "file").encode(), 0, 0x80000000,
                    "out")
        assert refused.value.errno == errno.EINVAL


def test_an_entry_begun_here_is_served_from_the_layer_alone(mount, shimmed, job_of):
    shimmed("os.mkdir", shimmed.path("triton/NEW"))
    shimmed.write("triton/NEW/kernel.ptx", b"of this job")
    job_of(mount, "two", 20002).put_group("NEW", {"kernel.ptx": b"of another",
                                                  "kernel.cubin": b"of another"})
    assert (mount.store / "triton/NEW/kernel.cubin").exists()
    assert shimmed.read("triton/NEW/kernel.ptx") == b"of this job"
    assert not shimmed.exists("triton/NEW/kernel.cubin")


def test_published_and_evicted_entries_are_seen_at_once(mount, shimmed, job_of):
    assert not shimmed.exists("triton/LATER/kernel.ptx")
    job_of(mount, "two", 20002).put_group("LATER", {"kernel.ptx": b"of another"})
    with Count(mount) as count:
        assert shimmed.read("triton/LATER/kernel.ptx") == b"of another"
    assert count.opens == 1
    (mount.store / "triton/LATER/kernel.ptx").unlink()
    assert not shimmed.exists("triton/LATER/kernel.ptx")


@pytest.mark.parametrize("watch", ["fanotify", "inotify", "none"])
def test_a_file_that_is_known_and_becomes_a_directory_is_opened_as_one(mount_store, base, scratch, watch,
                                                                    shimmed_job_of):
    """The library remembers that a name is a regular file, until the base changes."""
    config = scratch / "watch.toml"
    config.write_text(f'watch = "{watch}"\n')
    mount = mount_store(base, "--config", config)
    assert mount.status()["watch"] == watch
    process = warm(mount, shimmed_job_of(mount, "j", UID))
    with Count(mount) as count:
        for _ in range(3):
            assert process.read(f"{KEY}/file") == b"of the base"
    assert count.opens == 3
    (base / KEY / "file").unlink()
    (base / KEY / "file").mkdir()
    wait_until(lambda: opens_as_the_views_directory(process, process.path(KEY, "file")))
    assert process.exists(f"{KEY}/file/mine") and not (base / KEY / "file/mine").exists()


def test_the_mount_answers_for_scratch_names_directories_and_odd_paths(mount, shimmed, store):
    (store / "triton/tmp.pid_1").mkdir()
    (store / "triton/tmp.pid_1/x").write_bytes(b"x")
    with Count(mount) as count:
        shimmed.exists("triton/tmp.pid_1/x")
        shimmed.read("triton/tmp.pid_1/x")
        for detour in ("other/../triton/KEY/file", "triton//KEY/file", "triton/KEY/./file"):
            assert shimmed("read_file", f"{mount.path}/{detour}") == b"of the base"
        fd = shimmed("hold", shimmed.path(KEY))
        shimmed.write(f"{KEY}/added", b"x")
        assert "added" in shimmed("os.listdir", fd)
        assert not shimmed.exists(".cacheshim/layers")
    assert (count.opens, count.looks) == (0, 0)


def test_the_mount_answers_for_unusual_objects_of_the_base(mount, shimmed, plain, store):
    (store / "other/closed").write_bytes(b"secret")
    (store / "other/closed").chmod(0o600)
    (store / "other/link").symlink_to("file")
    (store / "other/outside").symlink_to("/etc/passwd")
    (store / "other/loop").symlink_to(".")
    os.mkfifo(store / "other/fifo")
    for name in ("closed", "link", "outside", "loop/file", "fifo", "file/x", "x" * 255, "x" * 256):
        path = shimmed.path("other", name)
        wait_until(lambda: plain("os.path.lexists", path) or name.startswith(("file", "x")))
        assert shimmed("look", path) == plain("look", path), name
    with pytest.raises(PermissionError):
        shimmed.read("other/closed")


def test_a_job_of_many_names_gets_larger_filters(mount, shimmed, plain):
    plain("os.makedirs", plain.path("triton/MANY"))
    plain("fill_directory", plain.path("triton/MANY"), 6000)
    for number in range(0, 6000, 97):
        assert shimmed.exists(f"triton/MANY/{number}")
    with Count(mount) as count:
        assert shimmed.read(f"{KEY}/file") == b"of the base"
    assert count.opens == 1


def test_no_process_sees_the_base_after_a_change_was_reported(race, store):
    many = 1500
    (store / "triton/RACE").mkdir()
    for number in range(many):
        (store / f"triton/RACE/{number}").write_bytes(b"of the base")
    race.run("replace_in_turn", "check_replaced", "triton/RACE", many, {"last", "earlier"})


NAMES = ["a", "b", "sub", "sub/a", "sub/deep", "tmp.pid_9", "n/x"]
KINDS = ["write", "append", "replace", "unlink", "mkdir", "rmdir", "rename", "symlink", "link",
         "chmod", "utime", "truncate", "rmtree"]


@pytest.mark.timeout_s(300)
@pytest.mark.parametrize("seed", range(4))
def test_random_changes_are_seen_alike_with_and_without_the_library(mount_store, store, shimmed_job_of,
                                                                    job_of, seed):
    """Verifies that two preloaded processes, one of which makes no changes, see each name as the mount shows it."""
    pick = random.Random(seed)
    for key in ("A", "B", "C"):
        (store / "triton" / key / "sub").mkdir(parents=True)
        for name in ("a", "sub/a", "sub/deep"):
            (store / "triton" / key / name).write_bytes(f"base {key}{name}".encode())
    mount = mount_store(store)
    shimmed = [shimmed_job_of(mount, "j", UID) for _ in range(2)]
    plain, truth, other = (job_of(mount, job, uid) for job, uid in
                           (("j", UID), ("j", UID), ("k", 20002)))
    paths = [f"triton/{key}/{name}" for key in "ABCD" for name in NAMES]
    paths += [f"triton/{key}" for key in "ABCD"]
    direct = 0
    for round_number in range(8):
        for process in shimmed:
            warm(mount, process)
        for step in range(25):
            path, target = pick.choice(paths), pick.choice(paths)
            writer = pick.choice([shimmed[0], plain])
            kind = pick.choice(KINDS)
            writer("change", kind, writer.path(path), writer.path(target), pick.randbytes(step))
            if step % 12 == 5:
                other.put_group(f"P{seed}{round_number}{step}", {"kernel.ptx": b"published"})
                paths.append(f"triton/P{seed}{round_number}{step}/kernel.ptx")
            for name in {path, target, *pick.sample(paths, 4)}:
                expected = truth("look", truth.path(name))
                for process in shimmed:
                    assert process("look", process.path(name)) == expected, (name, kind, path)
        job = mount.job("j")
        direct += job["direct_opens"]
        mount.cli("job", "discard", "j")
    assert direct > 100, direct


def test_the_mount_answers_for_an_absent_awaited_name(mount, shimmed):
    """Another job may be building the entry, so only the mount may report that a name of class flight is absent."""
    for name, looks in (("__grp__k.json", 0), ("k.ptx", 1)):
        with Count(mount) as count:
            assert not shimmed.exists(f"{KEY}/{name}")
        assert count.looks == looks, name
