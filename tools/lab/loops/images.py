"""Empty training loops over single images."""

from __future__ import annotations

import asyncio
import subprocess
from collections import deque
from collections.abc import Iterator
from typing import Any

from .shared import (AT_ONCE, BATCH, Epoch, Loop, Task, boto3_client, in_threads, inrush_dataset,
                    obstore_store, s3torchconnector_config)

S3FS_BATCH = 256
S3DLIO_BATCH = 512
CONNECTOR_WORKERS = 8
"""Each reads one object after the other, so there are more of them than processors."""
WORKERS = 2


def aws(task: Task) -> Epoch:
    """One process for each image."""
    def epoch() -> Iterator[Any]:
        for uri in task.uris:
            yield subprocess.run([task.programs["aws"], "s3", "cp", uri, "-"], check=True,
                                 stdout=subprocess.PIPE).stdout
    return epoch


def boto3(task: Task) -> Epoch:
    """`get_object` in threads."""
    client = boto3_client()

    def read(key: str) -> Any:
        return client.get_object(Bucket=task.bucket, Key=key)["Body"].read()
    return lambda: in_threads(read, task.keys)


def s3fs(task: Task) -> Epoch:
    """`cat` of many at once."""
    import s3fs as package

    files = package.S3FileSystem(endpoint_url=task.endpoint, skip_instance_cache=True,
                                 config_kwargs={"max_pool_connections": AT_ONCE})
    paths = [f"{task.bucket}/{key}" for key in task.keys]

    def epoch() -> Iterator[Any]:
        for at in range(0, len(paths), S3FS_BATCH):
            asked = paths[at:at + S3FS_BATCH]
            # One path is answered with its bytes alone.
            found = files.cat(asked) if asked[1:] else {asked[0]: files.cat_file(asked[0])}
            yield from found.values()
    return epoch


def smart_open(task: Task) -> Epoch:
    """`open(...).read()` in threads."""
    import smart_open as package

    options = {"client": boto3_client()}

    def read(uri: str) -> Any:
        with package.open(uri, "rb", transport_params=options) as file:
            return file.read()
    return lambda: in_threads(read, task.uris)


def _read(reader: Any) -> Any:
    return reader.read()


def s3torchconnector(task: Task) -> Epoch:
    """`S3IterableDataset` in the workers of a `DataLoader`."""
    from s3torchconnector import S3IterableDataset
    from torch.utils.data import DataLoader

    dataset = S3IterableDataset.from_objects(
        task.uris, endpoint=task.endpoint, transform=_read, enable_sharding=True,
        **s3torchconnector_config())
    loader = DataLoader(dataset, batch_size=BATCH, collate_fn=list,
                        num_workers=min(CONNECTOR_WORKERS, len(task.keys)))
    return lambda: (sample for batch in loader for sample in batch)


def obstore(task: Task) -> Epoch:
    """`get_async`, many at the same time."""
    import obstore as package

    store = obstore_store(task)

    async def read(key: str) -> Any:
        return await (await package.get_async(store, key)).bytes_async()

    def epoch() -> Iterator[Any]:
        loop = asyncio.new_event_loop()
        begun: deque[asyncio.Task[Any]] = deque()
        for key in task.keys:
            begun.append(loop.create_task(read(key)))
            if len(begun) >= AT_ONCE:
                yield loop.run_until_complete(begun.popleft())
        while begun:
            yield loop.run_until_complete(begun.popleft())
        loop.close()
    return epoch


def s3dlio(task: Task) -> Epoch:
    """`get_many`."""
    import s3dlio as package

    def epoch() -> Iterator[Any]:
        for at in range(0, len(task.keys), S3DLIO_BATCH):
            found = package.get_many(task.uris[at:at + S3DLIO_BATCH], max_in_flight=AT_ONCE)
            yield from (data for _, data in found)
    return epoch


def torchdata(task: Task) -> Epoch:
    """`torchdata.nodes` with boto3 in threads."""
    from torchdata.nodes import IterableWrapper, Loader, ParallelMapper

    client = boto3_client()

    def read(key: str) -> Any:
        return client.get_object(Bucket=task.bucket, Key=key)["Body"].read()
    return lambda: iter(Loader(ParallelMapper(IterableWrapper(task.keys), read, num_workers=16,
                                              method="thread")))


def read_many(task: Task) -> Epoch:
    """`Client.read_many` of a listing."""
    import inrush

    client = inrush.Client()
    infos = list(client.list(task.folder))
    return lambda: (result.data for result in client.read_many(infos))


def read_many_unknown(task: Task) -> Epoch:
    """`Client.read_many` of addresses, whose sizes it has to ask for."""
    import inrush

    client = inrush.Client()
    return lambda: (result.data for result in client.read_many(task.uris))


LOOPS: dict[str, Loop] = {
    "aws s3 cp -": aws, "boto3, 16 threads": boto3, "s3fs cat": s3fs,
    "smart_open, 16 threads": smart_open, "s3torchconnector, 8 workers": s3torchconnector,
    "obstore get_async": obstore, "s3dlio get_many": s3dlio, "torchdata.nodes, boto3": torchdata,
    "inrush read_many": read_many, "inrush read_many of addresses": read_many_unknown,
    "inrush StreamDataset": inrush_dataset("StreamDataset", "data", 0),
    "inrush StreamDataset, 2 workers": inrush_dataset("StreamDataset", "data", WORKERS),
    "inrush ObjectDataset, 2 workers": inrush_dataset("ObjectDataset", "data", WORKERS)}
