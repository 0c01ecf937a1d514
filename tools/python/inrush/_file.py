"""Objects as binary files."""

from __future__ import annotations

import io
import operator
import os
import select
import threading
import weakref
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Optional, SupportsIndex, Union

from ._errors import from_native
from ._native import size_bytes

if TYPE_CHECKING:
    from ._client import Client
    from ._native import ObjectInfo, Reactor

# How much is fetched ahead, in bytes: by the first read of who reads on, and at most by one file.
AHEAD_FIRST = 128 << 10
AHEAD_MAX = 32 << 20
# Most bytes ahead of all files of a client together; half of it is as much as one file may have.
AHEAD_SUM_MAX = 256 << 20
# Who jumps and reads less than this, in bytes, gets all of the block around it, at a multiple of
# its length: parsers of archives read a little at many places side by side, and each read alone
# costs a round trip. `BLOCKS_KEPT` blocks of a file are kept.
BLOCK_BYTES = 32 << 10
BLOCKS_KEPT = 8
# Who reads on may leave out this much, in bytes: archives have headers and padding between members.
GAP_BYTES_MAX = 64 << 10
# What is fetched ahead comes in pieces of this length, and a client keeps `PIECES_KEPT` of them for
# what is fetched next: new memory costs as much as what is read into it.
PIECE_BYTES = 2 << 20
PIECES_KEPT = 2 * AHEAD_MAX // PIECE_BYTES
# How long to wait before it is asked again, in milliseconds; only against lost wake-ups.
WAIT_MS = 1000


class Pool:
    """The memory of what all files of one client read ahead, bounded in bytes.

    A file gets more while it has no more than the pool has left. So `n` files that read on have
    equal shares, of `1 / (n + 1)` each, and there is a rest for who comes.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        #: Bytes that files have, and pieces that are kept for them.
        self.bytes_held = 0
        self.kept: list[bytearray] = []
        # Files that are collected give back wherever this thread is: also in here.
        self._lock = threading.RLock()
        _pools.add(self)

    def share(self, held: int) -> int:
        """How many bytes a file may have that has `held`."""
        return (self.bytes_max - self.bytes_held + held) // 2

    def take(self, length: int, held: int) -> Optional[bytearray]:
        """Memory for a file that has `held` bytes; None where these would be more than its share.
        """
        with self._lock:
            if held + length > self.share(held):
                return None
            self.bytes_held += length
            memory = self.kept.pop() if length == PIECE_BYTES and self.kept else None
            while self.kept and not self._has_room(0):
                self.kept.pop()
        return bytearray(length) if memory is None else memory

    def give_back(self, memory: bytearray) -> None:
        """Nobody reads this memory any more."""
        with self._lock:
            # A forked child gives back what its parent took, too.
            self.bytes_held = max(self.bytes_held - len(memory), 0)
            if len(memory) == PIECE_BYTES and len(self.kept) < PIECES_KEPT \
                    and self._has_room(PIECE_BYTES):
                self.kept.append(memory)

    def settle(self, length: int) -> None:
        """Nobody has this many bytes any more; their memory is gone."""
        with self._lock:
            self.bytes_held = max(self.bytes_held - length, 0)

    def _has_room(self, length: int) -> bool:
        return self.bytes_held + len(self.kept) * PIECE_BYTES + length <= self.bytes_max

    def forked(self) -> None:
        """This process is a child: what files have is the parent's, whose threads are not here."""
        self._lock = threading.RLock()
        self.bytes_held = 0


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _forked() -> None:
    for pool in list(_pools):
        pool.forked()


os.register_at_fork(after_in_child=_forked)


