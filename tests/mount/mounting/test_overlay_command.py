# SPDX-License-Identifier: Apache-2.0
"""`cacheshim overlay`: a plain overlay, its options, and mount.fuse.cacheshim."""

import errno
import os
import stat
import subprocess

import mounts
import pytest
from jobs import as_user, wait_until

FLAGS = {"noexec": os.ST_NOEXEC, "nosuid": os.ST_NOSUID, "nodev": os.ST_NODEV,
         "noatime": os.ST_NOATIME}


@pytest.fixture
def three(program, scratch):
    """Three lowers: `same` is in all; `one`, `two` and `three` are in one each; `directory` is in two."""
    one = mounts.Overlay(scratch, lowers=3)
    for name, lower in zip(("one", "two", "three"), one.lowers):
        (lower / "same").write_text(name)
        (lower / name).write_text(name)
    for lower in one.lowers[1:]:
        (lower / "directory").mkdir()
        (lower / "directory" / lower.name).write_text("x")
    yield one
    one.close()


def names(directory):
    return sorted(os.listdir(directory))


def owner(path):
    status = os.lstat(path)
    return status.st_uid, status.st_gid


def is_gone(overlay):
    """Waits until the daemon has exited, which it does shortly after its mount is gone."""
    return wait_until(lambda: not list(mounts.processes_naming(str(overlay.work))), what="its end")


def test_several_lowers_are_merged_and_the_first_is_on_top(three):
    three.mount()
    assert names(three.path) == ["directory", "one", "same", "three", "two"]
    assert (three.path / "same").read_text() == "one"
    assert names(three.path / "directory") == ["lower1", "lower2"]


def test_changes_go_to_the_upper_and_lowers_stay(three):
    before = {path: path.read_bytes() for lower in three.lowers for path in lower.rglob("*")
              if path.is_file()}
    three.mount()
    (three.path / "same").write_text("changed")
    (three.path / "directory/lower2").unlink()
    (three.path / "made").mkdir()
    assert (three.upper / "same").read_text() == "changed"
    assert (three.upper / "made").is_dir()
    assert names(three.path / "directory") == ["lower1"]
    assert all(path.read_bytes() == data for path, data in before.items())


def test_the_next_mount_reuses_the_upper(three):
    three.mount()
    (three.path / "two").unlink()
    (three.path / "new").write_text("kept")
    assert three.unmount().returncode == 0
    three.mount()
    assert names(three.path) == ["directory", "new", "one", "same", "three"]
    assert (three.path / "new").read_text() == "kept"


def test_an_overlay_has_no_directories_of_its_own_and_publishes_nothing(overlay):
    overlay.mount()
    assert names(overlay.path) == []
    (overlay.path / ".jobs").mkdir()
    (overlay.path / "triton").mkdir()
    (overlay.path / "triton/__grp__x.json").write_text("{}")
    assert names(overlay.lowers[0]) == []
    (overlay.path / ".cacheshim").mkdir()
    assert names(overlay.path) == [".cacheshim", ".jobs", "triton"]


def test_without_an_upper_it_is_read_only(overlay):
    (overlay.lowers[0] / "file").write_text("x")
    (overlay.lowers[0] / "file").chmod(0o666)
    overlay.mount(directories=f"lowerdir={overlay.lowers[0]}")
    assert (overlay.path / "file").read_text() == "x"
    for change in (lambda: os.open(overlay.path / "file", os.O_WRONLY),
                   lambda: os.mkdir(overlay.path / "directory"),
                   lambda: os.unlink(overlay.path / "file"),
                   lambda: os.chmod(overlay.path / "file", 0o600),
                   lambda: os.utime(overlay.path / "file"),
                   lambda: os.setxattr(overlay.path / "file", "user.x", b"y"),
                   lambda: os.rename(overlay.path / "file", overlay.path / "other")):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS


def test_a_remount_does_not_make_it_writable(overlay):
    overlay.mount(directories=f"lowerdir={overlay.lowers[0]}")
    subprocess.run(["mount", "-i", "-o", "remount,rw", overlay.path], check=False,
                   stderr=subprocess.DEVNULL)
    with pytest.raises(OSError) as refused:
        os.mkdir(overlay.path / "directory")
    assert refused.value.errno == errno.EROFS


def test_ro_with_an_upper_shows_it_and_changes_nothing(overlay):
    (overlay.upper / "file").write_text("x")
    overlay.mount("ro")
    assert (overlay.path / "file").read_text() == "x"
    with pytest.raises(OSError) as refused:
        (overlay.path / "file").unlink()
    assert refused.value.errno == errno.EROFS


