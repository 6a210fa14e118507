# SPDX-License-Identifier: Apache-2.0
"""Errors of `cacheshim mount` and `cacheshim overlay` before they mount: one line that says what, where, why and
what happens now, and the documented exit code."""

import os
import pathlib
import stat
import subprocess

import mounts
import pytest


@pytest.fixture
def attempt(program, scratch):
    """attempt(*words) runs the program. If it fails, asserts that it has mounted nothing and printed one line."""

    def run(*words, **options):
        before = pathlib.Path("/proc/self/mountinfo").read_text()
        done = mounts.run_mounting([program, *words], scratch / "attempt.log", **options)
        if done.returncode != 0:
            assert pathlib.Path("/proc/self/mountinfo").read_text() == before
            assert len(done.stderr.splitlines()) == 1, done.stderr
        return done

    yield run
    mounts.free(scratch)


@pytest.fixture
def point(scratch):
    path = scratch / "point"
    path.mkdir()
    return path


def assert_refused(done, code, *parts):
    assert done.returncode == code, done.stderr
    for part in (*parts, "nothing was mounted"):
        assert part in done.stderr


def test_a_store_is_not_mounted_over_a_nonempty_directory(attempt, store, point):
    (point / "precious").touch()
    assert_refused(attempt("mount", "--store", store, point), 69,
                   f"mount point '{point}' is not empty: the mount would hide 'precious'",
                   "-o nonempty")
    assert attempt("mount", "--store", store, "-o", "nonempty", point).returncode == 0
    assert not (point / "precious").exists()
    assert mounts.run(mounts.PROGRAM, "unmount", point).returncode == 0
    assert (point / "precious").exists()


def test_an_overlay_is_not_mounted_over_a_nonempty_directory(overlay):
    (overlay.path / "precious").touch()
    assert_refused(overlay.try_mount(), 69, "is not empty", "'precious'", "-o nonempty")
    overlay.mount("nonempty")
    assert not (overlay.path / "precious").exists()


def test_an_overlay_may_cover_its_own_lower(overlay):
    lower = overlay.lowers[0]
    (lower / "file").write_text("x")
    overlay.path = lower
    assert_refused(overlay.try_mount(), 69, "is not empty", "'file'")
    overlay.mount("nonempty")
    (lower / "file").write_text("y")
    assert overlay.unmount().returncode == 0
    assert (lower / "file").read_text() == "x"
    assert (overlay.upper / "file").read_text() == "y"


def test_a_mount_point_inside_a_lower_is_usable(overlay):
    """Such a mount point is common with lowerdir=/. The overlay must not show itself again below the mount point."""
    lower = overlay.lowers[0]
    overlay.path = lower / "merged"
    overlay.path.mkdir()
    (lower / "file").write_text("x")
    overlay.mount()
    names = mounts.run("find", overlay.path, "-xdev", timeout=20).stdout.splitlines()
    assert {name.removeprefix(str(overlay.path)) for name in names} == {
        "", "/file", "/merged", "/overlay.log"}
    assert os.listdir(overlay.path / "merged") == []


@pytest.mark.parametrize("where", ["upper", "upper/inside", "work", "work/inside"])
def test_an_overlay_is_not_mounted_on_what_it_writes_to(overlay, scratch, where):
    overlay.path = scratch / where
    overlay.path.mkdir(exist_ok=True)
    assert_refused(overlay.try_mount(), 2, f"cannot mount at '{overlay.path}': it ")


def test_a_store_is_not_mounted_on_itself(attempt, store):
    (store / "triton").mkdir()
    refused = attempt("mount", "--store", store, store)
    assert_refused(refused, 2, f"cannot mount at '{store}': it is the store itself")
    refused = attempt("mount", "--store", f"{store}/", f"{store}//triton/")
    assert_refused(refused, 2, f"cannot mount at '{store}/triton': it lies in the store '{store}'")
    refused = attempt("mount", "--store", store, "-o", "nonempty", store.parent)
    assert_refused(refused, 2,
                   f"cannot mount at '{store.parent}': the store '{store}' lies in it")
    link = store.with_name("link")
    link.symlink_to(store)
    assert_refused(attempt("mount", "--store", link, store), 2, "it is the store itself")
    refused = attempt("run", "--store", store, "--mount", store / "triton", "true")
    assert refused.returncode == 2 and "it lies in the store" in refused.stderr


