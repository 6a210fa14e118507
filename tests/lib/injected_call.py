# SPDX-License-Identifier: Apache-2.0
"""Makes system calls in a thread of another process, by ptrace(2), so that a test sees which calls the kernel denies
to that thread. Only for x86_64."""

import contextlib
import ctypes
import os
import platform
import signal

IS_POSSIBLE = platform.machine() == "x86_64"

_PTRACE_SINGLESTEP, _PTRACE_GETREGS, _PTRACE_SETREGS, _PTRACE_DETACH = 9, 12, 13, 17
_PTRACE_SEIZE, _PTRACE_INTERRUPT = 0x4206, 0x4207
_WALL = 0x40000000
_SYSCALL_INSTRUCTION = b"\x0f\x05"
_BELOW_STACK = 4096  # no function's red zone reaches this far below the stack pointer
_MOST_ERRNO = 4095


class _Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulong) for name in (
        "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base "
        "ds es fs gs").split()]


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_ulong, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p]
_LIBC.ptrace.restype = ctypes.c_long


def _ptrace(request, thread, data=None):
    if _LIBC.ptrace(request, thread, None, data) == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"ptrace {request:#x}: {os.strerror(error)}")


def _wait(thread):
    _, status = os.waitpid(thread, _WALL)
    assert os.WIFSTOPPED(status), f"thread {thread} has ended: {status:#x}"
    return os.WSTOPSIG(status)


class StoppedThread:
    """A thread that stopped_thread() holds in a system call. `thread.call(number, *arguments)` makes another call
    there. An argument of bytes is passed as a pointer to a copy in the thread's memory."""

    def __init__(self, thread):
        self._thread = thread
        self._before = _Registers()
        _ptrace(_PTRACE_GETREGS, thread, ctypes.addressof(self._before))
        with open(f"/proc/{thread}/mem", "rb") as memory:
            memory.seek(self._before.rip - len(_SYSCALL_INSTRUCTION))
            assert memory.read(len(_SYSCALL_INSTRUCTION)) == _SYSCALL_INSTRUCTION, "not in a system call"

    def call(self, number, *arguments):
        """Returns the result, or the negative errno."""
        now = _Registers.from_buffer_copy(self._before)
        free = self._before.rsp - _BELOW_STACK
        for register, argument in zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), arguments):
            if isinstance(argument, bytes):
                free -= len(argument) + 15 & ~15
                with open(f"/proc/{self._thread}/mem", "r+b", buffering=0) as memory:
                    memory.seek(free)
                    memory.write(argument)
                argument = free
            setattr(now, register, argument % (1 << 64))
        now.rip -= len(_SYSCALL_INSTRUCTION)
        now.rax = number
        now.orig_rax = (1 << 64) - 1  # the kernel must not restart the call that was interrupted
        _ptrace(_PTRACE_SETREGS, self._thread, ctypes.addressof(now))
        _ptrace(_PTRACE_SINGLESTEP, self._thread)
        assert _wait(self._thread) == signal.SIGTRAP
        _ptrace(_PTRACE_GETREGS, self._thread, ctypes.addressof(now))
        result = ctypes.c_long(now.rax).value
        assert result >= 0 or result >= -_MOST_ERRNO, f"an odd result: {result}"
        return result

    def resume(self):
        """Lets the thread continue with the call that was interrupted."""
        _ptrace(_PTRACE_SETREGS, self._thread, ctypes.addressof(self._before))


@contextlib.contextmanager
def stopped_thread(thread):
    """Stops one thread, which waits in a system call, for the duration of the block."""
    _ptrace(_PTRACE_SEIZE, thread)
    try:
        _ptrace(_PTRACE_INTERRUPT, thread)
        _wait(thread)
        stopped = StoppedThread(thread)
        try:
            yield stopped
        finally:
            stopped.resume()
    finally:
        _ptrace(_PTRACE_DETACH, thread)