def test_separators_in_names_are_escaped(program, scratch):
    odd = scratch / "a:b,c\\d"
    odd.mkdir()
    (odd / "file").write_text("odd")
    overlay = mounts.Overlay(scratch)
    escaped = str(odd).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
    try:
        overlay.mount(directories=f"lowerdir={escaped}:{overlay.lowers[0]}")
        assert (overlay.path / "file").read_text() == "odd"
    finally:
        overlay.close()


def test_relative_paths_start_at_the_commands_working_directory(overlay, scratch, monkeypatch):
    monkeypatch.chdir(scratch)
    overlay.mount(directories="lowerdir=lower0,upperdir=upper,workdir=work")
    (overlay.path / "file").write_text("x")
    assert (overlay.upper / "file").read_text() == "x"


def test_flags_of_mount8_are_the_mounts(overlay):
    overlay.mount("noexec", "noatime")
    flags = os.statvfs(overlay.path).f_flag
    assert all(flags & FLAGS[name] for name in ("noexec", "noatime", "nosuid", "nodev"))


def test_suid_and_dev_are_allowed_when_asked(overlay):
    overlay.mount("suid", "dev")
    assert not os.statvfs(overlay.path).f_flag & (os.ST_NOSUID | os.ST_NODEV)
    os.mknod(overlay.path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert (overlay.path / "null").read_bytes() == b""


def test_switches_of_other_overlays_are_ignored_in_one_line(overlay):
    result = overlay.try_mount("threaded=1", "fast_ino=1", "noxattrs=1", "volatile")
    assert result.returncode == 0
    assert result.stderr.splitlines() == [
        "cacheshim: ignored, as it has no meaning here: threaded=1, fast_ino=1, noxattrs=1, "
        "volatile"]


@pytest.mark.parametrize(("option", "shown"), [
    ("squash_to_root", (0, 0)), ("squash_to_uid=20005", (20005, None)),
    ("squash_to_gid=20006", (None, 20006)), ("squash_to_uid=20005,squash_to_gid=20006",
                                             (20005, 20006)), ("owner=squash", (0, 0))])
def test_squash_shows_one_owner_for_all_objects(overlay, option, shown):
    base = overlay.lowers[0] / "base"
    base.write_text("x")
    os.chown(base, 20001, 20002)
    (overlay.upper / "open").mkdir(mode=0o777)
    (overlay.upper / "open").chmod(0o777)
    overlay.mount(option)
    expected = tuple(squashed if squashed is not None else real
                     for squashed, real in zip(shown, (20001, 20002)))
    assert owner(overlay.path / "base") == expected
    made = as_user(20001, ["sh", "-c", f": > {overlay.path / 'open/made'}"])
    assert made.returncode == 0, made.stderr
    made_by = tuple(squashed if squashed is not None else 20001 for squashed in shown)
    assert owner(overlay.path / "open/made") == made_by


def test_squash_gives_rights_by_the_owner_shown_but_no_set_ids_of_the_real_one(overlay):
    tool = overlay.lowers[0] / "tool"
    tool.write_text("of root")
    tool.chmod(0o644)
    overlay.mount("squash_to_uid=20005")
    for argv in (["sh", "-c", f"echo mine > {overlay.path / 'tool'}"],
                 ["chmod", "4755", overlay.path / "tool"]):
        result = as_user(20005, argv)
        assert result.returncode == 0, result.stderr
    real = os.stat(overlay.upper / "tool")
    assert real.st_uid == 0
    assert stat.S_IMODE(real.st_mode) == 0o755


def test_real_owners_are_kept_across_copy_up(overlay):
    base = overlay.lowers[0] / "base"
    base.write_text("x")
    os.chown(base, 20001, 20002)
    base.chmod(0o664)
    overlay.mount()
    with open(overlay.path / "base", "a", encoding="utf-8") as file:
        file.write("y")
    for path in (overlay.path / "base", overlay.upper / "base"):
        assert owner(path) == (20001, 20002)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o664


def test_noacl_ignores_acls(overlay):
    base = overlay.lowers[0] / "base"
    base.write_text("x")
    base.chmod(0o600)
    subprocess.run(["setfacl", "-m", "u:20005:rw", base], check=True)
    overlay.mount("noacl")
    assert as_user(20005, ["cat", overlay.path / "base"]).returncode != 0
    assert overlay.unmount().returncode == 0
    overlay.mount()
    assert as_user(20005, ["cat", overlay.path / "base"]).returncode == 0


def test_acls_are_shown_as_on_a_plain_directory(overlay, scratch):
    """setfacl and getfacl have the same results as in a plain directory."""
    native = scratch / "native"
    for top in (native, overlay.lowers[0]):
        (top / "directory").mkdir(parents=True)
        (top / "directory/file").write_text("x")
        subprocess.run(["setfacl", "-m", "u:20005:rwx,d:g:20006:rx,d:m:rx", top / "directory"],
                       check=True)
    overlay.mount()
    shown = []
    for top in (native, overlay.path):
        subprocess.run(["setfacl", "-m", "g:20006:r", top / "directory/file"], check=True)
        (top / "directory/new").write_text("x")
        (top / "directory/sub").mkdir()
        shown.append(subprocess.run(["getfacl", "-R", "-n", "."], cwd=top, check=True, text=True,
                                    stdout=subprocess.PIPE).stdout)
    assert shown[0].count("20006") == 5
    assert shown[0] == shown[1]


@pytest.mark.parametrize("options", [
    "upperdir={u},workdir={w}", "lowerdir={l},upperdir={u}", "lowerdir={l},workdir={w}",
    "lowerdir={l}::{l}", "lowerdir={l},nonsense", "lowerdir={l},squash_to_uid=me",
    "lowerdir={l},upperdir={u},workdir={u}/w", "lowerdir={u},upperdir={u},workdir={w}"])
def test_wrong_options_are_refused_in_one_line(overlay, options):
    (overlay.upper / "w").mkdir()
    result = overlay.try_mount(directories=options.format(l=overlay.lowers[0], u=overlay.upper,
                                                      w=overlay.work))
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not mounts.is_mounted(overlay.path)


def test_missing_options_are_usage(program, overlay):
    result = mounts.run(program, "overlay", overlay.path)
    assert result.returncode == 2
    assert "-o" in result.stderr


@pytest.mark.parametrize("missing", ["lower", "upper", "work", "point"])
def test_missing_directories_are_named(overlay, missing):
    gone = {"lower": overlay.lowers[0], "upper": overlay.upper, "work": overlay.work,
            "point": overlay.path}[missing]
    gone.rmdir()
    result = overlay.try_mount()
    assert result.returncode == 69
    assert str(gone) in result.stderr
    assert "No such file or directory" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_workdir_on_another_file_system_is_refused(overlay):
    subprocess.run(["mount", "-t", "tmpfs", "none", overlay.work], check=True)
    result = overlay.try_mount()
    assert result.returncode == 69
    assert "not on the file system of the upperdir" in result.stderr


def test_an_upper_serves_one_overlay_at_a_time(overlay, scratch):
    overlay.mount()
    (scratch / "second").mkdir()
    other = mounts.run_mounting([mounts.PROGRAM, "overlay", "-o", overlay.directories(),
                                 scratch / "second"], scratch / "second.log")
    assert other.returncode == 69
    assert "another overlay has it" in other.stderr
    assert overlay.unmount().returncode == 0
    overlay.mount()  # the upper is free again


def test_a_killed_daemons_files_in_the_workdir_are_removed(overlay):
    (overlay.work / "work").mkdir()
    (overlay.work / "work/staged.7").write_text("half")
    (overlay.work / "work/staged.8").mkdir()
    overlay.mount()
    assert not list((overlay.work / "work").glob("staged.*"))


@pytest.mark.parametrize("how", ["cacheshim", "umount", "fusermount3"])
def test_every_way_to_unmount_ends_the_daemon(overlay, how):
    overlay.mount()
    (overlay.path / "file").write_text("x")
    argv = {"cacheshim": [mounts.PROGRAM, "unmount"], "umount": ["umount"],
            "fusermount3": ["fusermount3", "-u"]}[how]
    result = mounts.run(*argv, overlay.path)
    assert result.returncode == 0, result.stderr
    assert is_gone(overlay)
    assert (overlay.upper / "file").read_text() == "x"


def test_a_daemon_in_the_foreground_exits_with_its_mount(overlay):
    argv = [mounts.PROGRAM, "overlay", "--foreground", "-o", overlay.directories(), str(overlay.path)]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as daemon:
        wait_until(lambda: mounts.is_mounted(overlay.path), what="the mount")
        (overlay.path / "file").write_text("x")
        mounts.run("umount", overlay.path)
        assert daemon.wait(20) == 0


@pytest.mark.usefixtures("device")
def test_a_user_overlays_directories_without_root(program, overlay):
    """The user mounts in a user namespace, in which the daemon cannot change owners: new objects belong to the user."""
    for directory in (overlay.path, overlay.upper, overlay.work):
        os.chown(directory, 20001, 20001)
    theirs = overlay.lowers[0] / "theirs"
    theirs.write_text("x")
    theirs.chmod(0o4755)
    script = ('"$1" overlay -o "$2" "$3" && cd "$3" && cat theirs && chmod u-s theirs; '
              'echo more >> mine && chmod 4711 mine && mkdir directory && stat -c "%n %u %a" * && '
              'cd / && "$1" unmount "$3"')
    result = as_user(20001, ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script,
                             "sh", program, overlay.directories(), overlay.path])
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines() == ["xdirectory 0 755", "mine 0 4711", "theirs 65534 4755"]
    assert owner(overlay.upper / "mine") == (20001, 20001)


