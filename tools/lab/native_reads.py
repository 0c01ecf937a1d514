"""Every way of reading that the Python package has, once: `native_reads.py ENDPOINT FOLDER`.

What memcheck watches: few requests, since it is some fifty times slower.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import inrush

BIG, SMALL = "s3://bucket/big/", "s3://bucket/small/"


def check(is_right: object, what: str) -> None:
    """Ends the program unless it is right; `assert` would depend on options of Python."""
    if not is_right:
        sys.exit(f"wrong: {what}")


async def by_an_event_loop(client: inrush.Client, uri: str, whole: bytes) -> None:
    """Reads that are awaited, and one that is given up."""
    check(await client.async_read(uri, (5, 100_000)) == whole[5:100_005], "async_read")
    given_up = asyncio.ensure_future(client.async_read(uri))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)


def main(endpoint: str, folder: Path) -> None:
    """Reads, and compares the ways with each other."""
    with inrush.Client(endpoint_url=endpoint, no_sign_request=True, region="us-east-1",
                       ring="epoll", workers=1, connections=8, retry_for=1.0) as client:
        big, = client.list(BIG)
        whole = client.read(big.uri)
        check(len(whole) == client.stat(big.uri).size == big.size, "read")
        buffer = bytearray(len(whole))
        client.read_into(big, buffer)
        check(buffer == whole, "read_into")
        with client.open(big) as file:
            file.seek(len(whole) // 2)
            check(file.read() == whole[len(whole) // 2:], "open")
        listed = list(client.list(SMALL))
        read = [bytes(one.data) for one in client.read_many(listed)]
        check([len(data) for data in read] == [info.size for info in listed], "read_many")
        for _, _ in zip(range(3), client.read_many(listed, ordered=False)):
            pass
        asyncio.run(by_an_event_loop(client, big.uri, whole))
        client.get(SMALL, folder)
        check(sorted(path.stat().st_size for path in folder.iterdir())
              == sorted(info.size for info in listed), "get")
        for uri, wanted in ((f"{SMALL}nothing", None), (big.uri, (1 << 40, 1))):
            try:
                client.read(uri, wanted)
            except inrush.Error:
                continue
            check(False, "an error is raised")
    gc.collect()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
