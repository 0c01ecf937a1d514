"""Data sets for PyTorch: objects by number, objects in a stream, samples of tars; and `load`.

::

    from inrush.torch import StreamDataset
    from torch.utils.data import DataLoader

    dataset = StreamDataset("s3://bucket/train/", shuffle_seed=42)
    for epoch in range(3):
        dataset.set_epoch(epoch)
        for batch in DataLoader(dataset, batch_size=64, num_workers=4):
            ...

Each process of a job reads its own part, and each worker of a `DataLoader` a part of that; order
and parts are those of the command's ``--shuffle-seed`` and ``--shard``. The state of a data set is
small and exact: with `torchdata.stateful_dataloader.StatefulDataLoader` a job goes on behind the
batch that it has trained with, however much workers have read ahead.

Workers may be forked, spawned or come from a fork server. Each has an engine of its own, which
takes its part of the host's connections and memory.
"""

from __future__ import annotations

import operator
import os
import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}: pip install 'inrush[torch]'", name=error.name) from error
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

from ._ahead import ReadsByNumber, SamplerPass, placed
from ._places import Listing, Source, listing
from ._pt import load
from ._stream import (OnError, Plan, Position, Stream, Transform, object_sample,
                      on_this_host, refuse_others, this_rank, transformed)
from .sharding import Order, Shard

if TYPE_CHECKING:
    from . import Client

__all__ = ["ObjectDataset", "ShardSampler", "StreamDataset", "TarDataset", "load", "rank_shard"]


def rank_shard() -> Shard:
    """The part of this process: by `torch.distributed` where it has begun, else by the variables
    of torchrun, Open MPI, MPICH or Slurm; everything where nothing is known.

    :raises ValueError: the variables contradict each other.
    """
    if _has_group():
        return Shard(torch.distributed.get_rank(), torch.distributed.get_world_size())
    return this_rank()


def _has_group() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _client_of_worker(client: Client | None) -> Client:
    worker = get_worker_info()
    return on_this_host(client) if worker is None else \
        on_this_host(client, worker.id, worker.num_workers)


def _as_shard(shard: Shard | tuple[int, int] | None) -> Shard | None:
    return shard if shard is None or isinstance(shard, Shard) else Shard(*shard)


#: The module of accelerate whose loaders divide what is below them.
_DIVIDING = "accelerate.data_loader"


def _refuse_second_division(of: Any, shard: Shard) -> None:
    """Refuses what accelerate divides again: it would read a part of each part.

    It is called where a pass begins: what began it is on the stack, whatever is between them, and
    so it is in workers that are forked, and where the data set is pickled for those that are not.

    :raises ValueError: a loader of accelerate has `of`, a data set or a sampler, read this shard.
    """
    accelerate = sys.modules.get("accelerate.state")
    if shard.count == 1 or accelerate is None or not accelerate.is_initialized() or \
            accelerate.PartialState().num_processes == 1:
        return
    frame = sys._getframe()
    while frame.f_globals.get("__name__") != _DIVIDING:
        if frame.f_back is None:
            return
        frame = frame.f_back
    raise ValueError(
        f"accelerate divides what this {type(of).__name__} reads, which is the shard "
        f"{shard.index}/{shard.count} already: leave the loader out of prepare(), or, as for the "
        "Trainer of transformers, give shard=(0, 1)")


class _InWorker:
    """The client of the process that asks, made when it is asked for first."""

    def __init__(self, client: Client | None) -> None:
        self._given = client
        self._own: tuple[object, Client] | None = None

    def client(self) -> Client:
        worker = get_worker_info()
        # A fork has the parent's, which is of another share.
        who = None if worker is None else (worker.id, worker.num_workers, worker.seed)
        if self._own is None or self._own[0] != who:
            self._own = (who, _client_of_worker(self._given))
        return self._own[1]

    def __getstate__(self) -> dict[str, Any]:
        return {"_given": self._given, "_own": None}


