"""Runs a command far from this machine's servers: `far.py MILLISECONDS BUFFER_BYTES COMMAND...`.

The command has a network of its own, which leads here by two tunnels (tun(4)) with a delay of
MILLISECONDS each way: the server has the address 10.77.0.2 there. Receive buffers have
BUFFER_BYTES.
Exit code 77: none of this can be made here.
"""

import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 1, 0x1000
CLONE_NEWNET = 0x40000000
PACKET_BYTES = 65536
NAME = f"far{os.getpid() % 100000}"


def tunnel() -> int:
    """A tunnel in the network of now."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", NAME.encode(), IFF_TUN | IFF_NO_PI))
    return device


def address(mine: str, other: str) -> None:
    """Gives the tunnel its two ends."""
    ends = ["address", "add", mine, "peer", other, "dev", NAME]
    for words in (ends, ["link", "set", NAME, "up"]):
        subprocess.run(["ip", *words], check=True)


def carry(ends: list[int], delay: float, child: subprocess.Popen) -> None:
    """Carries packets between the ends, each after the delay, until the command has ended."""
    waiting: list[tuple[float, int, int, bytes]] = []
    count = 0
    while child.poll() is None:
        now = time.monotonic()
        pause = min(0.05, max(0.0, waiting[0][0] - now)) if waiting else 0.05
        for end in select.select(ends, [], [], pause)[0]:
            packet = os.read(end, PACKET_BYTES)
            count += 1
            other = ends[1] if end == ends[0] else ends[0]
            heapq.heappush(waiting, (time.monotonic() + delay, count, other, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(waiting)
            try:
                os.write(end, packet)
            except OSError:
                pass


def main() -> int:
    milliseconds, buffer_bytes, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    try:
        here = tunnel()
        address("10.77.0.2", "10.77.0.1")
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
            return 77
        there = tunnel()
        address("10.77.0.1", "10.77.0.2")
        with open("/proc/sys/net/ipv4/tcp_rmem", "w", encoding="ascii") as setting:
            setting.write(f"4096 {buffer_bytes} {buffer_bytes}")
    except (OSError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 77
    with subprocess.Popen(command) as child:
        carry([here, there], float(milliseconds) / 1000, child)
        return child.wait()


if __name__ == "__main__":
    sys.exit(main())