@pytest.mark.usefixtures("sbin")
def test_mount8_mounts_an_overlay(overlay, scratch):
    (overlay.lowers[0] / "file").write_text("x")
    result = mounts.run_mounting(
        ["/usr/bin/mount", "-t", "fuse.cacheshim", "overlay", overlay.path, "-o",
         overlay.directories() + ",noatime"], scratch / "log")
    assert result.returncode == 0, result.stderr
    assert (overlay.path / "file").read_text() == "x"
    assert os.statvfs(overlay.path).f_flag & os.ST_NOATIME


@pytest.mark.usefixtures("sbin")
def test_mount8_mounts_a_store(store, scratch):
    point, layers = scratch / "point", scratch / "layers"
    point.mkdir()
    layers.mkdir()
    try:
        result = mounts.run_mounting(
            ["/usr/bin/mount", "-t", "fuse.cacheshim", store, point, "-o",
             f"noexec,layers={layers}"], scratch / "log")
        assert result.returncode == 0, result.stderr
        assert (point / ".cacheshim/version").read_text()
        assert os.statvfs(point).f_flag & os.ST_NOEXEC
        (point / "triton/file").write_text("x")
        assert list(layers.rglob("file"))
    finally:
        mounts.free(scratch)


def test_a_store_with_real_owners(mount_store, store):
    """With -o owner=keep, new objects belong to the job's user, and objects to which the user has no right stay
    closed."""
    (store / "triton").mkdir()
    (store / "triton").chmod(0o777)
    (store / "triton/theirs").write_text("x")
    os.chown(store / "triton/theirs", 20009, 20009)
    mount = mount_store(store, "-o", "owner=keep")
    view = mount.path / "triton"
    made = as_user(20001, ["touch", view / "mine"], job="a")
    assert made.returncode == 0, made.stderr
    shown = as_user(20001, ["stat", "-c", "%u:%g", view / "mine", view / "theirs"], job="a")
    assert shown.stdout.split() == ["20001:20001", "20009:20009"]
    refused = as_user(20001, ["chmod", "777", view / "theirs"], job="a")
    assert "Operation not permitted" in refused.stderr
    root = as_user(20001, ["stat", "-c", "%a %u", mount.path / ".jobs/a"], job="a")
    assert root.stdout.split() == ["700", "20001"]


def test_objects_of_several_file_systems_have_numbers_of_their_own(three, scratch):
    """Two lowers and the upper are on new tmpfs mounts, whose files have the same inode numbers; the overlay must show
    different numbers."""
    for directory in (*three.lowers[:2], scratch / "top"):
        directory.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", directory], check=True)
        (directory / f"file-{directory.name}").write_text("x")
    three.upper, three.work = scratch / "top/upper", scratch / "top/work"
    three.upper.mkdir()
    three.work.mkdir()
    three.mount()
    (three.path / "made").write_text("x")
    paths = [three.path, *three.path.iterdir()]
    numbers = {path.name: os.lstat(path).st_ino for path in paths}
    assert len(set(numbers.values())) == len(paths)
    raw = {os.lstat(directory / f"file-{directory.name}").st_ino for directory in three.lowers[:2]}
    assert len(raw) == 1, "the test's own premise"
    assert {entry.name: entry.inode() for entry in os.scandir(three.path)} == {
        name: number for name, number in numbers.items() if name != three.path.name}
    before = numbers["file-lower1"]
    (three.path / "file-lower1").write_text("copied up to yet another file system")
    assert os.lstat(three.path / "file-lower1").st_ino == before
