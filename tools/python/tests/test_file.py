"""Objects as files."""

from __future__ import annotations

import hashlib
import errno
import io
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import inrush
import pytest
from common import Answers, pattern, resident
from conftest import require
from inrush._file import (AHEAD_FIRST, AHEAD_MAX, AHEAD_SUM_MAX, BLOCK_BYTES, BLOCKS_KEPT,
                          PIECE_BYTES, PIECES_KEPT, Ahead, Pool)

Serve = Callable[..., Any]
BIG = pattern(9_000_001)
TEXT = "".join(f"line {at} – ü\n" for at in range(50_000))
OBJECTS = {"data/big": BIG, "data/text": TEXT.encode(), "data/empty": b""}


def test_it_is_the_object(serve: Serve) -> None:
    with serve(OBJECTS).client() as client, client.open("s3://data/big") as file:
        assert isinstance(file, io.BufferedIOBase) and isinstance(file, io.IOBase)
        assert file.readable() and file.seekable() and not file.writable()
        assert (file.size, file.info.uri, file.name) == (len(BIG), "s3://data/big", "s3://data/big")
        assert file.read() == BIG and file.read() == b"" and file.read(5) == b""
        assert file.seek(-5, io.SEEK_END) == len(BIG) - 5
        assert file.read(100) == BIG[-5:]
        with pytest.raises(inrush.Usage, match="position -1 is before the start") as caught:
            file.seek(-1)
        assert isinstance(caught.value, ValueError) and caught.value.errno == errno.EINVAL
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"")
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_integers_of_numpy_are_taken_as_they_are(serve: Serve) -> None:
    numpy = require("numpy")
    with serve(OBJECTS).client() as client:
        for kind in (numpy.uint8, numpy.int16, numpy.uint32, numpy.uint64):
            file = client.open("s3://data/big")
            at = 1000
            assert file.seek(at) == at
            # What the type itself would add up to wraps around, or is no integer.
            assert file.read(kind(200)) == BIG[at:at + 200]
            assert file.seek(kind(100), io.SEEK_CUR) == at + 300
            assert file.read(kind(100)) == BIG[at + 300:at + 400]
            assert file.read1(kind(9)) == BIG[at + 400:at + 409]
            assert type(file.tell()) is int
        assert file.seek(-numpy.int8(5), io.SEEK_END) == len(BIG) - 5
        assert file.seek(numpy.uint64(len(BIG) - 7)) == len(BIG) - 7
        file.prefetch(numpy.uint8(7))
        assert file.read() == BIG[-7:]
        for wrong in (1.5, numpy.float64(1), "1"):
            for call in (file.seek, file.read, file.read1):
                with pytest.raises(TypeError):
                    call(wrong)


def test_it_does_as_a_file_in_memory(serve: Serve) -> None:
    chance = random.Random(7)
    with serve(OBJECTS).client() as client:
        for read_ahead, sequential in ((0, False), (1 << 16, False), (None, False), (None, True)):
            file = client.open("s3://data/big", read_ahead=read_ahead, sequential=sequential)
            model = io.BytesIO(BIG)
            for _ in range(600):
                match chance.randrange(7):
                    case 0:
                        place = chance.randrange(len(BIG) + 100)
                        assert file.seek(place) == model.seek(place)
                    case 6:
                        place = max(model.tell() + chance.randrange(-70_000, 70_000), 0)
                        assert file.seek(place) == model.seek(place)
                    case 1:
                        assert file.readline(1 << 15) == model.readline(1 << 15)
                    case 2:
                        ours, theirs = bytearray(50_000), bytearray(50_000)
                        assert file.readinto(ours) == model.readinto(theirs) and ours == theirs
                    case 3:
                        data = file.read1(70_000)
                        assert data == model.read(len(data))
                        assert data or model.read(1) == b"" or model.seek(-1, 1)
                    case _:
                        length = chance.choice([1, 100, 65_536, 300_000])
                        assert file.read(length) == model.read(length)
                assert file.tell() == model.tell()


