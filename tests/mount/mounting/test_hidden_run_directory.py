# SPDX-License-Identifier: Apache-2.0
"""Processes that see the mount but not its run directory, as in most containers, read their routes through the
mount."""

import os
import shutil
import subprocess
import time

import mounts
import pytest
from jobs import standing_still

USER = 20001
# The container gets these directories of this machine. The library and the mount have the same paths as outside.
BINDS = ("usr", "bin", "lib", "lib64", "etc", "dev", "proc")
ENTER = """
set -e
mount -t tmpfs -o mode=755 none "$ROOT"
for name in %(binds)s; do
    [ -e "/$name" ] || continue
    mkdir "$ROOT/$name" && mount --rbind "/$name" "$ROOT/$name"
done
mkdir -p "$ROOT/run" "$ROOT/home" "$ROOT/old" "$ROOT$LIBRARY_DIR" "$ROOT$MOUNT_POINT"
chmod 777 "$ROOT/home"
mount --bind "$LIBRARY_DIR" "$ROOT$LIBRARY_DIR"
mount --bind "$MOUNT_POINT" "$ROOT$MOUNT_POINT"
if [ -n "$RUN_BIND" ]; then mkdir "$ROOT/run/cacheshim"; mount --rbind "$RUN_BIND" "$ROOT/run/cacheshim"; fi
cd "$ROOT"
pivot_root . old
umount -l /old
exec setpriv --reuid=%(user)d --regid=%(user)d --clear-groups "$@"
""" % {"binds": " ".join(BINDS), "user": USER}


@pytest.fixture
def contain(scratch, library):
    """contain(mount, *argv) runs a command in a container's root, which lacks the run directory unless `run_bind` is
    given. Only the command has the library preloaded."""
    directory = scratch / "lib"
    directory.mkdir(mode=0o755)
    copy = shutil.copy(library, directory / "libcacheshim.so")
    root = scratch / "root"
    root.mkdir()

    def run(mount, *argv, run_bind="", env=None, preload=True, timeout=60):
        variables = {"ROOT": str(root), "LIBRARY_DIR": str(directory), "MOUNT_POINT": str(mount.path),
                     "RUN_BIND": str(run_bind), "HOME": "/home", "CACHESHIM_JOB": "contained",
                     "CACHESHIM_MOUNT": str(mount.path), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                     **(env or {})}
        loaded = ["env", f"LD_PRELOAD={copy}"] if preload else []
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", *loaded,
             *map(str, argv)], env=variables, text=True, capture_output=True, timeout=timeout,
            stdin=subprocess.DEVNULL, check=False)
    return run


WRITE = "mkdir -p ~/.site-cache/K && echo x > ~/.site-cache/K/file && printenv SITE_CACHE_DIR"


def test_site_profiles_are_routed_without_the_run_directory(site_mount, contain):
    done = contain(site_mount, "sh", "-c", WRITE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"{site_mount.path}/.jobs/contained/site" or \
        done.stdout.strip() == f"{site_mount.path}/site"
    assert site_mount.base("site/K/file").exists() or \
        "site/K/file" in site_mount.layer_files("contained")


def test_site_profiles_are_routed_with_the_run_directory(site_mount, contain):
    run_directory = site_mount.run_directory().parent
    done = contain(site_mount, "sh", "-c", WRITE, run_bind=run_directory)
    assert (done.returncode, done.stderr) == (0, "")
    before = site_mount.stats()["hits_direct"]
    site_mount.end_job("contained")
    # The first process begins the job again; the others find its filter.
    read = contain(site_mount, "sh", "-c", "for i in 1 2 3 4; do cat ~/.site-cache/K/file; done",
                   run_bind=run_directory)
    assert read.stdout == "x\n" * 4, read.stderr
    assert site_mount.stats()["hits_direct"] > before


def test_a_start_makes_no_job_and_leaves_no_process(site_mount, contain):
    done = contain(site_mount, "python3", "-c",
                   "import os; print(os.listdir('/proc/self/task') == [str(os.getpid())]);\n"
                   "print([f for f in os.listdir('/proc/self/fd') if int(f) > 3])\n"
                   "try: os.waitpid(-1, 0x40000000 | os.WNOHANG)\n"
                   "except ChildProcessError: print('no child')")
    assert done.stdout.split("\n")[:3] == ["True", "[]", "no child"], done.stderr
    assert "contained" not in site_mount.cli("job", "list").stdout


def test_a_dead_mount_leaves_the_built_in_routes(site_mount, contain):
    site_mount.kill_daemon()
    done = contain(site_mount, "sh", "-c", 'echo "$TRITON_CACHE_DIR"')
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(site_mount.path))


def test_a_program_starts_while_the_daemon_hangs(site_mount, contain):
    with standing_still(site_mount.daemon_pid()):
        # The script hides the run directory under a tmpfs, so the library must ask the daemon, which does not answer.
        began = time.monotonic()
        child = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             'mount -t tmpfs none /run && exec env LD_PRELOAD="$0" echo started', mounts.LIBRARY],
            env={"CACHESHIM_MOUNT": str(site_mount.path), "PATH": os.environ["PATH"]}, text=True,
            capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
        assert child.stdout == "started\n"
        assert time.monotonic() - began < 20
        assert "does not answer" in child.stderr and "built-in" in child.stderr
        assert len(child.stderr.splitlines()) == 1


def test_a_pipe_reaches_its_end_while_the_daemon_hangs(site_mount):
    """The library sends its request to the daemon from a child process, which cannot always be killed. That child must
    not hold its parent's descriptors, such as the pipe."""
    with standing_still(site_mount.daemon_pid()):
        pipe = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             'mount -t tmpfs none /run && env LD_PRELOAD="$0" true | cat', mounts.LIBRARY],
            env={"CACHESHIM_MOUNT": str(site_mount.path), "PATH": os.environ["PATH"]},
            timeout=60, stdin=subprocess.DEVNULL, check=False)
        assert pipe.returncode == 0


def test_the_file_of_routes_is_the_run_directorys(site_mount):
    through = (site_mount.path / ".cacheshim/routes").read_bytes()
    assert through == (site_mount.run_directory() / "routes").read_bytes()
    assert b"SITE_CACHE_DIR" in through
