# SPDX-License-Identifier: Apache-2.0
"""Builds the Containerfile with podman, from the tarball and a clean Debian system, and uses the image's files."""

import json
import subprocess

import mounts
import pytest
from clean_system import BUILT, System, printed_block

CONTAINERFILE = mounts.REPOSITORY / "packaging/container/Containerfile"
BUILD_TIMEOUT_S = 300


@pytest.fixture
def podman(scratch):
    """podman(*words) runs podman with its own storage, and returns its output."""
    storage = ["podman", "--root", scratch / "storage", "--runroot", scratch / "run", "--storage-driver", "overlay",
               "--cgroup-manager", "cgroupfs"]

    def run(*words, **options):
        ended = subprocess.run([*storage, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                               timeout=BUILD_TIMEOUT_S, **options)
        assert ended.returncode == 0, ended.stderr.decode()[-2000:]
        return ended.stdout.decode()

    yield run
    run("image", "unmount", "--all")
    run("image", "rm", "--all", "--force")


@pytest.fixture
def image(podman):
    """The id of an image with cacheshim."""
    clean = subprocess.Popen(["tar", "-C", BUILT / "clean/trixie", "-c", "."], stdout=subprocess.PIPE)
    podman("import", "-", "clean", stdin=clean.stdout)
    assert clean.wait() == 0
    # By default, podman builds in a container, for which the tests' machine may lack the rights.
    built = podman("build", "--isolation", "chroot", "--build-arg", "BASE=localhost/clean", "-f", CONTAINERFILE,
                   BUILT / "tarball")
    return built.split()[-1]


def test_a_job_in_an_image_from_the_containerfile_uses_the_cache(podman, image, scratch):
    entry = json.loads(podman("image", "inspect", image))[0]["Config"]
    assert entry["Entrypoint"] == ["cacheshim"] and entry["Cmd"] == ["--help"]
    system = System(scratch, podman("image", "mount", image).strip())
    try:
        assert system.run("root", "cacheshim --version").startswith("cacheshim ")
        assert system.run("root", "find /tmp -name '*.tar.gz'") == ""
        train = printed_block("mkdir -p ~/cache")
        assert system.run("alice", train) == "built\n"
        assert system.run("alice", train) == "hit\n"
    finally:
        system.close()
