# SPDX-License-Identifier: Apache-2.0
"""pip installs the same files into a view as natively, and replaces them with those of another version."""

import sys

import places
import pytest
import workers

# In the view's run, pip's caches and temporary files are in the view too. pip needs no network, because the wheel is a
# local file.
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
INSTALL = ["install", "--no-index", "--find-links", ".", "--target", "site", "--no-compile"]
MODULES = 60


def pip(place, *words):
    place.run("mkdir", "-p", "temporary")
    environment = {"TMPDIR": place.path / "temporary", "PIP_CACHE_DIR": place.path / "pip-cache"}
    return place.run(*PIP, *words, env=environment)


def version_in(place):
    code = "import sample, sample.part7; print(sample.__version__, sample.part7.VERSION)"
    return place.run("/usr/bin/python3", "-B", "-c", code, env={"PYTHONPATH": place.path / "site"})


def installed(directory):
    """Creates the base's contents: the first version, installed natively."""
    place = places.Place(directory, 0, None)
    workers.write_wheel(directory, "1.0", MODULES)
    pip(place, *INSTALL, "sample==1.0")


@pytest.mark.timeout_s(300)
def test_pip_installs_and_upgrades(two_places, uid, in_base):
    trees = []
    for place in two_places(uid, installed if in_base else None):
        if not in_base:
            place.python("write_wheel", ".", "1.0", MODULES)
            pip(place, *INSTALL, "sample==1.0")
        assert version_in(place) == "1.0 1.0\n"
        place.python("write_wheel", ".", "2.0", MODULES // 2)
        pip(place, *INSTALL, "--upgrade", "sample==2.0")
        assert version_in(place) == "2.0 2.0\n"
        trees.append(place.tree("site", times=False))
        assert place.run("ls", "-A", "temporary") == ""
    assert f"sample/part{MODULES // 2}.py" not in trees[0]
    places.assert_equal_trees(*trees)
