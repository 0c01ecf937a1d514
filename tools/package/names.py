"""A name server that knows one name: for programs that read /etc/resolv.conf themselves."""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lab.process import LabError

ADDRESS_OF_HOST = 1
"""Type A (RFC 1035, 3.2.2)."""
TIME_TO_LIVE_SECONDS = 5
LOOK_SECONDS = 0.1


def answer(query: bytes, name: str, address: str) -> bytes:
    """The answer to one query: the address of the name, or that there is no such name."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode().lower())
        at += 1 + query[at]
    question = query[12:at + 5]
    kind = struct.unpack("!H", query[at + 1:at + 3])[0]
    is_known = ".".join(labels) == name
    has_address = is_known and kind == ADDRESS_OF_HOST
    flags = 0x8580 if is_known else 0x8583
    head = query[:2] + struct.pack("!HHHHH", flags, 1, int(has_address), 0, 0)
    if not has_address:
        return head + question
    record = struct.pack("!HHHIH", 0xC00C, ADDRESS_OF_HOST, 1, TIME_TO_LIVE_SECONDS, 4)
    return head + question + record + socket.inet_aton(address)


class AddressTaken(LabError):
    """Another name server listens there."""


@contextmanager
def serving(listen: str, name: str, address: str) -> Iterator[None]:
    """Answers on port 53 of a loopback address, over UDP, until it is left."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        try:
            server.bind((listen, 53))
        except OSError as error:
            kind = AddressTaken if error.errno == errno.EADDRINUSE else LabError
            raise kind(f"cannot listen on {listen}:53: {error.strerror}") from error
        server.settimeout(LOOK_SECONDS)
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                try:
                    query, client = server.recvfrom(512)
                    server.sendto(answer(query, name, address), client)
                except TimeoutError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
