"""Ray Data reads objects through inrush.

::

    import ray
    from inrush.ray import read_objects

    dataset = read_objects("s3://bucket/train/")
    dataset.map(lambda row: {"length": len(row["bytes"])}).show(3)

Each read task takes a shard of the objects. All tasks of a node read through one engine, which is
an actor of that node; what it read goes to the tasks through the shared memory of the object store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pyarrow
import ray
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ._places import Listing, Source, listing
from ._stream import Plan, Stream
from .sharding import Shard

if TYPE_CHECKING:
    from . import Client

__all__ = ["ObjectDatasource", "read_objects"]

#: Bytes at which a block is handed on; one object may be larger.
BLOCK_BYTES = 32 << 20
#: How many tasks the engine of a node serves at the same time.
TASKS_OF_A_NODE = 8

_SCHEMA = pyarrow.schema([("uri", pyarrow.string()), ("bytes", pyarrow.large_binary())])


def read_objects(source: Source = (), *, manifest: str | None = None, client: Client | None = None,
                 one_engine_per_node: bool = True, parallelism: int = -1,
                 **read_options: Any) -> ray.data.Dataset:
    """A data set with the columns ``uri`` and ``bytes``, a row for each object.

    :param source: ``s3://BUCKET/PREFIX/``, an object, or several of them.
    :param manifest: address or path of a ManifestFile of SageMaker, instead of `source`.
    :param client: what reads; None is `inrush.default_client()` of each node. Nodes find their own
        credentials.
    :param one_engine_per_node: False gives each worker process of Ray an engine of its own.
    :param parallelism: how many read tasks; -1 lets Ray decide.
    :param read_options: of ``ray.data.read_datasource``.
    :raises FileNotFoundError: there are no objects.
    :raises inrush.Error: the listing failed.
    """
    datasource = ObjectDatasource(source, manifest=manifest, client=client,
                                  one_engine_per_node=one_engine_per_node)
    if parallelism != -1:
        read_options["override_num_blocks"] = parallelism
    return cast(ray.data.Dataset, ray.data.read_datasource(datasource, **read_options))


class ObjectDatasource(Datasource):  # type: ignore[misc,unused-ignore]
    """The datasource of `read_objects`."""

    def __init__(self, source: Source = (), *, manifest: str | None = None,
                 client: Client | None = None, one_engine_per_node: bool = True) -> None:
        """Lists the objects, at once; see `read_objects`."""
        cast(Any, super()).__init__()
        self._client, self._one_engine = client, one_engine_per_node
        self._listing = listing(_client(client), source, manifest=manifest)

    def estimate_inmemory_data_size(self) -> int | None:
        """Bytes of all objects; None where a manifest does not say them."""
        sizes = [self._listing.size(index) for index in range(len(self._listing))]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None,
                       data_context: Any = None) -> list[ReadTask]:
        """One task for each shard."""
        tasks = max(1, min(parallelism, len(self._listing)))
        # By reference: a listing is in the object store once, not in every task.
        kept = ray.put(self._listing)
        engines = self._engines(kept) if self._one_engine else {}
        return [self._task(kept, engines, Shard(index, tasks), per_task_row_limit)
                for index in range(tasks)]

    def _engines(self, kept: Any) -> dict[str, Any]:
        """An actor on each node. They end when no task needs them any more."""
        engine = cast(Any, ray).remote(num_cpus=0, max_concurrency=TASKS_OF_A_NODE)(_Engine)
        engines = {}
        for node in cast(Any, ray).nodes():
            if node["Alive"]:
                name = node["NodeID"]
                strategy = NodeAffinitySchedulingStrategy(node_id=name, soft=False)
                engines[name] = engine.options(scheduling_strategy=strategy).remote(
                    self._client, kept)
        return engines

    def _task(self, kept: Any, engines: dict[str, Any], shard: Shard,
              row_limit: int | None) -> ReadTask:
        client = self._client
        rows = [self._listing.size(index)
                for index in range(shard.index, len(self._listing), shard.count)]
        size = None if None in rows else sum(size or 0 for size in rows)

        def read() -> Iterator[pyarrow.Table]:
            engine = engines.get(ray.get_runtime_context().get_node_id())
            if engine is None:
                # A node that joined later, or engines of their own were asked for.
                yield from _blocks(_client(client), ray.get(kept), shard)
                return
            for block in engine.blocks.options(num_returns="streaming").remote(shard):
                yield ray.get(block)

        metadata = BlockMetadata(num_rows=len(rows), size_bytes=size, input_files=None,
                                 exec_stats=None)
        return ReadTask(read, metadata, schema=_SCHEMA, per_task_row_limit=row_limit)


class _Engine:
    """The engine of a node."""

    def __init__(self, client: Client | None, kept: Listing) -> None:
        self._client, self._listing = _client(client), kept

    def blocks(self, shard: Shard) -> Iterator[pyarrow.Table]:
        """The objects of a shard; a block waits until its task has taken the one before it."""
        yield from _blocks(self._client, self._listing, shard)


def _client(client: Client | None) -> Client:
    if client is not None:
        return client
    from . import default_client

    return default_client()


def _blocks(client: Client, kept: Listing, shard: Shard) -> Iterator[pyarrow.Table]:
    uris: list[str] = []
    contents: list[bytes] = []
    size = 0
    stream = Stream(client, Plan(kept, shard=shard))
    try:
        for sample in stream:
            uris.append(sample["uri"])
            contents.append(sample["data"])
            size += len(sample["data"])
            if size >= BLOCK_BYTES:
                yield pyarrow.table([uris, contents], schema=_SCHEMA)
                uris, contents, size = [], [], 0
    finally:
        stream.close()
    if uris:
        yield pyarrow.table([uris, contents], schema=_SCHEMA)
