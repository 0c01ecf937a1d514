"""Seccomp filters (seccomp(2)) for a process and all that it starts."""

import ctypes
import os
import struct
import sys

PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
ALLOW = 0x7FFF_0000
ERRNO = 0x0005_0000
KILL_PROCESS = 0x8000_0000
LOAD, JUMP_IF_EQUAL, JUMP_IF_GREATER, JUMP_IF_MORE_OR_EQUAL, JUMP_IF_SET, RETURN = (
    0x20, 0x15, 0x25, 0x35, 0x45, 0x06)
NUMBER, FIRST_ARGUMENT, THIRD_ARGUMENT = 0, 16, 32
"""Where they stand in struct seccomp_data."""


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def run_under(lines: list[tuple[int, int, int, int]], command: list[str]) -> None:
    """Becomes the command, under a filter of these instructions: code, jump if true, jump if false,
    operand."""
    program = Program(len(lines), b"".join(struct.pack("=HBBI", *line) for line in lines))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            or prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)):
        sys.exit(f"no seccomp: {os.strerror(ctypes.get_errno())}")
    os.execvp(command[0], command)