class ObjectDataset(Dataset[Any]):  # type: ignore[misc,unused-ignore]
    """Objects by number, in key order. A batch is requested at once, and the next ones before it
    is their turn.

    Shard and shuffle it with `ShardSampler`, whose order is known::

        sampler = ShardSampler(dataset, shuffle_seed=42)
        DataLoader(dataset, sampler=sampler, batch_size=64, num_workers=4)

    Each pass reads ahead as much as it takes until nothing is waited for, and at most 256 MiB and
    2,048 objects, which its workers share equally. Of other samplers a worker requests the batches
    that wait in its queue, `prefetch_factor` less one. Objects whose size is not known, as those of
    a manifest, count as the largest one that was read. What was read ahead is dropped with the
    iterator of its pass, in a worker that stays at the begin of its next pass.
    """

    def __init__(self, source: Source = (), *, manifest: str | None = None,
                 client: Client | None = None, transform: Transform | None = None) -> None:
        """Lists the objects, at once: 24 bytes each, the URI and the ETag.

        :param source: ``s3://BUCKET/PREFIX/``, an object, or several of them.
        :param manifest: address or path of a ManifestFile of SageMaker, instead of `source`.
        :param client: what reads; None is `inrush.default_client()`.
        :param transform: makes a sample of ``{"uri": str, "data": bytes}``.
        :raises FileNotFoundError: there are no objects.
        :raises inrush.Error: the listing failed.
        """
        self._in_worker = _InWorker(client)
        self._reads = ReadsByNumber()
        self._transform = transform
        self.listing: Listing = listing(self._in_worker.client(), source, manifest=manifest)

    def __len__(self) -> int:
        return len(self.listing)

    def __getitem__(self, index: int) -> Any:
        """Reads one object.

        :raises IndexError: there is no such object.
        :raises inrush.Error: it cannot be read.
        """
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Reads several objects at the same time; a `DataLoader` asks for a batch so.

        :raises inrush.Error: one of them cannot be read. What fails ahead of its batch is raised by
            that batch.
        """
        numbers = [self._number(index) for index in indices]
        contents = self._reads.read(self, self._in_worker.client(), self.listing, indices, numbers)
        samples = [object_sample(self.listing.uri(number), data)
                   for number, data in zip(numbers, contents, strict=True)]
        return [transformed(self._transform, sample) for sample in samples]

    def _number(self, index: int) -> int:
        index = operator.index(index)
        number = index + len(self.listing) if index < 0 else index
        if not 0 <= number < len(self.listing):
            raise IndexError(f"object {index} of {len(self.listing)}")
        return number


class ShardSampler(Sampler[int]):  # type: ignore[misc,unused-ignore]
    """Numbers of a data set in the order of the command: shuffled by a seed, then every N-th.

    An `ObjectDataset` knows by them which ones come next.
    """

    def __init__(self, dataset: Any, *, shuffle_seed: int | None = None,
                 shard: Shard | tuple[int, int] | None = None, drop_uneven: bool = False) -> None:
        """
        :param dataset: something with a length.
        :param shuffle_seed: shuffles every epoch; None leaves the order.
        :param shard: the part of this process; None is found by `rank_shard`.
        :param drop_uneven: all processes have the same number, and a few are left out.
        """
        self._dataset, self._seed = dataset, shuffle_seed
        self._shard, self._drop_uneven = _as_shard(shard), drop_uneven
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The next pass is of this epoch, counted from 0."""
        self.epoch = epoch

    @property
    def _now(self) -> Shard:
        return rank_shard() if self._shard is None else self._shard

    def order(self) -> Order:
        """The order of the current epoch.

        :raises ValueError: `drop_uneven` would leave out everything.
        """
        return Order(len(self._dataset), seed=self._seed, epoch=self.epoch, shard=self._now,
                     drop_uneven=self._drop_uneven)

    def __len__(self) -> int:
        return len(Order(len(self._dataset), shard=self._now, drop_uneven=self._drop_uneven))

    def __iter__(self) -> Iterator[int]:
        """
        :raises ValueError: `drop_uneven` would leave out everything, or accelerate divides the
            numbers again.
        """
        _refuse_second_division(self, self._now)
        return _SamplerIterator(self)

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a state to mean the same."""
        listed = getattr(self._dataset, "listing", None)
        return {"count": len(self._dataset), "seed": self._seed,
                "shard": f"{self._now.index}/{self._now.count}", "drop_uneven": self._drop_uneven,
                "listing": listed.fingerprint() if isinstance(listed, Listing) else None}


class _SamplerIterator(Iterator[int]):
    """One pass of a sampler, with a state for `StatefulDataLoader`."""

    def __init__(self, sampler: ShardSampler) -> None:
        self._sampler = sampler
        # Other data sets may want nothing but an int.
        self._is_placed = isinstance(sampler._dataset, ObjectDataset)
        self._fixed: dict[str, Any] | None = None
        self._begin(0)

    def _begin(self, place: int) -> None:
        self._epoch, self._place = self._sampler.epoch, place
        self._pass = SamplerPass(self._sampler.order().numbers())

    def __next__(self) -> int:
        if self._place == len(self._pass.numbers):
            raise StopIteration
        place, self._place = self._place, self._place + 1
        number = self._pass.numbers[place]
        return placed(number, place, self._pass) if self._is_placed else number

    def state_dict(self) -> dict[str, Any]:
        if self._fixed is None:
            # The hash of the listing is made once.
            self._fixed = self._sampler._identity()
        return {**self._fixed, "epoch": self._epoch, "place": self._place}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        refuse_others(state, self._sampler._identity(), "sampler")
        self._sampler.set_epoch(state["epoch"])
        self._begin(state["place"])


class _Streaming(IterableDataset[Any]):  # type: ignore[misc,unused-ignore]
    """What `StreamDataset` and `TarDataset` have in common."""

    def __init__(self, plan: Plan, client: _InWorker, shard: Shard | None) -> None:
        self._plan, self._in_worker = plan, client
        self._shard = shard
        # What was found last: workers that are spawned know no process group. One that is forked
        # has that of its parent, which may have begun since then.
        self._found_shard = rank_shard() if shard is None else shard
        # In shared memory: workers that stay from epoch to epoch see it change. And the number of
        # the state that is loaded: the worker that goes on with it changes it, here as well.
        self._epoch: torch.Tensor = torch.zeros((), dtype=torch.int64)
        self._loaded: torch.Tensor = torch.zeros((), dtype=torch.int64)
        # The epoch when this process was forked, or got the data set, until its first pass: a
        # worker begins that pass later than the loader, which may have another epoch by then.
        self._first: int | None = None
        self._share()
        self._stream: Stream | None = None
        # A state, and its number; 0 where a worker has loaded it for itself.
        self._state: tuple[Mapping[str, Any], int] | None = None

    def _share(self) -> None:
        for shared in (self._epoch, self._loaded):
            cast(Any, shared).share_memory_()
        _streams.add(self)

    @property
    def listing(self) -> Listing:
        """All objects, of all processes."""
        return self._plan.listing

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return int(self._epoch.item())

    def set_epoch(self, epoch: int) -> None:
        """The next pass is of this epoch, counted from 0; workers that run already see it.

        A pass that has begun keeps its epoch. Workers that stay from pass to pass begin one just
        behind `iter` of their loader: call it before that.

        Without it every pass has the order of the same epoch, as with the samplers of PyTorch.
        """
        if epoch < 0:
            raise ValueError(f"the epoch is {epoch}: epochs are counted from 0")
        self._epoch.fill_(epoch)
        self._first = None

    def _now(self) -> Plan:
        """The plan of this worker, now."""
        worker, shard = get_worker_info(), self._of_process()
        if worker is not None:
            shard = shard.split(worker.id, worker.num_workers)
        epoch = self.epoch if self._first is None else self._first
        return replace(self._plan, epoch=epoch, shard=shard)

    def _of_process(self) -> Shard:
        """The part of this process, all its workers together."""
        if self._shard is None and (get_worker_info() is None or _has_group()):
            self._found_shard = rank_shard()
        return self._found_shard

    def _check(self) -> None:
        shard = self._of_process()
        _refuse_second_division(self, shard)
        if shard.index >= len(self.listing):
            warnings.warn(f"the shard {shard.index}/{shard.count} of this process is empty: there "
                          f"are {len(self.listing)} objects", stacklevel=3)

    def __iter__(self) -> Iterator[Any]:
        """A pass of the current epoch, or what `load_state_dict` left of one.

        Passes do not know of each other: several may go on at the same time.

        :raises ValueError: `drop_uneven` would leave out all objects, or accelerate divides the
            data set again.
        """
        plan, self._first = self._now(), None
        self._check()
        state = self._pending()
        self._stream = Stream(self._in_worker.client(), plan, state)
        if state is not None and self._state is not None and self._state[1]:
            # Nor does a worker that starts later have it.
            self._loaded.add_(1)
        self._state = None
        return self._stream

    def _pending(self) -> Mapping[str, Any] | None:
        """The state that the next pass goes on from."""
        if self._state is None or self._state[1] not in (0, int(self._loaded.item())):
            return None
        return self._state[0]

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is that began last in this process; `StatefulDataLoader` asks each pass.

        Other loaders with workers cannot: in the main process no pass has begun then.
        """
        state = self._pending()
        if state is not None:
            return dict(state)
        if self._stream is None:
            return self._now().state(Position())
        return self._stream.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next pass goes on where this state was taken; the ones after it are whole.

        :raises ValueError: the state is of another listing, seed or number of processes or workers;
            it says which.
        """
        self._now().at(state)
        self.set_epoch(int(state["epoch"]))
        number = 0
        if get_worker_info() is None:
            number = int(self._loaded.add_(1).item())
        self._state = dict(state), number

    def __getstate__(self) -> dict[str, Any]:
        # Workers that are spawned know of no loader.
        self._check()
        return {**self.__dict__, "_stream": None, "_first": self.epoch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # A copy has workers of its own.
        self._share()


_streams: weakref.WeakSet[_Streaming] = weakref.WeakSet()


def _before_fork() -> None:
    for dataset in list(_streams):
        dataset._first = dataset.epoch


def _after_fork() -> None:
    for dataset in list(_streams):
        dataset._first = None


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)


class StreamDataset(_Streaming):
    """Objects in a stream: each worker requests many ahead, in the order of its part."""

    def __init__(self, source: Source = (), *, manifest: str | None = None,
                 shuffle_seed: int | None = None, shard: Shard | tuple[int, int] | None = None,
                 drop_uneven: bool = False, client: Client | None = None,
                 transform: Transform | None = None, on_error: OnError | None = None) -> None:
        """Lists the objects, at once: 24 bytes each, the URI and the ETag.

        :param source: ``s3://BUCKET/PREFIX/``, an object, or several of them.
        :param manifest: address or path of a ManifestFile of SageMaker, instead of `source`.
        :param shuffle_seed: shuffles every epoch as ``--shuffle-seed`` does; None is key order.
        :param shard: the part of this process; None is found by `rank_shard`. ``(0, 1)`` reads
            everything, for trainers that divide a data set themselves.
        :param drop_uneven: all processes and workers have the same number of objects, and a few
            are left out of each epoch; otherwise some have one more.
        :param client: what reads; None is `inrush.default_client()`.
        :param transform: makes a sample of ``{"uri": str, "data": bytes}``.
        :param on_error: called with each error of an object or of `transform`, in the process that
            reads: True leaves the sample out, False raises the error; handlers of WebDataset, such
            as ``webdataset.warn_and_continue``, fit. Without it an error is raised once, and the
            pass goes on behind its sample. Errors of the network and of the client, such as
            credentials, are raised in any case, by each ``next`` until they are mended.
        :raises FileNotFoundError: there are no objects.
        :raises inrush.Error: the listing failed.
        """
        in_worker = _InWorker(client)
        objects = listing(in_worker.client(), source, manifest=manifest)
        plan = Plan(objects, "objects", seed=shuffle_seed, drop_uneven=drop_uneven,
                    transform=transform, on_error=on_error)
        super().__init__(plan, in_worker, _as_shard(shard))


class TarDataset(_Streaming):
    """Samples of tars, as WebDataset has them: members that share a name up to its first dot.

    A sample is ``{"__key__": str, "__url__": str, EXTENSION: bytes, ...}``. Tars are shuffled and
    divided as objects are; the samples of a tar keep their order. So there should be many more
    tars than workers.
    """

    def __init__(self, source: Source = (), *, manifest: str | None = None,
                 suffix: str | tuple[str, ...] = (".tar", ".tar.gz", ".tgz"),
                 shuffle_seed: int | None = None, shard: Shard | tuple[int, int] | None = None,
                 drop_uneven: bool = False, client: Client | None = None,
                 transform: Transform | None = None, on_error: OnError | None = None) -> None:
        """Lists the tars, at once.

        :param suffix: how the keys of tars end below a prefix; other objects are left out.
        :param drop_uneven: all have the same number of tars, not of samples.
        :param transform: makes something else of a sample.
        :param on_error: as of `StreamDataset`; of a tar that cannot be read, True leaves out the
            rest of it. Without it the error of a tar is raised by each ``next``: how many samples
            it has is not known.

        The others are those of `StreamDataset`, and so are the errors.
        """
        in_worker = _InWorker(client)
        tars = listing(in_worker.client(), source, manifest=manifest, suffix=suffix)
        plan = Plan(tars, "tars", seed=shuffle_seed, drop_uneven=drop_uneven, transform=transform,
                    on_error=on_error)
        super().__init__(plan, in_worker, _as_shard(shard))
