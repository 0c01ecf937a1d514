"""Objects or samples of tars, as one shard of one epoch has them, from any place on.

What the data sets for PyTorch, TensorFlow and Ray have in common. It needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

from . import _tar, sharding
from ._places import Listing
from .sharding import Order, Shard, find_rank, local_rank

if TYPE_CHECKING:
    from . import Client, File, ObjectInfo

#: What the state of a stream looks like; another version is refused.
STATE_VERSION = 1
#: What is fetched of the next tar while one is read.
FOLLOWING_BYTES = 4 << 20

Sample = dict[str, Any]
Transform = Callable[[Sample], Any]


def this_rank() -> Shard:
    """The share of this process: by the variables of its launcher, else that of its host by
    SageMaker's `resourceconfig.json`; everything where there is neither.

    :raises ValueError: the variables contradict each other.
    """
    rank = find_rank("process") or find_rank("host", {}, sharding.RESOURCE_CONFIG)
    return Shard() if rank is None else rank.shard


def of_this_process(client: Client | None, worker: int = 0, workers: int = 1) -> Client:
    """The client of worker `worker` of `workers` in this process of several on this host.

    Each of them gets its part of the host's connections, memory and threads.
    """
    if client is None:
        from . import default_client

        client = default_client()
    process, processes = local_rank()
    share = Shard(process, processes).split(worker, workers)
    if share.count == 1:
        return client
    options = {**client.options, "share": (share.index, share.count)}
    return type(client)(**options)


@dataclass(frozen=True)
class Plan:
    """What a stream reads in which order."""

    listing: Listing
    kind: Literal["objects", "tars"] = "objects"
    seed: int | None = None
    epoch: int = 0
    shard: Shard = Shard()
    drop_uneven: bool = False
    transform: Transform | None = None

    def order(self) -> Order:
        """The objects of the shard, as numbers in the listing."""
        return Order(len(self.listing), seed=self.seed, epoch=self.epoch, shard=self.shard,
                     drop_uneven=self.drop_uneven)

    def at(self, state: Mapping[str, Any]) -> Plan:
        """The same in the epoch of a state.

        :raises ValueError: the state is of another listing, seed, shard or kind; it says which.
        """
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"the state has version {state.get('version')!r}, "
                             f"expected {STATE_VERSION}")
        ours = self._told()
        for name, what in ours.items():
            if state.get(name) != what:
                raise ValueError(f"the state is of another stream: its {name} is "
                                 f"{state.get(name)!r}, here it is {what!r}")
        return replace(self, epoch=int(state["epoch"]))

    def _told(self) -> dict[str, Any]:
        """What must be the same for a state to mean the same."""
        return {"kind": self.kind, "objects": len(self.listing),
                "listing": self.listing.fingerprint(), "seed": self.seed,
                "shard": f"{self.shard.index}/{self.shard.count}",
                "drop_uneven": self.drop_uneven}

    def state(self, place: int, offset: int) -> dict[str, Any]:
        """The state of a stream that goes on with this object of its order."""
        return {"version": STATE_VERSION, **self._told(), "epoch": self.epoch, "place": place,
                "offset": offset}


class Stream(Iterator[Any]):
    """One pass over a plan.

    What is in memory is the order, what the client reads ahead, and a sample. Ends or `close`
    ends what was read ahead.
    """

    def __init__(self, client: Client, plan: Plan, state: Mapping[str, Any] | None = None) -> None:
        """
        :param state: of `state_dict`; the pass goes on behind what was handed out then.
        :raises ValueError: the state is of another stream.
        """
        self.plan = plan if state is None else plan.at(state)
        self._client = client
        self._place, self._offset = 0, 0
        if state is not None:
            self._place, self._offset = int(state["place"]), int(state["offset"])
        self._told: dict[str, Any] | None = None
        self._samples: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._samples is None:
            self._samples = self._objects() if self.plan.kind == "objects" else self._tars()
        return next(self._samples)

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is: small, of plain values. It does not depend on what is read ahead."""
        if self._told is None:
            # The hash of the listing is made once.
            self._told = self.plan.state(0, 0)
        return {**self._told, "place": self._place, "offset": self._offset}

    def close(self) -> None:
        """Ends the pass, and what was read ahead."""
        close = getattr(self._samples, "close", None)
        if close is not None:
            close()
        self._samples = iter(())

    def _objects(self) -> Iterator[Any]:
        order, listing = self.plan.order(), self.plan.listing
        asked = (listing.source(order[at]) for at in range(self._place, len(order)))
        results = self._client.read_many(asked, ordered=True)
        try:
            for result in results:
                # The place counts as done once the sample is made.
                sample = self._made(object_sample(result.source, result.data))
                self._place += 1
                yield sample
        finally:
            close = getattr(results, "close", None)
            if close is not None:
                close()

    def _tars(self) -> Iterator[Any]:
        order, listing = self.plan.order(), self.plan.listing
        following: File | None = None
        try:
            for at in range(self._place, len(order)):
                file = following or self._client.open(listing.source(order[at]), sequential=True)
                following, uri, is_first = None, listing.uri(order[at]), True
                with file:
                    for found in _tar.samples(cast(BinaryIO, file), uri, self._offset):
                        sample = self._made(found.sample)
                        self._offset = found.offset
                        yield sample
                        if is_first and at + 1 < len(order):
                            following = self._begun(listing.source(order[at + 1]))
                        is_first = False
                self._place, self._offset = at + 1, 0
        finally:
            if following is not None:
                following.close()

    def _begun(self, source: str | ObjectInfo) -> File | None:
        """A tar whose first bytes are fetched in the background, if nothing need be asked first."""
        if isinstance(source, str):
            return None
        file = self._client.open(source, sequential=True)
        file.prefetch(FOLLOWING_BYTES)
        return file

    def _made(self, sample: Sample) -> Any:
        return sample if self.plan.transform is None else self.plan.transform(sample)


def object_sample(source: str | ObjectInfo, data: bytes) -> Sample:
    """What an object is before a transform: its address and its bytes."""
    return {"uri": source if isinstance(source, str) else source.uri, "data": data}

