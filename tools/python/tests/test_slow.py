"""Programs that are slower than the network: what is fetched ahead of them is bounded, in this
process and in the kernel, and stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from common import WAIT_SECONDS_MAX, resident, unread_from
from inrush import _stream
from inrush._file import AHEAD_MAX, PIECE_BYTES
from inrush._places import Listing

Serve = Callable[..., Any]
#: Objects, and the bytes of each: several times what may be ahead.
OBJECTS, OBJECT_BYTES = 400, 4 << 20
#: Ahead of who reads many: `BYTES_MAX` of src/many.rs, and the item that goes beyond it.
MANY_MAX = (256 << 20) + OBJECT_BYTES
#: Heads of answers, and ranges that are requested twice, in bytes.
SLACK_BYTES = 8 << 20
#: What the sockets of a client may hold together, in bytes.
UNREAD_MAX = 64 << 20
#: A sender that sent nothing for this time has stopped: the origin counts ten times a second.
QUIET_SECONDS = 1.0


class Watch:
    """What an origin has sent, and what of it waits in the kernel, while a program is slow."""

    def __init__(self, port: int, samples: Path) -> None:
        self._port, self._samples = port, samples
        self.most_unread = 0

    def sent(self) -> int:
        """Bytes that the origin has sent so far."""
        lines = self._samples.read_text().splitlines()[:-1] if self._samples.exists() else []
        return int(lines[-1].split()[1]) if lines else 0

    def rest(self, least: int = 0) -> int:
        """Waits until more than `least` bytes were sent, and nothing is any more; bytes that were.
        A busy machine may send nothing for a second before that."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        sent, quiet_since = self.sent(), time.monotonic()
        while time.monotonic() - quiet_since < QUIET_SECONDS or sent <= least:
            assert time.monotonic() < deadline, f"{sent} bytes: it reads no more, or without end"
            time.sleep(0.02)
            if self.sent() != sent:
                sent, quiet_since = self.sent(), time.monotonic()
        # On a busy machine more is there while it comes.
        self.most_unread = max(self.most_unread, unread_from(self._port))
        return sent


@pytest.fixture(params=["auto", "epoll"])
def slow(request: Any, serve: Serve, tmp_path: Path) -> Iterator[tuple[Any, Watch, Listing]]:
    """A client, what watches its server, and the objects of that."""
    samples = tmp_path / "samples"
    origin = serve({"other/x": b""}, "--synthetic", f"data/slow/:{OBJECTS}:{OBJECT_BYTES}",
                   "--samples", str(samples))
    with origin.client(memory="64MiB", ring=request.param) as client:
        listing = Listing()
        for info in client.list("s3://data/slow/"):
            listing.push(info.uri, info.size, info.etag)
        yield client, Watch(int(origin.endpoint.rpartition(":")[2]), samples), listing


def check(watch: Watch, take: Callable[[], int], ahead_max: int, *, fills: bool = True) -> None:
    """Takes a bit at a time, and rests: it is never further ahead, in no more memory.

    `fills`: what is ahead comes near its bound while the program rests.
    """
    taken = take()
    watch.rest(least=taken + ahead_max // 2 if fills else 0)
    first = resident()
    for _ in range(3):
        taken += take()
        sent = watch.rest()
        assert sent - taken <= ahead_max + SLACK_BYTES, (sent, taken)
        assert resident() - first <= (ahead_max // 4 if fills else ahead_max) + SLACK_BYTES
    assert watch.most_unread <= UNREAD_MAX, watch.most_unread


@pytest.mark.parametrize("ordered", [True, False])
def test_read_many(slow: tuple[Any, Watch, Listing], ordered: bool) -> None:
    client, watch, listing = slow
    results = client.read_many(listing, ordered=ordered)
    check(watch, lambda: sum(len(next(results).data) for _ in range(5)), MANY_MAX)
    results.close()


@pytest.mark.parametrize("sized", [True, False])
def test_read_many_of_an_event_loop(slow: tuple[Any, Watch, Listing], sized: bool) -> None:
    client, watch, listing = slow
    loop = asyncio.new_event_loop()
    try:
        results = client.async_read_many(listing if sized else (info.uri for info in listing))

        async def some() -> int:
            return sum([len((await anext(results)).data) for _ in range(5)])

        # Addresses are taken from the program while its loop runs.
        check(watch, lambda: loop.run_until_complete(some()), MANY_MAX, fills=sized)
        loop.run_until_complete(results.aclose())
    finally:
        loop.close()


def test_a_stream(slow: tuple[Any, Watch, Listing]) -> None:
    client, watch, listing = slow
    stream = _stream.Stream(client, _stream.Plan(listing, seed=1))
    check(watch, lambda: sum(len(next(stream)["data"]) for _ in range(5)), MANY_MAX)
    stream.close()


def test_a_file(serve: Serve, tmp_path: Path) -> None:
    samples = tmp_path / "samples"
    origin = serve({"other/x": b""}, "--synthetic", "data/large/:1:1GiB:width=1:suffix=",
                   "--samples", str(samples))
    watch = Watch(int(origin.endpoint.rpartition(":")[2]), samples)
    with origin.client(memory="64MiB") as client:
        file = client.open("s3://data/large/0", sequential=True)
        check(watch, lambda: len(file.read(5 << 20)), AHEAD_MAX + 2 * PIECE_BYTES)
        file.close()
