"""Data sets of tf.data: every object and record once in each epoch."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from conftest import Origin, require, small_objects

tf = require("tensorflow")

from inrush.sharding import Order, Shard  # noqa: E402
from inrush.tensorflow import objects_dataset, records, records_dataset  # noqa: E402

Serve = Callable[..., Origin]


def written(folder: Path, count: int, records_each: int, compression: str = "") -> dict[str, bytes]:
    """Files as TensorFlow writes them."""
    files = {}
    for at in range(count):
        path = folder / f"{at:03}.tfrecord"
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for record in range(records_each):
                writer.write(f"record {at} {record} ".encode() * (record % 5))
                writer.write(f"{at}-{record}".encode())
        files[f"data/records{compression}/{path.name}"] = path.read_bytes()
    return files


def test_three_epochs_of_two_ranks_of_objects(serve: Serve) -> None:
    objects = small_objects(23)
    serve(objects)
    names = sorted(objects)
    sets = [objects_dataset("s3://data/train/", shuffle_seed=7, shard=(rank, 2), epochs=3)
            for rank in range(2)]
    seen = []
    for rank, dataset in enumerate(sets):
        pairs = [(uri.numpy().decode(), data.numpy()) for uri, data in dataset]
        assert all(data == objects[uri[5:]] for uri, data in pairs)
        expected = [names[at] for epoch in range(3)
                    for at in Order(23, seed=7, epoch=epoch, shard=Shard(rank, 2))]
        assert [uri[5:] for uri, _ in pairs] == expected
        seen += expected
    assert sorted(seen) == sorted(names * 3)
    # A job that goes on with its third epoch.
    last = objects_dataset("s3://data/train/", shuffle_seed=7, shard=(0, 2), first_epoch=2)
    assert [uri.numpy().decode()[5:] for uri, _ in last] == \
        [names[at] for at in Order(23, seed=7, epoch=2, shard=Shard(0, 2))]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_records_are_those_of_tensorflow(serve: Serve, tmp_path: Path,
                                         compression: Literal["", "GZIP"]) -> None:
    files = written(tmp_path, 9, 11, compression)
    serve(files)
    paths = sorted(str(path) for path in tmp_path.iterdir())
    theirs = [record.numpy() for record in tf.data.TFRecordDataset(paths, compression)]
    source = f"s3://data/records{compression}/"
    ours = records_dataset(source, compression=compression)
    assert [record.numpy() for record in ours] == theirs
    seen = []
    for rank in range(2):
        dataset = records_dataset(source, compression=compression, shuffle_seed=3, shard=(rank, 2),
                                  epochs=3)
        seen += [record.numpy() for record in dataset.prefetch(2)]
    assert sorted(seen) == sorted(theirs * 3)


def test_damaged_records_are_errors(serve: Serve, tmp_path: Path) -> None:
    whole = next(iter(written(tmp_path, 1, 3).values()))
    assert len(list(records(io.BytesIO(whole), "x"))) == 6
    require("google_crc32c")
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 4
        with pytest.raises(ValueError, match="x: .* byte"):
            list(records(io.BytesIO(bytes(damaged)), "x"))
    ends, at = {0}, 0
    for record in list(records(io.BytesIO(whole), "x")):
        at += 16 + len(record)
        ends.add(at)
    for length in set(range(len(whole))) - ends:
        with pytest.raises(ValueError, match="x: .* byte"):
            list(records(io.BytesIO(whole[:length]), "x"))
    packed = gzip.compress(whole)
    for bad in (packed[:-9], packed[:30], b"no gzip", packed[:40] + b"xxxx" + packed[44:]):
        with pytest.raises(ValueError, match="x: "):
            list(records(io.BytesIO(bad), "x", "GZIP"))
    serve({"data/bad": whole[:-1]})
    with pytest.raises(tf.errors.OpError, match="ends within the record"):
        list(records_dataset("s3://data/bad"))


def test_who_catches_an_error_sees_no_end_behind_it(serve: Serve, tmp_path: Path) -> None:
    serve({"data/bad": next(iter(written(tmp_path, 1, 3).values()))[:-1]})
    steps = iter(records_dataset("s3://data/bad"))
    failed = 0
    for _ in range(10):
        try:
            next(steps)
        except tf.errors.OpError:
            failed += 1
    assert failed == 5


def test_dropping_everything_is_an_error(serve: Serve) -> None:
    serve(small_objects(3))
    for make in (objects_dataset, records_dataset):
        with pytest.raises(ValueError, match="would leave out all objects"):
            make("s3://data/train/", shard=(0, 4), drop_uneven=True)
