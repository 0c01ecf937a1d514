"""Event loops."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import inrush
import pytest
from common import descriptors, pattern, threads, until

Serve = Callable[..., Any]
BIG = pattern(20_000_003)
OBJECTS = {"data/big": BIG, **{f"data/n/{at:03}": pattern(at * 11, at) for at in range(300)}}


def test_all_twins(serve: Serve) -> None:
    async def work(client: inrush.Client) -> None:
        info = await client.async_stat("s3://data/big")
        assert info == client.stat("s3://data/big")
        assert await client.async_read(info, (5, 10)) == BIG[5:15]
        assert await client.async_read("s3://data/big") == BIG
        assert await client.async_read(info, (5, 0)) == b""
        buffer = bytearray(len(BIG))
        assert await client.async_read_into(info, buffer) == len(BIG) and buffer == BIG
        entries = [entry async for entry in client.async_list("s3://data/n/")]
        assert entries == list(client.list("s3://data/n/"))
        level = [entry.key async for entry in client.async_list("s3://data/", recursive=False)]
        assert level == ["big", "n/"]
        for ordered in (True, False):
            results = [one async for one in client.async_read_many(entries, ordered=ordered)]
            assert sorted(one.index for one in results) == list(range(300))
            assert all(one.data == OBJECTS[f"data/{one.source.key}"] for one in results)
        many = await asyncio.gather(*[client.async_read(entry) for entry in entries])
        assert many == [OBJECTS[f"data/{entry.key}"] for entry in entries]

    with serve(OBJECTS).client() as client:
        # Two loops, one after the other.
        for _ in range(2):
            asyncio.run(work(client))


def test_errors_come_to_who_awaits(serve: Serve) -> None:
    async def work(client: inrush.Client) -> None:
        for ask in (client.async_stat, client.async_read):
            with pytest.raises(inrush.NotFound):
                await ask("s3://data/none")
        with pytest.raises(inrush.InvalidRange):
            await client.async_read("s3://data/big", (len(BIG), 1))
        with pytest.raises(inrush.NotFound):
            [entry async for entry in client.async_list("s3://no-such-bucket/")]
        items = ["s3://data/n/001", "s3://data/none"]
        with pytest.raises(inrush.NotFound):
            [one async for one in client.async_read_many(items)]
        results = [one async for one in client.async_read_many(items, return_exceptions=True)]
        assert [type(one.error) for one in results] == [type(None), inrush.NotFound]

    with serve(OBJECTS).client() as client:
        asyncio.run(work(client))


def test_who_catches_an_error_sees_no_end_behind_it(serve: Serve) -> None:
    async def work(client: inrush.Client) -> None:
        for many, kind in [
            (client.async_read_many(["s3://data/none", "s3://data/n/001"]), inrush.NotFound),
            (client.async_list("s3://no-such-bucket/"), inrush.NotFound),
        ]:  # fmt: skip
            with pytest.raises(kind):
                await anext(many)
            for _ in range(2):
                with pytest.raises(inrush.Closed, match="has failed before"):
                    await anext(many)
        # A timeout is an error, too.
        slow = client.async_read_many(["s3://data/big"])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(slow), 0.1)
        with pytest.raises(inrush.Closed, match="CancelledError$"):
            await anext(slow)

    with serve(OBJECTS, "--connection-rate", "200KB").client() as client:
        asyncio.run(work(client))


def test_cancelled_is_cancelled(serve: Serve) -> None:
    async def work(client: inrush.Client) -> None:
        buffer = bytearray(len(BIG))
        tasks = [asyncio.create_task(client.async_read("s3://data/big")) for _ in range(5)]
        tasks.append(asyncio.create_task(client.async_read_into("s3://data/big", buffer)))
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ended] == [asyncio.CancelledError] * 6
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.async_read("s3://data/big"), 0.1)
        # The client works on.
        assert await client.async_read("s3://data/n/001") == OBJECTS["data/n/001"]

    with serve(OBJECTS, "--connection-rate", "200KB").client() as client:
        asyncio.run(work(client))


def test_a_cancelled_buffer_is_the_callers_again(serve: Serve) -> None:
    async def work(client: inrush.Client) -> None:
        buffer = bytearray(len(BIG))
        for turn in range(10):
            task = asyncio.create_task(client.async_read_into("s3://data/big", buffer))
            await asyncio.sleep(0.02 * turn)
            task.cancel()
            await asyncio.sleep(0)
            # Once more, while it waits.
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # A bytearray that is lent cannot be resized.
            buffer.append(0)
            buffer.pop()

    with serve(OBJECTS, "--connection-rate", "200KB").client() as client:
        asyncio.run(work(client))


def test_a_loop_that_is_over_takes_its_jobs_along(serve: Serve) -> None:
    with serve(OBJECTS).client() as client:
        assert asyncio.run(client.async_read("s3://data/n/001")) == OBJECTS["data/n/001"]
        gc.collect()
        before = descriptors()
        for _ in range(20):
            asyncio.run(client.async_read("s3://data/n/001"))
        gc.collect()
        until(lambda: descriptors() <= before)

        # Closed with jobs under way.
        for _ in range(20):
            loop = asyncio.new_event_loop()
            tasks = [loop.create_task(client.async_read("s3://data/big"))]
            loop.run_until_complete(asyncio.sleep(0.01))
            loop.close()
        # The last one goes with the next loop that is new.
        del loop, tasks
        asyncio.run(client.async_read("s3://data/n/001"))
        gc.collect()
        until(lambda: descriptors() <= before)


@pytest.mark.usefixtures("alone")
def test_a_closed_client_ends_every_await(serve: Serve) -> None:
    before = descriptors()

    async def work(client: inrush.Client) -> None:
        task = asyncio.create_task(client.async_read("s3://data/big"))
        await asyncio.sleep(0.2)
        client.close()
        with pytest.raises(inrush.Closed):
            await task
        with pytest.raises(inrush.Closed):
            await client.async_read("s3://data/big")

    asyncio.run(work(serve(OBJECTS, "--connection-rate", "200KB").client()))
    until(lambda: not threads())

    async def many(client: inrush.Client, source: Any) -> None:
        results = client.async_read_many([source] * 5)
        task = asyncio.ensure_future(anext(results))
        await asyncio.sleep(0.2)
        client.close()
        with pytest.raises(inrush.Closed, match="the client is closed"):
            await task

    for source in ("s3://data/big", inrush.ObjectInfo("s3://data/big", len(BIG))):
        asyncio.run(many(serve(OBJECTS, "--connection-rate", "200KB").client(), source))
    asyncio.run(many(serve(OBJECTS, "--first-byte-latency", "60000").client(), "s3://data/big"))
    gc.collect()
    until(lambda: not threads())
    until(lambda: descriptors() <= before)
