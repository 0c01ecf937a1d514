"""Reading one large object into memory."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from typing import Any

from .shared import Epoch, Loop, Task, boto3_client, obstore_store

PART_BYTES = 8 << 20
PARTS_AT_ONCE = 16


def read_into(task: Task) -> Epoch:
    """`Client.read_into` of an array of numpy that has its memory already."""
    import inrush
    import numpy

    client = inrush.Client()
    info = client.stat(task.uris[0])
    array = numpy.ones(info.size, dtype=numpy.uint8)

    def epoch() -> Iterator[Any]:
        yield array[:client.read_into(info, array)]
    return epoch


def read(task: Task) -> Epoch:
    """`Client.read`."""
    import inrush

    client = inrush.Client()
    info = client.stat(task.uris[0])
    return lambda: iter([client.read(info)])


def obstore(task: Task) -> Epoch:
    """`get_range_async` of parts, several at the same time, into one array."""
    import numpy
    import obstore as package

    store, key = obstore_store(task), task.keys[0]
    size = package.head(store, key)["size"]
    array = numpy.ones(size, dtype=numpy.uint8)
    view = memoryview(array)

    async def whole() -> None:
        slots = asyncio.Semaphore(PARTS_AT_ONCE)

        async def part(start: int) -> None:
            length = min(PART_BYTES, size - start)
            async with slots:
                view[start:start + length] = await package.get_range_async(
                    store, key, start=start, length=length)
        await asyncio.gather(*map(part, range(0, size, PART_BYTES)))

    def epoch() -> Iterator[Any]:
        asyncio.run(whole())
        yield array
    return epoch


def s3dlio(task: Task) -> Epoch:
    """`get`, which splits a large object into ranges itself."""
    import s3dlio as package

    return lambda: iter([memoryview(package.get(task.uris[0]))])


def boto3(task: Task) -> Epoch:
    """`download_fileobj` into memory."""
    client = boto3_client()

    def epoch() -> Iterator[Any]:
        memory = io.BytesIO()
        client.download_fileobj(task.bucket, task.keys[0], memory)
        yield memory.getbuffer()
    return epoch


LOOPS: dict[str, Loop] = {
    "boto3 download_fileobj": boto3, "obstore get_range_async": obstore, "s3dlio get": s3dlio,
    "inrush read": read, "inrush read_into": read_into}
