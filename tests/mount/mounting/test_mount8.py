# SPDX-License-Identifier: Apache-2.0
"""mount(8), umount(8) and fstab, with mount.fuse.cacheshim and umount.fuse.cacheshim in /sbin."""

import os
import pathlib
import subprocess
import time

import jobs
import mounts
import pytest

pytestmark = pytest.mark.usefixtures("sbin")

ROUNDS = 100
LOWER_ROUNDS = 40
TYPE = "fuse.cacheshim"


def entry_of(path):
    """Returns the source, the mount's options and the super block's options from mountinfo."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        if words[4] == str(path):
            dash = words.index("-")
            return words[dash + 2], words[5].split(","), words[dash + 3].split(",")
    raise AssertionError(f"nothing is mounted at {path}")


@pytest.fixture
def mount8(scratch):
    """mount8(*words, fstab=[lines]) runs mount(8). Its output goes to a file, because a daemon may keep a pipe open."""
    table = scratch / "fstab"

    def call(*words, fstab=()):
        table.write_text("".join(f"{line}\n" for line in fstab))
        return mounts.run_mounting(["env", f"LIBMOUNT_FSTAB={table}", "/usr/bin/mount", *words],
                                   scratch / "mount8.log")

    yield call
    mounts.free(scratch)


def umount(*words, check=True):
    done = mounts.run("/usr/bin/umount", *words)
    assert not check or done.returncode == 0, done.stderr
    return done


def daemons(overlay):
    return list(mounts.processes_naming(f"upperdir={overlay.upper},"))


def test_a_remount_right_after_umount_is_not_refused(overlay):
    refusals = []
    for _ in range(ROUNDS):
        done = overlay.try_mount()
        if done.returncode != 0:
            refusals.append(done.stderr)
            time.sleep(0.5)
            continue
        umount(overlay.path)
    assert refusals == []


@pytest.mark.parametrize("words", [("-i",), ("-l",)], ids=["internal", "lazy"])
def test_a_remount_waits_for_a_daemon_that_umount_did_not_wait_for(overlay, words):
    for number in range(20):
        done = overlay.try_mount()
        assert done.returncode == 0, f"round {number}: {done.stderr}"
        umount(*words, overlay.path)


def test_another_mount_point_takes_over_the_upperdir_of_a_mount_that_is_gone(overlay, scratch):
    other = scratch / "other"
    other.mkdir()
    overlay.mount()
    umount("-i", overlay.path)
    done = mounts.run_mounting([mounts.PROGRAM, "overlay", "-o", overlay.directories(), other],
                               scratch / "other.log")
    assert done.returncode == 0, done.stderr
    umount(other)


def test_a_mounted_overlay_keeps_its_upperdir(overlay, scratch):
    other = scratch / "other"
    other.mkdir()
    overlay.mount()
    begin = time.monotonic()
    done = mounts.run_mounting([mounts.PROGRAM, "overlay", "-o", overlay.directories(), other],
                               scratch / "other.log")
    assert done.returncode == 69
    assert f"cannot use '{overlay.upper}': another overlay has it" in done.stderr
    assert time.monotonic() - begin < 9


def test_a_store_mounted_again_right_after_umount_has_its_run_directory(mount_store, store):
    for _ in range(10):
        mount = mount_store(store, name="again")
        assert "cannot use run" not in mount.log.read_text()
        assert (mount.run_directory() / "state").exists()
        umount("-i", mount.path)


def test_the_lower_file_system_can_be_unmounted_right_after_umount(overlay):
    lower = overlay.lowers[0]
    busy = 0
    for _ in range(LOWER_ROUNDS):
        subprocess.run(["mount", "-t", "tmpfs", "lower", lower], check=True)
        (lower / "file").write_text("x")
        overlay.mount()
        assert (overlay.path / "file").read_text() == "x"
        umount(overlay.path)
        busy += umount(lower, check=False).returncode != 0
        umount("-l", lower, check=False)
    assert busy == 0


def test_umount_returns_when_the_daemon_has_exited(overlay, monkeypatch):
    overlay.mount()
    assert daemons(overlay)
    umount(overlay.path)
    assert not daemons(overlay)
    overlay.mount()
    monkeypatch.chdir(overlay.path.parent)
    umount(overlay.path.name)  # a relative path
    assert not daemons(overlay)


def test_umount_waits_for_a_daemon_in_the_foreground(overlay):
    with subprocess.Popen([mounts.PROGRAM, "overlay", "--foreground", "-o", overlay.directories(),
                           overlay.path], stderr=subprocess.DEVNULL) as daemon:
        table = pathlib.Path(os.environ["LIBMOUNT_UTAB"])
        jobs.wait_until(lambda: table.exists() and f"TARGET={overlay.path} " in table.read_text(),
                        what="the entry in libmount's table")
        umount(overlay.path)
        assert daemon.poll() == 0


def test_umount_of_a_mount_in_use_fails_and_names_the_user(overlay):
    overlay.mount()
    with open(overlay.path / "file", "w"):
        done = umount(overlay.path, check=False)
    assert done.returncode == 32
    assert f"'{overlay.path}' is in use by" in done.stderr
    assert f"pid {os.getpid()}, open file" in done.stderr
    assert mounts.is_mounted(overlay.path)


def test_umount_r_remounts_a_mount_in_use_read_only(overlay):
    (overlay.lowers[0] / "file").write_text("x")
    overlay.mount()
    with open(overlay.path / "file"):
        done = umount("-r", overlay.path)
        assert "remounted read-only" in done.stderr
        with pytest.raises(OSError, match="Read-only"):
            (overlay.path / "other").touch()
        assert "nosuid" in entry_of(overlay.path)[1]


def test_umount_l_detaches_a_mount_in_use(overlay):
    (overlay.lowers[0] / "file").write_text("x")
    overlay.mount()
    with open(overlay.path / "file") as file:
        begin = time.monotonic()
        umount("-lnv", overlay.path)
        assert time.monotonic() - begin < 10
        assert not mounts.is_mounted(overlay.path)
        assert file.read() == "x"


def test_umount_does_not_wait_for_a_daemon_that_another_mount_needs(overlay, scratch):
    other = scratch / "other"
    other.mkdir()
    overlay.mount()
    subprocess.run(["mount", "--bind", overlay.path, other], check=True)
    begin = time.monotonic()
    umount(overlay.path)
    assert time.monotonic() - begin < 15
    (other / "file").write_text("x")
    umount(other)


def test_umount_f_frees_a_dead_mount(mount_store, store):
    mount = mount_store(store)
    mount.kill_daemon()
    umount("-f", mount.path)
    assert not mounts.is_mounted(mount.path)


def test_umount_a_unmounts_cacheshim(overlay):
    overlay.mount()
    umount("-a", "-t", TYPE)
    assert not mounts.is_mounted(overlay.path)
    assert not daemons(overlay)


def test_cacheshim_unmount_leaves_nothing_in_libmounts_table(overlay):
    overlay.mount()
    table = pathlib.Path(os.environ["LIBMOUNT_UTAB"])
    assert f"TARGET={overlay.path} " in table.read_text()
    assert overlay.unmount().returncode == 0
    assert f"TARGET={overlay.path} " not in table.read_text()


def test_mount_a_twice_mounts_once(overlay, store, scratch, mount8):
    point = scratch / "point"
    point.mkdir()
    lines = [f"my\\040overlay {overlay.path} {TYPE} {overlay.directories()} 0 0",
             f"{store} {point} {TYPE} noatime,nofail,_netdev 0 0"]
    for _ in range(2):
        done = mount8("-a", fstab=lines)
        assert done.returncode == 0, done.stderr
        assert mounts.times_mounted(overlay.path) == mounts.times_mounted(point) == 1
    assert entry_of(overlay.path)[0] == "my\\040overlay"
    assert entry_of(point)[0] == str(store)
    assert "noatime" in entry_of(point)[1]


def test_mount_a_twice_recognizes_a_store_by_a_symlink_and_an_unusual_name(scratch, mount8):
    store, point, link = scratch / "a, b\\c", scratch / "a point", scratch / "link"
    store.mkdir()
    point.mkdir()
    link.symlink_to(store)
    for source in (link, store):
        text = str(source).replace("\\", "\\134").replace(" ", "\\040")
        lines = [f"{text}/ {str(point).replace(' ', chr(92) + '040')} {TYPE} defaults 0 0"]
        for _ in range(2):
            done = mount8("-a", fstab=lines)
            assert done.returncode == 0, done.stderr
        done = mounts.run("findmnt", "-n", "-o", "SOURCE", point)
        assert done.stdout.strip() == str(store)
        umount(point)


def test_findmnt_and_umount_find_an_overlay_by_its_source(overlay, mount8):
    name = 'data, "A" \\ b'
    done = mount8("-t", TYPE, name, overlay.path, "-o", overlay.directories())
    assert done.returncode == 0, done.stderr
    done = mounts.run("findmnt", "-n", "-o", "TARGET,FSTYPE", "--source", name)
    assert done.stdout.split() == [str(overlay.path), TYPE]
    umount(name)
    assert not mounts.is_mounted(overlay.path)


def flags_of(path):
    return {word for word in entry_of(path)[1] if word.startswith("no")}


def test_suid_and_dev_in_fstab_have_effect_for_an_overlay(overlay, mount8):
    """mount(8) does not pass suid and dev to the helper, because they are the defaults."""
    program = overlay.lowers[0] / "id"
    program.write_bytes(pathlib.Path("/usr/bin/id").read_bytes())
    program.chmod(0o4755)
    os.mknod(overlay.lowers[0] / "null", 0o020666, os.makedev(1, 3))
    line = f"overlay {overlay.path} {TYPE} suid,dev,{overlay.directories()} 0 0"
    assert mount8("-a", fstab=[line]).returncode == 0
    assert not flags_of(overlay.path) & {"nosuid", "nodev"}
    as_user = ["setpriv", "--reuid=20001", "--regid=20001", "--clear-groups"]
    assert mounts.run(*as_user, overlay.path / "id", "-u").stdout == "0\n"
    (overlay.path / "null").write_bytes(b"x")
    umount(overlay.path)
    assert mount8("-a", fstab=[line.replace("suid,dev", "nosuid,nodev")]).returncode == 0
    assert flags_of(overlay.path) >= {"nosuid", "nodev"}
    assert mounts.run(*as_user, overlay.path / "id", "-u").stdout == "20001\n"
    with pytest.raises(PermissionError):
        (overlay.path / "null").write_bytes(b"x")


def test_a_store_never_has_set_ids_or_devices(store, scratch, mount8):
    point = scratch / "point"
    point.mkdir()
    assert mount8("-a", fstab=[f"{store} {point} {TYPE} suid,dev 0 0"]).returncode == 0
    assert flags_of(point) >= {"nosuid", "nodev"}


def test_a_rootless_overlay_has_no_set_ids_and_no_devices(overlay, program, as_user, device):
    for path in (overlay.upper, overlay.work, overlay.path):
        os.chown(path, 20001, 20001)
    script = ('"$1" overlay -o "$2",suid,dev "$3" && grep " $3 " /proc/self/mountinfo; '
              '"$1" unmount "$3"')
    done = as_user(20001, ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script,
                           "sh", program, overlay.directories(), overlay.path])
    assert done.returncode == 0, done.stderr
    assert "nosuid,nodev" in done.stdout
    assert "ignored, as only root may set it: suid, dev" in done.stderr


def test_remount_changes_an_overlay_to_read_only_and_back(overlay, mount8):
    done = mount8("-t", TYPE, "o", overlay.path, "-o", f"noatime,nodev,{overlay.directories()}")
    assert done.returncode == 0, done.stderr
    (overlay.path / "one").touch()
    assert mount8("-o", "remount,ro", overlay.path).returncode == 0
    with pytest.raises(OSError, match="Read-only"):
        (overlay.path / "two").touch()
    assert {"ro", "noatime", "nodev"} <= set(entry_of(overlay.path)[1])
    assert "nosuid" not in entry_of(overlay.path)[1]
    assert mount8("-o", "remount,rw,strictatime", overlay.path).returncode == 0
    (overlay.path / "two").touch()
    assert {"noatime", "relatime"}.isdisjoint(entry_of(overlay.path)[1])
    assert sorted(path.name for path in overlay.upper.iterdir()) == ["one", "two"]


def test_remount_by_a_line_of_fstab(overlay, mount8):
    line = f"o {overlay.path} {TYPE} {overlay.directories()},nosuid,noatime 0 0"
    assert mount8(overlay.path, fstab=[line]).returncode == 0
    done = mount8("-o", "remount,ro", overlay.path, fstab=[line])
    assert done.returncode == 0, done.stderr
    assert {"ro", "noatime", "nosuid"} <= set(entry_of(overlay.path)[1])


def test_remount_changes_a_store_to_read_only_and_back(mount, mount8):
    (mount.path / "triton/file").write_text("x")
    assert mount8("-o", "remount,ro", mount.path).returncode == 0
    with pytest.raises(OSError, match="Read-only"):
        (mount.path / "triton/file").write_text("y")
    assert mount8("-o", "remount,rw", mount.path).returncode == 0
    (mount.path / "triton/file").write_text("y")
    assert {"nosuid", "nodev"} <= set(entry_of(mount.path)[1])


def test_remount_refuses_read_only_while_files_are_written_to(overlay, mount8):
    overlay.mount()
    with open(overlay.path / "file", "w"):
        done = mount8("-o", "remount,ro", overlay.path)
    assert done.returncode == 1
    assert f"cannot remount '{overlay.path}': " in done.stderr
    assert "files are open for writing" in done.stderr
    (overlay.path / "other").touch()


def test_remount_refuses_to_write_without_an_upperdir(overlay, mount8):
    overlay.mount(directories=f"lowerdir={overlay.lowers[0]}")
    done = mount8("-o", "remount,rw", overlay.path)
    assert done.returncode == 1
    assert "it has no upperdir; it stays read-only" in done.stderr
    assert "ro" in entry_of(overlay.path)[1]


def test_remount_refuses_to_write_to_a_store_that_is_served_for_reading(store, scratch, mount8):
    point = scratch / "point"
    point.mkdir()
    for words in (["--bind", store], ["-o", "remount,bind,ro"]):
        subprocess.run(["mount", *words, store], check=True)
    assert mount8("-t", TYPE, "-o", "ro", store, point).returncode == 0
    done = mount8("-o", "remount,rw", point)
    assert done.returncode == 1
    assert "its store cannot be written to; it stays read-only" in done.stderr
    assert "ro" in entry_of(point)[1]


def test_remount_is_refused_where_nothing_of_ours_is_mounted(scratch):
    helper = pathlib.Path(mounts.PROGRAM).resolve().parents[1] / "sbin/mount.fuse.cacheshim"
    done = mounts.run(helper, "x", scratch, "-o", "remount,ro")
    assert done.returncode == 69
    assert f"no cacheshim mount at '{scratch}'; nothing was changed" in done.stderr


@pytest.fixture
def tmpfs_overlay(overlay, scratch):
    """An overlay whose directories are on a tmpfs that is mounted with relatime."""
    top = scratch / "tmpfs"
    top.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "relatime", "tmpfs", top], check=True)
    overlay.upper, overlay.work, overlay.lowers = top / "upper", top / "work", [top / "lower"]
    for directory in (overlay.upper, overlay.work, overlay.lowers[0]):
        (directory / "directory").mkdir(parents=True)
        (directory / directory.name).write_text("x")
    (overlay.work / "work").unlink()  # the daemon creates a directory of this name
    yield overlay
    overlay.close()


def read_all(overlay):
    for name in ("upper", "lower"):
        assert (overlay.path / name).read_text() == "x"
    os.listdir(overlay.path / "directory")


def behind(overlay):
    return [overlay.upper / "upper", overlay.lowers[0] / "lower", overlay.lowers[0] / "directory",
            overlay.upper / "directory"]


@pytest.mark.parametrize("option, moved", [("relatime", [True, True, True, True]),
                                           ("noatime", [False, False, False, False]),
                                           ("nodiratime", [True, True, False, False])])
def test_reads_move_access_times_as_the_option_says(tmpfs_overlay, mount8, option, moved):
    overlay = tmpfs_overlay
    for path in behind(overlay):
        os.utime(path, (1000, 2000))
    done = mount8("-t", TYPE, "o", overlay.path, "-o", f"{option},{overlay.directories()}")
    assert done.returncode == 0, done.stderr
    read_all(overlay)
    assert [os.stat(path).st_atime != 1000 for path in behind(overlay)] == moved
    (overlay.path / "upper").rename(overlay.path / "renamed")  # would fail if upper and work were on two mounts
    (overlay.path / "lower").write_text("y")
    assert (overlay.upper / "lower").read_text() == "y"


@pytest.mark.parametrize("option, moves", [("relatime", False), ("strictatime", True)])
def test_strictatime_moves_access_times_at_each_read(tmpfs_overlay, mount8, option, moves):
    overlay = tmpfs_overlay
    now = time.time()
    files = behind(overlay)[:2]
    for path in files:
        os.utime(path, (now + 1000, now - 200))  # relatime does not update an atime that is later than mtime and ctime
    done = mount8("-t", TYPE, "o", overlay.path, "-o", f"{option},{overlay.directories()}")
    assert done.returncode == 0, done.stderr
    read_all(overlay)
    assert [os.stat(path).st_atime < now + 500 for path in files] == [moves, moves]


@pytest.mark.parametrize("option", ["noatime", "relatime"])
def test_changes_of_a_lower_beside_the_mount_are_seen(tmpfs_overlay, mount8, option):
    overlay = tmpfs_overlay
    done = mount8("-t", TYPE, "o", overlay.path, "-o", f"{option},{overlay.directories()}")
    assert done.returncode == 0, done.stderr
    path = overlay.path / "directory/new"
    assert not path.exists()
    mounts.run("sh", "-c", f"echo x > {overlay.lowers[0]}/directory/new")  # by another process, outside the mount
    jobs.wait_until(path.exists, what="the new file of the lower")
