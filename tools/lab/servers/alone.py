"""A network of its own for this process and its children, where there is nothing but loopback.

For programs that listen on all addresses and have no option for it. The machine is called localhost
there, a name that always leads somewhere. Its loopback has a second address, of those that RFC
5737 keeps for documents: getaddrinfo(3) with AI_ADDRCONFIG, as Slurm calls it, finds nothing on a
machine that has 127.0.0.1 alone. It takes root.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

from lab.process import LIBC

CLONE_NEWNET = 0x40000000
CLONE_NEWUTS = 0x04000000
SET_FLAGS = 0x8914
SET_ADDRESS = 0x8916
ADDRESS = "192.0.2.1"
IS_UP = 1


def go_alone() -> str | None:
    """Leaves the network of the machine for good. Why that is not possible, if it is not."""
    if LIBC.unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0:
        return os.strerror(ctypes.get_errno())
    socket.sethostname("localhost")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH22x", b"lo", IS_UP))
        address = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(any_socket, SET_ADDRESS, struct.pack("16s16s8x", b"lo:1", address))
    return None
