"""Runs a command without something of the kernel: python3 without.py WHAT COMMAND...

WHAT is `io_uring:ERRNO`: io_uring_setup fails with ERRNO, or ends the process where that is `kill`;
`io_uring_enter:ERRNO`: so does io_uring_enter; `io_uring_above_COUNT:ERRNO`: it does for
more entries than COUNT; `fallocate:ERRNO`, `ftruncate:ERRNO`,
`fsync:ERRNO`, `linkat:ERRNO`, `pwrite64:ERRNO` and `renameat:ERRNO`: so does that call, as on a disk
that is broken or over its quota; `tmpfile`: files without a name cannot be made; or `direct`: files
cannot be opened past the page cache. Both are so on some file systems. A seccomp filter sees to it,
for the command and all that it starts.
"""

import os
import platform
import sys

# Nothing is left beside the tests.
sys.dont_write_bytecode = True

from seccomp import (ALLOW, ERRNO, FIRST_ARGUMENT, JUMP_IF_EQUAL, JUMP_IF_GREATER, JUMP_IF_SET,
                     KILL_PROCESS, LOAD, NUMBER, RETURN, THIRD_ARGUMENT, run_under)

CALLS = {
    "io_uring": {"x86_64": 425, "aarch64": 425},
    "io_uring_enter": {"x86_64": 426, "aarch64": 426},
    "fallocate": {"x86_64": 285, "aarch64": 47},
    "fsync": {"x86_64": 74, "aarch64": 82},
    "ftruncate": {"x86_64": 77, "aarch64": 46},
    "linkat": {"x86_64": 265, "aarch64": 37},
    "pwrite64": {"x86_64": 18, "aarch64": 68},
    "renameat": {"x86_64": 264, "aarch64": 38},
}
OPENAT = {"x86_64": 257, "aarch64": 56}
O_TMPFILE = 0o20000000
O_DIRECT = os.O_DIRECT
EINVAL, EOPNOTSUPP = 22, 95


def filter_of(what: str) -> list[tuple[int, int, int, int]]:
    """The filter's instructions: code, jump if true, jump if false, operand."""
    name, _, error = what.partition(":")
    if name in CALLS:
        return [(LOAD, 0, 0, NUMBER), (JUMP_IF_EQUAL, 0, 1, CALLS[name][platform.machine()]),
                (RETURN, 0, 0, KILL_PROCESS if error == "kill" else ERRNO | int(error)),
                (RETURN, 0, 0, ALLOW)]
    if name.startswith("io_uring_above_"):
        number = CALLS["io_uring"][platform.machine()]
        count = int(name.removeprefix("io_uring_above_"))
        return [(LOAD, 0, 0, NUMBER), (JUMP_IF_EQUAL, 0, 3, number),
                (LOAD, 0, 0, FIRST_ARGUMENT), (JUMP_IF_GREATER, 0, 1, count),
                (RETURN, 0, 0, ERRNO | int(error)), (RETURN, 0, 0, ALLOW)]
    if name in ("tmpfile", "direct"):
        flag, refusal = (O_TMPFILE, EOPNOTSUPP) if name == "tmpfile" else (O_DIRECT, EINVAL)
        return [(LOAD, 0, 0, NUMBER), (JUMP_IF_EQUAL, 0, 3, OPENAT[platform.machine()]),
                (LOAD, 0, 0, THIRD_ARGUMENT), (JUMP_IF_SET, 0, 1, flag),
                (RETURN, 0, 0, ERRNO | refusal), (RETURN, 0, 0, ALLOW)]
    sys.exit(f"{what} is not CALL:ERRNO, tmpfile or direct")


run_under(filter_of(sys.argv[1]), sys.argv[2:])
