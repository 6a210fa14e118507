# SPDX-License-Identifier: Apache-2.0
"""A job that only root has used: the kernel has cached files with root as the owner, but the job's first user must see
itself as the owner."""

import json
import os
import subprocess
import sys
import time

import pytest
from jobs import as_user, standing_still, wait_until

USER, JOB = 20001, "begun"
KEEP_SECONDS = 1  # the short timeout of names and attributes (kShortTimeout)


class Rooted:
    """A job that root has used: `view`, and `paths`, the paths in the view that root has looked up."""

    def __init__(self, mount):
        self.mount = mount
        self.view = mount.path / ".jobs" / JOB
        key = self.view / "triton/KEY"
        (key / "deep/er").mkdir(parents=True)
        for path in (key / "file", key / "deep/er/file"):
            path.write_text("of root")
        self.file = key / "file"
        self.look()

    def look(self):
        """Looks up every path as root, which sees itself as the owner."""
        top = self.view / "triton"
        self.paths = [self.view, top, *sorted(top.rglob("*"))]
        assert len(self.paths) == 9
        assert {path.lstat().st_uid for path in self.paths} == {0}
        assert (self.view / "triton/OLD/file").read_text() == "of the base"

    def by(self, directory):
        """Returns `paths` without the view itself, each below `directory`, which is another path to the view."""
        return [str(directory / path.relative_to(self.view)) for path in self.paths[1:]]


@pytest.fixture
def rooted(mount_store, store):
    (store / "triton/OLD").mkdir(parents=True)
    (store / "triton/OLD/file").write_text("of the base")
    return Rooted(mount_store(store))


@pytest.fixture
def bound(rooted, scratch):
    """The view, bound to another path as in a container."""
    target = scratch / "bound"
    target.mkdir()
    subprocess.run(["mount", "--bind", rooted.view, target], check=True)
    return target


def sees_its_own(paths, job=JOB):
    """Stats the paths as the user, the deepest one first, and asserts that the user owns all of them."""
    result = as_user(USER, ["stat", "-L", "-c", "%u:%g %n", *reversed(paths)], job=job)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [f"{USER}:{USER} {path}" for path in reversed(paths)]


def can_change(top, job=JOB):
    script = """cd "$1/triton" && echo more >> KEY/file && chmod 600 KEY/deep/er/file && touch -d @1 KEY/deep &&
                mkdir KEY/made && echo new > KEY/made/file && mv OLD/file KEY/moved && rm -r KEY/deep &&
                cat KEY/file KEY/moved"""
    result = as_user(USER, ["sh", "-c", script, "sh", top], job=job)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "of rootmore\nof the base"


def test_the_first_user_comes_by_the_views_name(rooted):
    sees_its_own([str(path) for path in rooted.paths])
    can_change(rooted.view)
    stranger = as_user(USER + 1, ["ls", rooted.view / "triton/KEY"], job="another")
    assert "Permission denied" in stranger.stderr


def test_the_first_user_comes_by_the_root_symlink(rooted):
    sees_its_own(rooted.by(rooted.mount.path))
    can_change(rooted.mount.path)


def test_the_first_user_comes_by_a_bind_of_the_view(rooted, bound):
    assert {os.lstat(path).st_uid for path in rooted.by(bound)} == {0}
    sees_its_own(rooted.by(bound), job=None)
    can_change(bound, job=None)


def test_the_first_user_comes_by_a_control_request(rooted, program):
    """The request claims the view without a lookup in it."""
    started = as_user(USER, [program, "job", "start", JOB, "--mount", rooted.mount.path])
    assert started.returncode == 0, started.stderr
    sees_its_own([str(path) for path in rooted.paths])


def test_a_process_that_root_puts_into_a_directory_may_write_there(rooted):
    made = as_user(USER, ["sh", "-c", "echo x > made && chmod 600 file && stat -c %u . made file"],
                   cwd=rooted.file.parent)
    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == [str(USER)] * 3


def test_an_inherited_open_file_gives_no_access_to_the_view(rooted):
    with open(rooted.view / "triton/log", "w", encoding="utf-8") as log:
        # The kernel requests the attributes because the size has changed.
        script = "echo x; stat -c '%u %s' - <&1 >&2; echo y"
        other = as_user(USER + 1, ["sh", "-c", script], stdout=log)
    assert other.stderr == "0 2\n"
    sees_its_own([str(path) for path in rooted.paths])


def test_a_process_that_arrives_with_the_first_user_sees_its_own_files_too(rooted, job_of):
    """The kernel has cached 3000 files of the view: invalidating them takes longer than the first calls of the user's
    four processes. All four must see the user as the owner.

    Each process stats its own files. When the attributes of an inode arrive, the kernel (6.18) marks the cached ones as
    valid before it stores the new owner. A second process that stats the same file at that time may see the old owner.
    """
    many = rooted.view / "triton/many"
    many.mkdir()
    paths = [str(many / f"f{number}") for number in range(3000)]
    for path in paths:
        open(path, "w", encoding="utf-8").close()
        assert os.stat(path).st_uid == 0
    together = [job_of(rooted.mount, JOB, USER) for _ in range(4)]
    for number, one in enumerate(together):
        one.start("owners", paths[number::4][-100:])
    for one in together:
        assert one.result() == [USER] * 100


def test_strangers_cannot_enter(rooted):
    for path in (rooted.view, rooted.file):
        stranger = as_user(USER, ["stat", path], job="other")
        assert "Permission denied" in stranger.stderr
    assert {path.lstat().st_uid for path in rooted.paths} == {0}


def lookups(mount):
    return json.loads((mount.path / ".cacheshim/stats").read_text())["lookups"]


def test_roots_opens_look_up_only_the_views_name(rooted):
    before = lookups(rooted.mount)
    for _ in range(50):
        assert rooted.file.read_text() == "of root"
        assert (rooted.view / "triton/KEY/deep/er/file").stat().st_uid == 0
    assert lookups(rooted.mount) == before + 100


def answers_alone(mount, directory, name):
    """Stats `name` in an open directory while the daemon is stopped; returns true if the kernel alone answers. Before
    that, waits until answers with the short timeout have expired, and looks up the view's name."""
    code = "import os, sys; sys.stdin.read(); os.stat(sys.argv[2], dir_fd=int(sys.argv[1]))"
    with subprocess.Popen([sys.executable, "-I", "-c", code, str(directory), name],
                          stdin=subprocess.PIPE, pass_fds=[directory]) as asking:
        end = time.monotonic() + 1.1 * KEEP_SECONDS
        wait_until(lambda: time.monotonic() > end, what="the end of a short time")
        os.close(os.open(mount.path / ".jobs" / JOB, os.O_PATH))
        with standing_still(mount.daemon_pid()):
            try:
                asking.communicate(timeout=2)
            except subprocess.TimeoutExpired:
                asking.kill()
    return asking.returncode == 0


@pytest.mark.parametrize(("top", "name"), [("", "triton"), ("triton/KEY", "file")])
def test_root_needs_no_getattr_requests(rooted, top, name):
    directory = os.open(rooted.view / top, os.O_RDONLY | os.O_DIRECTORY)
    os.stat(name, dir_fd=directory)
    wait_until(lambda: answers_alone(rooted.mount, directory, name), what="an answer")
    os.close(directory)
