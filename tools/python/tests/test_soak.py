"""Opens, reads, forks and closes in a loop: descriptors, threads and memory stay where they are.

`INRUSH_PYTHON_SOAK_ROUNDS` says how often (30).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from common import descriptors, pattern, threads, until
from test_fork import in_child

Serve = Callable[..., Any]
ROUNDS = int(os.environ.get("INRUSH_PYTHON_SOAK_ROUNDS", "30"))
OBJECTS = {"data/big": pattern(3_000_000), "data/a": b"abc"}
#: What allocators keep for later.
SLACK_BYTES = 48 << 20


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_rounds_leave_nothing(serve: Serve) -> None:
    origin = serve(OBJECTS)

    async def twins(client: Any) -> None:
        await asyncio.gather(*[client.async_read("s3://data/a") for _ in range(10)])

    def round_of(number: int) -> None:
        client = origin.client(memory="32MiB")
        assert client.read("s3://data/big") == OBJECTS["data/big"]
        client.read_into("s3://data/big", bytearray(3_000_000))
        assert len(list(client.read_many(["s3://data/a"] * 50))) == 50
        assert len(list(client.list("s3://data/"))) == 2
        next(iter(client.read_many(["s3://data/big"] * 5)))
        asyncio.run(twins(client))
        with client.open("s3://data/big") as file:
            file.read(1000)
        assert in_child(lambda: client.read("s3://data/a") and None) == 0
        if number % 2:
            client.close()

    for number in range(5):
        round_of(number)
    until(lambda: not threads())
    before = (descriptors(), resident_bytes())
    for number in range(ROUNDS):
        round_of(number)
    until(lambda: not threads())
    until(lambda: descriptors() <= before[0])
    assert resident_bytes() - before[1] < SLACK_BYTES
