"""Passes over data sets of PyTorch: what an end, an error, a length and a state mean."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import sys
import tarfile
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from common import WAIT_SECONDS_MAX
from conftest import Origin, require, small_objects, tar_of, tars

torch = require("torch")

from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

import inrush  # noqa: E402
from inrush.torch import (ObjectDataset, ShardSampler, StreamDataset,  # noqa: E402
                          TarDataset)

Serve = Callable[..., Origin]
Maker = Callable[..., Any]


def objects(**options: Any) -> Any:
    """A stream of 12 objects."""
    return StreamDataset("s3://data/train/", **options)


def samples_of_tars(**options: Any) -> Any:
    """A stream of the 12 samples of 4 tars."""
    return TarDataset("s3://data/tars/", **options)


BOTH = pytest.mark.parametrize("make", [objects, samples_of_tars])


@pytest.fixture
def served(serve: Serve) -> Origin:
    """What both read."""
    return serve(small_objects(12) | tars(4, 3))


def name(sample: dict[str, Any]) -> str:
    """What a sample is called."""
    return str(sample.get("uri") or sample["__key__"])


def walk(samples: Iterator[Any], most: int = 40) -> tuple[list[Any], list[Exception], bool]:
    """Samples and errors of who catches errors and goes on, and whether there was an end."""
    found: list[Any] = []
    errors: list[Exception] = []
    for _ in range(most):
        try:
            found.append(next(samples))
        except StopIteration:
            return found, errors, True
        except Exception as error:
            errors.append(error)
    return found, errors, False


@BOTH
def test_passes_do_not_end_each_other(served: Origin, make: Maker) -> None:
    dataset = make(transform=name)
    whole = list(dataset)
    assert len(whole) == 12
    assert list(zip(dataset, dataset, strict=True)) == list(zip(whole, whole, strict=True))
    loader = DataLoader(dataset, batch_size=2)
    seen = []
    for batch in loader:
        seen += batch
        assert next(iter(loader)) == whole[:2]
    assert seen == whole
    one = iter(dataset)
    assert next(one) == whole[0]
    assert list(copy.deepcopy(dataset)) == whole
    assert list(one) == whole[1:]


@BOTH
def test_a_pass_that_was_closed_has_no_end(served: Origin, make: Maker) -> None:
    samples = iter(make())
    next(samples)
    samples.close()
    for _ in range(2):
        with pytest.raises(inrush.Closed):
            next(samples)
    whole = iter(make())
    assert len(list(whole)) == 12
    whole.close()
    assert list(whole) == []


@BOTH
def test_a_client_that_is_closed_is_no_end(served: Origin, make: Maker) -> None:
    client = served.client()
    samples = iter(make(client=client, on_error=lambda error: True))
    next(samples)
    client.close()
    found, errors, is_over = walk(samples)
    # What is there already may still come.
    assert len(found) == 11 if is_over else errors != []
    assert all(isinstance(error, inrush.Closed) for error in errors)


def test_a_state_is_that_of_its_own_pass(served: Origin) -> None:
    stateful = require("torchdata.stateful_dataloader").StatefulDataLoader
    loader = stateful(objects(transform=name), batch_size=2)
    batches = iter(loader)
    seen = next(batches) + next(batches)
    # A look at a batch, by another loader.
    next(iter(stateful(loader.dataset, batch_size=3)))
    state = loader.state_dict()
    again = stateful(objects(transform=name), batch_size=2)
    again.load_state_dict(state)
    assert seen + [one for batch in again for one in batch] == list(objects(transform=name))


PER_EPOCH: dict[str, Any] = dict(transform=name, shuffle_seed=1)


def of_epoch(make: Maker, epoch: int) -> list[Any]:
    """What a pass of this epoch has."""
    dataset = make(**PER_EPOCH)
    dataset.set_epoch(epoch)
    return list(dataset)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_state_is_for_one_pass_also_of_a_worker(served: Origin, start: str) -> None:
    dataset = objects(**PER_EPOCH)
    samples = iter(dataset)
    begin = [next(samples) for _ in range(5)]
    resumed = objects(**PER_EPOCH)
    resumed.load_state_dict(dataset.state_dict())
    # As the process itself: of one worker a state means the same.
    loader = DataLoader(resumed, batch_size=None, num_workers=1, multiprocessing_context=start)
    assert begin + list(loader) == of_epoch(objects, 0)
    assert list(loader) == of_epoch(objects, 0)
    resumed.set_epoch(1)
    assert list(resumed) == of_epoch(objects, 1)


def test_a_state_that_nobody_went_on_from_is_not_used_up(served: Origin) -> None:
    dataset = objects(**PER_EPOCH)
    samples = iter(dataset)
    begin = [next(samples) for _ in range(5)]
    dataset.load_state_dict(dataset.state_dict())
    with pytest.raises(ValueError, match="its shard is"):
        list(DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork"))
    assert begin + list(dataset) == of_epoch(objects, 0)


@BOTH
def test_a_copy_has_an_epoch_that_its_workers_see(served: Origin, make: Maker) -> None:
    dataset = make(**PER_EPOCH)
    for copied in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
        loader = DataLoader(copied, batch_size=None, num_workers=1, persistent_workers=True,
                            multiprocessing_context="fork")
        for epoch in range(3):
            copied.set_epoch(epoch)
            assert list(loader) == of_epoch(make, epoch)
    assert dataset.epoch == 0


@pytest.mark.parametrize(("start", "persistent"), [
    ("fork", False), ("fork", True), ("spawn", True)])
def test_a_pass_keeps_the_epoch_it_began_with(served: Origin, start: str,
                                              persistent: bool) -> None:
    dataset = objects(**PER_EPOCH)
    begins = multiprocessing.get_context(start).Event()
    loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=persistent,
                        multiprocessing_context=start, worker_init_fn=Waiting(begins))
    samples = iter(loader)
    dataset.set_epoch(1)
    begins.set()
    assert list(samples) == of_epoch(objects, 0)
    assert list(loader) == of_epoch(objects, 1)
    samples = iter(dataset)
    dataset.set_epoch(2)
    assert list(samples) == of_epoch(objects, 1) and list(dataset) == of_epoch(objects, 2)


class Waiting:
    """What a worker waits for before it begins."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def __call__(self, worker: int) -> None:
        assert self.event.wait(WAIT_SECONDS_MAX)


