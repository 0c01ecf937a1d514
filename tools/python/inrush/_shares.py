"""Tensors that several ranks want: each byte is read once, by one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from ._parts import Named, Part, cut, raw, sharded
from ._ranges import LARGE_BYTES_MIN, extent, together
from ._ranks import Ranks
from ._tensors import Filling, bytes_of, empty, filled, runs_of

if TYPE_CHECKING:
    from . import Client

#: What a rank reads at once for all of them, in bytes.
CHUNK_BYTES = 32 << 20
#: The dimension, the number and the count of parts of a tensor.
Shard = tuple[int, int, int]


@dataclass(frozen=True)
class _Chunk:
    """Bytes of a group that one rank reads for all of them."""

    owner: int
    at: int
    length: int


@dataclass(frozen=True)
class _Turn:
    """What is read next, in the same order on all ranks."""

    #: Whole tensors.
    group: list[Part]
    chunks: list[_Chunk]
    #: What this rank alone reads for itself, where it is a part of a tensor.
    own: Part | None


def shared(ranks: Ranks, client: Client, parts: Iterable[Part], shards: Mapping[str, Shard],
           device: torch.device, ahead_bytes: int) -> Iterator[Named]:
    """Reads these whole tensors, or the parts of them that this rank wants, with all ranks.

    :raises inrush.Error: this rank, or another one, cannot read an object.
    """
    turns = _turns(ranks, parts, shards)
    # What this rank has of tensors that are not complete.
    begun: dict[int, torch.Tensor] = {}
    owned: list[torch.Tensor] = []

    def memory(number: int) -> torch.Tensor:
        if number not in begun:
            group = turns[number].group
            begun[number] = empty(group[0].shape, group[0].dtype, device) if _is_large(group) \
                else raw(extent(group)[1], device)
        return begun[number]

    def slice_of(number: int, chunk: _Chunk) -> torch.Tensor:
        return bytes_of(memory(number))[chunk.at:chunk.at + chunk.length]

    def mine() -> Iterator[Filling]:
        for number, turn in enumerate(turns):
            if turn.own is not None:
                yield turn.own.filling(device, owned.append)
            for chunk in turn.chunks:
                if chunk.owner == ranks.rank:
                    place = turn.group[0].offset + chunk.at, chunk.length
                    yield Filling(turn.group[0].source, [place], partial(slice_of, number, chunk),
                                  lambda _: None)

    ranks.has_failed = False
    try:
        with contextlib.closing(filled(client, mine(), device, ahead_bytes)) as reads:
            for number, turn in enumerate(turns):
                if turn.own is not None:
                    next(reads)
                    ranks.agree(None)
                    yield turn.own.info.name, owned.pop()
                    continue
                for chunk in turn.chunks:
                    if chunk.owner == ranks.rank:
                        next(reads)
                    ranks.agree(None)
                    ranks.broadcast(slice_of(number, chunk), chunk.owner)
                memory(number)
                ready = list(_whole(turn.group, begun.pop(number), shards))
                ready.reverse()
                while ready:
                    yield ready.pop()
        ranks.agree(None)
    except BaseException as error:
        ranks.report(error)
        raise


def _turns(ranks: Ranks, parts: Iterable[Part], shards: Mapping[str, Shard]) -> list[_Turn]:
    """What is read, and by whom: the ranks read as many bytes for each other."""
    load = [0] * ranks.size
    turns = []
    for group in together(parts):
        shard = shards.get(group[0].info.name)
        if _is_large(group) and shard is not None:
            dim, _, count = shard
            # The first part is the longest: all ranks decide the same.
            first = sharded(group[0], dim, 0, count).view
            if first is not None and runs_of(first) is not None:
                turns.append(_Turn(group, [], sharded(group[0], *shard)))
                continue
        chunks = []
        length = extent(group)[1]
        for at in range(0, length, CHUNK_BYTES):
            size = min(CHUNK_BYTES, length - at)
            owner = load.index(min(load))
            load[owner] += size
            chunks.append(_Chunk(owner, at, size))
        turns.append(_Turn(group, chunks, None))
    return turns


def _is_large(group: list[Part]) -> bool:
    """Whether it is one tensor that is read where it belongs."""
    return len(group) == 1 and group[0].length >= LARGE_BYTES_MIN


def _whole(group: list[Part], memory: torch.Tensor, shards: Mapping[str, Shard]
           ) -> Iterator[Named]:
    """The tensors of a group that is complete, or what is wanted of them."""
    if _is_large(group):
        name = group[0].info.name
        if name not in shards:
            yield name, memory
            return
        memory = bytes_of(memory)
    wanted = [sharded(part, *shards[part.info.name]) if part.info.name in shards else part
              for part in group]
    yield from cut(wanted, memory, group[0].offset)