def requests(origin_client: Any, work: Callable[[Any], None]) -> list[tuple[int, int]]:
    """The ranges that a file asks its client for: at once, or ahead."""
    asked: list[tuple[int, int]] = []
    read, ask = origin_client.read, Ahead.ask

    def spy(source: Any, range: Any = None) -> bytes:
        asked.append(range)
        return read(source, range)  # type: ignore[no-any-return]

    def spy_ahead(ahead: Ahead, begin: int, length: int) -> bool:
        asked.append((begin, length))
        return ask(ahead, begin, length)

    origin_client.read = spy
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ahead, "ask", spy_ahead)
        work(origin_client)
    return asked


def test_who_reads_on_gets_more_ahead(serve: Serve) -> None:
    def work(client: Any) -> None:
        file = client.open("s3://data/big")
        while file.read(10_000):
            pass

    with serve(OBJECTS).client() as client:
        asked = requests(client, work)
    lengths = [length for _, length in asked]
    assert sum(lengths) == len(BIG), "nothing is fetched twice"
    assert len(asked) < 20 and lengths[:-1] == sorted(lengths[:-1]), lengths
    assert asked == sorted(asked) and lengths[0] == 128 << 10, asked


def test_a_sequential_file_is_read_ahead_at_once(serve: Serve) -> None:
    def work(client: Any) -> None:
        file = client.open("s3://data/big", read_ahead=5 << 20, sequential=True)
        assert file.read(1) == BIG[:1]
        first = list(asked)
        assert sum(length for _, length in first) == 6 << 20, "up to whole pieces"
        assert file.read() == BIG[1:]
        assert file.seek(3) == 3 and file.read(3) == BIG[3:6]
        file.close()

    asked: list[tuple[int, int]] = []
    with serve(OBJECTS).client() as client, pytest.MonkeyPatch.context() as patch:
        ask = Ahead.ask
        patch.setattr(Ahead, "ask",
                      lambda ahead, *range: asked.append(range) or ask(ahead, *range))
        work(client)
        kept = client._pool.kept
        assert 0 < len(kept) <= PIECES_KEPT and len({id(piece) for piece in kept}) == len(kept)


def test_a_prefetch_does_not_wait_and_is_used(serve: Serve) -> None:
    def work(client: Any) -> None:
        file = client.open("s3://data/big", read_ahead=1 << 20, sequential=True)
        file.prefetch(100)
        file.prefetch(100)
        assert file.read(10) == BIG[:10]
        file.prefetch(9_000_000)
        assert file.read() == BIG[10:]

    with serve(OBJECTS).client() as client:
        asked = requests(client, work)
    assert sum(length for _, length in asked) == len(BIG), asked


def test_files_that_are_read_in_turns_have_their_own_memory(serve: Serve) -> None:
    contents = [pattern(9_000_001, salt) for salt in range(3)]
    objects = {f"data/{at}": content for at, content in enumerate(contents)}
    with serve(objects).client() as client:
        for sequential in (False, True):
            files = [client.open(f"s3://{key}", sequential=sequential) for key in objects]
            for at, file in enumerate(files):
                assert file.read(at * 700_001) == contents[at][: at * 700_001]
            while any(file.tell() < file.size for file in files):
                for file, content in zip(files, contents):
                    begin = file.tell()
                    assert file.read(300_000) == content[begin : begin + 300_000]
            for file in files:
                file.close()


