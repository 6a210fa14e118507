# SPDX-License-Identifier: Apache-2.0
"""Installs the wheel and the tarball in clean systems and uses them as the README says. `scripts/package wheel` and
`scripts/package tarball` have built them."""

import os
import pathlib
import subprocess
import time

import mounts
import pytest
from clean_system import BUILT, MOST_SECONDS, System, printed_block

RELEASES = ["bullseye", "bookworm", "trixie"]  # glibc 2.31, 2.36 and 2.41
THIS = os.uname().machine
ARCHITECTURES = ["x86_64", "aarch64"]
AUDITWHEEL = mounts.REPOSITORY / "build/venv/auditwheel/bin/auditwheel"


def only(pattern):
    found = list(BUILT.glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


@pytest.fixture(params=RELEASES)
def system(request, scratch):
    system = System(scratch, request.param)
    yield system
    system.close()


def test_a_wheel_leads_to_a_warm_second_job_without_root(system):
    wheel = only(f"wheel/*_{THIS}.whl")
    system.copy(wheel, f"/home/alice/{wheel.name}")
    system.run("alice", "python3 -m venv venv && . venv/bin/activate")
    begin = time.monotonic()
    system.run("alice", printed_block("pip install"), MOST_SECONDS)
    train = printed_block("mkdir -p ~/cache")
    assert system.run("alice", train) == "built\n"
    assert system.run("alice", train) == "hit\n"
    taken = time.monotonic() - begin
    assert taken < MOST_SECONDS, f"took {taken:.0f} s"
    assert system.run("alice", "cacheshim preload-path") == "/home/alice/venv/lib/libcacheshim.so\n"
    system.run("alice", "pip uninstall --quiet --yes cacheshim")
    assert system.run("alice", "find venv -name '*cacheshim*' -type f") == ""


def test_a_tarball_works_where_it_is_unpacked(system):
    archive = only(f"tarball/*-{THIS}.tar.gz")
    system.copy(archive, f"/root/{archive.name}")
    system.run("root", f"mkdir -p /opt/any && tar -C /opt/any --strip-components=1 -xf {archive.name}")
    for user in ("root", "alice", "bob"):
        system.run(user, "export PATH=/opt/any/bin:$PATH")
    system.run("root", printed_block("mkdir -p /ci-cache"))
    train = printed_block("export LD_PRELOAD")
    assert system.run("alice", train) == "built\n"
    assert system.run("bob", train) == "hit\n"
    system.run("root", "cacheshim unmount /ci-cache")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_auditwheel_confirms_that_the_wheel_needs_only_an_old_glibc(arch):
    shown = subprocess.run([AUDITWHEEL, "show", only(f"wheel/*_{arch}.whl")], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert 'consistent with the following platform tag: "manylinux_2_' in " ".join(shown.stdout.split()), shown.stdout
    assert f'_{arch}"' in shown.stdout


def unpack(arch, directory):
    archive = only(f"tarball/*-{arch}.tar.gz")
    subprocess.run(["tar", "-C", directory, "--strip-components=1", "-xf", archive], check=True)


@pytest.mark.skipif(THIS != "x86_64", reason="the packages' build has installed an emulator only for aarch64")
def test_the_program_and_the_library_for_aarch64_start_under_emulation(scratch):
    """qemu lacks system calls that the daemon needs, such as openat2(2), so the mount itself cannot be tried here."""
    unpack("aarch64", scratch)
    emulator = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_PRELOAD={scratch}/lib/libcacheshim.so",
                "-E", "CACHESHIM_MOUNT=/absent", scratch / "bin/cacheshim"]

    def run(*words):
        ended = subprocess.run([*emulator, *words], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert run("--version").startswith("cacheshim ")
    assert run("preload-path") == f"{scratch}/lib/libcacheshim.so\n"
    assert "TRITON_CACHE_DIR" in run("profile", "show", "triton")
    other = subprocess.run([*emulator[:-1], scratch / "libexec/cacheshim/cacheshim-metrics"],
                           capture_output=True, text=True, check=False)
    assert "no cacheshim mount at /absent; running without it" in other.stderr  # the library's message


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_program_has_no_symbols_and_needs_only_glibc(scratch, arch):
    unpack(arch, scratch)
    objdump = "objdump" if arch == THIS else f"{arch}-linux-gnu-objdump"
    for name in ("bin/cacheshim", "lib/libcacheshim.so", "libexec/cacheshim/cacheshim-metrics",
                 "libexec/cacheshim/cacheshim-remote"):
        file = pathlib.Path(scratch, name)
        needed = subprocess.run([objdump, "-p", file], capture_output=True, text=True, check=True).stdout
        libraries = {line.split()[1].split(".")[0] for line in needed.splitlines() if "NEEDED" in line}
        assert libraries <= {"libc", "libm", "libdl", "libpthread", "librt", "libresolv", "libutil", "ld-linux-x86-64",
                              "ld-linux-aarch64"}
        sections = subprocess.run([objdump, "-h", file], capture_output=True, text=True, check=True).stdout
        assert ".debug_info" not in sections
