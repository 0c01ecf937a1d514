"""What map-style data sets read ahead: before they are asked, bounded, and never something else."""

from __future__ import annotations

import copy
import itertools
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from common import WAIT_SECONDS_MAX, Answers
from conftest import Origin, require, small_objects

torch = require("torch")

from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler  # noqa: E402

import inrush  # noqa: E402
from inrush import _ahead  # noqa: E402
from inrush.sharding import Order, Shard  # noqa: E402
from inrush.torch import ObjectDataset, ShardSampler  # noqa: E402

Serve = Callable[..., Origin]
COUNT = 61
OBJECTS = small_objects(COUNT)
NAMES = [f"s3://{path}" for path in sorted(OBJECTS)]


def same(batch: list[Any]) -> list[Any]:
    """Batches are lists of samples."""
    return batch


def numbers(samples: Sequence[Any]) -> list[int]:
    """The numbers of samples that have what their objects have."""
    for sample in samples:
        assert sample["data"] == OBJECTS[sample["uri"].removeprefix("s3://")]
    return [NAMES.index(sample["uri"]) for sample in samples]


class Gate:
    """A server of objects of one byte. It answers one of them when another was requested, too."""

    def __init__(self, count: int) -> None:
        #: Of an object, the one that has to be requested before it is answered.
        self.after: dict[int, int] = {}
        #: What was requested, in this order; and what was answered without the other.
        self.asked: list[int] = []
        self.alone: list[int] = []
        self._changed = threading.Condition()
        self._server = Answers(self.answer)
        self.infos = [inrush.ObjectInfo(f"s3://data/{at}", 1, '"e"') for at in range(count)]
        self.client = inrush.Client(endpoint_url=self._server.endpoint, no_sign_request=True,
                                    region="us-east-1")

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        number = int(request.path.rpartition("/")[2]) if request.command == "GET" else 0
        if request.command == "GET":
            with self._changed:
                self.asked.append(number)
                self._changed.notify_all()
                wanted = self.after.get(number, number)
                if not self._changed.wait_for(lambda: wanted in self.asked, WAIT_SECONDS_MAX / 4):
                    self.alone.append(number)
        request.send_response(206 if request.command == "GET" else 200)
        request.send_header("Content-Length", "1")
        request.send_header("Content-Range", "bytes 0-0/1")
        request.send_header("ETag", '"e"')
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(bytes([number]))

    def dataset(self, **options: Any) -> Any:
        """All its objects."""
        return ObjectDataset(self.infos, client=self.client, **options)

    def close(self) -> None:
        self.client.close()
        self._server.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    server = Gate(24)
    yield server
    server.close()


def content(sample: dict[str, Any]) -> int:
    """A transform: the number that an object of a gate has."""
    return int(sample["data"][0])


@pytest.mark.parametrize("sampler, workers, prefetch", [
    ("shard", 0, None), ("shard", 1, 2), ("shard", 2, 2), ("other", 1, 2), ("other", 2, 3)])
def test_the_next_batch_is_requested_while_one_is_waited_for(
        gate: Gate, sampler: str, workers: int, prefetch: int | None) -> None:
    dataset = gate.dataset(transform=content)
    order = list(Order(24, seed=7)) if sampler == "shard" else list(reversed(range(24)))
    # The next batch of the same worker.
    ahead = 2 * max(workers, 1)
    gate.after = dict(zip(order, order[ahead:], strict=False))
    loader = DataLoader(dataset, batch_size=2, num_workers=workers, prefetch_factor=prefetch,
                        sampler=ShardSampler(dataset, shuffle_seed=7) if sampler == "shard"
                        else order, collate_fn=same)
    assert [number for batch in loader for number in batch] == order
    assert gate.alone == [], gate.asked
    assert sorted(gate.asked) == sorted(order)


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_epochs_of_persistent_workers(serve: Serve, start: str) -> None:
    dataset = ObjectDataset("s3://data/train/", client=serve(OBJECTS).client())
    sampler = ShardSampler(dataset, shuffle_seed=3, shard=(1, 2))
    loader = DataLoader(dataset, sampler=sampler, batch_size=3, num_workers=2, collate_fn=same,
                        multiprocessing_context=start, persistent_workers=True)
    for epoch in (0, 1, 1, 2):
        sampler.set_epoch(epoch)
        # A pass that is left before its end, and a whole one.
        for most in (epoch + 1, COUNT):
            batches = list(itertools.islice(iter(loader), most))
            order = list(Order(COUNT, seed=3, epoch=epoch, shard=Shard(1, 2)))
            assert [numbers(batch) for batch in batches] == \
                [order[at:at + 3] for at in range(0, len(order), 3)][:most]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("length", [None, 1, 4, 40])
