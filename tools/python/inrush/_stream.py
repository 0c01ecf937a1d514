"""Objects or samples of tars, as one shard of one epoch has them, from any place on.

What the data sets for PyTorch, TensorFlow and Ray have in common. It needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, Optional, Union, cast

from . import _tar, sharding
from ._errors import (Closed, ConnectionFailed, Credentials, HostError, Interrupted, Throttled,
                      Timeout)
from ._places import Listing
from .sharding import Order, Shard, find_rank, local_rank

if TYPE_CHECKING:
    from . import Client, File, ObjectInfo

#: What the state of a stream looks like; another version is refused.
STATE_VERSION = 2
#: What is fetched of the next tar while one is read.
FOLLOWING_BYTES = 4 << 20

Sample = dict[str, Any]
Transform = Callable[[Sample], Any]
#: Whether a stream goes on behind a sample, or behind the rest of a tar, that failed so.
OnError = Callable[[Exception], bool]


class _TarReplaced(ValueError):
    """A state is of a place in a tar that is another one now."""


#: Errors that say nothing about one sample. They are raised until they are gone, and never skipped.
_NOT_OF_A_SAMPLE = (Closed, ConnectionFailed, Credentials, HostError, Interrupted, Throttled,
                    Timeout, _TarReplaced)


def this_rank() -> Shard:
    """The share of this process: by the variables of its launcher, else that of its host by
    SageMaker's `resourceconfig.json`; everything where there is neither.

    :raises ValueError: the variables contradict each other.
    """
    rank = find_rank("process") or find_rank("host", {}, sharding.RESOURCE_CONFIG)
    return Shard() if rank is None else rank.shard


def of_this_process(client: Client | None, worker: int = 0, workers: int = 1) -> Client:
    """The client of worker `worker` of `workers` in this process of several on this host, for reads
    of many bytes: they come into the memory that they are for, by the process's own engine.

    Each of them gets its part of the host's connections, memory and threads.
    """
    return _sharing(client, worker, workers, ())


def on_this_host(client: Client | None, worker: int = 0, workers: int = 1) -> Client:
    """The client of worker `worker` of `workers` in this process of several on this host, for many
    small reads: all of them share the host's engine.

    Where the client was made with a part as `share`, each has an engine of its own as well.
    """
    if client is not None and isinstance(client.options.get("share"), tuple) and \
            client.options["share"][0] != "host":
        return of_this_process(client, worker, workers)
    return _sharing(client, worker, workers, ("host",))


def _sharing(client: Client | None, worker: int, workers: int, kind: tuple[str, ...]) -> Client:
    if client is None:
        from . import default_client

        client = default_client()
    process, processes = local_rank()
    share = Shard(process, processes).split(worker, workers)
    if share.count == 1:
        return client
    return type(client)(**{**client.options, "share": (*kind, share.index, share.count)})


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
    on_error: OnError | None = None

    def order(self) -> Order:
        """The objects of the shard, as numbers in the listing."""
        return Order(len(self.listing), seed=self.seed, epoch=self.epoch, shard=self.shard,
                     drop_uneven=self.drop_uneven)

    def at(self, state: Mapping[str, Any]) -> Plan:
        """The plan in the epoch of a state.

        :raises ValueError: the state is of another listing, seed, shard or kind; it says which.
        """
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"the state has version {state.get('version')!r}, "
                             f"expected {STATE_VERSION}")
        refuse_others(state, self._identity(), "stream")
        return replace(self, epoch=int(state["epoch"]))

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a state to mean the same."""
        return {"kind": self.kind, "objects": len(self.listing),
                "listing": self.listing.fingerprint(), "seed": self.seed,
                "shard": f"{self.shard.index}/{self.shard.count}",
                "drop_uneven": self.drop_uneven}

    def state(self, place: Position) -> dict[str, Any]:
        """The state of a stream that goes on there."""
        return {"version": STATE_VERSION, **self._identity(), "epoch": self.epoch,
                **place._asdict()}


class Position(NamedTuple):
    """Where a pass goes on."""

    #: The place of an object in the order.
    place: int = 0
    #: The byte of a tar, decompressed, where its next sample begins.
    offset: int = 0
    #: Size and ETag of that tar, where `offset` is not 0.
    tar: Optional[list[Any]] = None


class _Read(NamedTuple):
    """What a place has: a sample, or why it cannot be read."""

    sample: Union[Sample, Exception]
    #: Where the pass goes on behind it.
    behind: Position


