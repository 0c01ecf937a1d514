"""Data sets of PyTorch: every sample once in each epoch, whatever the workers are."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from common import engines
from conftest import Origin, require, small_objects, tar_of, tars

torch = require("torch")

from torch.utils.data import DataLoader  # noqa: E402

import inrush  # noqa: E402
from inrush import _stream  # noqa: E402
from inrush.sharding import Order, Shard  # noqa: E402
from inrush.torch import (ObjectDataset, ShardSampler, StreamDataset,  # noqa: E402
                          TarDataset, rank_shard)

COUNT = 61
RANKS, WORKERS = 2, 4

Serve = Callable[..., Origin]


def same(batch: list[Any]) -> list[Any]:
    """Batches are lists of samples."""
    return batch


def uris(batches: Iterable[Any]) -> list[str]:
    """The addresses of all samples."""
    return [sample["uri"] for batch in batches for sample in batch]


def keys(batches: Iterable[Any]) -> list[str]:
    """The keys of all samples of tars."""
    return [sample["__key__"] for batch in batches for sample in batch]


def pair(sample: dict[str, Any]) -> tuple[str, int]:
    """A transform that spawned workers can import."""
    return sample["uri"], len(sample["data"])


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_three_epochs_have_every_object_once(serve: Serve, start: str) -> None:
    objects = small_objects(COUNT)
    # A fork server has the environment of its first test.
    client = serve(objects).client()
    expected = {f"s3://{path}": data for path, data in objects.items()}
    names = sorted(expected)
    sets = [StreamDataset("s3://data/train/", shuffle_seed=42, shard=(rank, RANKS), client=client)
            for rank in range(RANKS)]
    loaders = [DataLoader(one, batch_size=1, num_workers=WORKERS, collate_fn=same,
                          multiprocessing_context=start, persistent_workers=True)
               for one in sets]
    orders = []
    for epoch in range(3):
        seen = []
        for rank, (dataset, loader) in enumerate(zip(sets, loaders, strict=True)):
            dataset.set_epoch(epoch)
            samples = [sample for batch in loader for sample in batch]
            assert all(sample["data"] == expected[sample["uri"]] for sample in samples)
            # In turns the workers have the order of the command's shard.
            order = Order(COUNT, seed=42, epoch=epoch, shard=Shard(rank, RANKS))
            assert [sample["uri"] for sample in samples] == [names[at] for at in order]
            seen += [sample["uri"] for sample in samples]
        assert sorted(seen) == names
        orders.append(seen)
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 8])
def test_any_number_of_workers_has_every_object_once(serve: Serve, workers: int) -> None:
    serve(small_objects(COUNT))
    dataset = StreamDataset("s3://data/train/", shuffle_seed=1)
    loader = DataLoader(dataset, batch_size=5, num_workers=workers, collate_fn=same)
    for epoch in range(3):
        dataset.set_epoch(epoch)
        assert sorted(uris(loader)) == sorted(f"s3://{path}" for path in small_objects(COUNT))


@pytest.mark.parametrize("start", ["fork", "forkserver"])
def test_three_epochs_have_every_sample_of_tars_once(serve: Serve, start: str) -> None:
    client = serve(tars(17, 5) | {"data/tars/README": b"no tar"}).client()
    expected = sorted(f"{at:03}-{sample:03}" for at in range(17) for sample in range(5))
    sets = [TarDataset("s3://data/tars/", shuffle_seed=3, shard=(rank, RANKS), client=client)
            for rank in range(RANKS)]
    assert [len(one.listing) for one in sets] == [17, 17]
    loaders = [DataLoader(one, batch_size=2, num_workers=WORKERS, collate_fn=same,
                          multiprocessing_context=start, persistent_workers=True)
               for one in sets]
    for epoch in range(3):
        seen = []
        for dataset, loader in zip(sets, loaders, strict=True):
            dataset.set_epoch(epoch)
            for batch in loader:
                for sample in batch:
                    tar, number = map(int, sample["__key__"].split("-"))
                    assert sample["txt"] == f"text {tar} {number}".encode() * (number + 1)
                    assert sample["cls"] == str(number).encode()
                    assert sample["__url__"] == f"s3://data/tars/{tar:03}.tar"
                    seen.append(sample["__key__"])
        assert sorted(seen) == expected


@pytest.mark.parametrize("kind", ["objects", "tars"])
@pytest.mark.parametrize("workers", [0, 4])
def test_a_stateful_loader_goes_on_where_it_stopped(serve: Serve, kind: str, workers: int) -> None:
    stateful = require("torchdata.stateful_dataloader")
    serve(small_objects(COUNT) | tars(13, 7))

    def loader(rank: int) -> tuple[Any, Any]:
        make, source = (StreamDataset, "s3://data/train/") if kind == "objects" \
            else (TarDataset, "s3://data/tars/")
        dataset = make(source, shuffle_seed=42, shard=(rank, RANKS))
        return dataset, stateful.StatefulDataLoader(
            dataset, batch_size=3, num_workers=workers, collate_fn=same)

    names_of = uris if kind == "objects" else keys
    everything = sorted(f"s3://{path}" for path in small_objects(COUNT)) if kind == "objects" \
        else sorted(f"{at:03}-{sample:03}" for at in range(13) for sample in range(7))
    for epoch in range(3):
        seen = []
        for rank in range(RANKS):
            whole_set, whole = loader(rank)
            whole_set.set_epoch(epoch)
            uninterrupted = names_of(whole)
            first_set, first = loader(rank)
            first_set.set_epoch(epoch)
            batches = iter(first)
            before = names_of([next(batches) for _ in range(4 + epoch)])
            state = pickle.loads(pickle.dumps(first.state_dict()))
            # What is read on afterwards does not count.
            next(batches)
            del batches, first, first_set
            _, second = loader(rank)
            second.load_state_dict(state)
            after = names_of(second)
            assert before + after == uninterrupted
            seen += before + after
        assert sorted(seen) == everything


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_by_number_go_on_where_they_stopped(serve: Serve, workers: int) -> None:
    stateful = require("torchdata.stateful_dataloader")
    objects = small_objects(COUNT)
    serve(objects)
    dataset = ObjectDataset("s3://data/train/")
    names = [f"s3://{path}" for path in sorted(objects)]
    seen = []
    for rank in range(RANKS):
        def loader() -> tuple[Any, Any]:
            sampler = ShardSampler(dataset, shuffle_seed=8, shard=(rank, RANKS))
            return sampler, stateful.StatefulDataLoader(
                dataset, sampler=sampler, batch_size=4, num_workers=workers, collate_fn=same)

        sampler, first = loader()
        sampler.set_epoch(2)
        batches = iter(first)
        before = uris([next(batches) for _ in range(3)])
        state = first.state_dict()
        next(batches)
        sampler, second = loader()
        second.load_state_dict(state)
        after = uris(second)
        order = Order(COUNT, seed=8, epoch=2, shard=Shard(rank, RANKS))
        assert before + after == [names[at] for at in order]
        assert sampler.epoch == 2 and len(sampler) == len(order)
        seen += before + after
    assert sorted(seen) == names


def test_a_state_of_another_stream_is_refused(serve: Serve) -> None:
    origin = serve(small_objects(9))
    one = StreamDataset("s3://data/train/", shuffle_seed=1)
    samples = iter(one)
    first = [next(samples)["uri"] for _ in range(4)]
    state = json.loads(json.dumps(one.state_dict()))
    again = StreamDataset("s3://data/train/", shuffle_seed=1)
    again.load_state_dict(state)
    assert again.state_dict() == state
    rest = [sample["uri"] for sample in again]
    assert sorted(first + rest) == sorted(f"s3://{path}" for path in small_objects(9))
    assert len(list(again)) == 9, "the pass after it is whole"
    for other, what in [(StreamDataset("s3://data/train/", shuffle_seed=2), "seed"),
                        (StreamDataset("s3://data/train/", shuffle_seed=1, shard=(0, 2)), "shard"),
                        (StreamDataset("s3://data/train/0003.bin", shuffle_seed=1), "objects"),
                        (TarDataset("s3://data/train/", suffix="", shuffle_seed=1), "kind")]:
        with pytest.raises(ValueError, match=f"its {what} is"):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match="version"):
        one.load_state_dict({})
    del origin


def test_objects_by_number(serve: Serve) -> None:
    objects = small_objects(20)
    serve(objects)
    dataset = ObjectDataset("s3://data/train/", transform=pair)
    names = sorted(objects)
    assert len(dataset) == 20
    assert dataset[3] == (f"s3://{names[3]}", len(objects[names[3]]))
    assert dataset[-1][0] == f"s3://{names[-1]}"
    for bad in (20, -21):
        with pytest.raises(IndexError):
            dataset[bad]
    loader = DataLoader(dataset, batch_size=6, num_workers=3, collate_fn=same,
                        multiprocessing_context="spawn")
    assert [name for batch in loader for name, _ in batch] == [f"s3://{name}" for name in names]


def test_manifests_and_lists_have_their_own_order(serve: Serve, tmp_path: Path) -> None:
    manifest = json.dumps([{"prefix": "s3://data/tr"}, "ain/0003.bin", "ain/0001.bin",
                           "ain/0003.bin"]).encode()
    origin = serve(small_objects(5) | {"data/list.json": manifest})
    expected = [f"s3://data/train/{number:04}.bin" for number in (3, 1, 3)]
    (tmp_path / "list").write_bytes(b"\xef\xbb\xbf" + manifest)
    for place in ("s3://data/list.json", str(tmp_path / "list")):
        assert [sample["uri"] for sample in StreamDataset(manifest=place)] == expected
        assert ObjectDataset(manifest=place)[1]["data"] == small_objects(5)["data/train/0001.bin"]
    client = origin.client()
    infos = list(client.list("s3://data/train/"))
    listed = StreamDataset([infos[2], "s3://data/train/0000.bin"])
    assert [sample["uri"][-8:] for sample in listed] == ["0002.bin", "0000.bin"]
    for bad in (b"[]", b"{}", b"[1]", b'[{"prefix": "s3://data/"}]', b'[{"prefix": "data/"}, "a"]',
                b'[{"prefix": "s3://data/"}, 1]', b"\xff"):
        (tmp_path / "list").write_bytes(bad)
        with pytest.raises(ValueError):
            StreamDataset(manifest=str(tmp_path / "list"))
    with pytest.raises(FileNotFoundError):
        StreamDataset("s3://data/nothing/")


def test_damaged_tars_are_errors(serve: Serve) -> None:
    import gzip
    import tarfile

    whole = tar_of({"a.x": b"1" * 600, "a.y": b"2", "b.x": b"3" * 512, "é" * 90 + ".x": b"4"})
    damaged = bytearray(whole)
    damaged[1536 + 20] ^= 0xFF
    serve({"data/whole.tar": whole, "data/damaged.tar": bytes(damaged), "data/end.tar": whole[:800],
           "data/twice.tar": tar_of({"a.x": b"1"})[:1024] + tar_of({"a.x": b"1"}),
           "data/no.tar": b"no tar" * 200, "data/some.tar.gz": gzip.compress(whole),
           "data/end.tar.gz": gzip.compress(whole)[:150],
           "data/checksum.tar.gz": gzip.compress(whole)[:-4]})
    for name in ("whole.tar", "some.tar.gz"):
        dataset = TarDataset(f"s3://data/{name}")
        passes = [list(dataset), []]
        # From every place on, with the state of that place.
        for stop in range(4):
            samples, resumed = iter(dataset), TarDataset(f"s3://data/{name}")
            begin = [next(samples) for _ in range(stop)]
            resumed.load_state_dict(dataset.state_dict())
            assert begin + list(resumed) == passes[0]
        assert [sorted(sample) for sample in passes[0]] == \
            [["__key__", "__url__", "x", "y"]] + [["__key__", "__url__", "x"]] * 2
    for name, kind in [("damaged.tar", tarfile.ReadError), ("end.tar", tarfile.ReadError),
                       ("twice.tar", ValueError), ("no.tar", tarfile.ReadError),
                       ("end.tar.gz", tarfile.ReadError),
                       ("checksum.tar.gz", tarfile.ReadError)]:
        with pytest.raises(kind, match=f"s3://data/{name}: "):
            list(TarDataset(f"s3://data/{name}"))


def test_uneven_ends_are_dropped(serve: Serve) -> None:
    serve(small_objects(10))
    sets = [StreamDataset("s3://data/train/", shuffle_seed=5, shard=(rank, 4), drop_uneven=True)
            for rank in range(4)]
    assert [len(list(one)) for one in sets] == [2] * 4


@pytest.mark.parametrize(("chosen", "kind"), [
    (_stream.of_this_process, ()), (_stream.on_this_host, ("host",))])
def test_each_worker_has_its_share_of_the_host(
        chosen: Any, kind: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    client = inrush.Client(endpoint_url="http://127.0.0.1:1")
    assert chosen(client) is client
    assert chosen(client, 3, 4).options == {**client.options, "share": (*kind, 3, 4)}
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert chosen(client, 3, 4).options["share"] == (*kind, 7, 8)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_share_the_engine_of_the_host(serve: Serve, method: str) -> None:
    objects = small_objects(200)
    origin = serve(objects)
    dataset = StreamDataset("s3://data/train/", client=origin.client(), shuffle_seed=1)
    loader = DataLoader(dataset, batch_size=None, num_workers=4, multiprocessing_context=method)
    found, most = {}, 0
    for sample in loader:
        found[sample["uri"][5:]] = sample["data"]
        most = max(most, len(engines(origin.endpoint)))
    assert found == objects and most == 1


def test_a_client_with_a_part_of_the_host_shares_no_engine() -> None:
    client = inrush.Client(endpoint_url="http://127.0.0.1:1", share=(0, 1))
    assert _stream.on_this_host(client, 1, 2).options["share"] == (1, 2)


def test_the_rank_is_that_of_the_launcher_or_of_the_group(
        serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    serve(small_objects(9))
    assert rank_shard() == Shard(0, 1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert rank_shard() == Shard(1, 3)
    dataset, unread = (StreamDataset("s3://data/train/") for _ in range(2))
    assert [sample["uri"][-8:-4] for sample in dataset] == ["0001", "0004", "0007"]
    if not torch.distributed.is_available():
        pytest.skip("torch.distributed is not there")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0,
                                         world_size=1)
    try:
        # The data set was made before; the group says more than the variables.
        # Also a worker, of a data set that this process has never read.
        for one in (unread, dataset):
            loader = DataLoader(one, batch_size=2, num_workers=2, collate_fn=same,
                                multiprocessing_context="fork")
            assert len(uris(loader)) == 9
        assert len(list(dataset)) == 9
    finally:
        torch.distributed.destroy_process_group()


def test_an_object_that_cannot_be_read_is_an_error_of_the_loader(serve: Serve) -> None:
    serve(small_objects(6))
    sources = ["s3://data/train/0000.bin", "s3://data/train/0001.bin"]
    dataset = StreamDataset(sources)
    dataset.listing.push("s3://data/train/none.bin", 5, None)
    seen = []
    with pytest.raises(FileNotFoundError):
        for sample in dataset:
            seen.append(sample["uri"])
    assert seen == sources
    # The pass stands where it failed.
    assert dataset.state_dict()["place"] == 2


@pytest.mark.parametrize("kind", ["objects", "numbers"])
def test_an_error_of_a_worker_has_its_object(serve: Serve, kind: str) -> None:
    serve(small_objects(2))
    dataset = StreamDataset("s3://data/train/") if kind == "objects" else \
        ObjectDataset("s3://data/train/")
    dataset.listing.push("s3://data/train/no ne: x.bin", 5, None)
    loader = DataLoader(dataset, batch_size=1, num_workers=1, collate_fn=same)
    with pytest.raises(inrush.NotFound, match="s3://data/train/no ne: x.bin") as caught:
        list(loader)
    error = caught.value
    assert (error.uri, error.bucket) == ("s3://data/train/no ne: x.bin", "data")
    assert (error.key, error.filename) == ("train/no ne: x.bin", error.uri)
    assert error.attempts and error.request_id