def test_batches_of_any_length(serve: Serve, workers: int, length: int | None) -> None:
    serve(OBJECTS)
    dataset = ObjectDataset("s3://data/train/")
    for sampler, order in ((ShardSampler(dataset, shuffle_seed=5), list(Order(COUNT, seed=5))),
                           (SequentialSampler(dataset), list(range(COUNT)))):
        loader = DataLoader(dataset, sampler=sampler, batch_size=length, num_workers=workers,
                            prefetch_factor=3 if workers else None,
                            collate_fn=None if length is None else same)
        found = list(loader) if length is None else [one for batch in loader for one in batch]
        assert numbers(found) == order


def test_passes_at_the_same_time(serve: Serve) -> None:
    serve(OBJECTS)
    dataset = ObjectDataset("s3://data/train/")

    def loader(seed: int, workers: int = 0) -> Any:
        sampler = ShardSampler(dataset, shuffle_seed=seed)
        return DataLoader(dataset, sampler=sampler, batch_size=4, num_workers=workers,
                          collate_fn=same)

    orders = [list(Order(COUNT, seed=seed)) for seed in (1, 2)]
    one, two, twin = loader(1), loader(2), loader(1)
    found: list[list[int]] = [[], [], [], []]
    # Workers are forked in the middle of a pass.
    for batches in zip(one, two, twin, loader(2, 2), strict=True):
        for seen, batch in zip(found, batches, strict=True):
            seen += numbers(batch)
        assert numbers(list(copy.deepcopy(dataset).__getitems__([5, 0]))) == [5, 0]
    assert found == [orders[0], orders[1], orders[0], orders[1]]


def test_what_was_read_ahead_is_gone_with_its_iterator(gate: Gate) -> None:
    dataset = gate.dataset(transform=content)
    sampler = ShardSampler(dataset)
    batches = iter(DataLoader(dataset, sampler=sampler, batch_size=2, collate_fn=same))
    assert next(batches) == [0, 1] and len(dataset._reads._of_pass) == 1
    # These are not answered any more: nobody waits for them.
    gate.after = dict.fromkeys(range(4, 24), -1)
    assert next(batches) == [2, 3]
    del batches
    assert len(dataset._reads._of_pass) == 0
    gate.after = {}
    assert len(list(DataLoader(dataset, sampler=sampler, batch_size=2))) == 12


def test_an_order_of_its_own_has_little_read_in_vain(gate: Gate) -> None:
    dataset = gate.dataset(transform=content)
    placed = list(ShardSampler(dataset))
    batches = [placed[at:at + 2] for at in (6, 20, 2, 14, 16, 10, 22, 4, 0, 8, 18, 12)]
    gaps = [placed[at:24:8] for at in range(8)]
    for order in (batches, gaps, [[*reversed(batch)] for batch in batches]):
        gate.asked.clear()
        loader = DataLoader(dataset, batch_sampler=order, collate_fn=same)
        assert list(loader) == [[int(number) for number in batch] for batch in order]
        # A batch behind the first one, and one where the beginning came.
        assert len(gate.asked) <= 24 + 4
    # The guess behind the first of these is given up with the second one.
    assert len(list(DataLoader(dataset, batch_sampler=[placed[0:2], placed[10:12]]))) == 2
    (_, reads), = dataset._reads._of_pass.values()
    assert reads._reads == {}


@pytest.mark.parametrize("sampler", ["shard", "other"])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_is_that_of_its_batch(serve: Serve, sampler: str, workers: int) -> None:
    serve(OBJECTS)
    dataset = ObjectDataset("s3://data/train/")
    dataset.listing.push("s3://data/train/none", 5, None)
    order = list(Order(COUNT + 1, seed=4))
    loader = DataLoader(dataset, batch_size=4, num_workers=workers, collate_fn=same,
                        prefetch_factor=4 if workers else None,
                        sampler=ShardSampler(dataset, shuffle_seed=4) if sampler == "shard"
                        else order)
    batches, found = iter(loader), []
    failed = order.index(COUNT) // 4
    for at in range(len(loader)):
        if at == failed:
            with pytest.raises(inrush.NotFound, match="s3://data/train/none"):
                next(batches)
        else:
            found += numbers(next(batches))
    assert next(batches, None) is None
    assert found == order[:failed * 4] + order[failed * 4 + 4:]


