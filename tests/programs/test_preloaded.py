# SPDX-License-Identifier: Apache-2.0
"""Programs that use no cache behave the same with the library preloaded as without it."""

import difflib
import shutil

import places
import pytest
import test_cpython
import test_git
from mounts import LIBRARY

# CPython's tests of files, paths, processes, modules and threads.
MODULES = ["os", "posix", "posixpath", "shutil", "subprocess", "tempfile", "pathlib", "glob", "fileio",
           "import", "importlib", "threading", "signal", "fork1", "multiprocessing_spawn", "ctypes",
           "site", "venv", "popen", "mmap", "fcntl", "faulthandler", "cmd_line", "runpy"]

# Commands of GNU's coreutils, find and tar; the test compares their output and the resulting files.
COMMANDS = r"""
exec 2>&1
export LC_ALL=C TZ=UTC
mkdir -p tree/a/b tree/c && cd tree || exit 1
printf 'one\ntwo\nthree\n' > a/text; seq 1000 > a/b/numbers; : > c/empty
ln -s a/text link; ln -s nowhere lost; ln -s ../a c/up; ln a/text a/hard; mkfifo c/pipe
touch -d '2024-01-02 03:04:05.678901234' a/text c/empty; touch -h -d '2001-01-01' link
chmod -R u=rwX,go=rX a; chmod 4750 a/b/numbers; chown 0:0 a/text; umask 077; mkdir private
cp -a . ../copy; cp --reflink=auto a/b/numbers c/; mv c/numbers c/moved; mv -T c/moved a/replaced
install -D -m 640 a/text new/directories/text; rmdir private missing a; rm -r missing; rm a
cd c/up/b; pwd -L; pwd -P; cd ..; pwd -L; pwd -P; cd ../../tree/a/b/../..; pwd; cd "$OLDPWD"; pwd
cd "$(realpath ../..)/tree"; readlink link lost c/up; readlink -f link lost c/up missing/x
realpath a/../a/./b c/up/b; realpath --relative-to=a/b c; test a/text -ef link; echo $?
truncate -s 100000 a/sparse; dd if=a/b/numbers of=a/part bs=100 count=3 skip=2 status=none
split -n 4 a/b/numbers a/part-; cat a/part-*; sort -r a/b/numbers | head -3; wc -c a/*; du -ab a | sort -k 2
shred -u a/part-aa; mktemp -u -p a XXXXXX | sed 's/[^/]*$/NAME/'; ls -a a; ls missing
stat -c '%n %A %U %s %h %F' a a/* c/* link; stat -L -c '%n %s' link lost; stat -c %y a/text c/empty
find . -newer a/text -type f | sort; find . -xtype l; find -L . -samefile a/text | sort
find . -name '*e*' -exec basename {} \; | sort; find a -type f -print0 | sort -z | xargs -0 -n 2 md5sum
tar -C a --sort=name --mtime=@0 --owner=0 --group=0 -cf - . | md5sum; tar -cf - a | tar -tf - | sort
env -C c ls; timeout 10 cat link; nice -n 1 head -c 3 link; tail -n 1 a/text; tee c/teed < link
comm a/text a/hard; paste a/text a/hard; join a/text a/text; diff -r a ../copy/a; sync a/text; df . >/dev/null
cd ..; rm -rf copy/a; ls -R copy
"""


class PreloadedPlace(places.Place):
    """A place outside the mount, whose programs have the library preloaded and CACHESHIM_MOUNT set."""

    def __init__(self, path, uid, mount):
        super().__init__(path, uid, None)
        self.mount = mount

    def try_run(self, *argv, env=None, **options):
        ours = {"LD_PRELOAD": LIBRARY, "CACHESHIM_MOUNT": str(self.mount), "CACHESHIM_JOB": "j"}
        return super().try_run(*argv, env={**ours, **(env or {})}, **options)


@pytest.fixture
def with_and_without(scratch, store, mount_store):
    """with_and_without(use) calls use(place) without the library and with it; returns both results."""

    def compare(use, uid=0):
        found = []
        for mount in (None, mount_store(store).path):
            directory = scratch / "place"  # the same path for both, because programs print it
            directory.mkdir()
            shutil.chown(directory, uid, uid)
            place = PreloadedPlace(directory, uid, mount) if mount else places.Place(directory, uid, None)
            found.append(use(place))
            shutil.rmtree(directory)
        return found

    return compare


def test_the_library_is_preloaded(with_and_without):
    """If the library were not preloaded, the other tests would pass without testing it."""
    without, loaded = with_and_without(lambda place: place.run("cat", "/proc/self/maps"))
    assert "libcacheshim" not in without
    assert "libcacheshim" in loaded


def test_coreutils_are_unchanged(with_and_without):
    def use(place):
        result = place.try_run("bash", "-c", COMMANDS)
        return result.returncode, result.stdout.splitlines(), place.tree(times=False)

    without, loaded = with_and_without(use)
    assert without[2], without[1]
    assert list(difflib.unified_diff(without[1], loaded[1], "without", "with", n=0)) == []
    assert without == loaded


@pytest.mark.timeout_s(300)
def test_git_is_unchanged(with_and_without):
    def use(place):
        repository = test_git.begin(place)
        test_git.history(repository)
        repository.git("worktree", "add", "-q", "../other", "topic")
        repository.git("clone", "-q", "--no-hardlinks", ".", "../clone")
        return repository.state(), repository.git("-C", "../clone", "log", "--stat")

    without, loaded = with_and_without(use)
    assert without == loaded


@pytest.mark.long
@pytest.mark.timeout_s(900)
@pytest.mark.parametrize("module", MODULES)
def test_cpython_is_unchanged(with_and_without, module):
    if not test_cpython.has_module(f"test.test_{module}"):
        pytest.skip(f"there is no test.test_{module} here")
    (without, output), (loaded, loaded_output) = with_and_without(
        lambda place: test_cpython.outcomes(place, module))
    if not without:
        pytest.skip(f"test_{module} does not run: {output.splitlines()[-4:]}")
    different = {name: (without.get(name), loaded.get(name))
                 for name in without.keys() | loaded.keys()
                 if without.get(name) != loaded.get(name)}
    assert not different, f"without and with the library: {different}\n{loaded_output}"