def test_files_share_what_is_read_ahead(serve: Serve) -> None:
    """Many files that are read in turns have little memory together, and each of them has some."""
    count, size, step, bound = 64, 8 << 20, 100_000, 64 << 20
    ahead = dict.fromkeys(range(count), 0)
    most_held = most_grown = 0
    origin = serve({"other/x": b""}, "--synthetic", f"data/many/:{count}:{size}")
    with origin.client(memory=bound) as client, pytest.MonkeyPatch.context() as patch:
        infos = list(client.list("s3://data/many/"))
        wanted = [hashlib.sha256(client.read(info)).digest() for info in infos]
        ask = Ahead.ask

        def spy(this: Ahead, begin: int, length: int) -> bool:
            given = ask(this, begin, length)
            ahead[infos.index(this._info)] += length if given else 0
            return given

        patch.setattr(Ahead, "ask", spy)
        before = resident()
        files = [client.open(info, sequential=at % 2 == 0) for at, info in enumerate(infos)]
        found = [hashlib.sha256() for _ in files]
        for _ in range(0, size, step):
            for file, digest in zip(files, found):
                digest.update(file.read(step))
            held = sum(len(memory) for file in files for *_, memory in file._ahead._pieces)
            held += sum(len(file._bytes) for file in files)
            most_held, most_grown = max(most_held, held), max(most_grown, resident() - before)
            assert client._pool.bytes_held + PIECE_BYTES * len(client._pool.kept) <= bound
        assert [digest.digest() for digest in found] == wanted
        for file in files:
            assert file.read(1) == b""
            file.close()
        assert client._pool.bytes_held == 0, "all of it was given back"
    # A file that gets none has its current read.
    assert most_held <= bound + count * AHEAD_FIRST, most_held
    assert most_held > bound // 2, "it is used"
    # The engine's own memory, and what the allocator keeps.
    assert most_grown <= 3 * bound, most_grown
    assert min(ahead.values()) >= size // 2, ahead


def test_an_interrupt_between_two_lines_costs_the_pool_nothing(serve: Serve) -> None:
    """A piece that was taken and never became the file's bytes is given back when it is closed."""
    origin = serve({"other/x": b""}, "--synthetic", "data/one:1:33554432")
    with origin.client() as client, pytest.MonkeyPatch.context() as patch:
        file = client.open(next(iter(client.list("s3://data/one"))), sequential=True)
        file.read(1)
        taken = Ahead.take

        def interrupted(this: Ahead) -> bytearray:
            taken(this)
            raise KeyboardInterrupt

        patch.setattr(Ahead, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.read()
        file.close()
        assert client._pool.bytes_held == 0, "all of it was given back"


def test_a_pool_has_a_rest_for_each_file_that_comes(serve: Serve) -> None:
    pool = Pool(64 << 20)
    held = [0] * 7
    for _ in range(100):
        for at in range(len(held)):
            if (piece := pool.take(1 << 20, held[at])) is not None:
                held[at] += len(piece)
    assert held == [8 << 20] * 7 and pool.bytes_held == 56 << 20
    assert pool.take(4 << 20, 0) is not None and pool.take((2 << 20) + 1, 0) is None
    pool.give_back(bytearray(PIECE_BYTES))
    pool.forked()
    assert pool.bytes_held == 0 and len(pool.kept) == 1
    # What is kept is no reason to give less, and goes.
    assert pool.take(32 << 20, 0) is not None and pool.take(16 << 20, 0) is not None
    assert pool.take(8 << 20, 0) is not None and pool.take(4 << 20, 0) is not None
    assert pool.take(PIECE_BYTES + 1, 0) is None and pool.take(PIECE_BYTES, 0) is not None
    assert pool.kept == []
    # A file alone has what it has always had; who gives the client less memory means that, too.
    origin = serve({"data/a": b"abc"})
    for memory, share, most in ((None, None, AHEAD_SUM_MAX), ("1GiB", None, AHEAD_SUM_MAX),
                                ("64MiB", None, 64 << 20), ("64MiB", (1, 4), 16 << 20)):
        with origin.client(memory=memory, share=share) as client:
            assert client._pool.bytes_max == most
    assert Pool(AHEAD_SUM_MAX).share(0) >= AHEAD_MAX + PIECE_BYTES


def test_sizes_may_be_text_and_are_checked_before_anything_is_asked(serve: Serve) -> None:
    with serve(OBJECTS).client() as client:
        with client.open("s3://data/big", read_ahead="1MiB", sequential=True) as file:
            assert file.read(1) == BIG[:1] and file._ahead_max == 1 << 20
            assert pickle.loads(pickle.dumps(file))._ahead_max == 1 << 20
        assert client.open("s3://data/big", read_ahead="0").read(3) == BIG[:3]
        for wrong, error in (("1 big", ValueError), ("", ValueError), (1.5, TypeError),
                             (-1, TypeError)):
            with pytest.raises(error, match="^read_ahead: "):
                client.open("s3://data/not-there", read_ahead=wrong)
    for name in ("memory", "bandwidth_limit"):
        with pytest.raises(ValueError, match=f"^{name}: a size is digits"):
            inrush.Client(**{name: "1 big"})


def test_what_cannot_be_opened_is_collected_quietly(serve: Serve) -> None:
    serve(OBJECTS)
    code = "import inrush\ntry:\n    inrush.Client().open('s3://data/not-there')\n" \
           "except inrush.NotFound:\n    print('missing')"
    # Before Python 3.13 it said so in this mode alone.
    ended = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True,
                           env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=True)
    assert (ended.stdout, ended.stderr) == (b"missing\n", b"")