def test_what_is_ahead_is_bounded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    class Everything:
        descriptor = None

        def numbers(self, behind: int) -> list[int]:
            return list(range(1 + behind, 24))

    listing = gate.dataset().listing
    for name, most in (("AHEAD_BYTES_MAX", 12), ("AHEAD_OBJECTS_MAX", 15)):
        with monkeypatch.context() as patch:
            patch.setattr(_ahead, name, most)
            reads = _ahead._Reads(gate.client, listing)
            assert reads.read([0], Everything(), 3) == [b"\0"]
            assert [number for number, _ in reads._ahead] == list(range(1, 1 + most // 3))
            assert len(reads._reads) == most // 3


def test_sizes_that_are_not_known(serve: Serve, tmp_path: Path) -> None:
    serve(OBJECTS)
    entries = [name.removeprefix("s3://data/") for name in NAMES]
    (tmp_path / "manifest").write_text(json.dumps([{"prefix": "s3://data/"}, *entries]))
    dataset = ObjectDataset(manifest=str(tmp_path / "manifest"))
    for workers in (0, 2):
        loader = DataLoader(dataset, sampler=ShardSampler(dataset, shuffle_seed=9), batch_size=4,
                            num_workers=workers, collate_fn=same)
        assert [number for batch in loader for number in numbers(batch)] == \
            list(Order(COUNT, seed=9))


class Around(Dataset[Any]):  # type: ignore[misc,unused-ignore]
    """A data set that asks for one object after the other."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        return self.inner[index]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_around_it(gate: Gate, workers: int) -> None:
    dataset = gate.dataset(transform=content)
    loader = DataLoader(Around(dataset), sampler=ShardSampler(dataset, shuffle_seed=7),
                        batch_size=3, num_workers=workers, collate_fn=same)
    assert [number for batch in loader for number in batch] == list(Order(24, seed=7))
    # Each worker guesses once that the other one has the second object.
    assert len(gate.asked) <= 24 + workers


def test_how_many_batches_are_expected() -> None:
    turns, of = _ahead._Turns(), _ahead.SamplerPass(range(100))

    def behind(place: int, waited: bool = True) -> list[int]:
        turns.begin(_ahead.placed(place, place, of), 2, 3, waited)
        found: list[int] = []
        while some := turns.numbers(len(found)):
            found += some
        return found

    assert behind(0) == [6, 7]
    assert behind(6) == [12, 13, 18, 19]
    assert behind(12, waited=False) == [18, 19, 24, 25]
    assert behind(18) == [24, 25, 30, 31, 36, 37, 42, 43]
    # Another stride counts when it comes twice, and if other workers have their batches between.
    assert behind(26) == [] and behind(34) == [42, 43] and behind(42) == [50, 51, 58, 59]
    assert behind(43) == [] and behind(44) == [] and behind(91) == []
    assert behind(97) == [] and behind(2) == [8, 9]
    turns = _ahead._Turns()
    assert behind(93) == [99]


def test_a_process_that_is_forked_within_a_pass(serve: Serve) -> None:
    client = serve(OBJECTS).client()
    dataset = ObjectDataset("s3://data/train/", client=client)
    sampler = ShardSampler(dataset, shuffle_seed=1)
    batches = iter(DataLoader(dataset, sampler=sampler, batch_size=4, collate_fn=same))
    order = list(Order(COUNT, seed=1))
    assert numbers(next(batches)) + numbers(next(batches)) == order[:8]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int([at for batch in batches for at in numbers(batch)] != order[8:])
            client.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [at for batch in batches for at in numbers(batch)] == order[8:]


def test_a_sampler_of_a_longer_data_set(serve: Serve) -> None:
    serve(OBJECTS)
    dataset = ObjectDataset("s3://data/train/")
    batches = iter(DataLoader(ObjectDataset(NAMES[:8]), sampler=ShardSampler(dataset),
                              batch_size=4, collate_fn=same))
    assert [numbers(next(batches)), numbers(next(batches))] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(IndexError, match="object 8 of 8"):
        next(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_objects_that_come_again(serve: Serve, workers: int) -> None:
    serve(OBJECTS)
    dataset = ObjectDataset("s3://data/train/")
    drawn = list(RandomSampler(range(9), replacement=True, num_samples=90))
    loader = DataLoader(dataset, sampler=drawn, batch_size=6, num_workers=workers,
                        prefetch_factor=4 if workers else None, collate_fn=same)
    assert [number for batch in loader for number in numbers(batch)] == drawn


def test_a_transform_may_read_others(gate: Gate) -> None:
    def mixed(sample: dict[str, Any]) -> int:
        number = content(sample)
        # Of the same data set, which reads on behind that.
        return number if sample["uri"] == dataset.listing.uri(0) else number + 100 * dataset[0]

    dataset = gate.dataset(transform=mixed)
    for sampler in ([*reversed(range(1, 24))], ShardSampler(dataset)):
        gate.asked.clear()
        loader = DataLoader(dataset, sampler=sampler, batch_size=3, num_workers=2, collate_fn=same,
                            prefetch_factor=4)
        assert [number for batch in loader for number in batch] == [int(at) for at in sampler]
        # Object 0 for each of the others; these once.
        assert sorted(number for number in gate.asked if number) == list(range(1, 24))

def test_a_listing_that_is_another(serve: Serve) -> None:
    serve(OBJECTS)
    dataset = ObjectDataset("s3://data/train/")
    loader = DataLoader(dataset, sampler=ShardSampler(dataset), batch_size=4, collate_fn=same)
    batches = iter(loader)
    assert numbers(next(batches)) + numbers(next(batches)) == list(range(8))
    dataset.listing = ObjectDataset(list(reversed(NAMES))).listing
    assert numbers(next(batches)) == [COUNT - 1 - at for at in range(8, 12)]
    dataset.listing.push(NAMES[0], len(OBJECTS["data/train/0000.bin"]), None)
    rest = [number for batch in batches for number in numbers(batch)]
    assert rest == [COUNT - 1 - at for at in range(12, COUNT)]


def test_threads_share_a_pass(serve: Serve) -> None:
    serve(OBJECTS)
    dataset = ObjectDataset("s3://data/train/")
    order = list(ShardSampler(dataset, shuffle_seed=2))
    found: dict[int, list[int]] = {}

    def work(first: int) -> None:
        for at in range(first, COUNT, 12):
            found[at] = numbers(dataset.__getitems__(order[at:at + 3]))

    running = [threading.Thread(target=work, args=(first,)) for first in range(0, 12, 3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert [number for at in sorted(found) for number in found[at]] == list(Order(COUNT, seed=2))


def test_workers_that_see_no_order_read_all(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str) -> int:
        raise OSError(24, "Too many open files")

    serve(OBJECTS)
    monkeypatch.setattr(os, "memfd_create", refused)
    dataset = ObjectDataset("s3://data/train/")
    loader = DataLoader(dataset, sampler=ShardSampler(dataset, shuffle_seed=6), batch_size=4,
                        num_workers=2, collate_fn=same, timeout=WAIT_SECONDS_MAX)
    assert [number for batch in loader for number in numbers(batch)] == list(Order(COUNT, seed=6))


def test_numbers_that_know_their_place_are_numbers(serve: Serve) -> None:
    serve(OBJECTS)
    dataset = ObjectDataset("s3://data/train/")
    for seed in (None, 8):
        sampler = ShardSampler(dataset, shuffle_seed=seed, shard=(1, 3))
        order = list(Order(COUNT, seed=seed, shard=Shard(1, 3)))
        assert list(sampler) == order == pickle.loads(pickle.dumps(list(sampler)))
        assert json.dumps(list(sampler)) == json.dumps(order)
        # Of a pass that is over nothing is known.
        again = pickle.loads(pickle.dumps(next(iter(sampler))))
        assert numbers([dataset[again]]) == order[:1]
    # Other data sets are given what they know.
    assert {type(number) for number in ShardSampler(range(9), shuffle_seed=1)} == {int}
