"""Which bytes tensors of safetensors files, and parts of them, have; how they become tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import torch

from ._headers import TYPES, TensorInfo
from ._ranges import LARGE_BYTES_MIN, extent
from ._tensors import Filling, empty, runs_of, span_bytes

if TYPE_CHECKING:
    from . import ObjectInfo

#: A tensor, and its name.
Named = tuple[str, torch.Tensor]
#: Types by which elements are copied, by their length in bytes: some others cannot be.
_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Part:
    """A tensor that is wanted, or a part of one."""

    source: ObjectInfo
    info: TensorInfo
    dtype: torch.dtype
    #: What of the tensor, without bytes; None is all of it.
    view: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.info) if self.view is None else tuple(self.view.shape)

    @property
    def offset(self) -> int:
        """Where its first byte is in the object."""
        if self.view is None:
            return self.info.offset
        return self.info.offset + int(self.view.storage_offset() * self.view.element_size())

    @property
    def length(self) -> int:
        """Bytes from its first to its last one."""
        return self.info.length if self.view is None else span_bytes(self.view)

    def ranges(self) -> list[tuple[int, int]] | None:
        """Offset and length of its bytes in the object, in order; None where they are read with
        what is between them."""
        if self.view is None:
            return [(self.info.offset, self.info.length)]
        runs = runs_of(self.view)
        return None if runs is None else [(self.info.offset + at, length) for at, length in runs]

    def filling(self, device: torch.device, done: Callable[[torch.Tensor], None]) -> Filling:
        """How it is read; `done` gets the tensor."""
        ranges = self.ranges()
        if ranges is not None:
            return Filling(self.source, ranges, lambda: empty(self.shape, self.dtype, device), done)
        extent = [(self.offset, self.length)]
        return Filling(self.source, extent, lambda: raw(self.length, device),
                       lambda flat: done(self.taken(flat)))

    def taken(self, flat: torch.Tensor) -> torch.Tensor:
        """The tensor, in memory of its own, of bytes from its first to its last one."""
        if self.view is None:
            return flat.clone().view(self.dtype).reshape(self.shape)
        out = empty(self.shape, self.dtype, flat.device)
        if not out.numel():
            return out
        carrier = _CARRIERS[out.element_size()]
        # Elements begin anywhere.
        if flat.storage_offset() % out.element_size():
            flat = flat.clone()
        out.view(carrier).copy_(flat.view(carrier).as_strided(
            self.view.size(), self.view.stride(), flat.storage_offset() // out.element_size()))
        return out


def whole(source: ObjectInfo, info: TensorInfo) -> Part:
    """A tensor.

    :raises ValueError: it is of a type that PyTorch does not have.
    """
    found = getattr(torch, TYPES.get(info.dtype, ("", 0))[0], None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"the tensor {info.name!r} is of type {info.dtype}, which PyTorch "
                         f"{torch.__version__} does not have")
    return Part(source, info, found)


def shape_of(info: TensorInfo) -> tuple[int, ...]:
    """The shape of the tensor in PyTorch, which has two F4 in one element."""
    return (*info.shape[:-1], info.shape[-1] // 2) if info.dtype == "F4" else info.shape


def without_bytes(part: Part) -> torch.Tensor:
    """A tensor as a whole one is, but for its bytes."""
    return torch.empty(part.shape, dtype=part.dtype, device="meta")


def sharded(part: Part, dim: int, rank: int, count: int) -> Part:
    """Part `rank` of `count` along a dimension, as `torch.chunk` has them: the last ones may be
    shorter, or empty.

    :raises ValueError: there is no such part.
    """
    view = without_bytes(part)
    if not 0 <= rank < count or not -view.dim() <= dim < view.dim():
        raise ValueError(f"the tensor {part.info.name!r} of shape {list(view.shape)} has no part "
                         f"{rank} of {count} along dimension {dim}")
    size = view.size(dim)
    step = ceil(size / count)
    start = min(rank * step, size)
    return Part(part.source, part.info, part.dtype,
                view.narrow(dim, start, min(step, size - start)))


def raw(length: int, device: torch.device) -> torch.Tensor:
    """Memory for `length` bytes."""
    return empty((length,), torch.uint8, device)


def group_filling(group: Sequence[Part], device: torch.device,
                  done: Callable[[list[Named]], None]) -> Filling:
    """How a group is read."""
    first = group[0]
    if len(group) == 1 and first.length >= LARGE_BYTES_MIN:
        return first.filling(device, lambda tensor: done([(first.info.name, tensor)]))
    start, length = extent(group)
    return Filling(first.source, [(start, length)], lambda: raw(length, device),
                   lambda flat: done(list(cut(group, flat, start))))


def cut(group: Sequence[Part], flat: torch.Tensor, start: int) -> Iterator[Named]:
    """The tensors of a group, of bytes that begin there in the object."""
    for part in group:
        at = part.offset - start
        yield part.info.name, part.taken(flat[at:at + part.length])


def index_of(view: torch.Tensor, index: Any) -> torch.Tensor | None:
    """What an index takes of a tensor; None where that is no part of its memory, but a copy."""
    words = index if isinstance(index, tuple) else (index,)
    simple = all(word is None or word is Ellipsis or isinstance(word, slice)
                 or type(word) is int for word in words)
    taken = view[index]
    return taken if simple else None

