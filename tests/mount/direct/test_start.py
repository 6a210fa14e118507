# SPDX-License-Identifier: Apache-2.0
"""How a preloaded process finds the mount when it starts: by the record in the run directory, or by
/proc/self/mountinfo if the record does not suffice. Each case has its own mount namespace."""

import shutil
import subprocess

import pytest

UID = 20001
SAY_WHERE = 'echo "$TRITON_CACHE_DIR"'


@pytest.fixture
def start_in(mount, two_jobs, library, scratch):
    """start_in(change, script) runs both shell scripts in a new mount namespace: `change` as root, to change the
    mounts, and then `script` as a preloaded process of job one."""
    copy = shutil.copy(library, scratch / "libcacheshim.so")

    def start(change, script):
        changing = f"mount --make-rprivate / && {change} && exec \"$@\""
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", changing, mount.path, "setpriv", f"--reuid={UID}",
             f"--regid={UID}", "--clear-groups", "env", "-i", "PATH=/usr/bin:/bin", f"HOME={scratch}",
             "CACHESHIM_JOB=one", f"CACHESHIM_MOUNT={mount.path}", f"LD_PRELOAD={copy}", "sh", "-c",
             script],
            capture_output=True, text=True, check=False)

    return start


def check_absent(done, mount):
    assert (done.returncode, done.stdout) == (0, "\n")
    assert f"no cacheshim mount at {mount.path}" in done.stderr


def test_without_proc_the_daemons_record_names_the_mount(start_in, mount):
    done = start_in("mount -t tmpfs none /proc", SAY_WHERE)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{mount.path}/triton\n", "")


def test_without_a_record_mountinfo_names_the_mount(start_in, mount):
    done = start_in(f"mount -t tmpfs none '{mount.run_directory()}'", SAY_WHERE)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{mount.path}/triton\n", "")


def test_without_record_and_mountinfo_no_mount_is_found(start_in, mount):
    done = start_in(f"mount -t tmpfs none '{mount.run_directory()}' && mount -t tmpfs none /proc", SAY_WHERE)
    assert (done.returncode, done.stdout) == (0, "\n")
    assert "cannot read /proc/self/mountinfo" in done.stderr


def test_a_record_of_a_mount_that_is_not_seen_here(start_in, mount):
    check_absent(start_in('umount -l "$0"', SAY_WHERE), mount)


def test_a_record_of_a_mount_that_another_covers(start_in, mount):
    check_absent(start_in('mount -t tmpfs none "$0"', SAY_WHERE), mount)


def test_a_view_that_is_bound_over_the_mount_is_that_view(start_in, mount):
    done = start_in('mount --bind "$0/.jobs/one" "$0"',
                    'mkdir -p "$TRITON_CACHE_DIR/key" && echo x > "$TRITON_CACHE_DIR/key/file"')
    assert (done.returncode, done.stderr) == (0, "")
    assert mount.layer_files("one")["triton/key/file"] == b"x\n"


def test_a_record_that_a_killed_daemon_has_left(start_in, mount):
    """The library uses the record as long as the dead mount exists; the first call on the mount then reports the
    daemon's death."""
    mount.kill_daemon()
    done = start_in("true", SAY_WHERE)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{mount.path}/triton\n", "")
    mount.detach()
    check_absent(start_in("true", SAY_WHERE), mount)
