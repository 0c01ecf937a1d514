"""Runs a program from which the kernel hides its auxiliary vector: `without_vdso.py PROGRAM WORD..`

valgrind maps no vDSO, but the vector that prctl(PR_GET_AUXV) returns (Linux 6.4) says where the
kernel put one: a program that looks there is killed. seccomp answers that call as older kernels do,
with EINVAL, and the program reads the vector that valgrind gives it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

PRCTL = {"x86_64": 157, "aarch64": 167}
PR_GET_AUXV, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 0x41555856, 22, 38
SECCOMP_MODE_FILTER, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO = 2, 0x7FFF0000, 0x00050000
LOAD, IS_EQUAL, RETURN = 0x20, 0x15, 0x06
"""Of classic BPF: loads a word of seccomp_data, compares it, ends."""
NUMBER_AT, FIRST_ARGUMENT_AT = 0, 16


def hide_auxiliary_vector() -> None:
    """Makes prctl(PR_GET_AUXV) fail in this process and in what it becomes."""
    steps = [(LOAD, 0, 0, NUMBER_AT), (IS_EQUAL, 0, 3, PRCTL[platform.machine()]),
             (LOAD, 0, 0, FIRST_ARGUMENT_AT), (IS_EQUAL, 0, 1, PR_GET_AUXV),
             (RETURN, 0, 0, SECCOMP_RET_ERRNO | errno.EINVAL), (RETURN, 0, 0, SECCOMP_RET_ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                  (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(program), 0, 0)):
        if prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    hide_auxiliary_vector()
    os.execvp(sys.argv[1], sys.argv[1:])
