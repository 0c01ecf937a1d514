"""Runs a command as a user whose pages of pipes are used up: python3 pipes.py USER COMMAND...

The user gets pipes of the largest size until the kernel refuses (fs.pipe-user-pages-soft); the
command inherits them and keeps them open.
"""

import fcntl
import os
import sys

F_SETPIPE_SZ = 1031
LARGE_BYTES = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PIPES_MAX = 1024


def main() -> None:
    """Takes the pages and becomes the command."""
    user = int(sys.argv[1])
    if os.geteuid() != 0:
        sys.exit("only root can take the pages of another user's pipes")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    size = LARGE_BYTES
    for _ in range(PIPES_MAX):
        reader, writer = os.pipe()
        os.set_inheritable(reader, True)
        os.set_inheritable(writer, True)
        # What a pipe has when the limit is reached (pipe(7)): two pages.
        while size > 2 * PAGE_BYTES:
            try:
                fcntl.fcntl(writer, F_SETPIPE_SZ, size)
                break
            except PermissionError:
                size //= 2
        else:
            os.execvp(sys.argv[2], sys.argv[2:])
    sys.exit("no limit of the pages of pipes was met")


main()
