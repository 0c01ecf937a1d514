"""Bytes of objects straight into the memory of tensors."""

from __future__ import annotations

import contextlib
import ctypes
import operator
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import torch

from . import _jobs, _native
from ._native import prefer_huge_pages

if TYPE_CHECKING:
    from . import Client, ObjectInfo

#: Most bytes of one read.
PIECE_BYTES = 64 << 20
#: Reads at the same time into memory of the CPU, where they need no memory of their own.
READS_AT_ONCE = 64
#: Reads at the same time for another device: each has a pinned buffer of `PIECE_BYTES`.
BUFFERS = 4
#: Bytes that are received or requested ahead of the tensor that is next, where all of them are
#: kept: short ones are in memory that is needed twice.
AHEAD_BYTES_MAX = 1 << 30
#: Memory that is longer is asked to have huge pages (`HEAP_BYTES_MAX` of src/buffer.rs).
HEAP_BYTES_MAX = 32 << 20
#: Of a tensor of which a part is wanted, a run of this length without a gap is a read of its own.
RUN_BYTES_MIN = 16 << 10
#: Reads of one tensor at most; one that is in more pieces is read with what is between.
RUNS_MAX = 4096


@dataclass(frozen=True)
class Filling:
    """A tensor that gets its bytes from ranges of an object."""

    source: ObjectInfo
    #: Offset and length in the object, in bytes: together all bytes of the tensor, in order.
    ranges: Sequence[tuple[int, int]]
    #: Gives the tensor, which must be contiguous. It is called when its first range is read.
    make: Callable[[], torch.Tensor]
    #: Gets it once it has all of its bytes.
    done: Callable[[torch.Tensor], None]


def fill(client: Client, fillings: Iterable[Filling], device: torch.device) -> None:
    """Reads the ranges of these tensors, all of which are of this device.

    :raises inrush.Error: an object cannot be read.
    """
    for _ in filled(client, fillings, device, AHEAD_BYTES_MAX):
        pass


def filled(client: Client, fillings: Iterable[Filling], device: torch.device,
           ahead_bytes: int) -> Generator[None, None, None]:
    """Reads the ranges of these tensors, all of which are of this device, and calls `done` of each
    in their order. It stops behind each of these calls.

    For the CPU, bytes are received into the tensors themselves, which need not be there before
    their turn. For other devices they pass through a few pinned buffers.

    :param ahead_bytes: about the number of bytes that are received, or requested, of tensors
        behind the one that is next.
    :raises inrush.Error: an object cannot be read.
    """
    directly = _can_be_written_to(device)
    buffers = [] if directly else [
        torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=device.type == "cuda")
        for _ in range(BUFFERS)]
    # Those that are begun, in order; bytes of their pieces, but what the first one has is not
    # counted: it is handed out as soon as the rest is there.
    begun: deque[_Begun] = deque()
    ahead = 0

    def jobs() -> Iterator[tuple[_Piece, _jobs.Job]]:
        nonlocal ahead
        for filling in fillings:
            pieces = list(_pieces(filling.ranges))
            tensor = filling.make()
            one = _Begun(filling, tensor, len(pieces))
            begun.append(one)
            for offset, at, length in pieces:
                into, start = (tensor, at) if directly else (buffers.pop(), 0)
                ahead += length
                yield _Piece(one, at, length, into), partial(
                    _native.Reactor.read_into, source=filling.source,
                    buffer=memory_of(into, start, length), range=(offset, length))
            # What is left of the last one would be kept until the next is begun.
            del tensor, one

    def whole() -> Iterator[None]:
        """Hands out those whose turn it is."""
        nonlocal ahead
        while begun and not begun[0].left:
            one = begun.popleft()
            one.filling.done(one.tensor)
            del one
            if begun:
                ahead -= begun[0].received
                begun[0].received = 0
            yield

    def has_room() -> bool:
        return ahead < ahead_bytes

    with contextlib.closing(_jobs.run(
            client, jobs(), READS_AT_ONCE if directly else BUFFERS, has_room)) as ended:
        for piece, _, error in ended:
            if error is not None:
                raise error
            one = piece.of
            if not directly:
                # Not in the background: the buffer is used again.
                bytes_of(one.tensor)[piece.at:piece.at + piece.length].copy_(
                    piece.into[:piece.length])
                buffers.append(piece.into)
            one.left -= 1
            if one is begun[0]:
                ahead -= piece.length
            else:
                one.received += piece.length
            del piece, one
            yield from whole()
    yield from whole()


def _can_be_written_to(device: torch.device) -> bool:
    """Whether the memory of its tensors is that of this process."""
    return bool(device.type == "cpu")


@dataclass
class _Begun:
    """A tensor whose bytes are under way."""

    filling: Filling
    tensor: torch.Tensor
    #: Pieces that are not there.
    left: int
    #: Bytes that are there, where it is not the next one.
    received: int = 0


@dataclass(frozen=True)
class _Piece:
    """What one read brings."""

    of: _Begun
    at: int
    length: int
    into: torch.Tensor


def _pieces(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Offset in the object, offset in the tensor, and length of each read."""
    at = 0
    for offset, length in ranges:
        for start in range(0, length, PIECE_BYTES):
            piece = min(PIECE_BYTES, length - start)
            yield offset + start, at, piece
            at += piece


def memory_of(tensor: torch.Tensor, start: int, length: int) -> Any:
    """`length` bytes of a contiguous tensor of the CPU, to be written to."""
    # NumPy has not all types, and need not be there.
    memory = (ctypes.c_ubyte * length).from_address(tensor.data_ptr() + start)
    # Whoever has the view has the tensor.
    memory.tensor = tensor  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor, in its memory."""
    return tensor.reshape(-1).view(torch.uint8)


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor whose bytes come from the network."""
    made = torch.empty(tuple(shape), dtype=dtype, device=device)
    length = made.numel() * made.element_size()
    if length > HEAP_BYTES_MAX and device.type == "cpu":
        prefer_huge_pages(memory_of(made, 0, length))
    return made


def span_bytes(tensor: torch.Tensor) -> int:
    """Bytes from its first to its last element."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride()))
    return int(last + 1) * int(tensor.element_size())


def runs_of(tensor: torch.Tensor) -> list[tuple[int, int]] | None:
    """Offset in its storage and length of what lies there without a gap, in bytes: together the
    tensor in order. None where that are too many, too short, or not in order."""
    if not tensor.numel():
        return []
    run, outer = 1, tensor.dim()
    while outer and (tensor.size(outer - 1) == 1 or tensor.stride(outer - 1) == run):
        run *= tensor.size(outer - 1)
        outer -= 1
    element = tensor.element_size()
    count = reduce(operator.mul, tensor.size()[:outer], 1)
    if count > 1 and (run * element < RUN_BYTES_MIN or count > RUNS_MAX):
        return None
    starts = [tensor.storage_offset()]
    for size, stride in zip(tensor.size()[:outer], tensor.stride()[:outer]):
        starts = [start + at * stride for start in starts for at in range(size)]
    return [(int(start) * element, int(run) * element) for start in starts]