class Ahead:
    """Pieces of one object that are fetched in the background: in order, without gaps."""

    def __init__(self, client: Client, info: ObjectInfo) -> None:
        self._client, self._info = client, info
        # Where each begins and ends, the number of its job, and its memory.
        self._pieces: deque[tuple[int, int, int, bytearray]] = deque()
        self._ended: dict[int, Optional[OSError]] = {}
        self._reactor: Optional[Reactor] = None
        self._process = os.getpid()
        # Bytes of the pool that this file has: those pieces, and the one that is read.
        self._held = 0

    @property
    def begin(self) -> int:
        """Where the first piece begins; -1 where there is none."""
        if self._process != os.getpid():
            # The pieces are the parent's.
            self._pieces.clear()
            self._ended.clear()
            self._reactor, self._process, self._held = None, os.getpid(), 0
        return self._pieces[0][0] if self._pieces else -1

    @property
    def end(self) -> int:
        """Where the last piece ends; -1 where there is none."""
        return self._pieces[-1][1] if self._pieces else -1

    def share(self) -> int:
        """How many bytes this file may have: the other files of the client have the rest."""
        return self._client._pool.share(self._held)

    def ask(self, begin: int, length: int) -> bool:
        """Begins to fetch a piece, behind the others; False where there is no memory for it."""
        memory = self._client._pool.take(length, self._held)
        if memory is None:
            return False
        self._held += length
        try:
            if self._reactor is None or not self._pieces and self._reactor.ended:
                self._reactor = self._client._core.reactor()
            number = self._reactor.read_into(self._info, memory, (begin, length))
        except BaseException:
            self.give_back(memory)
            raise
        self._pieces.append((begin, begin + length, number, memory))
        return True

    def _wait(self, number: int) -> None:
        """Waits for the end of this job."""
        assert self._reactor is not None, "there is a piece"
        poll = select.poll()
        poll.register(self._reactor.fileno(), select.POLLIN)
        while True:
            for ended, _, failure in self._reactor.take():
                self._ended[ended] = failure
            if number in self._ended:
                break
            poll.poll(WAIT_MS)

    def copy(self, begin: int, end: int) -> Optional[bytes]:
        """These bytes, once they are there; None where some are no part of the pieces, or cannot be
        read."""
        if not 0 <= self.begin <= begin < end <= self.end:
            return None
        copied = b""
        for first, last, number, memory in self._pieces:
            if first < end and begin < last:
                self._wait(number)
                if self._ended[number] is not None:
                    return None
                copied += memory[max(begin - first, 0) : end - first]
        return copied

    def skip(self, position: int) -> None:
        """Leaves out the pieces before this position, which is in one of them; waits for them."""
        while self._pieces[0][1] <= position:
            *_, number, memory = self._pieces[0]
            self._wait(number)
            self._pieces.popleft()
            del self._ended[number]
            self.give_back(memory)

    def take(self) -> bytearray:
        """Waits for the first piece; `give_back` takes it back. Raises why it cannot be read."""
        number, memory = self._pieces[0][2:]
        self._wait(number)
        self._pieces.popleft()
        error = self._ended.pop(number)
        if error is not None:
            self.give_back(memory)
            raise error
        return memory

    def give_back(self, memory: Union[bytes, bytearray]) -> None:
        """Nobody reads this memory any more."""
        if isinstance(memory, bytearray):
            self._held = max(self._held - len(memory), 0)
            self._client._pool.give_back(memory)

    def drop(self) -> None:
        """Cancels all pieces."""
        if self.begin >= 0 and self._reactor is not None:
            # It returns when nothing is written to them any more.
            self._reactor.close()
            for *_, memory in self._pieces:
                self.give_back(memory)
        self._pieces.clear()
        self._ended.clear()

    def settle(self) -> None:
        """Gives back what an interrupt left behind between two lines; there are no pieces."""
        if self._process == os.getpid():
            self._client._pool.settle(self._held)
        self._held = 0


