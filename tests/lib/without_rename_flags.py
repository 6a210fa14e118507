#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command as if no file system supported the flags of renameat2(2). NFS and GlusterFS do not support them.

    without_rename_flags.py COMMAND [ARGUMENT…]

A seccomp filter makes renameat2(2) fail with EINVAL if a call has flags. The command's child processes inherit it.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

RENAMEAT2 = {"x86_64": 316, "aarch64": 276}[platform.machine()]

# prctl(2), seccomp(2)
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW = 0x00050000, 0x7FFF0000
# The positions in struct seccomp_data; the low half of an argument comes first on x86-64 and on aarch64.
NUMBER, FLAGS = 0, 16 + 4 * 8
# Operations of classic BPF, linux/bpf_common.h.
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06

FILTER = [
    (LOAD_WORD, 0, 0, NUMBER),
    (JUMP_IF_EQUAL, 0, 3, RENAMEAT2),
    (LOAD_WORD, 0, 0, FLAGS),
    (JUMP_IF_EQUAL, 1, 0, 0),
    (RETURN, 0, 0, SECCOMP_RET_ERRNO | errno.EINVAL),
    (RETURN, 0, 0, SECCOMP_RET_ALLOW),
]


class Program(ctypes.Structure):
    """struct sock_fprog"""
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def install() -> None:
    """Installs the filter in this process permanently."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = b"".join(struct.pack("HBBI", *row) for row in FILTER)
    program = Program(len(FILTER), code)
    # Root can install a filter without no_new_privs. Setting it would change what a set-user-ID program can do.
    if os.geteuid() != 0 and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")


if __name__ == "__main__":
    install()
    os.execvp(sys.argv[1], sys.argv[1:])
