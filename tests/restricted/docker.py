"""Runs a command under a seccomp filter that decides as Docker's default profile does, for a
container without capabilities: python3 docker.py COMMAND...

https://docs.docker.com/engine/security/seccomp/ lists what that profile forbids. Here stand those
calls that a program like ours could come to, io_uring (since Docker 25) among them, and all calls
that are newer than the profile. They fail with EPERM; clone3 fails with ENOSYS, as there, so that
the C library tries clone.
"""

import platform
import sys
from pathlib import Path

# Nothing is left beside the tests.
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent.parent / "common"))

from seccomp import (ALLOW, ERRNO, JUMP_IF_EQUAL, JUMP_IF_MORE_OR_EQUAL, LOAD, NUMBER, RETURN,
                     run_under)

EPERM, ENOSYS = 1, 38
CLONE3 = 435
NEWER = 463
"""setxattrat(2), Linux 6.13, and all that came after it."""

# Of one number on both machines.
ALIKE = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443,
    "set_mempolicy_home_node": 450,
}
OTHERS = {
    "x86_64": {
        "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
        "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "acct": 163,
        "settimeofday": 164, "clock_settime": 227, "mbind": 237, "set_mempolicy": 238,
        "get_mempolicy": 239, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
        "migrate_pages": 256, "unshare": 272, "move_pages": 279, "perf_event_open": 298,
        "fanotify_init": 300, "open_by_handle_at": 304, "setns": 308, "kcmp": 312, "bpf": 321,
        "userfaultfd": 323, "pivot_root": 155, "chroot": 161, "quotactl": 179, "vhangup": 153,
    },
    "aarch64": {
        "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "vhangup": 58, "quotactl": 60,
        "acct": 89, "unshare": 97, "kexec_load": 104, "clock_settime": 112, "reboot": 142,
        "sethostname": 161, "setdomainname": 162, "settimeofday": 170, "add_key": 217,
        "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225, "mbind": 235,
        "get_mempolicy": 236, "set_mempolicy": 237, "migrate_pages": 238, "move_pages": 239,
        "perf_event_open": 241, "fanotify_init": 262, "open_by_handle_at": 265, "setns": 268,
        "kcmp": 272, "bpf": 280, "userfaultfd": 282,
    },
}


def lines() -> list[tuple[int, int, int, int]]:
    """The filter's instructions: code, jump if true, jump if false, operand."""
    numbers = sorted([*ALIKE.values(), *OTHERS[platform.machine()].values()])
    program = [(LOAD, 0, 0, NUMBER), (JUMP_IF_EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, ERRNO | ENOSYS),
               (JUMP_IF_MORE_OR_EQUAL, 0, 1, NEWER), (RETURN, 0, 0, ERRNO | EPERM)]
    for number in numbers:
        program += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | EPERM)]
    return [*program, (RETURN, 0, 0, ALLOW)]


run_under(lines(), sys.argv[1:])
