"""Runs a command without io_uring: python3 without_io_uring.py ERRNO COMMAND...

A seccomp filter lets io_uring_setup, whose number is 425 everywhere, fail with ERRNO.
"""

import ctypes
import os
import struct
import sys

PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
SECCOMP_RET_ALLOW = 0x7FFF_0000
SECCOMP_RET_ERRNO = 0x0005_0000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
IO_URING_SETUP = 425


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def main() -> None:
    """Forbids it to this process and becomes the command."""
    error = int(sys.argv[1])
    code = b"".join(struct.pack("=HBBI", *line) for line in (
        (LOAD, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, IO_URING_SETUP),
        (RETURN, 0, 0, SECCOMP_RET_ERRNO | error),
        (RETURN, 0, 0, SECCOMP_RET_ALLOW)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    program = Program(4, code)
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            or prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)):
        sys.exit(f"no seccomp: {os.strerror(ctypes.get_errno())}")
    os.execv(sys.argv[2], sys.argv[2:])


main()