class Stream(Iterator[Any]):
    """One pass over a plan.

    What is in memory is the order, what the client reads ahead, and a sample. What was read ahead
    is gone with the pass, at its end, or with `close`.

    A sample that fails is raised once, and `next` goes on behind it. A tar that cannot be read,
    and what is wrong with the client or the network, is raised by each `next` until it is mended:
    how many samples would be left out is not known. `Plan.on_error` may leave out both.
    """

    def __init__(self, client: Client, plan: Plan, state: Mapping[str, Any] | None = None) -> None:
        """
        :param state: of `state_dict`; the pass goes on behind what was handed out then.
        :raises ValueError: the state is of another stream, or `Plan.drop_uneven` would leave out
            all objects.
        """
        self.plan = plan
        self._client = client
        # Where the pass is, and where it goes on: behind a sample that failed, if one did.
        self._at = self._next = Position()
        self._fixed: dict[str, Any] | None = None
        self._reads: Generator[_Read, None, None] | None = None
        self._is_over = self._is_closed = False
        self._length = len(replace(plan, seed=None).order())
        if state is not None:
            self.load_state_dict(state)

    def __next__(self) -> Any:
        """
        :raises StopIteration: the pass is over.
        :raises inrush.Closed: `close` ended it before.
        :raises inrush.Error: an object cannot be read.
        :raises tarfile.ReadError: a tar is damaged.
        :raises ValueError: the pass was to go on in a tar that was replaced.
        """
        while True:
            self._at = self._next
            read = self._read()
            try:
                if isinstance(read.sample, Exception):
                    raise read.sample
                sample = transformed(self.plan.transform, read.sample)
            except Exception as error:
                if not self._skips(read, error):
                    raise
            except BaseException:
                # An interrupt: the next one is this sample.
                self._reads = None
                raise
            else:
                self._at = self._next = read.behind
                return sample

    def _read(self) -> _Read:
        """What is behind the position. What fails here begins anew from there."""
        if self._is_closed:
            raise Closed("the pass over the data set was closed before its end")
        if self._reads is None:
            begin = _objects if self.plan.kind == "objects" else _tars
            self._reads = begin(self._client, self.plan, self._at)
        try:
            return next(self._reads)
        except StopIteration:
            self._is_over = True
            self._at = self._next = Position(self._length)
            raise
        except BaseException:
            self._reads = None
            raise

    def _skips(self, read: _Read, error: Exception) -> bool:
        """Sets where the pass goes on after an error; whether it does so at once."""
        reads, is_of_read = self._reads, error is read.sample
        is_of_sample = not is_of_read or not isinstance(error, _NOT_OF_A_SAMPLE)
        if is_of_sample and not (is_of_read and self.plan.kind == "tars"):
            self._next = read.behind
        else:
            # It is tried again.
            self._reads = None
        if not is_of_sample or self.plan.on_error is None or not self.plan.on_error(error):
            return False
        self._reads, self._next = reads, read.behind
        return True

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is: small, of plain values. It does not depend on what is read ahead."""
        if self._fixed is None:
            # The hash of the listing is made once.
            self._fixed = self.plan.state(Position())
        return {**self._fixed, **self._at._asdict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on behind what was handed out when the state was taken.

        :raises ValueError: the state is of another stream.
        """
        self.plan, self._fixed = self.plan.at(state), None
        self._at = self._next = Position(int(state["place"]), int(state["offset"]), state["tar"])
        self._reads, self._is_over, self._is_closed = None, False, False

    def close(self) -> None:
        """Ends the pass, and what was read ahead. `next` raises `inrush.Closed` from then on."""
        self._is_closed = not self._is_over
        if self._reads is not None:
            self._reads.close()


# They do not know their stream: it is gone, with what was read ahead, when nobody has it.
def _objects(client: Client, plan: Plan, begin: Position) -> Generator[_Read, None, None]:
    order, listing = plan.order(), plan.listing
    asked = (listing[order[at]] for at in range(begin.place, len(order)))
    results = client.read_many(asked, ordered=True, return_exceptions=True)
    for at, result in enumerate(results, begin.place + 1):
        yield _Read(result.error or object_sample(result.source, result.data), Position(at))


def _tars(client: Client, plan: Plan, begin: Position) -> Generator[_Read, None, None]:
    order, listing = plan.order(), plan.listing
    following: File | None = None
    try:
        for at in range(begin.place, len(order)):
            uri, offset = listing.uri(order[at]), begin.offset if at == begin.place else 0
            file, following, is_first = following, None, True
            try:
                file = file or client.open(listing[order[at]], sequential=True)
                with file:
                    tar = [file.info.size, file.info.etag]
                    if offset and begin.tar != tar:
                        raise _TarReplaced(f"the state is of another {uri}: size and ETag of the "
                                           f"tar were {begin.tar}, and are {tar}")
                    for found in _tar.samples(cast(BinaryIO, file), uri, offset):
                        yield _Read(found.sample, Position(at, found.offset, tar))
                        if is_first and at + 1 < len(order):
                            following = _begun(client, listing[order[at + 1]])
                        is_first = False
            except Exception as error:
                yield _Read(error, Position(at + 1))
    finally:
        if following is not None:
            following.close()


def _begun(client: Client, source: str | ObjectInfo) -> File | None:
    """A tar whose first bytes are fetched in the background, if nothing need be asked first."""
    if isinstance(source, str):
        return None
    file = client.open(source, sequential=True)
    file.prefetch(FOLLOWING_BYTES)
    return file


def refuse_others(state: Mapping[str, Any], ours: Mapping[str, Any], kind: str) -> None:
    """
    :raises ValueError: the state is of another stream or sampler; it says what differs.
    """
    for name, what in ours.items():
        if state.get(name) != what:
            raise ValueError(f"the state is of another {kind}: its {name} is {state.get(name)!r}, "
                             f"here it is {what!r}")


def object_sample(source: str | ObjectInfo, data: bytes) -> Sample:
    """What an object is before a transform: its address and its bytes."""
    return {"uri": source if isinstance(source, str) else source.uri, "data": data}


def transformed(transform: Transform | None, sample: Sample) -> Any:
    """What a transform makes of a sample; the sample itself where there is none."""
    if transform is None:
        return sample
    try:
        return transform(sample)
    except StopIteration as error:
        # For a loop this is the end of the data.
        raise RuntimeError("the transform raised StopIteration") from error
