# SPDX-License-Identifier: Apache-2.0
"""Runs real programs in several jobs at once on one cold cache: pip, and ccache under ninja."""

import hashlib
import os
import subprocess
import sys

import jobs
import pytest
from package_index import PackageIndex, wheel, wheel_name

PIP_JOBS = 8
JOBS = 4
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q"]


@pytest.fixture
def index():
    """A server, its wheels by name, and the names of the wheels that clients have downloaded."""
    wheels = {wheel_name(name): wheel(name, padding) for name, padding in
              (("alpha", 10), ("beta", 50_000), ("gamma", 400_000))}
    downloads = []
    server = PackageIndex(wheels, downloads.append)
    yield server, wheels, downloads
    server.close()


def start(uid, job, argv, env):
    return subprocess.Popen([str(word) for word in argv], user=uid, group=uid, extra_groups=[],
                            umask=0o022, env=jobs.environment(job, env), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)


def finish(processes):
    for process in processes:
        output, _ = process.communicate(timeout=100)
        assert process.returncode == 0, output


def homes(scratch, count):
    for number in range(count):
        home = scratch / f"home{number}"
        home.mkdir()
        os.chown(home, 20001 + number, 20001 + number)
        yield home


def responses(mount):
    """Returns {path: content} of pip's files in the base. Since pip 23.3, a response's body is a separate file; before,
    head and body were one file."""
    return {path: path.read_bytes() for path in mount.base("pip").rglob("*") if path.is_file()}


def test_pip_of_several_jobs_fills_one_cache_once(mount, scratch, index):
    server, wheels, downloads = index

    def install(number, home):
        options = ["install", "--target", home / "site", "--index-url", f"http://{server.host}/",
                   "--trusted-host", server.host, "alpha", "beta", "gamma"]
        env = {"PIP_CACHE_DIR": str(mount.path / "pip"), "HOME": str(home), "TMPDIR": str(home)}
        return start(20001 + number, f"job{number}", [*PIP, *options], env)

    all_homes = list(homes(scratch, PIP_JOBS + 1))
    finish([install(number, home) for number, home in enumerate(all_homes[:PIP_JOBS])])
    found = responses(mount)
    for name, content in wheels.items():
        holding = [path for path, data in found.items() if content in data]
        assert len(holding) == 1, f"{name} is in the base once, whole: {holding}"
    for path in found:
        assert path.suffix != ".body" or path.with_suffix("").exists(), path
    assert not [path for path in mount.base("pip").rglob("*") if path.name.endswith(".tmp")]
    before = len(downloads)
    finish([install(PIP_JOBS, all_homes[PIP_JOBS])])
    assert len(downloads) == before, "the warm job has downloaded a wheel"
    assert (all_homes[PIP_JOBS] / "site/gamma.py").stat().st_size > 400_000


SOURCES = 12
BUILD = f"""set -e
cd "$1"
printf 'rule cc\\n  command = ccache gcc -O1 -c $in -o $out\\n' > build.ninja
for i in $(seq {SOURCES}); do
    printf 'int f%d(void) {{ return %d; }}\\n' $i $i > f$i.c
    echo "build f$i.o: cc f$i.c" >> build.ninja
done
ninja -j 2 --quiet
ccache --print-stats | grep -E '^(direct_cache_hit|preprocessed_cache_hit|cache_miss)'
"""


def test_ccache_under_ninja_of_several_jobs_compiles_for_the_next(mount, scratch):
    # The jobs' sources have different paths; with CCACHE_BASEDIR and CCACHE_NOHASHDIR, ccache ignores the difference.
    def build(number, home):
        env = {"CCACHE_DIR": str(mount.path / "ccache"), "HOME": str(home),
               "CCACHE_BASEDIR": str(home), "CCACHE_NOHASHDIR": "1",
               "CCACHE_SLOPPINESS": "include_file_mtime,include_file_ctime"}
        return start(20001 + number, f"job{number}", ["bash", "-c", BUILD, "build", home], env)

    all_homes = list(homes(scratch, JOBS + 1))
    finish([build(number, home) for number, home in enumerate(all_homes[:JOBS])])
    results = [path for path in mount.base("ccache").rglob("*") if path.name.endswith("R")]
    assert len(results) == SOURCES
    assert not [path for path in mount.base("ccache").rglob("*")
                if ".tmp." in path.name or path.name in ("stats", "ccache.conf")]
    warm = build(JOBS, all_homes[JOBS])
    output, _ = warm.communicate(timeout=100)
    assert warm.returncode == 0, output
    counters = {name: int(value) for name, value in
                (line.split("\t") for line in output.splitlines() if "\t" in line)}
    assert counters["cache_miss"] == 0, counters
    assert counters["direct_cache_hit"] + counters["preprocessed_cache_hit"] == SOURCES
    objects = [hashlib.sha256((home / "f7.o").read_bytes()).hexdigest() for home in all_homes]
    assert len(set(objects)) == 1
