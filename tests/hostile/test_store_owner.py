# SPDX-License-Identifier: Apache-2.0
"""Only the daemon may change the directories in a store's .cacheshim: a mount fails if another user owns one of them or
can write to it."""

import os
import shutil

import mounts
import pytest

STRANGER = 20002
DIRECTORIES = [".cacheshim", *(f".cacheshim/{name}" for name in
                               ("layers", "staging", "trash", "leases", "audit"))]


@pytest.fixture
def made(mount_store, store):
    """A store that was mounted once and is unmounted, so that its .cacheshim exists."""
    mount = mount_store(store)
    assert mount.unmount().returncode == 0
    return mount


def assert_refused(mount, *said):
    refused = mount.try_mount()
    assert refused.returncode == 69, refused.stderr
    [line] = refused.stderr.splitlines()
    assert all(word in line for word in (str(mount.store), "nothing was mounted", *said)), line
    assert not mounts.is_mounted(mount.path)


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_of_another_user(made, name):
    os.chown(made.store / name, STRANGER, STRANGER)
    assert_refused(made, f"'{name}'", f"uid {STRANGER}")
    os.chown(made.store / name, 0, 0)
    made.mount()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_that_others_can_write(made, name, mode):
    os.chmod(made.store / name, mode)
    assert_refused(made, f"'{name}'", "can be written by others")


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_symlink(made, name, scratch):
    target = scratch / "elsewhere"
    shutil.move(made.store / name, target)
    os.symlink(target, made.store / name)
    assert_refused(made, f"'{name}'", "symlink")


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_file(made, name):
    shutil.rmtree(made.store / name)
    (made.store / name).write_text("x")
    assert_refused(made, f"'{name}'", "not a directory")


def test_a_store_that_a_stranger_has_prepared(program, store, scratch):
    """In a store that everybody may write to, a stranger has created .cacheshim before the first mount."""
    (store / ".cacheshim").mkdir()
    os.chown(store / ".cacheshim", STRANGER, STRANGER)
    point = scratch / "point"
    point.mkdir()
    assert_refused(mounts.Mount(store, point), "'.cacheshim'", f"uid {STRANGER}")


@pytest.mark.parametrize("change", [
    lambda path: os.chown(path, STRANGER, STRANGER), lambda path: os.chmod(path, 0o777)],
    ids=["owner", "mode"])
def test_a_directory_of_layers_elsewhere(made, scratch, change):
    layers = scratch / "layers"
    layers.mkdir(mode=0o755)
    change(layers)
    refused = made.try_mount("--layers", layers)
    assert refused.returncode == 69 and str(layers) in refused.stderr
    os.chown(layers, 0, 0)
    os.chmod(layers, 0o755)
    made.mount("--layers", layers)


def test_a_jobs_layer_that_a_stranger_has_prepared(made, job_of):
    """A process of the job gets an error, and does not see the files of the stranger's layer."""
    planted = made.store / ".cacheshim/layers/j"
    (planted / f"0@{os.uname().nodename}" / "upper/triton").mkdir(parents=True)
    for path in (planted, *planted.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    made.mount()
    job = job_of(made, "j", 20001)
    with pytest.raises(OSError):
        job.write("triton/x", b"x")
    assert job.listdir("triton") == []
