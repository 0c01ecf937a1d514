"""Objects as binary files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Optional, Union

if TYPE_CHECKING:
    from ._client import Client
    from ._native import ObjectInfo

# How much is fetched ahead, in bytes: by the first read of who reads on, and at most.
AHEAD_FIRST = 128 << 10
AHEAD_MAX = 32 << 20


class File(io.BufferedIOBase):
    """An object that is open for reading, as a binary file that may be sought in.

    Who reads on from where the last read ended gets ever longer ranges ahead; who jumps gets what
    is asked for. `size` is in bytes, `info` is what the server told. Not for several threads at
    once.
    """

    def __init__(
        self, client: Client, source: Union[str, ObjectInfo], *, read_ahead: Optional[int] = None
    ) -> None:
        self._client = client
        self.info: ObjectInfo = client.stat(source) if isinstance(source, str) else source
        self.size: int = self.info.size
        self._ahead_max = AHEAD_MAX if read_ahead is None else max(read_ahead, 0)
        self._position = 0
        # Fetched bytes, and where they begin.
        self._bytes = b""
        self._begin = 0
        # Where the last read ended, and how much is fetched when it goes on there.
        self._expected = 0
        self._window = 0

    @property
    def name(self) -> str:
        """The address of the object."""
        return self.info.uri

    @property
    def mode(self) -> str:
        """Always "rb"."""
        return "rb"

    def readable(self) -> bool:
        self._check()
        return True

    def seekable(self) -> bool:
        self._check()
        return True

    def _check(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")

    def tell(self) -> int:
        self._check()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check()
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}.get(whence)
        if begin is None:
            raise ValueError(f"invalid whence: {whence}")
        if begin + offset < 0:
            raise ValueError(f"negative position: {begin + offset}")
        self._position = begin + offset
        return self._position

    def _wanted(self, size: Optional[int]) -> int:
        left = max(self.size - self._position, 0)
        return left if size is None or size < 0 else min(size, left)

    def _held(self, wanted: int) -> memoryview:
        """What of the next bytes is there."""
        at = self._position - self._begin
        if at < 0 or at >= len(self._bytes):
            return memoryview(b"")
        return memoryview(self._bytes)[at : at + wanted]

    def _window_after(self, wanted: int) -> int:
        """How much to fetch ahead, by whether this read goes on where the last one ended."""
        if self._position != self._expected:
            self._window = 0
            return 0
        grown = max(self._window * 2, AHEAD_FIRST, wanted)
        self._window = min(grown, self._ahead_max)
        return self._window

    def _fetch(self, wanted: int) -> bytes:
        length = min(max(wanted, self._window_after(wanted)), self.size - self._position)
        return self._client.read(self.info, (self._position, length))

    def read(self, size: Optional[int] = -1, /) -> bytes:
        """The next `size` bytes, fewer only at the end; all that are left without one."""
        self._check()
        wanted = self._wanted(size)
        held = self._held(wanted)
        taken = bytes(held)
        self._position += len(taken)
        if len(taken) < wanted:
            self._expected = self._position if self._expected == self._position - len(taken) else -1
            rest = wanted - len(taken)
            fetched = self._fetch(rest)
            if len(fetched) > rest:
                self._bytes, self._begin = fetched, self._position
                fetched = fetched[:rest]
            self._position += len(fetched)
            taken = taken + fetched if taken else fetched
        self._expected = self._position
        return taken

    def read1(self, size: int = -1, /) -> bytes:
        """What is there of the next `size` bytes, or what one request brings."""
        self._check()
        if size < 0:
            size = max(len(self._held(AHEAD_MAX)), AHEAD_FIRST)
        held = self._held(self._wanted(size))
        return self.read(len(held) or size)

    def readinto(self, buffer: Any, /) -> int:
        self._check()
        view = memoryview(buffer).cast("B")
        wanted = self._wanted(len(view))
        held = self._held(wanted)
        view[: len(held)] = held
        got = len(held)
        if got < wanted:
            if wanted - got >= AHEAD_MAX:
                # Straight into the caller's memory.
                begin = self._position + got
                self._client.read_into(self.info, view[got:wanted], (begin, wanted - got))
                self._position += wanted
                self._expected = self._position
                return wanted
            view[:wanted] = self.read(wanted)
            return wanted
        self._position += got
        self._expected = self._position
        return got

    def readinto1(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read1(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._bytes = b""
        super().close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._check()
        return _reopened, (self._client, self.info, self._ahead_max, self._position)

    def __repr__(self) -> str:
        return f"<inrush.File {self.info.uri!r}, {self.size} bytes>"


def _reopened(client: Client, info: ObjectInfo, read_ahead: int, position: int) -> File:
    file = File(client, info, read_ahead=read_ahead)
    file.seek(position)
    return file
