"""Deterministic objects: every size that is next to a boundary, every name that is awkward.

The bytes of an object depend on its key and on their place, so a range that lands in the wrong
file or at the wrong offset is seen. Objects are files below ROOT/BUCKET; a key's segments are
folders, so a name here is also a name that a filesystem can hold.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
SLOT = 1 * MIB
PART = 8 * MIB
LARGE = 100 * MIB + 3
MANY = 2_500
CHUNK = 16 * MIB
STAMP_EVERY = 4 * KIB
KEY_BYTES_MAX = 1_000

NAMES = (
    "plain", "with space", " leading and trailing ", "plus+sign", "a+b c%20d", "percent%2Fslash",
    "%2F", "100%", "%zz", "equals=and&amp", "semi;colon:at@dollar$comma,", "hash#question?star*",
    "single'quote", 'double"quote', "back`tick", "back\\slash", "pipe|caret^", "<angle>", "&lt;",
    "[square]", "{curly}", "(round)!", "~tilde", ".leading-dot", "..two-dots", "...", "trailing.",
    "-dash", "--help", "Case", "case", "caf\u00e9", "cafe\u0301", "\u4e2d\u6587\u952e",
    "\u65e5\u672c\u8a9e", "\U0001f980 crab", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u0430\u0431\u0432", "\u05e9\u05dc\u05d5\u05dd",
    "\uff21 wide", "\ufb01 ligature", "zero\u200bwidth", "folder/inner file", "a/b=1/c+d/e f",
    "year=2026/month=11/part-0000", "a-b", "a.b", "a/b", "deep/" + "d/" * 40 + "leaf",
)


def long_names(room: int) -> list[str]:
    """Names that use all `room` bytes of a key, and segments of exactly 255 bytes."""
    names = ["s" * 255, "\u4e2d" * 85, "e" * 251 + ".bin"]
    for letter in ("l", "\u00e9", "\u4e2d"):
        segment = letter * (240 // len(letter.encode()))
        left, parts = room, []
        while left > 241:
            parts.append(segment)
            left -= len(segment.encode()) + 1
        names.append("/".join([*parts, "x" * left]))
    return names


def boundary_sizes(slot: int = SLOT, part: int = PART, large: int = LARGE) -> list[int]:
    """Sizes on and beside each boundary, in ascending order."""
    sizes = {0, 1, 511, 512, 513, 4095, 4096, 4097, large}
    for edge in (slot, part):
        sizes |= {edge - 1, edge, edge + 1}
    sizes |= {2 * part, 2 * part + 1}
    return sorted(sizes)


def write_object(path: Path, size: int, seed: str) -> None:
    """A file of `size` random bytes that depend on `seed` alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = random.Random(seed)
    with path.open("wb") as file:
        for offset in range(0, size, CHUNK):
            file.write(source.randbytes(min(CHUNK, size - offset)))


def write_all(folder: Path, objects: Mapping[str, bytes]) -> None:
    """Objects by their keys as files."""
    for key, data in objects.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def write_stamped(path: Path, size: int, number: int) -> None:
    """A large file, quickly: one random chunk over and over, each 4 KiB stamped with its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    chunk = bytearray(random.Random(number).randbytes(CHUNK))
    with path.open("wb") as file:
        for offset in range(0, size, CHUNK):
            for at in range(0, CHUNK, STAMP_EVERY):
                struct.pack_into("<QQ", chunk, at, number, offset + at)
            file.write(memoryview(chunk)[:min(CHUNK, size - offset)])


def write_uniform(bucket: Path, prefix: str, count: int, size: int, folders: int) -> None:
    """`count` objects of `size` bytes below `prefix`, spread evenly over `folders`."""
    body = bytearray(random.Random(prefix).randbytes(size))
    for folder in range(folders):
        (bucket / prefix / f"{folder:03}").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        if size >= 8:
            struct.pack_into("<Q", body, 0, number)
        path = bucket / prefix / f"{number % folders:03}" / f"{number:06}.bin"
        path.write_bytes(body)


def write_matrix(bucket: Path, *, slot: int = SLOT, part: int = PART, large: int = LARGE,
                 many: int = MANY) -> None:
    """The whole set of the interop runs: `data/sizes`, `data/names` and `many`."""
    for size in boundary_sizes(slot, part, large):
        write_object(bucket / "data/sizes" / f"{size:010}", size, f"size {size}")
    prefix = "data/names/"
    for name in (*NAMES, *long_names(KEY_BYTES_MAX - len(prefix))):
        write_object(bucket / f"{prefix}{name}", 64 + len(name), f"name {name}")
    for number in range(many):
        key = f"many/{number % 7}/{number:05}"
        write_object(bucket / key, 100 + number % 400, key)
