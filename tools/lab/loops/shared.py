"""What the loops have in common: their task, threads, and the reader of tars.

They run with the Python of another environment, so this file needs nothing but Python 3.10.
"""

from __future__ import annotations

import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

THREADS = 16
"""Threads of the readers that have an option for them."""
AT_ONCE = 64
"""Requests at the same time of the readers that have an option for them."""
BATCH = 32
"""Samples of a batch of a `DataLoader`."""
REGION = "us-east-1"


@dataclass(frozen=True)
class Task:
    """What a loop reads: the objects of a prefix, all of them."""

    endpoint: str
    bucket: str
    prefix: str
    keys: list[str]
    temp: str
    """An empty folder, for those that need one."""
    programs: dict[str, str]
    """The paths of command lines."""

    def uri(self, key: str) -> str:
        """The address of an object."""
        return f"s3://{self.bucket}/{key}"

    @property
    def uris(self) -> list[str]:
        """The addresses of all objects."""
        return [self.uri(key) for key in self.keys]

    @property
    def folder(self) -> str:
        """The address of the prefix."""
        return self.uri(self.prefix)


Epoch = Callable[[], Iterator[Any]]
"""One pass over the samples; each is something with bytes."""
Loop = Callable[[Task], Epoch]
"""Prepares what is there once: imports, clients, listings; what it returns is measured."""


def in_threads(read: Callable[[str], Any], words: Iterable[str], threads: int = THREADS,
               ahead: int = 2 * THREADS) -> Iterator[Any]:
    """What `read` makes of each word, in order; at most `ahead` are begun and not handed out."""
    with ThreadPoolExecutor(threads) as pool:
        begun: deque[Future[Any]] = deque()
        for word in words:
            begun.append(pool.submit(read, word))
            if len(begun) >= ahead:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def members(stream: Any, joined: bool = False) -> Iterator[bytes]:
    """The files of a tar that comes as a stream, read as WebDataset reads it.

    :param joined: several tars follow each other.
    """
    with tarfile.open(fileobj=stream, mode="r|", ignore_zeros=joined) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                yield content.read()


class Held:
    """Bytes in memory as a stream, without a copy of them all."""

    def __init__(self, data: Any) -> None:
        self._view, self._at = memoryview(data), 0

    def read(self, size: int) -> bytes:
        """The next bytes."""
        piece = self._view[self._at:self._at + size]
        self._at += len(piece)
        return bytes(piece)


def boto3_client(connections: int = THREADS) -> Any:
    """A client of boto3 for this number of threads."""
    import boto3
    from botocore.config import Config

    return boto3.client("s3", config=Config(max_pool_connections=connections))


def obstore_store(task: Task) -> Any:
    """The bucket as a store of obstore."""
    from obstore.store import S3Store

    return S3Store(task.bucket, endpoint=task.endpoint, region=REGION,
                   virtual_hosted_style_request=False, client_options={"allow_http": True})


def inrush_dataset(name: str, field: str, workers: int) -> Loop:
    """A field of the samples of a dataset of `inrush.torch`, by a loader with `workers` workers."""
    def loop(task: Task) -> Epoch:
        import inrush.torch
        from torch.utils.data import DataLoader

        dataset = getattr(inrush.torch, name)(task.folder)
        # With it a data set that reads by number knows what comes next; a stream takes none.
        sampler = inrush.torch.ShardSampler(dataset) if name == "ObjectDataset" else None
        loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, collate_fn=list,
                            num_workers=workers)
        return lambda: (sample[field] for batch in loader for sample in batch)
    return loop


def s3torchconnector_config() -> dict[str, Any]:
    """Options of s3torchconnector's data sets for a server that is not that of AWS."""
    from s3torchconnector import S3ClientConfig

    return {"region": REGION, "s3client_config": S3ClientConfig(force_path_style=True)}