@BOTH
def test_dropping_everything_is_an_error(served: Origin, make: Maker) -> None:
    dataset = make(shard=(0, 13), drop_uneven=True)
    with pytest.raises(ValueError, match="for 13 processes and workers"):
        iter(dataset)
    dataset = make(shard=(0, 4), drop_uneven=True)
    loader = DataLoader(dataset, batch_size=None, num_workers=4)
    with pytest.raises(ValueError, match="for 16 processes and workers"):
        list(loader)
    sampler = ShardSampler(range(3), shard=(0, 4), drop_uneven=True)
    for ask in (len, iter):
        with pytest.raises(ValueError, match="there are 3 for 4"):
            ask(sampler)
    with pytest.warns(UserWarning, match="the shard 12/13 of this process is empty"):
        assert list(make(shard=(12, 13))) == []


@BOTH
def test_a_stream_has_no_length(served: Origin, make: Maker) -> None:
    # It depends on workers and batches: with two workers there are 4 batches of 5, and not 3.
    loader = DataLoader(make(), batch_size=5, num_workers=2)
    with pytest.raises(TypeError, match="has no len"):
        len(loader)


def test_there_is_a_source(served: Origin) -> None:
    for make in (ObjectDataset, StreamDataset, TarDataset):
        for nothing in ([], ()):
            with pytest.raises(ValueError, match="there are no sources"):
                make(nothing)
        with pytest.raises(FileNotFoundError, match="for a folder, add a slash: s3://data/train/"):
            make("s3://data/train")


