"""Bytes of objects straight into the memory of tensors."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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

    For the CPU, bytes are received into the tensors themselves, which need not be there before
    their turn. For other devices they pass through a few pinned buffers.

    :raises inrush.Error: an object cannot be read.
    """
    directly = _can_be_written_to(device)
    buffers = [] if directly else [
        torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=device.type == "cuda")
        for _ in range(BUFFERS)]
    left: dict[int, int] = {}

    def jobs() -> Iterator[tuple[_Piece, _jobs.Job]]:
        for number, filling in enumerate(fillings):
            pieces = list(_pieces(filling.ranges))
            tensor = filling.make()
            if not pieces:
                filling.done(tensor)
                continue
            left[number] = len(pieces)
            for offset, at, length in pieces:
                into, start = (tensor, at) if directly else (buffers.pop(), 0)
                piece = _Piece(number, filling, tensor, at, length, into)
                yield piece, partial(_native.Reactor.read_into, source=filling.source,
                                     buffer=memory_of(into, start, length), range=(offset, length))

    with contextlib.closing(
            _jobs.run(client, jobs(), READS_AT_ONCE if directly else BUFFERS)) as ended:
        for piece, _, error in ended:
            if error is not None:
                raise error
            if not directly:
                flat = piece.tensor.reshape(-1).view(torch.uint8)
                # Not in the background: the buffer is used again.
                flat[piece.at:piece.at + piece.length].copy_(piece.into[:piece.length])
                buffers.append(piece.into)
            left[piece.number] -= 1
            if not left[piece.number]:
                del left[piece.number]
                piece.filling.done(piece.tensor)


def _can_be_written_to(device: torch.device) -> bool:
    """Whether the memory of its tensors is that of this process."""
    return bool(device.type == "cpu")


@dataclass(frozen=True)
class _Piece:
    """What one read brings."""

    number: int
    filling: Filling
    tensor: torch.Tensor
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
    """So many bytes of a contiguous tensor of the CPU, to be written to."""
    # NumPy has not all types, and need not be there.
    memory = (ctypes.c_ubyte * length).from_address(tensor.data_ptr() + start)
    # Whoever has the view has the tensor.
    memory.tensor = tensor  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor whose bytes come from the network."""
    made = torch.empty(tuple(shape), dtype=dtype, device=device)
    length = made.numel() * made.element_size()
    if length and device.type == "cpu":
        prefer_huge_pages(memory_of(made, 0, length))
    return made
