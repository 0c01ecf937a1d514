"""The client: what it reads, lists and describes."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import inrush
import pytest
from common import (WAIT_SECONDS_MAX, Answers, descriptors, pattern, prefers_huge_pages, threads,
                    until)
from inrush._places import listing

Serve = Callable[..., Any]
BIG = pattern(20_000_003)
KEYS = {
    "data/big": BIG,
    "data/train/a*b": b"star",
    "data/train/axb": b"x",
    "data/train/sub/one": b"1",
    "data/train/sub/two": b"22",
    "data/train2/z": b"zzz",
    "data/empty": b"",
}


@pytest.mark.usefixtures("alone")
def test_nothing_happens_before_the_first_use() -> None:
    before = (threads(), descriptors())
    clients = [inrush.Client(endpoint_url="http://127.0.0.1:1") for _ in range(10)]
    assert (threads(), descriptors()) == before
    for client in clients:
        client.close()
        assert client.closed


def test_what_is_read_is_what_is_there(serve: Serve) -> None:
    with serve(KEYS, "--faults", "7:mild").client() as client:
        assert client.read("s3://data/big") == BIG
        info = client.stat("s3://data/big")
        assert client.read(info) == BIG
        assert client.read(info, (5, 7)) == BIG[5:12]
        assert client.read("s3://data/big", (len(BIG) - 9_000_000, 9_000_000)) == BIG[-9_000_000:]
        assert client.read("s3://data/empty") == b""
        assert client.read(info, (len(BIG), 0)) == b""
        assert client.read("s3://data/train/a*b") == b"star", "no character is a wildcard"


def test_the_limit_is_reported(serve: Serve) -> None:
    origin = serve(KEYS, "--first-byte-latency", "100:0")
    with origin.client() as client:
        assert client.limit() is None, "nothing was read"
        # Looking it up is no read.
        info = client.stat("s3://data/train/axb")
        for _ in range(10):
            client.read(info)
        found = client.limit()
        assert found is not None
        # Where others keep the processors busy, that may be worse.
        assert found["part"] in ("latency", "cpu") and found["shares"]["latency"] > 0.3, found
        assert found["sentence"].startswith("the limit: "), found
        # From here on it is the program that takes its time.
        time.sleep(5 * 10 * 0.1)
        found = client.limit()
        assert found is not None
        assert found["shares"]["reader"] > 0.5, found
    with pytest.raises(inrush.Closed):
        client.limit()


def test_large_bytes_have_huge_pages_and_memory_of_others_stays_as_it_is(serve: Serve) -> None:
    huge = pattern(70_000_000)
    origin = serve({"data/huge": huge, "data/big": BIG})
    with origin.client() as client:
        for name, expected in (("big", False), ("huge", True)):
            data = client.read(f"s3://data/{name}")
            assert data == {"big": BIG, "huge": huge}[name]
            # The address of an object is that of its head, and of a page that is its own.
            assert prefers_huge_pages(id(data) + (4 << 20)) == expected
        lent = mmap.mmap(-1, len(huge))
        assert client.read_into("s3://data/huge", lent) == len(huge)
        assert lent[:] == huge
        view = (ctypes.c_char * len(huge)).from_buffer(lent)
        assert not prefers_huge_pages(ctypes.addressof(view) + (4 << 20))
        del view


def test_reads_into_memory_of_the_caller(serve: Serve) -> None:
    with serve(KEYS).client() as client:
        buffer = bytearray(len(BIG) + 5)
        assert client.read_into("s3://data/big", buffer) == len(BIG)
        assert buffer == BIG + bytes(5)
        # It was given back: it may be resized.
        buffer.append(1)
        view = memoryview(bytearray(100))
        assert client.read_into("s3://data/big", view[10:20], (3, 10)) == 10
        assert bytes(view) == bytes(10) + BIG[3:13] + bytes(80)
        assert client.read_into("s3://data/empty", bytearray()) == 0


def test_reads_into_arrays(serve: Serve) -> None:
    numpy = pytest.importorskip("numpy")
    with serve(KEYS).client() as client:
        array = numpy.zeros((1000, 5), dtype="<u4")
        assert client.read_into("s3://data/big", array, (0, array.nbytes)) == array.nbytes
        assert array.tobytes() == BIG[: array.nbytes]
        with pytest.raises((ValueError, BufferError)):
            client.read_into("s3://data/big", array[:, 1:3], (0, 16))


def test_listings_are_literal_and_in_order(serve: Serve) -> None:
    with serve(KEYS).client() as client:
        uris = [entry.uri for entry in client.list("s3://data/train")]
        assert uris == [
            "s3://data/train/a*b", "s3://data/train/axb", "s3://data/train/sub/one",
            "s3://data/train/sub/two", "s3://data/train2/z",
        ]  # fmt: skip
        level = list(client.list("s3://data/train/", recursive=False))
        assert [(type(entry).__name__, entry.key) for entry in level] == [
            ("ObjectInfo", "train/a*b"), ("ObjectInfo", "train/axb"), ("Prefix", "train/sub/"),
        ]  # fmt: skip
        assert [entry.key for entry in client.list("s3://data/train/a*")] == ["train/a*b"]
        assert list(client.list("s3://data/nothing")) == []
        assert list(client.list("s3://data/nothing", recursive=False)) == []
        top = [entry.key for entry in client.list("s3://data", recursive=False)]
        assert top == ["big", "empty", "train/", "train2/"]


def test_an_iterator_keeps_the_client_that_nobody_else_has(serve: Serve) -> None:
    server = serve(KEYS)
    assert len(list(server.client().list("s3://data/train/"))) == 4
    results = server.client().read_many(["s3://data/train/axb", "s3://data/train/a*b"])
    assert [result.data for result in results] == [b"x", b"star"]
    with server.client().open("s3://data/train/axb") as file:
        assert file.read() == b"x"


def test_what_a_manifest_names_is_read_whole(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "list").write_text('[{"prefix": "s3://data/train/"}, "axb", "a*b"]')
    with serve(KEYS).client() as client:
        listed = listing(client, (), manifest=str(tmp_path / "list"))
        assert [client.read(one) for one in listed] == [b"x", b"star"]
        assert client.open(listed[-1]).read() == b"star"
        assert [one.data for one in client.read_many(listed[:1])] == [b"x"]
        known = listing(client, "s3://data/train/")
        assert [one.size for one in known] == [4, 1, 1, 2]


def test_listings_have_many_pages(serve: Serve) -> None:
    origin = serve({"other/x": b""}, "--synthetic", "data/many/:3500:1KiB:folders=7")
    with origin.client() as client:
        entries = list(client.list("s3://data/many/"))
        assert len(entries) == 3500
        assert [entry.key for entry in entries] == sorted(entry.key for entry in entries)
        assert all(entry.size == 1024 and entry.etag for entry in entries)
        # One that is left in the middle holds up nothing.
        listing = client.list("s3://data/many/")
        next(listing)
        del listing
        folders = list(client.list("s3://data/many/", recursive=False))
        assert [type(entry) for entry in folders] == [inrush.Prefix] * 7


def test_infos_are_values(serve: Serve) -> None:
    with serve(KEYS).client() as client:
        info = client.stat("s3://data/big")
        listed = [entry for entry in client.list("s3://data/big")][0]
        assert (info.bucket, info.key, info.size) == ("data", "big", len(BIG))
        assert info.uri == "s3://data/big"
        assert info.last_modified is not None and info.last_modified.tzinfo == timezone.utc
        assert abs(info.last_modified - datetime.now(timezone.utc)) < timedelta(days=1)
        assert info.etag == listed.etag and info.etag.startswith('"')
        for value in (info, inrush.Prefix("s3://data/a/b/")):
            again = pickle.loads(pickle.dumps(value))
            assert again == value and hash(again) == hash(value) and again.uri == value.uri
        made = inrush.ObjectInfo(uri="s3://data/big", size=info.size, etag=info.etag)
        assert made != info and made.last_modified is None
        assert client.read(made, (0, 10)) == BIG[:10]
        with pytest.raises(AttributeError):
            info.size = 3  # type: ignore[misc]


@pytest.mark.parametrize("ordered", [True, False])
def test_reads_many(serve: Serve, ordered: bool) -> None:
    objects = {f"data/n/{at:04}": pattern(at * 13 % 5000, at) for at in range(500)}
    with serve(objects, "--faults", "3:mild").client() as client:
        infos = list(client.list("s3://data/n/"))
        results = list(client.read_many(infos, ordered=ordered))
        assert sorted(result.index for result in results) == list(range(500))
        if ordered:
            assert [result.index for result in results] == list(range(500))
        for result in results:
            assert result.source == infos[result.index] and result.range is None
            assert result.data == objects[f"data/{infos[result.index].key}"]
            assert result.error is None
        # Addresses, ranges, and a lazy iterable.
        items = ((info.uri, (1, 2)) for info in infos if info.size > 3)
        for result in client.read_many(items, ordered=ordered):
            key = result.source.removeprefix("s3://")
            assert result.data == objects[key][1:3] and result.range == (1, 2)


def test_read_many_takes_items_as_it_needs_them(serve: Serve) -> None:
    with serve({"data/x": b"x" * 1000}).client() as client:
        info = client.stat("s3://data/x")
        taken = 0

        def endless() -> Any:
            nonlocal taken
            while True:
                taken += 1
                yield info

        results = client.read_many(endless())
        for _ in range(10):
            assert next(results).data == b"x" * 1000
        assert taken < 5000
        del results


def test_large_items_stay_within_bounds(serve: Serve) -> None:
    with serve({"other/x": b""}, "--synthetic", "data/large/:12:100MiB:width=2").client() as client:
        infos = list(client.list("s3://data/large/"))
        by_address = client.read_many([(info.uri, (0, 90 << 20)) for info in infos])
        assert sum(len(result.data) for result in by_address) == 12 * (90 << 20)


@pytest.mark.parametrize("ordered", [True, False])
def test_ranges_far_beyond_an_object_leave_room_for_others(serve: Serve, ordered: bool) -> None:
    """They are counted ahead before their bucket is known, which was never given back."""
    with serve({"data/x": b"x" * 1000, **{f"far-{at}/x": b"far" for at in range(3)}}).client() as c:
        info = c.stat("s3://data/x")
        far = [(inrush.ObjectInfo(f"s3://far-{at}/x", 3), (1, 2**63 - 1)) for at in range(3)]
        items = [info, *far, info, *far, info]
        found: list[inrush.ReadResult] = []
        read = threading.Thread(daemon=True, target=lambda: found.extend(
            c.read_many(items, ordered=ordered, return_exceptions=True)))
        read.start()
        read.join(WAIT_SECONDS_MAX)
        assert not read.is_alive(), "it waits for ever"
    found.sort(key=lambda result: result.index)
    wanted = [None if item is info else inrush.InvalidRange for item in items]
    assert [result.error and type(result.error) for result in found] == wanted
    assert [len(result.data) for result in found] == [1000 * (item is info) for item in items]


@pytest.mark.parametrize("wrong", [("s3://data/train/axb", "0-3"), ("a", "b", "c"), 7, None])
def test_what_is_a_mistake_of_the_program_is_raised_at_its_turn(serve: Serve, wrong: Any) -> None:
    with serve(KEYS).client() as client:
        for return_exceptions in (False, True):
            items: list[Any] = ["s3://data/train/axb", wrong]
            results = client.read_many(items, return_exceptions=return_exceptions)
            assert next(results).data == b"x"
            with pytest.raises(TypeError):
                next(results)

            async def twin(items: list[Any] = items, returned: bool = return_exceptions) -> None:
                found = client.async_read_many(items, return_exceptions=returned)
                assert (await anext(found)).data == b"x"
                await anext(found)

            with pytest.raises(TypeError):
                asyncio.run(twin())
        for read_many in (client.read_many, client.async_read_many):
            with pytest.raises(TypeError, match="give a list"):
                read_many("s3://data/big")


def test_what_names_no_object_is_reported_at_its_turn(serve: Serve) -> None:
    with serve(KEYS).client() as client:
        for wrong in ("bad", ("s3://data/train/axb", (-1, 3))):
            items: list[Any] = ["s3://data/train/axb", wrong, "s3://data/train/sub/one"]
            results = client.read_many(items)
            assert next(results).data == b"x"
            with pytest.raises((inrush.Usage, inrush.InvalidRange)):
                next(results)
            first, second, third = client.read_many(items, return_exceptions=True)
            assert (first.data, third.data, second.data) == (b"x", b"1", b"")
            assert isinstance(second.error, (inrush.Usage, inrush.InvalidRange))
            assert type(second.error).__name__ in repr(second)
            assert repr(first).endswith(", 1 bytes)")

            async def twin(items: list[Any] = items) -> list[Any]:
                found = client.async_read_many(items, return_exceptions=True)
                return [result async for result in found]

            twins = asyncio.run(twin())
            assert [result.data for result in twins] == [b"x", b"", b"1"]
            assert type(twins[1].error) is type(second.error)


def test_errors_of_read_many_come_at_their_turn(serve: Serve) -> None:
    with serve(KEYS).client() as client:
        items = ["s3://data/train/axb", "s3://data/not-there", "s3://data/big"]
        results = client.read_many(items)
        assert next(results).data == b"x"
        with pytest.raises(inrush.NotFound, match="not-there"):
            next(results)
        for _ in range(2):
            with pytest.raises(inrush.Closed, match="has failed before.*NotFound: .*not-there"):
                next(results)
        ended = list(client.read_many(items, return_exceptions=True))
        assert [type(result.error) for result in ended] == [type(None), inrush.NotFound, type(None)]
        assert ended[2].data == BIG and ended[1].data == b""


def test_a_listing_that_failed_has_no_end(serve: Serve) -> None:
    with serve(KEYS).client() as client:
        entries = client.list("s3://no-such-bucket/")
        for kind in (inrush.NotFound, inrush.Closed, inrush.Closed):
            with pytest.raises(kind):
                next(entries)
        closed: Any = client.list("s3://data/")
        next(closed)
        closed.close()
        with pytest.raises(inrush.Closed, match="the iterator was closed"):
            next(closed)


def test_what_the_iterable_raises_comes_out(serve: Serve) -> None:
    def items() -> Any:
        yield "s3://data/train/axb"
        raise LookupError("mine")

    with serve(KEYS).client() as client:
        with pytest.raises(LookupError, match="mine"):
            list(client.read_many(items()))
        with pytest.raises(TypeError, match="source"):
            list(client.read_many([7]))


#: Clients that are closed while two threads begin reads into memory that they forget: workers give
#: it back to Python, and who drops the engine last waits for its workers.
CLOSED_WHILE_READING = """
import sys, threading, time
import inrush

