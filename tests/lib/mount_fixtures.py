# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests on real mounts. They need root; each test has its own store and mount.

Environment: CACHESHIM_BIN and CACHESHIM_LIB name the tested program and library (default: build/dist).
"""

import atexit
import faulthandler
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import uuid

import jobs
import mounts
import pytest

TEST_TIMEOUT_S = 120


@pytest.fixture(scope="session")
def all_scratch():
    """This run's directory, which is removed after the run even if pytest is killed."""
    mounts.enter_private_mount_namespace()
    top = pathlib.Path(tempfile.mkdtemp(prefix="cacheshim-test-", dir="/tmp"))
    top.chmod(0o755)
    os.environ["LIBMOUNT_UTAB"] = str(top / "utab")  # keep the machine's own /run/mount/utab unchanged
    watchdog = mounts.Watchdog(top)
    atexit.register(mounts.remove, top)
    yield top
    mounts.remove(top)
    watchdog.close()


@pytest.fixture(autouse=True)
def hard_timeout(request):
    """Fails a test that exceeds its time limit, and unmounts its mounts, so that calls that hang in them return."""
    marker = request.node.get_closest_marker("timeout_s")
    seconds = marker.args[0] if marker else TEST_TIMEOUT_S

    def give_up(_signal, _frame):
        faulthandler.dump_traceback()
        if "all_scratch" in request.fixturenames:
            mounts.free(request.getfixturevalue("all_scratch"))
        raise AssertionError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def scratch(all_scratch):
    """A directory of this test, which every user can search (mode 0755)."""
    path = pathlib.Path(tempfile.mkdtemp(dir=all_scratch))
    path.chmod(0o755)
    yield path
    mounts.remove(path)


@pytest.fixture
def program():
    if not os.access(mounts.PROGRAM, os.X_OK):
        pytest.fail(f"no program at {mounts.PROGRAM}: build first, or set CACHESHIM_BIN")
    return mounts.PROGRAM


@pytest.fixture
def anybodys_program(scratch):
    """A copy of the program that every user can run."""
    copy = scratch / "dist"
    shutil.copytree(pathlib.Path(mounts.PROGRAM).parents[1], copy, symlinks=True)
    return copy / "bin" / "cacheshim"


@pytest.fixture
def library():
    if not os.access(mounts.LIBRARY, os.R_OK):
        pytest.fail(f"no library at {mounts.LIBRARY}: build first, or set CACHESHIM_LIB")
    return mounts.LIBRARY


@pytest.fixture
def store(scratch):
    """An empty store; a test that needs base files creates them there before it mounts."""
    path = scratch / "store"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def mount_store(program, scratch):
    """mount_store(store, *options) mounts a store at a new mount point."""
    made = []

    def mount(store, *options, name=None):
        point = scratch / (name or f"mnt{len(made)}")
        point.mkdir(exist_ok=True)
        one = mounts.Mount(store, point)
        made.append(one)
        return one.mount(*options)

    yield mount
    for one in made:
        one.close()


@pytest.fixture
def mount_allowing(mount_store, store, scratch):
    """mount_allowing(allow) mounts the store with the TOML value `allow` as [publish] allow, or without [publish] if
    `allow` is None."""
    def mount(allow, more="", name=None):
        config = scratch / f"{uuid.uuid4()}.toml"
        config.write_text("" if allow is None else f"[publish]\nallow = {allow}\n{more}")
        return mount_store(store, "--config", config, name=name)
    return mount


@pytest.fixture
def own_profiles(scratch):
    """An empty profiles.d, the only content of /etc/cacheshim during this test."""
    directory = scratch / "etc"
    (directory / "profiles.d").mkdir(parents=True)
    pathlib.Path("/etc/cacheshim").mkdir(exist_ok=True)
    mounts.run("mount", "--bind", directory, "/etc/cacheshim")
    yield directory / "profiles.d"
    mounts.run("umount", "/etc/cacheshim")


@pytest.fixture
def overlay(program, scratch):
    """The directories of a plain overlay, which is not mounted yet."""
    one = mounts.Overlay(scratch)
    yield one
    one.close()


@pytest.fixture
def mount(mount_store, store):
    """The test's store, mounted. A test that needs base files uses mount_store instead."""
    return mount_store(store)


@pytest.fixture
def device(scratch):
    """Makes /dev/fuse accessible to everybody, as udev does; only in this run's mount namespace."""
    mounts.let_everybody_mount(scratch)
    yield
    # The unmount is lazy, because a daemon whose mount has just been removed may still have /dev/fuse open.
    subprocess.run(["umount", "-l", "/dev/fuse"], check=True)


@pytest.fixture
def sbin(scratch):
    """Adds the helpers for mount(8) and umount(8) to /sbin; only in this run's mount namespace."""
    helpers = pathlib.Path(mounts.PROGRAM).resolve().parents[1] / "sbin"
    names = ("mount.fuse.cacheshim", "umount.fuse.cacheshim")
    added = scratch / "sbin"
    added.mkdir()
    for name in names:
        if not (helpers / name).exists():
            pytest.fail(f"no helper at {helpers / name}: install the build first")
        (added / name).symlink_to(helpers / name)
    real = pathlib.Path("/sbin").resolve()
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"ro,lowerdir={added}:{real}", real],
                   check=True)
    yield
    subprocess.run(["umount", "-l", real], check=True)


@pytest.fixture
def agent(scratch):
    for module in pathlib.Path(__file__).parent.glob("agent*.py"):
        shutil.copyfile(module, scratch / module.name)
        (scratch / module.name).chmod(0o644)
    return scratch / "agent.py"


@pytest.fixture
def job_of(agent):
    """job_of(mount, "a", 20001, env={…}) starts a process of a job."""
    started = []

    def start(mount, job, uid, **options):
        path = mount.path if isinstance(mount, mounts.Mount) else mount
        started.append(jobs.Job(path, agent, uid, job, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def shimmed_job_of(job_of, library, scratch):
    """Starts a process like job_of, with the library preloaded."""
    copy = shutil.copy(library, scratch / "libcacheshim.so")

    def start(mount, job, uid, env=None, **options):
        path = mount.path if isinstance(mount, mounts.Mount) else mount
        preload = {"LD_PRELOAD": str(copy), "CACHESHIM_MOUNT": str(path)}
        return job_of(mount, job, uid, env={**preload, **(env or {})}, **options)

    return start


@pytest.fixture
def two_jobs(mount, job_of):
    """Two jobs of two users on the test's mount."""
    return job_of(mount, "one", 20001), job_of(mount, "two", 20002)


@pytest.fixture
def as_user():
    return jobs.as_user