def test_a_mount_point_is_apart_from_the_layers(attempt, store, scratch):
    layers = scratch / "layers"
    (layers / "point").mkdir(parents=True)
    refused = attempt("mount", "--store", store, "--layers", layers, layers / "point")
    assert_refused(refused, 2, f"it lies in the directory of layers '{layers}'")


@pytest.mark.parametrize("where", ["triton", "", "triton/deep", "..", ".cacheshim/staging"])
def test_layers_are_not_kept_among_the_stores_caches(attempt, store, point, where):
    layers = pathlib.Path(os.path.normpath(store / where))
    layers.mkdir(parents=True, exist_ok=True)
    refused = attempt("mount", "--store", store, "--layers", f"{store}/{where}", point)
    assert_refused(refused, 2, f"cannot keep layers in '{layers}': it ", f"the store '{store}'",
                   "name a directory outside the store")


def test_layers_may_be_where_they_are_by_default(attempt, store, point):
    layers = store / ".cacheshim/layers"
    layers.mkdir(parents=True)
    done = attempt("mount", "--store", store, "--layers", layers, point)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [("mount", "--stor", "/x", "/mnt"), ("mount", "--stor=/x", "/mnt"),
                                   ("unmount", "--graze", "3"), ("run", "--stor", "/x", "--", "true"),
                                   ("job", "end", "--succes")])
def test_an_unknown_option_is_named_before_what_is_missing(program, words):
    done = mounts.run(program, *words)
    unknown = next(word for word in words if word.startswith("--"))
    assert done.returncode == 2
    assert f"unknown option '{unknown}'" in done.stderr
    assert "required" not in done.stderr


def test_an_unknown_command_is_named(program):
    done = mounts.run(program, "moutn", "--store", "/x", "/mnt")
    assert done.returncode == 2
    assert "unknown command or option 'moutn'" in done.stderr


def test_a_stores_mount_is_not_a_store(attempt, mount, point):
    assert_refused(attempt("mount", "--store", mount.path, point), 2,
                   f"cannot use the store '{mount.path}': it is in the mount of a store, at "
                   f"'{mount.path}'", "name the directory that is mounted there")
    (mount.path / "triton/KEY").mkdir()
    refused = attempt("mount", "--store", mount.path / "triton", point)
    assert_refused(refused, 2, f"at '{mount.path}'")


def test_a_store_may_lie_in_an_overlay(attempt, overlay, point):
    overlay.mount()
    (overlay.path / "store").mkdir()
    done = attempt("mount", "--store", overlay.path / "store", point)
    assert done.returncode == 0, done.stderr
    (point / "triton/file").write_text("x")


@pytest.mark.parametrize("mode, text, advice", [
    (0o600, "Permission denied", "run as root"), (None, "No such file or directory", "--device /dev/fuse")])
def test_a_closed_or_absent_device_is_explained(store, point, scratch, as_user, program, mode, text,
                                                advice):
    device = scratch / "dev"
    device.mkdir()
    if mode is not None:
        os.mknod(device / "fuse", stat.S_IFCHR | mode, os.makedev(10, 229))
    store.chmod(0o777)
    script = f'mount --bind {device} /dev && exec setpriv --reuid=20001 --regid=20001 ' \
             f'--clear-groups {program} mount --store {store} {point}'
    done = mounts.run("unshare", "--mount", "sh", "-c", script)
    assert_refused(done, 69, f"cannot open /dev/fuse: {text} (", advice)