def refuse_some(sample: dict[str, Any]) -> str:
    """A transform that fails."""
    if name(sample)[-8:-4] == "0005" or name(sample) == "001-002":
        raise RuntimeError("cannot decode")
    return name(sample)


@BOTH
@pytest.mark.parametrize("workers", [0, 2])
def test_behind_a_sample_that_fails_comes_the_next(served: Origin, make: Maker,
                                                   workers: int) -> None:
    dataset = make(transform=refuse_some)
    found, errors, is_over = walk(iter(DataLoader(dataset, batch_size=None, num_workers=workers)))
    assert (len(set(found)), len(errors), is_over) == (11, 1, True)
    assert "cannot decode" in str(errors[0])
    skipping = make(transform=refuse_some, on_error=lambda error: isinstance(error, RuntimeError))
    assert list(skipping) == sorted(found)


def test_a_state_stands_at_what_failed(served: Origin) -> None:
    dataset = objects(transform=refuse_some)
    samples = iter(dataset)
    with pytest.raises(RuntimeError):
        list(samples)
    resumed = objects(transform=name)
    resumed.load_state_dict(dataset.state_dict())
    assert next(iter(resumed)).endswith("0005.bin")


def test_a_handler_decides(served: Origin) -> None:
    seen: list[Exception] = []

    def handler(error: Exception) -> bool:
        seen.append(error)
        return False

    dataset = objects(on_error=handler)
    dataset.listing.push("s3://data/train/none", 5, None)
    with pytest.raises(inrush.NotFound) as raised:
        list(dataset)
    assert seen == [raised.value]


def test_a_transform_cannot_end_a_pass(served: Origin) -> None:
    def stop(sample: dict[str, Any]) -> Any:
        raise StopIteration

    for make in (objects, samples_of_tars):
        with pytest.raises(RuntimeError, match="the transform raised StopIteration"):
            list(make(transform=stop))
    with pytest.raises(RuntimeError, match="the transform raised StopIteration"):
        ObjectDataset("s3://data/train/", transform=stop)[0]


def test_an_interrupt_loses_no_sample(served: Origin) -> None:
    struck = []

    def once(sample: dict[str, Any]) -> str:
        if not struck:
            struck.append(sample)
            raise KeyboardInterrupt
        return name(sample)

    for make in (objects, samples_of_tars):
        struck.clear()
        samples = iter(make(transform=once))
        with pytest.raises(KeyboardInterrupt):
            next(samples)
        assert list(samples) == [name(sample) for sample in make()]


def test_a_tar_that_is_damaged_fails_until_it_is_left_out(serve: Serve) -> None:
    contents = tars(3, 3)
    contents["data/tars/001.tar"] = contents["data/tars/001.tar"][:1200]
    serve(contents)
    found, errors, is_over = walk(iter(samples_of_tars(transform=name)))
    assert (found, is_over) == ([f"000-00{at}" for at in range(3)], False)
    assert len(errors) > 20 and all(isinstance(error, tarfile.ReadError) for error in errors)
    skipped: list[Exception] = []
    skipping = samples_of_tars(transform=name,
                               on_error=lambda error: skipped.append(error) is None)
    assert list(skipping) == [f"00{tar}-00{at}" for tar in (0, 2) for at in range(3)]
    assert [type(error) for error in skipped] == [tarfile.ReadError]


