"""Training data in the forms that readers of training input know, made of deterministic records."""

from __future__ import annotations

import csv
import io
import random
import struct
import tarfile
from collections.abc import Iterable, Sequence

RECORDIO_MAGIC = 0xCED7230A
CASTAGNOLI = 0x82F63B78
# On and beside what readers and pipes take at once; longer ones are added where it matters.
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1)


def records(seed: str, sizes: Iterable[int]) -> list[bytes]:
    """Random records of these sizes."""
    source = random.Random(seed)
    return [source.randbytes(size) for size in sizes]


def small_sizes(seed: str, count: int, most: int) -> list[int]:
    """Sizes of many small records."""
    source = random.Random(seed)
    return [source.randrange(most) for _ in range(count)]


def with_magic(size: int) -> bytes:
    """A record in which the magic number of RecordIO stands on multiples of four, and beside."""
    magic = struct.pack("<I", RECORDIO_MAGIC)
    return (magic * 3 + b"x" + magic * (size // 4))[:size]


def recordio(found: Iterable[bytes]) -> bytes:
    """RecordIO, each record in one piece."""
    return b"".join(struct.pack("<II", RECORDIO_MAGIC, len(record)) + record
                    + b"\0" * (-len(record) % 4) for record in found)


def _castagnoli_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (CASTAGNOLI if value & 1 else 0)
        table.append(value)
    return table


TABLE = _castagnoli_table()


def _masked_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def tfrecords(found: Iterable[bytes]) -> bytes:
    """TFRecord: length, its checksum, the record, its checksum."""
    out = bytearray()
    for record in found:
        length = struct.pack("<Q", len(record))
        out += length + struct.pack("<I", _masked_crc32c(length))
        out += record + struct.pack("<I", _masked_crc32c(record))
    return bytes(out)


def lines(seed: str, count: int, most: int) -> list[bytes]:
    """Lines of text of 1 to `most` bytes."""
    source = random.Random(seed)
    letters = bytes(range(33, 127))
    return [bytes(source.choices(letters, k=source.randrange(1, most))) for _ in range(count)]


def rows(seed: str, count: int) -> list[list[str]]:
    """Rows of a table, with what has to be quoted in a CSV file."""
    source = random.Random(seed)
    awkward = ("plain", "with, comma", 'with "quotes"', "two\nlines", "", "\u4e2d\u6587")
    return [[str(number), f"{source.random():.9f}", awkward[number % len(awkward)]]
            for number in range(count)]


def table(found: Sequence[Sequence[str]]) -> bytes:
    """A CSV file."""
    out = io.StringIO(newline="")
    csv.writer(out).writerows(found)
    return out.getvalue().encode()


def tar(members: Iterable[tuple[str, bytes]]) -> bytes:
    """A tar file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()
