"""What several tests of the native part need."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Union

#: Only against tests that hang: nothing is measured.
WAIT_SECONDS_MAX = 60.0


def pattern(length: int, salt: int = 0) -> bytes:
    """Bytes that differ from place to place."""
    block = bytes((at * 31 + at // 251 + salt * 7) % 256 for at in range(65_521))
    return (block * (length // len(block) + 1))[:length]


def prefers_huge_pages(address: int) -> bool:
    """Whether the kernel was asked for huge pages at an address (proc_pid_smaps(5), VmFlags)."""
    within = False
    with open("/proc/self/smaps", encoding="ascii") as smaps:
        for line in smaps:
            first, _, rest = line.partition(" ")
            if "-" in first:
                start, end = (int(word, 16) for word in first.split("-"))
                within = start <= address < end
            elif within and first == "VmFlags:":
                return "hg" in rest.split()
    raise AssertionError(f"no memory at {address:#x}")


def threads(process: Union[int, str] = "self") -> list[str]:
    """The names of the threads of a process that are inrush's."""
    names = []
    for task in os.listdir(f"/proc/{process}/task"):
        try:
            with open(f"/proc/{process}/task/{task}/comm", encoding="utf-8") as comm:
                names.append(comm.read().strip())
        except FileNotFoundError:
            pass
    return sorted(name for name in names if name.startswith("inrush"))


def engines(endpoint: str) -> list[int]:
    """The processes that are engines for this endpoint."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            of = Path(f"/proc/{process}")
            if b"_host.serve" in of.joinpath("cmdline").read_bytes() and \
                    endpoint.encode() in of.joinpath("environ").read_bytes():
                found.append(int(process))
    return found


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    """Bytes of memory that this process has (proc_pid_statm(5))."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def unread_from(port: int) -> int:
    """Bytes that the kernel has received from this port of loopback, and nobody has read."""
    unread = 0
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in list(table)[1:]:
            fields = line.split()
            if int(fields[2].rpartition(":")[2], 16) == port:
                unread += int(fields[4].rpartition(":")[2], 16)
    return unread


def until(is_so: Callable[[], bool]) -> None:
    """Waits until it is so."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it does not come to be"
        time.sleep(0.01)


class Answers:
    """A server whose answers a test says."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.seen: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.seen.append(f"{self.command} {self.path}")
                answer(self)

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # A client may open more connections at a time than the usual five.
        self.server.socket.listen(128)
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