def test_an_error_ahead_comes_when_it_is_its_turn() -> None:
    def answer(handler: Any) -> None:
        # Where the bucket is comes first: a HEAD.
        asked = (handler.headers["Range"] or f"bytes=0-{len(BIG) - 1}").partition("=")[2]
        first, last = map(int, asked.split("-"))
        good = first < 6_000_000
        handler.send_response(206 if good else 403)
        handler.send_header("Content-Length", str(last + 1 - first if good else 0))
        handler.send_header("Content-Range", f"bytes {first}-{last}/{len(BIG)}")
        handler.send_header("ETag", '"e"')
        handler.end_headers()
        if good and handler.command == "GET":
            handler.wfile.write(BIG[first : last + 1])

    server = Answers(answer)
    info = inrush.ObjectInfo("s3://data/big", len(BIG), '"e"')
    options = {"endpoint_url": server.endpoint, "no_sign_request": True, "region": "us-east-1"}
    with inrush.Client(**options) as client:
        file = client.open(info, sequential=True)
        assert file.read(4_000_000) == BIG[:4_000_000]
        for _ in range(2):
            with pytest.raises(inrush.PermissionDenied):
                file.read(3_000_000)
            assert file.tell() == 4_000_000, "it is where it was"
        assert file.seek(10) == 10 and file.read(10) == BIG[10:20]
        file.close()
    server.close()


def test_a_file_of_a_client_that_was_closed_says_so(serve: Serve) -> None:
    client = serve(OBJECTS).client()
    file = client.open("s3://data/big", read_ahead=1 << 20, sequential=True)
    assert file.read(1) == BIG[:1]
    client.close()
    with pytest.raises(inrush.Closed):
        file.read(8_000_000)
    file.close()


def test_who_jumps_gets_what_is_asked_for(serve: Serve) -> None:
    def work(client: Any) -> None:
        file = client.open("s3://data/big")
        for place in (8_000_000, 4_000_000, 6_000_000, 1_000_000):
            file.seek(place)
            assert file.read(100_000) == BIG[place : place + 100_000]

    with serve(OBJECTS).client() as client:
        asked = requests(client, work)
    assert [length for _, length in asked] == [100_000] * 4


def test_small_reads_side_by_side_are_one_request(serve: Serve) -> None:
    def work(client: Any) -> None:
        file = client.open("s3://data/big")
        # As a parser of an archive does: back from the end, its directory, and what it names.
        for place in (*range(8_060_000, 8_055_000, -1000), 8_056_000, 4_000_000, 8_058_000,
                      4_000_100):
            file.seek(place)
            assert file.read(100) == BIG[place : place + 100]
        # Over the end of a block, and what a block has of a longer read.
        end = 4_000_000 - 4_000_000 % BLOCK_BYTES + BLOCK_BYTES
        for place, length in ((end - 50, 100), (end - 1000, 200_000)):
            file.seek(place)
            assert file.read(length) == BIG[place : place + length]

    with serve(OBJECTS).client() as client:
        asked = requests(client, work)
    blocks = [begin for begin, length in asked if length == BLOCK_BYTES]
    assert len(set(blocks)) == len(blocks) == 3, asked
    others = [length for _, length in asked if length != BLOCK_BYTES]
    assert others == [200_000 - 1000 - BLOCK_BYTES]


