# SPDX-License-Identifier: Apache-2.0
"""Real programs of several jobs at once over one cold cache: pip, and ccache under ninja."""

import hashlib
import http.server
import os
import pathlib
import subprocess
import sys
import threading
import zipfile

import jobs
import mounts
import pytest

PIP_JOBS = 8
JOBS = 4
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q"]


def write_wheel(folder, name, padding):
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"SIZE = {padding}\n" + "#" * padding)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL",
                       "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


class Index:
    """A package index over HTTP that counts who asks for what."""

    def __init__(self, wheels):
        asked = self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                name = self.path.strip("/").split("/")[-1]
                if name.endswith(".whl"):
                    body, kind = wheels[name].read_bytes(), "application/octet-stream"
                else:
                    links = "".join(f'<a href="/files/{wheel}">{wheel}</a>' for wheel in wheels
                                    if wheel.startswith(f"{name}-"))
                    body, kind = f"<html><body>{links}</body></html>".encode(), "text/html"
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "max-age=3600")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.host = f"127.0.0.1:{self.server.server_port}"

    def downloads(self):
        return [path for path in self.asked if path.endswith(".whl")]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def index(scratch):
    folder = scratch / "wheels"
    folder.mkdir()
    wheels = [write_wheel(folder, name, size) for name, size in
              (("alpha", 10), ("beta", 50_000), ("gamma", 400_000))]
    one = Index({path.name: path for path in wheels})
    yield one, wheels
    one.close()


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
    """What the base has of pip's: since 23.3 a body has a file of its own, before it is within one."""
    return {path: path.read_bytes() for path in mount.base("pip").rglob("*") if path.is_file()}


def test_pip_of_several_jobs_fills_one_cache_once(mount, scratch, index):
    server, wheels = index

    def install(number, home):
        options = ["install", "--target", home / "site", "--index-url", f"http://{server.host}/",
                   "--trusted-host", server.host, "alpha", "beta", "gamma"]
        env = {"PIP_CACHE_DIR": str(mount.path / "pip"), "HOME": str(home), "TMPDIR": str(home)}
        return start(20001 + number, f"job{number}", [*PIP, *options], env)

    all_homes = list(homes(scratch, PIP_JOBS + 1))
    finish([install(number, home) for number, home in enumerate(all_homes[:PIP_JOBS])])
    found = responses(mount)
    for wheel in wheels:
        holding = [path for path, data in found.items() if wheel.read_bytes() in data]
        assert len(holding) == 1, f"{wheel.name} is in the base once, whole: {holding}"
    for path in found:
        assert path.suffix != ".body" or path.with_suffix("").exists(), path
    assert not [path for path in mount.base("pip").rglob("*") if path.name.endswith(".tmp")]
    before = len(server.downloads())
    finish([install(PIP_JOBS, all_homes[PIP_JOBS])])
    assert len(server.downloads()) == before, "the warm job has downloaded a wheel"
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
    # Sources are at one path for all, as in CI, or ccache would not take them for the same.
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
