"""Objects as files."""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Callable
from typing import Any

import inrush
import pytest
from common import pattern

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
        with pytest.raises(ValueError, match="negative"):
            file.seek(-1)
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"")
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_it_does_as_a_file_in_memory(serve: Serve) -> None:
    chance = random.Random(7)
    with serve(OBJECTS).client() as client:
        for read_ahead in (0, 1 << 16, None):
            file, model = client.open("s3://data/big", read_ahead=read_ahead), io.BytesIO(BIG)
            for _ in range(300):
                match chance.randrange(6):
                    case 0:
                        place = chance.randrange(len(BIG) + 100)
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
    """The ranges that a file asks its client for."""
    asked: list[tuple[int, int]] = []
    read = origin_client.read

    def spy(source: Any, range: Any = None) -> bytes:
        asked.append(range)
        return read(source, range)  # type: ignore[no-any-return]

    origin_client.read = spy
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
    assert len(asked) < 12 and lengths[:-1] == sorted(lengths[:-1]), lengths


def test_who_jumps_gets_what_is_asked_for(serve: Serve) -> None:
    def work(client: Any) -> None:
        file = client.open("s3://data/big")
        for place in (8_000_000, 4_000_000, 6_000_000, 1_000_000):
            file.seek(place)
            assert file.read(1000) == BIG[place : place + 1000]

    with serve(OBJECTS).client() as client:
        asked = requests(client, work)
    assert [length for _, length in asked] == [1000] * 4


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