def test_a_state_in_a_tar_that_was_replaced_is_refused(serve: Serve) -> None:
    serve(tars(2, 3))
    dataset = samples_of_tars(transform=name)
    samples = iter(dataset)
    assert next(samples) == "000-000"
    state = json.loads(json.dumps(dataset.state_dict()))
    same = samples_of_tars(transform=name)
    same.load_state_dict(state)
    assert list(same)[0] == "000-001"
    other = tar_of({f"000-{at:03}.txt": b"other" for at in range(3)})
    for replaced in ({"data/tars/000.tar": other}, {"data/tars/000.tar": other + bytes(1024)}):
        serve(tars(2, 3) | replaced)
        resumed = samples_of_tars(transform=name, on_error=lambda error: True)
        resumed.load_state_dict(state)
        with pytest.raises(ValueError, match="the state is of another s3://data/tars/000.tar"):
            list(resumed)
    # Between two tars it does not matter what was read.
    begin = iter(samples_of_tars()).state_dict()
    resumed.load_state_dict(begin)
    assert len(list(resumed)) == 6


def test_a_state_of_another_sampler_is_refused(served: Origin) -> None:
    dataset = ObjectDataset("s3://data/train/")
    pass_ = iter(ShardSampler(dataset, shuffle_seed=1, shard=(0, 2)))
    first = next(pass_)
    state = json.loads(json.dumps(pass_.state_dict()))
    again = iter(ShardSampler(dataset, shuffle_seed=1, shard=(0, 2)))
    again.load_state_dict(state)
    assert [first, *again] == list(ShardSampler(dataset, shuffle_seed=1, shard=(0, 2)))
    other = ObjectDataset([f"s3://data/train/{at:04}.bin" for at in reversed(range(12))])
    for sampler, what in [(ShardSampler(dataset, shuffle_seed=2, shard=(0, 2)), "seed"),
                          (ShardSampler(dataset, shuffle_seed=1, shard=(1, 2)), "shard"),
                          (ShardSampler(other, shuffle_seed=1, shard=(0, 2)), "listing")]:
        with pytest.raises(ValueError, match=f"another sampler: its {what} is"):
            iter(sampler).load_state_dict(state)


class Wrapping(IterableDataset[Any]):  # type: ignore[misc,unused-ignore]
    """A data set that has another one inside, under a name of its own."""

    def __init__(self, inner: Any) -> None:
        self.inner = [inner]

    def __iter__(self) -> Iterator[Any]:
        yield from self.inner[0]


#: As the loaders of accelerate; one over a `StatefulDataLoader` begins a pass when it is made, and
#: goes on with that.
LOADERS = """
class Loader:
    def __init__(self, loader, stateful=False):
        self.loader = loader
        self.begun = iter(loader) if stateful else None

    def __iter__(self):
        yield from self.loader if self.begun is None else self.begun
"""


def test_what_accelerate_divides_again_is_refused(
        served: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate.state", SimpleNamespace(
        is_initialized=lambda: True, PartialState=lambda: SimpleNamespace(num_processes=2)))
    names: dict[str, Any] = {"__name__": "accelerate.data_loader"}
    exec(LOADERS, names)
    prepared = names["Loader"]

    def is_refused(loader: Any, what: str) -> None:
        for stateful in (False, True):
            with pytest.raises(ValueError, match=f"accelerate divides what this {what}"):
                list(prepared(loader, stateful))

    for make in (objects, samples_of_tars):
        dataset = make(shard=(0, 2), transform=name)
        for one in (dataset, Wrapping(dataset), Wrapping(Wrapping(dataset))):
            # Workers that are spawned get it pickled, before they are started.
            for options in ({}, {"num_workers": 1, "multiprocessing_context": "fork"},
                            {"num_workers": 1, "multiprocessing_context": "spawn"}):
                is_refused(DataLoader(one, batch_size=None, **options), type(dataset).__name__)
        everything = DataLoader(make(shard=(0, 1), transform=name), batch_size=None)
        assert len(list(prepared(everything))) == 12
        # Another loader than that which is prepared, between two of its batches.
        for _ in prepared(everything):
            assert len(list(DataLoader(dataset, batch_size=None))) == 6
            break
    numbers = ObjectDataset("s3://data/train/", transform=name)
    loader = DataLoader(numbers, sampler=ShardSampler(numbers, shard=(0, 2)), batch_size=3)
    assert len(list(loader)) == 2
    is_refused(loader, "ShardSampler")