class File(io.BufferedIOBase):
    """An object that is open for reading, as a binary file that may be sought in.

    A read at the end of the last one, or up to 64 KiB behind it, reads on: ever longer ranges are
    requested ahead, and kept while small reads elsewhere come between. Any other read requests its
    own bytes; one of less than 32 KiB requests the block of 32 KiB around it, and the last eight
    blocks are kept. `size` is in bytes, `info` is what the server said. Not for several threads at
    once.
    """

    def __init__(
        self,
        client: Client,
        source: Union[str, ObjectInfo],
        *,
        read_ahead: Union[int, str, None] = None,
        sequential: bool = False,
    ) -> None:
        self._client = client
        self._ahead_max = AHEAD_MAX if read_ahead is None else size_bytes("read_ahead", read_ahead)
        self.info: ObjectInfo = client.stat(source) if isinstance(source, str) else source
        self.size: int = self.info.size
        self._sequential = sequential
        self._position = 0
        # Fetched bytes, and where they begin: those where the file is read on, or a block.
        self._bytes: Union[bytes, bytearray] = b""
        self._view = memoryview(self._bytes)
        self._begin = 0
        # Those where it is read on, and where they begin, -1 where it is not; and up to where that
        # was before it was read elsewhere, -1 while the fetched bytes are these.
        self._stream: tuple[Union[bytes, bytearray], int] = b"", -1
        self._left = -1
        # How many blocks were fetched elsewhere since.
        self._away = 0
        # Where the last read ended, and how much is fetched ahead when it goes on there.
        self._expected = 0
        self._window = self._ahead_max if sequential else 0
        self._ahead = Ahead(client, self.info)
        # Blocks around places that were jumped to, by where they begin; the last used last.
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

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

    def seek(self, offset: SupportsIndex, whence: int = io.SEEK_SET, /) -> int:
        self._check()
        # As files of Python take it: integers of NumPy would wrap around.
        offset = operator.index(offset)
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}.get(whence)
        if begin is None:
            raise ValueError(f"invalid whence: {whence}")
        if begin + offset < 0:
            # Readers of zip files take an OSError for a file that is shorter than they look back.
            message = f"the position {begin + offset} is before the start"
            raise from_native("usage", message, self.info.uri)
        self._position = begin + offset
        return self._position

    def _wanted(self, size: Optional[int]) -> int:
        left = max(self.size - self._position, 0)
        return left if size is None or size < 0 else min(size, left)

    def _held(self, wanted: int) -> memoryview:
        """What of the next bytes is there."""
        at = self._position - self._begin
        if not 0 <= at < len(self._bytes) and self._left >= 0:
            fetched, begin = self._stream
            if begin <= self._position < begin + len(fetched):
                self._look_at(fetched, begin)
                self._left = -1
                at = self._position - begin
        if at < 0:
            return self._view[:0]
        return self._view[at : at + wanted]

    def _look_at(self, fetched: Union[bytes, bytearray], begin: int) -> None:
        self._bytes, self._begin = fetched, begin
        self._view = memoryview(fetched)

    def _hold(self, fetched: Union[bytes, bytearray], begin: int) -> None:
        """These are the bytes from there on, where the file is read on; those before them are not
        needed any more."""
        self._look_at(fetched, begin)
        self._ahead.give_back(self._stream[0])
        self._stream = fetched, begin
        self._left = -1

    def _hold_block(self, block: bytes, begin: int) -> None:
        """These are the bytes from there on; the file may be read on where it was."""
        if self._left < 0:
            self._left = max(self._expected, 0)
        self._look_at(block, begin)

    def _is_near(self, wanted: int) -> bool:
        """Whether the file is read on: little is left out, or more than a block is wanted of what
        is fetched ahead."""
        left = self._expected if self._left < 0 else self._left
        return self._stream[1] >= 0 and 0 <= self._position - left <= GAP_BYTES_MAX \
            or wanted >= BLOCK_BYTES and self._ahead.begin <= self._position < self._ahead.end

    def _block(self, wanted: int) -> Optional[tuple[bytes, int]]:
        """The block that the position is in, which is kept or fetched, and where it begins; None
        where it is not kept and more is wanted, which is fetched alone."""
        begin = self._position - self._position % BLOCK_BYTES
        block = self._blocks.get(begin)
        if block is None:
            if wanted >= BLOCK_BYTES or not self._ahead_max:
                return None
            end = min(begin + BLOCK_BYTES, self.size)
            block = self._ahead.copy(begin, end)
            if block is None:
                block = self._client.read(self.info, (begin, end - begin))
                self._away += 1
                if self._away > BLOCKS_KEPT:
                    self._leave()
            self._blocks[begin] = block
            if len(self._blocks) > BLOCKS_KEPT:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(begin)
        return block, begin

    def _leave(self) -> None:
        """Nobody seems to read on where the file was read: others have better use of the memory."""
        self._hold(b"", -1)
        self._ahead.drop()
        self._window = 0

    def prefetch(self, size: SupportsIndex) -> None:
        """Begins to fetch the next `size` bytes, where nothing is fetched; does not wait."""
        self._check()
        if self._ahead.begin < 0 and not self._held(1):
            self._ask_up_to(self._position + operator.index(size), PIECE_BYTES)

    def _ask_up_to(self, end: int, piece: int) -> None:
        """Has pieces under way from the position up to there, or a bit further, while there is
        memory for them."""
        begin = max(self._ahead.end, self._position)
        end = min(end, self.size)
        while begin < end:
            length = min(piece, self.size - begin)
            if not self._ahead.ask(begin, length):
                break
            begin += length

    def _fetch(self, wanted: int, goes_on: bool) -> tuple[Union[bytes, bytearray], int]:
        """Bytes with the position among them, and where they begin: up to `wanted`, or more. None
        of them is there."""
        self._away = 0
        if goes_on and self._ahead.begin <= self._position < self._ahead.end:
            self._ahead.skip(self._position)
        else:
            self._ahead.drop()
        if not goes_on:
            self._window = 0
        elif self._window == 0:
            # Perhaps somebody who reads on; nothing has shown it yet.
            self._window = min(max(AHEAD_FIRST, wanted), self._ahead_max)
            wanted = max(self._window, wanted)
        elif wanted < AHEAD_MAX or self._ahead.begin >= 0:
            self._window = min(max(self._window * 2, wanted), self._ahead_max)
            window = min(self._window, self._ahead.share())
            least = min(AHEAD_FIRST, self._ahead_max)
            self._ask_up_to(self._position + window, max(min(window // 2, PIECE_BYTES), least))
            # Where other files have the memory, at least this much at once.
            wanted = max(wanted, least)
        if self._ahead.begin >= 0:
            begin = self._ahead.begin
            return self._ahead.take(), begin
        length = min(wanted, self.size - self._position)
        return self._client.read(self.info, (self._position, length)), self._position

    def read(self, size: Optional[SupportsIndex] = -1, /) -> bytes:
        """The next `size` bytes, fewer only at the end; all that are left without one."""
        size = None if size is None else operator.index(size)
        if size is not None and size > 0:
            # Most reads, and the reason why readers of many small parts need no other buffer.
            at = self._position - self._begin
            if 0 <= at and at + size <= len(self._bytes):
                self._position = self._expected = self._position + size
                return bytes(self._view[at : at + size])
        self._check()
        return self._read(self._wanted(size))

    def _read(self, wanted: int) -> bytes:
        begin = self._position
        goes_on = self._sequential or begin == self._expected
        parts: list[bytes] = []
        try:
            while wanted > 0:
                part = bytes(self._held(wanted))
                if part:
                    # Who reads over the end of what is there reads on.
                    goes_on = goes_on or self._left < 0 <= self._stream[1]
                else:
                    goes_on = goes_on or self._is_near(wanted)
                    part = self._next(wanted, goes_on)
                parts.append(part)
                self._position += len(part)
                wanted -= len(part)
        except BaseException:
            # Who reads again gets it from there.
            self._position = begin
            raise
        self._expected = self._position
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _next(self, wanted: int, goes_on: bool) -> bytes:
        """Fetches bytes from the position on; some of those that are wanted."""
        block = None if goes_on else self._block(wanted)
        if block is not None:
            self._hold_block(*block)
            return bytes(self._held(wanted))
        fetched, begin = self._fetch(wanted, goes_on)
        if isinstance(fetched, bytes) and len(fetched) <= wanted:
            # It is the caller's alone.
            self._hold(b"", self._position)
            return fetched
        self._hold(fetched, begin)
        return bytes(self._held(wanted))

    def read1(self, size: SupportsIndex = -1, /) -> bytes:
        """What is there of the next `size` bytes, or what one request brings."""
        self._check()
        size = operator.index(size)
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
            if wanted - got >= AHEAD_MAX and self._ahead.begin < 0:
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
        # Python closes what it collects, also where there was nothing to open.
        if hasattr(self, "_blocks"):
            self._hold(b"", 0)
            self._blocks.clear()
            self._ahead.drop()
            self._ahead.settle()
        super().close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._check()
        options = self._ahead_max, self._position, self._sequential
        return _reopened, (self._client, self.info, *options)

    def __repr__(self) -> str:
        return f"<inrush.File {self.info.uri!r}, {self.size} bytes>"


def _reopened(
    client: Client, info: ObjectInfo, read_ahead: int, position: int, sequential: bool
) -> File:
    file = File(client, info, read_ahead=read_ahead, sequential=sequential)
    file.seek(position)
    return file
