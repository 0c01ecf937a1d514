"""Source nodes for ``torchdata.nodes``: the streams of `inrush.torch` without a `DataLoader`.

::

    from inrush.torchdata import ObjectNode
    from torchdata.nodes import Batcher, Loader, ParallelMapper

    objects = ObjectNode("s3://bucket/train/", shuffle_seed=42)
    loader = Loader(Batcher(ParallelMapper(objects, decode, num_workers=8), batch_size=64))

A node reads its epoch in one process, with one engine; each reset begins the next epoch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchdata.nodes import BaseNode

from ._places import Source, listing
from ._stream import OnError, Plan, Stream, Transform, on_this_host
from .sharding import Shard
from .torch import rank_shard

if TYPE_CHECKING:
    from . import Client

__all__ = ["ObjectNode", "TarNode"]


class _Node(BaseNode[Any]):  # type: ignore[misc,unused-ignore]
    """A stream with the life of a node."""

    def __init__(self, plan: Plan, client: Client, shard: Shard | tuple[int, int] | None) -> None:
        super().__init__()
        self._plan, self._client = plan, client
        self._shard = Shard(*shard) if isinstance(shard, tuple) else shard
        self._stream: Stream | None = None
        self._next_epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The next reset without a state begins this epoch, counted from 0."""
        self._next_epoch = epoch

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begins the next epoch, or goes on where a state was taken.

        :raises ValueError: the state is of another listing, seed or number of processes.
        """
        super().reset(initial_state)
        if self._stream is not None:
            self._stream.close()
        # A process group may have begun since the last one.
        shard = rank_shard() if self._shard is None else self._shard
        plan = replace(self._plan, epoch=self._next_epoch, shard=shard)
        self._stream = Stream(self._client, plan, initial_state)
        self._next_epoch = self._stream.plan.epoch + 1

    def next(self) -> Any:
        """The next sample.

        :raises StopIteration: the epoch is over.
        :raises inrush.Error: an object cannot be read.
        """
        assert self._stream is not None, "nodes are reset first"
        return next(self._stream)

    def get_state(self) -> dict[str, Any]:
        """Where the stream is, in plain values."""
        assert self._stream is not None, "nodes are reset first"
        return self._stream.state_dict()


class ObjectNode(_Node):
    """Objects in a stream: ``{"uri": str, "data": bytes}``."""

    def __init__(self, source: Source = (), *, manifest: str | None = None,
                 shuffle_seed: int | None = None, shard: Shard | tuple[int, int] | None = None,
                 drop_uneven: bool = False, client: Client | None = None,
                 transform: Transform | None = None, on_error: OnError | None = None) -> None:
        """As `inrush.torch.StreamDataset`; the shard is found at each reset."""
        client = on_this_host(client)
        objects = listing(client, source, manifest=manifest)
        super().__init__(Plan(objects, "objects", seed=shuffle_seed, drop_uneven=drop_uneven,
                              transform=transform, on_error=on_error), client, shard)


class TarNode(_Node):
    """Samples of tars, as `inrush.torch.TarDataset` has them."""

    def __init__(self, source: Source = (), *, manifest: str | None = None,
                 suffix: str | tuple[str, ...] = (".tar", ".tar.gz", ".tgz"),
                 shuffle_seed: int | None = None, shard: Shard | tuple[int, int] | None = None,
                 drop_uneven: bool = False, client: Client | None = None,
                 transform: Transform | None = None, on_error: OnError | None = None) -> None:
        """As `inrush.torch.TarDataset`; the shard is found at each reset."""
        client = on_this_host(client)
        tars = listing(client, source, manifest=manifest, suffix=suffix)
        super().__init__(Plan(tars, "tars", seed=shuffle_seed, drop_uneven=drop_uneven,
                              transform=transform, on_error=on_error), client, shard)