endpoint, rounds = sys.argv[1], int(sys.argv[2])
# Threads take turns as often as they can.
sys.setswitchinterval(1e-6)
info = inrush.ObjectInfo("s3://data/big", 1 << 30, '"e"')


def read(core, begun):
    begun.set()
    try:
        while True:
            reactor = core.reactor()
            for _ in range(8):
                reactor.read_into(info, bytearray(4096), (0, 4096))
            del reactor
    except inrush.Closed:
        pass


for at in range(rounds):
    client = inrush.Client(endpoint_url=endpoint, no_sign_request=True, region="us-east-1",
                           memory="8MiB", workers=1, connections=4, retry_for=0.0)
    client._core.read(info, (0, 0))
    begun = threading.Event()
    threads = [threading.Thread(target=read, args=(client._core, begun)) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait()
    time.sleep(at % 10 / 2000)
    client.close()
    for thread in threads:
        thread.join()
"""


def test_a_client_that_is_closed_while_threads_read_waits_for_no_worker() -> None:
    over = threading.Event()

    def answer(handler: Any) -> None:
        # Where the bucket is; reads are never answered.
        if handler.command == "GET":
            over.wait(WAIT_SECONDS_MAX)
            return
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 30))
        handler.end_headers()

    server = Answers(answer)
    words = [sys.executable, "-c", CLOSED_WHILE_READING, server.endpoint, "60"]
    try:
        # Without that a thread had the interpreter while it waited for a worker that wanted it.
        subprocess.run(words, check=True, timeout=WAIT_SECONDS_MAX)
    finally:
        over.set()
        server.close()


def test_many_threads_share_a_client(serve: Serve) -> None:
    failures: list[BaseException] = []
    with serve(KEYS).client() as client:

        def work(salt: int) -> None:
            try:
                for at in range(20):
                    begin = (at * 7919 + salt * 104_729) % 10_000_000
                    assert client.read("s3://data/big", (begin, 100_000)) == BIG[begin:][:100_000]
            except BaseException as error:
                failures.append(error)

        running = [threading.Thread(target=work, args=(salt,)) for salt in range(8)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    assert not failures


@pytest.mark.usefixtures("alone")
def test_nothing_is_left_of_a_client(serve: Serve) -> None:
    origin = serve(KEYS)
    before = descriptors()
    for closes in (True, False):
        client = origin.client()
        assert client.read("s3://data/big") == BIG
        many = client.read_many(["s3://data/big"] * 30)
        next(many)
        listing = client.list("s3://data/")
        assert threads()
        if closes:
            client.close()
            with pytest.raises(inrush.Closed):
                client.read("s3://data/big")
            with pytest.raises(inrush.Closed):
                list(many)
        del client, many, listing
        until(lambda: not threads())
        until(lambda: descriptors() <= before)


def test_a_close_ends_every_wait(serve: Serve) -> None:
    client = serve(KEYS, "--connection-rate", "1KB").client()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            client.read("s3://data/big")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: "inrush-0" in threads())
    client.close()
    thread.join()
    assert [type(error) for error in errors] == [inrush.Closed]


def test_a_close_ends_a_listing(serve: Serve) -> None:
    client = serve({f"data/{at:04}": b"" for at in range(2001)}).client()
    listed = client.list("s3://data/")
    next(listed)
    client.close()
    # What is there already may still come.
    with pytest.raises(inrush.Closed, match="the client is closed"):
        list(listed)


def test_clients_are_pickled_without_keys(serve: Serve) -> None:
    client = serve(KEYS).client(workers=1, memory="32MiB")
    pickled = pickle.dumps(client)
    assert b"secret" not in pickled
    again = pickle.loads(pickled)
    assert again.options == client.options
    assert again.read("s3://data/train/axb") == b"x"
    again.close()
    client.close()


def test_a_password_is_in_no_text() -> None:
    client = inrush.Client(endpoint_url="http://user:pass/w@rd@127.0.0.1:1", region="eu-west-1")
    assert "endpoint_url='http://***@127.0.0.1:1', region='eu-west-1'" in repr(client)
    with pytest.raises(inrush.Usage) as caught:
        client.stat("s3://data/a")
    assert "rd@" not in str(caught.value)
    client = inrush.Client(endpoint_url="http://127.0.0.1:1/")
    assert "endpoint_url='http://127.0.0.1:1/'" in repr(client)


def test_shares_and_options_are_checked(serve: Serve) -> None:
    origin = serve(KEYS)
    for at in range(3):
        with origin.client(share=(at, 3), ring="epoll") as client:
            assert client.read("s3://data/big") == BIG
    for wrong in ({"share": (3, 3)}, {"memory": "plenty"}, {"ring": "square"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            origin.client(**wrong)
    with pytest.raises(TypeError, match="workers"):
        origin.client(workers="two")
    with pytest.raises(inrush.Usage, match="workers"):
        origin.client(workers=100_000).read("s3://data/big")


def test_the_default_client_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    from inrush import _client

    assert _client.default_client() is _client.default_client()


def test_where_a_bucket_is_gets_asked_once() -> None:
    def answer(handler: Any) -> None:
        data = b"data" if handler.headers["Range"] is not None else b""
        handler.send_response(206 if data else 200)
        handler.send_header("Content-Length", "4")
        handler.send_header("Content-Range", "bytes 0-3/4")
        handler.send_header("ETag", '"e"')
        handler.end_headers()
        handler.wfile.write(data)

    for way in ("read_many", "async_read_many"):
        server = Answers(answer)
        infos = [inrush.ObjectInfo(f"s3://data/{at}", 4, '"e"') for at in range(50)]
        options = {"endpoint_url": server.endpoint, "no_sign_request": True, "region": "us-east-1"}
        with inrush.Client(**options) as client:
            if way == "read_many":
                found = [result.data for result in client.read_many(infos)]
            else:
                found = asyncio.run(collected(client.async_read_many(infos)))
        assert found == [b"data"] * 50
        assert sum(line.startswith("HEAD") for line in server.seen) == 1, server.seen
        server.close()


async def collected(results: Any) -> list[bytes]:
    return [result.data async for result in results]
