"""Samples of tars: Python's reader of tars is the measure, for plain headers and for all others."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
from typing import Any

import pytest
from conftest import tar_of
from inrush import _tar

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
BLOCK = tarfile.BLOCKSIZE


def made(members: list[tuple[str, bytes]], format: int, chance: random.Random,
         headers: dict[str, str] | None = None) -> bytes:
    """A tar of these files, with others in between that are no samples."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, pax_headers=headers) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mtime = chance.choice([0, 1_700_000_000])
            if format == tarfile.PAX_FORMAT and chance.randrange(3) == 0:
                info.mtime = 1.5
            tar.addfile(info, io.BytesIO(data))
            match chance.randrange(6):
                case 0:
                    other = tarfile.TarInfo("folder.x")
                    other.type = tarfile.DIRTYPE
                    tar.addfile(other)
                case 1:
                    other = tarfile.TarInfo("link.x")
                    other.type, other.linkname = tarfile.SYMTYPE, "elsewhere"
                    tar.addfile(other)
    return out.getvalue()


def found(tar: bytes, uri: str = "u.tar", offset: int = 0) -> list[_tar.Next]:
    return list(_tar.samples(io.BytesIO(tar), uri, offset))


def flat(samples: list[_tar.Next]) -> list[tuple[str, bytes]]:
    return [(f"{sample['__key__']}.{extension}", data) for sample, _ in samples
            for extension, data in sample.items() if not extension.startswith("__")]


@pytest.mark.parametrize("format", FORMATS)
def test_it_finds_what_pythons_reader_finds(format: str) -> None:
    chance = random.Random(format)
    for _ in range(30):
        members = []
        for number in range(chance.randrange(1, 12)):
            stem = chance.choice(["a", "é" * 40, "d/" * 60 + "long", "l" * 90, "n" * 240])
            if format == "ustar" and stem[0] == "n":
                stem = stem[:60]
            name = f"{stem}{number}.{chance.choice(['jpg', 'CLS'])}"
            members.append((name, chance.randbytes(chance.choice([0, 1, 511, 512, 513, 9_000]))))
        tar = made(members, FORMATS[format], chance)
        with tarfile.open(fileobj=io.BytesIO(tar)) as model:
            expected = [(member.name.replace(".CLS", ".cls"), model.extractfile(member).read())
                        for member in model if member.isreg()]  # type: ignore[union-attr]
        samples = found(tar)
        assert flat(samples) == expected
        for number, (_, offset) in enumerate(samples[:-1]):
            assert flat(found(tar, offset=offset)) == flat(samples[number + 1:])
        assert flat(found(gzip.compress(tar), "u.tar.gz")) == expected


def test_plain_headers_need_no_other_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    tar = made([("a.x", b"1")], tarfile.GNU_FORMAT, random.Random(3))
    plain = [(f"{number}.x", chance.randbytes(700)) for number in range(50)]
    packed = tar_of(dict(plain))
    monkeypatch.setattr(tarfile, "TarFile", None)
    assert flat(found(packed)) == plain
    with pytest.raises(TypeError):
        found(tar[:BLOCK * 2] + b"x" * BLOCK)


def test_headers_for_all_that_follow() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT,
                      pax_headers={"path": "other.y"}) as tar:
        for name in ("a.x", "b.x"):
            tar.addfile(tarfile.TarInfo(name))
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as model:
        assert [member.name for member in model] == ["other.y", "other.y"]
    with pytest.raises(ValueError, match="two members"):
        found(out.getvalue())


def changed(tar: bytes, at: int, data: bytes) -> bytes:
    return tar[:at] + data + tar[at + len(data):]


def test_what_is_damaged_is_an_error() -> None:
    whole = made([("a.x", b"1" * 600), ("b.x", b"2")], tarfile.GNU_FORMAT, random.Random(3))
    second = 3 * BLOCK
    good = found(whole)
    assert [sample["__key__"] for sample, _ in good] == ["a", "b"]
    cases: dict[str, Any] = {
        "the name": changed(whole, second, b"c"), "the size": changed(whole, second + 130, b"7"),
        "the checksum": changed(whole, second + 150, b"7"),
        "no number": changed(whole, second + 124, b"x"), "cut in a header": whole[:second + 100],
        "cut in a file": whole[:BLOCK + 300], "no tar": b"no tar" * 200}
    for what, tar in cases.items():
        with pytest.raises(tarfile.ReadError, match=r"u\.tar"):
            found(tar)
            pytest.fail(what)
    # Without the blocks at its end it is whole.
    assert flat(found(whole[:second + 2 * BLOCK])) == flat(good)
    assert found(bytes(2 * BLOCK)) == []


def test_members_about_the_tar_are_of_no_sample() -> None:
    members = {"__meta__/info.json": b"1", "a.x": b"2", "__about__": b"3", "__a.y": b"4",
               "b/__meta__.z": b"5"}
    assert [sample["__key__"] for sample, _ in found(tar_of(members))] == \
        ["a", "__a", "b/__meta__"]
