# SPDX-License-Identifier: Apache-2.0
"""git has the same results in a view as natively, including the ids of its commits."""

import places
import pytest

# With fixed names and dates, equal trees give equal commit ids. With one thread, git packs objects in a fixed order.
ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.org", "GIT_AUTHOR_DATE": "2024-01-02T03:04:05+0000",
    "GIT_COMMITTER_DATE": "2024-01-02T03:04:05+0000", "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "pack.threads", "GIT_CONFIG_VALUE_0": "1",
    "GIT_CONFIG_KEY_1": "safe.directory", "GIT_CONFIG_VALUE_1": "*"}
FILES = 500


def names_of_files():
    return [f"directory{number % 23}/sub{number % 7}/file{number}.txt" for number in range(FILES)]


class Repository:
    """A clone at one place, and the git commands there."""

    def __init__(self, place, directory):
        self.place, self.directory = place, directory

    def git(self, *words):
        return self.place.run("git", *words, cwd=self.directory, env=ENVIRONMENT)

    def change(self, seed, names):
        """Writes files with contents that depend on `seed`, as the place's user."""
        self.place.python("write_texts", self.directory, seed, *names)

    def state(self):
        """Returns everything that must be equal at both places."""
        return {
            "refs": self.git("for-each-ref", "--format=%(refname) %(objectname)"),
            "head": self.git("rev-parse", "HEAD^{tree}"),
            "files": self.git("ls-files", "--stage"),
            "status": self.git("status", "--porcelain=v2", "--branch"),
            "fsck": self.git("fsck", "--full", "--strict", "--no-progress"),
            "objects": [line for line in self.git("count-objects", "-v").splitlines()
                        if not line.startswith("size")],
            "tree": self.place.tree(self.directory, times=False, skip=[".git"]),
        }


def history(repository):
    """Makes branches and a merge, and repacks all objects; each step rewrites a large part of the files."""
    names = names_of_files()
    repository.git("checkout", "-q", "-b", "topic")
    repository.change(2, names[:100])
    repository.git("commit", "-q", "-a", "-m", "on a topic")
    repository.git("checkout", "-q", "main")
    repository.change(3, names[200:260])
    repository.git("rm", "-q", *names[300:330])
    repository.git("mv", "directory3", "moved")
    repository.git("commit", "-q", "-a", "-m", "on main")
    repository.git("merge", "-q", "-m", "both", "topic")
    repository.git("gc", "-q", "--prune=now")
    repository.git("checkout", "-q", "topic")
    repository.git("checkout", "-q", "main")
    repository.git("stash", "list")
    repository.git("diff-files", "--exit-code")  # compares stat data: no file has changed since the checkout


def begin(place):
    repository = Repository(place, "repository")
    place.run("mkdir", "repository")
    place.run("ln", "-s", "directory1", "repository/link")
    repository.change(1, names_of_files())
    repository.git("init", "-q", "-b", "main")
    repository.git("add", ".")
    repository.git("commit", "-q", "-m", "all")
    return repository


def repository_in(directory):
    """Creates the base's contents: a repository as begin() leaves it."""
    begin(places.Place(directory, 0, None))


@pytest.mark.timeout_s(300)
def test_a_repository_is_the_same_as_natively(two_places, uid, in_base):
    states = []
    for place in two_places(uid, repository_in if in_base else None):
        repository = Repository(place, "repository") if in_base else begin(place)
        history(repository)
        repository.git("clone", "-q", "--no-hardlinks", ".", "../clone")
        repository.git("clone", "-q", ".", "../linked")
        copies = [Repository(place, name) for name in ("clone", "linked")]
        for copy in copies:
            copy.git("checkout", "-q", "topic")
        states.append([one.state() for one in (repository, *copies)])
    for native, view in zip(*states):
        places.assert_equal_trees(native.pop("tree"), view.pop("tree"))
        assert native == view
        assert native["fsck"] == ""