@pytest.fixture
def read_only_store(store, scratch):
    (store / "triton/KEY").mkdir(parents=True)
    (store / "triton/KEY/k.so").write_text("x")
    subprocess.run(["mount", "--bind", "-o", "ro", store, store], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", store], check=True)
    yield store
    mounts.free(scratch)
    subprocess.run(["umount", "-l", store], check=False)


def test_a_read_only_store_is_served_with_ro(attempt, read_only_store, point):
    assert_refused(attempt("mount", "--store", read_only_store, point), 69,
                   f"cannot use the store '{read_only_store}': cannot write to '{read_only_store}': "
                   "Read-only file system; mount it with -o ro to read from it")
    done = attempt("mount", "--store", read_only_store, "-o", "ro", point)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (point / "triton/KEY/k.so").read_text() == "x"
    assert not (point / "triton/OTHER").exists()
    with pytest.raises(OSError, match="Read-only"):
        (point / "triton/KEY/other").touch()
    assert mounts.run(mounts.PROGRAM, "status", "--mount", point).returncode == 0
    assert mounts.run(mounts.PROGRAM, "unmount", point).returncode == 0


def test_a_read_only_store_that_was_mounted_before_is_served_with_ro(attempt, mount, point, scratch):
    (mount.path / "triton/KEY").mkdir()
    assert mount.unmount().returncode == 0
    try:
        for words in (["--bind"], ["-o", "remount,bind,ro"]):
            subprocess.run(["mount", *words, mount.store, mount.store], check=True)
        done = attempt("mount", "--store", mount.store, "-o", "ro", point)
        assert done.returncode == 0, done.stderr
    finally:
        mounts.free(scratch)


def test_a_second_daemon_at_the_same_path_says_who_has_the_run_directory(store, scratch, program):
    """Each daemon has its own mount namespace; /run is common to both."""
    point = scratch / "point"
    point.mkdir()
    script = (f'"{program}" mount --store {store} {point} && '
              f'unshare --mount sh -c \'umount -l {point}; "{program}" mount --store {store} {point}; '
              f'umount -l {point}\'; umount {point}')
    with open(scratch / "log", "w+") as log:
        subprocess.run(["unshare", "--mount", "sh", "-c", script], stdout=log, stderr=log, timeout=60,
                       check=False)
        log.seek(0)
        text = log.read()
    assert "another daemon serves a mount at the same path and has it" in text
    assert "Resource temporarily unavailable" not in text


@pytest.mark.parametrize("words", [("mount", "--store", "", "/mnt"), ("mount", "--store", "/x", ""),
                                   ("overlay", "-o", "lowerdir=/", ""), ("unmount", "")])
def test_an_empty_path_is_refused(program, words):
    done = mounts.run(program, *words)
    assert done.returncode == 2
    assert "the path is empty" in done.stderr


@pytest.mark.parametrize("kind, text", [("missing", "No such file or directory; make the directory first"),
                                        ("file", "Not a directory; name a directory")])
def test_a_store_that_is_no_directory_is_refused(attempt, scratch, point, kind, text):
    store = scratch / "not"
    if kind == "file":
        store.touch()
    assert_refused(attempt("mount", "--store", store, point), 69, f"'{store}': {text}")
    refused = attempt("overlay", "-o", f"lowerdir={store}", point)
    assert_refused(refused, 69, f"'{store}': {text}")


def test_a_mount_point_that_is_no_directory_is_refused(attempt, store, scratch):
    file = scratch / "file"
    file.touch()
    assert_refused(attempt("mount", "--store", store, file), 69,
                   f"mount point '{file}' is not a directory")
    assert_refused(attempt("mount", "--store", store, scratch / "none"), 69,
                   f"mount point '{scratch}/none' cannot be used: No such file or directory")


def test_a_mount_point_in_use_is_refused(attempt, store, mount):
    assert_refused(attempt("mount", "--store", store, mount.path), 69, "is busy")


def test_relative_paths_slashes_spaces_and_commas_are_taken(program, scratch, monkeypatch):
    for name in ("a, b", "m, n", "low,er:1", "up,per", "wo rk", "merged, here"):
        (scratch / name).mkdir()
    monkeypatch.chdir(scratch)
    done = mounts.run_mounting([program, "mount", "--store", "./a, b/", "m, n//"], "log")
    assert done.returncode == 0, done.stderr
    options = "lowerdir=low\\,er\\:1/,upperdir=./up\\,per,workdir=wo rk"
    done = mounts.run_mounting([program, "overlay", "-o", options, "merged, here/"], "log")
    assert done.returncode == 0, done.stderr
    for name in ("m, n", "merged, here"):
        done = mounts.run(program, "unmount", f"./{name}/")
        assert done.returncode == 0, done.stderr


def test_config_mistakes_are_refused(attempt, store, point, scratch):
    config = scratch / "x.toml"
    for text, part in (("threads = 'many'", "threads"), ("unknown = 1", "unknown"),
                       ("layers = \"relative\"", "must be an absolute path"), ("[", "x.toml")):
        config.write_text(text + "\n")
        done = attempt("mount", "--store", store, "--config", config, point)
        assert done.returncode == 2 and part in done.stderr
    done = attempt("mount", "--store", store, "--config", scratch, point)
    assert done.returncode == 2 and "Is a directory" in done.stderr
