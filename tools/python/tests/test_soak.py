"""Opens, reads, forks and closes in a loop: descriptors, threads and memory stay where they are.

`INRUSH_PYTHON_SOAK_ROUNDS` says how often (30); 1,500 rounds are what a job does in an hour that
opens, reads and forks every 2.4 seconds. Figures are printed after each quarter (pytest -s).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from common import descriptors, pattern, threads, until
from test_fork import in_child

Serve = Callable[..., Any]
ROUNDS = int(os.environ.get("INRUSH_PYTHON_SOAK_ROUNDS", "30"))
OBJECTS = {"data/big": pattern(3_000_000), "data/a": b"abc"}
#: Until modules are imported and allocators have what they keep.
WARM_ROUNDS = 5
#: What allocators keep for later.
SLACK_BYTES = 48 << 20


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.usefixtures("alone")
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
        with client.open("s3://data/big", sequential=bool(number % 3)) as file:
            file.read(1000)
            file.readinto(bytearray(100_000))
        assert in_child(lambda: client.read("s3://data/a") and None) == 0
        if number % 2:
            client.close()

    def settled() -> tuple[int, int, int]:
        until(lambda: not threads())
        return descriptors(), len(os.listdir("/proc/self/task")), resident_bytes()

    for number in range(WARM_ROUNDS):
        round_of(number)
    before = settled()
    for quarter in range(4):
        for number in range(max(1, ROUNDS // 4)):
            round_of(number)
        until(lambda: descriptors() <= before[0])
        now = settled()
        print(f"{(quarter + 1) * max(1, ROUNDS // 4)} rounds: {now[0]} descriptors, {now[1]} "
              f"threads, {now[2] / (1 << 20):.1f} MiB ({before[2] / (1 << 20):.1f} at first)")
        assert now[1] <= before[1]
        assert now[2] - before[2] < SLACK_BYTES