def test_who_looks_elsewhere_meanwhile_reads_on(serve: Serve) -> None:
    """As the reader of a file of archives does: the start of one, its directory at its end, its
    start again, its content, and then the next one."""
    member, gap = 500_000, 900

    def work(client: Any) -> None:
        file = client.open("s3://data/big")
        for begin in range(0, len(BIG) - member, member):
            for place, length in ((begin, 4), (begin + member - 4096, 4096), (begin + 30, 30),
                                  (begin + gap, member - 2 * gap)):
                file.seek(place)
                assert file.read(length) == BIG[place : place + length]
        file.close()
        assert client._pool.bytes_held == 0, "all of it was given back"

    with serve(OBJECTS).client() as client:
        asked = requests(client, work)
    blocks = [begin for begin, length in asked if length == BLOCK_BYTES]
    # The first one, before anything shows how the file is read, and those beyond what is ahead.
    assert len(blocks) <= 4, asked
    assert sum(length for _, length in asked) < 1.1 * len(BIG), asked


def test_what_nobody_comes_for_is_left(serve: Serve) -> None:
    with serve(OBJECTS).client() as client:
        file = client.open("s3://data/big")
        for _ in range(3):
            file.read(100_000)
        assert file._ahead.begin >= 0 and client._pool.bytes_held > 0
        for at in range(BLOCKS_KEPT + 1):
            assert file._ahead.begin >= 0, "it waits for who looks elsewhere"
            place = 3_000_000 + at * 2 * BLOCK_BYTES
            file.seek(place)
            assert file.read(10) == BIG[place : place + 10]
        assert file._ahead.begin == -1 and client._pool.bytes_held == 0
        file.seek(300_000)
        assert file.read(1_000_000) == BIG[300_000:1_300_000]


def test_few_blocks_of_a_file_are_kept(serve: Serve) -> None:
    def work(client: Any) -> None:
        file = client.open("s3://data/big")
        for place in (*range(BLOCKS_KEPT), 0, BLOCKS_KEPT, 0, 1):
            file.seek(place * 10 * BLOCK_BYTES + 7)
            file.read(1)

    with serve(OBJECTS).client() as client:
        asked = requests(client, work)
    blocks = [begin // BLOCK_BYTES // 10 for begin, _ in asked]
    assert blocks == [*range(BLOCKS_KEPT), BLOCKS_KEPT, 1], "the last used are kept"


def test_text_and_lines(serve: Serve) -> None:
    with serve(OBJECTS).client() as client:
        with io.TextIOWrapper(client.open("s3://data/text"), encoding="utf-8") as text:
            assert text.read() == TEXT
        with client.open("s3://data/text") as file:
            assert [line.decode() for line in file] == TEXT.splitlines(keepends=True)
        with client.open("s3://data/empty") as file:
            assert file.read() == b"" and file.readline() == b""


def test_it_is_opened_again_when_it_is_unpickled(serve: Serve) -> None:
    with serve(OBJECTS).client() as client, client.open("s3://data/big") as file:
        file.seek(100)
        again = pickle.loads(pickle.dumps(file))
        assert again.tell() == 100 and again.read(7) == BIG[100:107] and file.tell() == 100
        assert again.info == file.info


def test_an_info_spares_the_question(serve: Serve) -> None:
    with serve(OBJECTS).client() as client:
        info = client.stat("s3://data/big")
        stat = client.stat
        client.stat = None  # type: ignore[assignment]
        assert client.open(info).read(3) == BIG[:3]
        client.stat = stat  # type: ignore[method-assign]
        with pytest.raises(inrush.NotFound):
            client.open("s3://data/none")
