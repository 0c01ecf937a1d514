"""Parts of objects: which are read at once, and one of them as a file that can be sought in, for
parsers that read a little here and there."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from . import Client, ObjectInfo

#: Length from which on an item is received where it belongs; shorter ones are read whole, several
#: of a file at once.
LARGE_BYTES_MIN = 1 << 20
#: Short items of a file are one read of at most `TOGETHER_BYTES_MAX`, while the gap between two of
#: them is at most `GAP_BYTES_MAX`.
TOGETHER_BYTES_MAX = 8 << 20
GAP_BYTES_MAX = 4 << 10
#: Bytes that are read at least where something is missing.
READ_BYTES = 64 << 10


class Placed(Protocol):
    """Bytes of an object."""

    @property
    def source(self) -> ObjectInfo: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...


One = TypeVar("One", bound=Placed)


def together(items: Iterable[One]) -> Iterator[list[One]]:
    """Items that are read at once, in the order of their bytes."""
    group: list[One] = []
    end = 0
    for item in sorted(items, key=lambda item: (item.source.uri, item.offset)):
        if group:
            first = group[0]
            is_near = item.source == first.source and item.offset <= end + GAP_BYTES_MAX \
                and item.offset + item.length - first.offset <= TOGETHER_BYTES_MAX \
                and max(item.length, first.length) < LARGE_BYTES_MIN
            if not is_near:
                yield group
                group, end = [], 0
        group.append(item)
        end = max(end, item.offset + item.length)
    if group:
        yield group


def extent(group: Sequence[Placed]) -> tuple[int, int]:
    """Offset and length of these items."""
    start = group[0].offset
    return start, max(item.offset + item.length for item in group) - start


class RangeFile(io.RawIOBase):
    """`length` bytes of an object from `offset` on. Reads are answered from the pieces that are
    there; what is missing is requested, one range after the other, and kept."""

    def __init__(self, client: Client, source: ObjectInfo, offset: int, length: int) -> None:
        super().__init__()
        self._client = client
        self._source = source
        self._offset = offset
        self._length = length
        self._pieces: dict[int, bytes] = {}
        self._at = 0

    def add(self, at: int, data: bytes) -> None:
        """These bytes are there, from `at` on."""
        self._pieces[at] = data

    def has(self, at: int) -> bool:
        """Whether the byte there is."""
        return any(start <= at < start + len(piece) for start, piece in self._pieces.items())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        if base + offset < 0:
            raise OSError(22, f"seek to {base + offset}, before the start")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        length = min(len(buffer), max(self._length - self._at, 0))
        if not length:
            return 0
        for start, piece in self._pieces.items():
            if start <= self._at < start + len(piece):
                found = piece[self._at - start:self._at - start + length]
                buffer[:len(found)] = found
                self._at += len(found)
                return len(found)
        ahead = min(max(length, READ_BYTES), self._length - self._at)
        self.add(self._at, self._client.read(self._source, (self._offset + self._at, ahead)))
        return self.readinto(buffer)
