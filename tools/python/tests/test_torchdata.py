"""Nodes of torchdata: every sample once in each epoch, also after a stop in the middle."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Origin, require, small_objects, tars

nodes = require("torchdata.nodes")

from inrush.sharding import Order, Shard  # noqa: E402
from inrush.torchdata import ObjectNode, TarNode  # noqa: E402

Serve = Callable[..., Origin]
COUNT = 31


def uri(sample: dict[str, Any]) -> str:
    """What is compared."""
    return str(sample["uri"])


@pytest.mark.parametrize("workers", [0, 4])
def test_three_epochs_of_two_ranks(serve: Serve, workers: int) -> None:
    serve(small_objects(COUNT))
    names = sorted(f"s3://{path}" for path in small_objects(COUNT))

    def loader(rank: int) -> Any:
        source = ObjectNode("s3://data/train/", shuffle_seed=42, shard=(rank, 2))
        mapped = nodes.ParallelMapper(source, uri, num_workers=workers, method="thread")
        return nodes.Loader(nodes.Batcher(mapped, batch_size=4, drop_last=False))

    whole = [loader(rank) for rank in range(2)]
    stopped = [loader(rank) for rank in range(2)]
    for epoch in range(3):
        seen = []
        for rank in range(2):
            order = Order(COUNT, seed=42, epoch=epoch, shard=Shard(rank, 2))
            expected = [names[at] for at in order]
            assert [name for batch in whole[rank] for name in batch] == expected
            batches = iter(stopped[rank])
            before = [name for _ in range(2) for name in next(batches)]
            state = json.loads(json.dumps(stopped[rank].state_dict()))
            del batches
            # Another process goes on with it, also with the epochs that follow.
            stopped[rank] = loader(rank)
            stopped[rank].load_state_dict(state)
            after = [name for batch in stopped[rank] for name in batch]
            assert before + after == expected
            seen += before + after
        assert sorted(seen) == names


def test_samples_of_tars(serve: Serve) -> None:
    serve(tars(7, 5))
    expected = sorted(f"{at:03}-{sample:03}" for at in range(7) for sample in range(5))
    made = [TarNode("s3://data/tars/", shuffle_seed=1, shard=(rank, 2)) for rank in range(2)]
    for _ in range(3):
        seen = []
        for node in made:
            node.reset()
            begin = [next(node)["__key__"] for _ in range(8)]
            node.reset(node.state_dict())
            seen += begin + [sample["__key__"] for sample in node]
        assert sorted(seen) == expected


def test_the_rank_is_that_of_the_reset(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(small_objects(9))
    node = ObjectNode("s3://data/train/")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    node.reset()
    assert [uri(sample)[-8:-4] for sample in node] == ["0001", "0004", "0007"]
