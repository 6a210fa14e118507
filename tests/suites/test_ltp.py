# SPDX-License-Identifier: Apache-2.0
"""Runs LTP's tests of file-system calls on a plain overlay, and runs those that fail there again natively."""

import os
import re

import bounded
import pytest
from outcomes import assert_as_natively

TEST_TIMEOUT_S = 120
# The system calls that take a path or a file's descriptor; `runtest/syscalls` names their tests.
CALLS = """access chdir chmod chown close copy_file_range creat dup dup2 dup3 faccessat faccessat2 fallocate fchdir
    fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fremovexattr fsetxattr fstat
    fstatat fstatfs fsync ftruncate futimesat getcwd getdents getxattr lchown lgetxattr link linkat listxattr llistxattr
    lremovexattr lseek lstat mkdir mkdirat mknod mknodat mmap msync open openat openat2 pread preadv preadv2 pwrite pwritev
    pwritev2 read readahead readlink readlinkat readv removexattr rename renameat renameat2 rmdir sendfile setxattr splice
    stat statfs statvfs statx symlink symlinkat sync_file_range truncate unlink unlinkat utime utimensat utimes write
    writev""".split()
ENDINGS = {0: "passed", 32: "skipped"}
# The tests that fail only on the overlay, each with the reason.
DESCRIPTORS = "the client opens as many files as the daemon may: the daemon fails first (docs/semantics.md)"
KNOWN = {"creat05": DESCRIPTORS, "fcntl12": DESCRIPTORS, "fcntl12_64": DESCRIPTORS,
         "setxattr03": "FUSE's daemon has no inode flags: chattr(1) gives ENOTTY"}


def commands(top):
    """Returns {name: command} of the tests of CALLS."""
    pattern = re.compile(rf"^((?:{'|'.join(CALLS)})\d+[A-Za-z_]*\d*)\s+(.+)$", re.MULTILINE)
    return dict(pattern.findall((top / "runtest/syscalls").read_text()))


def programs(top):
    """Returns {name: path} of the programs that have been built."""
    built = (path for path in (top / "testcases").rglob("*") if os.access(path, os.X_OK))
    return {path.name: path for path in built if path.is_file()}


def run(top, program, words, directory):
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "TMPDIR": str(directory),
           "LTPROOT": str(top), "LTP_COLORIZE_OUTPUT": "0"}
    status, _ = bounded.run([program, *words], TEST_TIMEOUT_S, cwd=directory, env=env)
    if status is bounded.TIMED_OUT:
        return "timed out"
    return ENDINGS.get(status, f"failed with {status}")


@pytest.mark.timeout_s(2400)
def test_each_ends_as_natively(suite, overlay, native):
    top = suite("ltp", "lib/libltp.a")
    built = programs(top)
    chosen = {name: command.split() for name, command in commands(top).items()
              if command.split()[0] in built}
    assert len(chosen) > 200, f"{top}: only {len(chosen)} of its tests are built"
    # LTP expects the parent of its working directories to be writable by all users.
    native.chmod(0o777)
    overlay.mount().path.chmod(0o777)
    found, expected = {}, {}
    for name, words in chosen.items():
        found[name] = run(top, built[words[0]], words[1:], overlay.path)
        expected[name] = found[name]
        if found[name] not in ENDINGS.values():
            expected[name] = run(top, built[words[0]], words[1:], native)
    assert list(found.values()).count("passed") > 150
    assert_as_natively("ltp", expected, found, KNOWN)
