"""Ray Data over inrush: every object once, through one engine for each node."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Origin, require, small_objects

ray = require("ray")
require("ray.data")

from inrush.ray import ObjectDatasource, read_objects  # noqa: E402

Serve = Callable[..., Origin]
COUNT = 41


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A node of two processors, for this file alone; nothing listens outside of loopback."""
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20,
             _temp_dir=f"/tmp/inrush-ray-{os.getpid()}", _node_ip_address="127.0.0.1",
             log_to_driver=False, runtime_env={"env_vars": {
                 "PYTHONPATH": os.pathsep.join(filter(None, [
                     os.path.dirname(__file__), os.environ.get("PYTHONPATH")]))}})
    yield
    ray.shutdown()


@pytest.mark.parametrize("one_engine", [True, False])
def test_three_passes_have_every_object_once(serve: Serve, cluster: None,
                                             one_engine: bool) -> None:
    objects = small_objects(COUNT)
    origin = serve(objects)
    dataset = read_objects("s3://data/train/", client=origin.client(), parallelism=5,
                           one_engine_per_node=one_engine)
    for _ in range(3):
        rows = dataset.take_all()
        assert sorted(row["uri"] for row in rows) == [f"s3://{path}" for path in sorted(objects)]
        assert all(row["bytes"] == objects[row["uri"][5:]] for row in rows)
    assert dataset.count() == COUNT


def test_tasks_are_shards(serve: Serve, cluster: None) -> None:
    objects = small_objects(COUNT)
    manifest = json.dumps([{"prefix": "s3://data/train/"}, "0001.bin", "0007.bin"]).encode()
    origin = serve(objects | {"data/list": manifest})
    datasource = ObjectDatasource("s3://data/train/", client=origin.client(),
                                  one_engine_per_node=False)
    assert datasource.estimate_inmemory_data_size() == sum(map(len, objects.values()))
    tasks = datasource.get_read_tasks(4)
    names = [f"s3://{path}" for path in sorted(objects)]
    for index, task in enumerate(tasks):
        blocks = list(task())
        assert [uri for block in blocks for uri in block.column("uri").to_pylist()] == \
            names[index::4]
        assert task.metadata.num_rows == len(names[index::4])
        assert task.metadata.size_bytes == sum(len(objects[name[5:]]) for name in names[index::4])
    assert len(datasource.get_read_tasks(1000)) == COUNT
    listed: Any = ObjectDatasource(manifest="s3://data/list", client=origin.client(),
                                   one_engine_per_node=False)
    assert listed.estimate_inmemory_data_size() is None
    assert [len(list(task())) for task in listed.get_read_tasks(2)] == [1, 1]
