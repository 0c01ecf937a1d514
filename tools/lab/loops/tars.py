"""Empty training loops over tars of images: each file of a tar is a sample."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .shared import (BATCH, REGION, Epoch, Held, Loop, Task, boto3_client, in_threads,
                    inrush_dataset, members, obstore_store, s3torchconnector_config)

AHEAD = 2
"""Tars that are read ahead as a whole, by those that can only read them so."""
PIPE_SECONDS = 30.0


def printed(command: Callable[[Task], Sequence[str]]) -> Loop:
    """A command that prints one object, for each tar: `pipe:` of WebDataset."""
    def loop(task: Task) -> Epoch:
        def epoch() -> Iterator[Any]:
            for uri in task.uris:
                words = [uri if word == "URI" else word for word in command(task)]
                with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
                    yield from members(child.stdout)
                    assert child.stdout is not None
                    child.stdout.read()
                if child.returncode != 0:
                    raise SystemExit(f"{words[0]} ended with exit code {child.returncode}")
        return epoch
    return loop


def opened(opener: Callable[[Task], Callable[[str], Any]]) -> Loop:
    """One tar after the other, from a file that reads it."""
    def loop(task: Task) -> Epoch:
        open_one = opener(task)

        def epoch() -> Iterator[Any]:
            for key in task.keys:
                file = open_one(key)
                yield from members(file)
                getattr(file, "close", int)()
        return epoch
    return loop


def boto3(task: Task) -> Callable[[str], Any]:
    """The body of `get_object`."""
    client = boto3_client()
    return lambda key: client.get_object(Bucket=task.bucket, Key=key)["Body"]


def s3fs(task: Task) -> Callable[[str], Any]:
    """`S3FileSystem.open`."""
    import s3fs as package

    files = package.S3FileSystem(endpoint_url=task.endpoint, skip_instance_cache=True)
    return lambda key: files.open(f"{task.bucket}/{key}", "rb")


def smart_open(task: Task) -> Callable[[str], Any]:
    """`smart_open.open`."""
    import smart_open as package

    options = {"client": boto3_client()}
    return lambda key: package.open(task.uri(key), "rb", compression="disable",
                                    transport_params=options)


class Pieces:
    """An iterator of pieces as a stream."""

    def __init__(self, pieces: Iterator[Any]) -> None:
        self._pieces, self._piece = pieces, Held(b"")

    def read(self, size: int) -> bytes:
        """The next bytes: fewer only at the end of a piece, nothing at the end of all."""
        data = self._piece.read(size)
        while not data:
            more = next(self._pieces, None)
            if more is None:
                return b""
            self._piece = Held(more)
            data = self._piece.read(size)
        return data


def obstore(task: Task) -> Callable[[str], Any]:
    """`get`, as a stream."""
    import obstore as package

    store = obstore_store(task)
    return lambda key: Pieces(iter(package.get(store, key).stream(min_chunk_size=1 << 20)))


def inrush_open(task: Task) -> Callable[[str], Any]:
    """`Client.open` of a listing's infos, so that no HEAD is needed."""
    import inrush

    client = inrush.Client()
    infos = {info.key: info for info in client.list(task.folder)}
    return lambda key: client.open(infos[key], sequential=True)


def s3torchconnector(task: Task) -> Epoch:
    """`S3IterableDataset`, whose readers are files."""
    from s3torchconnector import S3IterableDataset

    dataset = S3IterableDataset.from_objects(task.uris, endpoint=task.endpoint,
                                             **s3torchconnector_config())
    return lambda: (sample for reader in dataset for sample in members(reader))


def s3dlio(task: Task) -> Epoch:
    """`get` of whole tars."""
    import s3dlio as package

    return lambda: (sample for data in in_threads(package.get, task.uris, AHEAD, AHEAD)
                    for sample in members(Held(data)))


def torchdata(task: Task) -> Epoch:
    """`torchdata.nodes` that read whole tars by boto3 in threads."""
    from torchdata.nodes import IterableWrapper, Loader, ParallelMapper

    client = boto3_client()

    def read(key: str) -> Any:
        return client.get_object(Bucket=task.bucket, Key=key)["Body"].read()

    def epoch() -> Iterator[Any]:
        node = ParallelMapper(IterableWrapper(task.keys), read, num_workers=AHEAD, method="thread",
                              max_concurrent=AHEAD)
        for data in Loader(node):
            yield from members(Held(data))
    return epoch


def mosaic(task: Task) -> Epoch:
    """`StreamingDataset` of the same images in its own format, MDS, by way of a local folder."""
    from streaming import StreamingDataset

    os.environ["S3_ENDPOINT_URL"] = task.endpoint
    os.environ["AWS_DEFAULT_REGION"] = REGION
    local = Path(task.temp) / "mds"

    def epoch() -> Iterator[Any]:
        shutil.rmtree(local, ignore_errors=True)
        dataset = StreamingDataset(remote=task.folder.rstrip("/"), local=str(local), shuffle=False,
                                   batch_size=BATCH)
        for sample in dataset:
            yield sample["image"]
    return epoch


def read_many(task: Task) -> Epoch:
    """`Client.read_many` of whole tars."""
    import inrush

    client = inrush.Client()
    infos = list(client.list(task.folder))
    return lambda: (sample for result in client.read_many(infos)
                    for sample in members(Held(result.data)))


def fifo(task: Task) -> Epoch:
    """`inrush pipe` into a named pipe, as SageMaker's Pipe mode has it."""
    def epoch() -> Iterator[Any]:
        pipe = Path(task.temp) / "tars_0"
        words = [task.programs["inrush"], "pipe", task.folder, str(pipe.with_name("tars")),
                 "--quiet"]
        with subprocess.Popen(words) as child:
            deadline = time.monotonic() + PIPE_SECONDS
            while not pipe.exists():
                if time.monotonic() > deadline or child.poll() is not None:
                    raise SystemExit(f"{pipe.name} does not appear")
                time.sleep(0.001)
            with pipe.open("rb", buffering=0) as stream:
                yield from members(stream, joined=True)
                stream.read()
        if child.returncode != 0:
            raise SystemExit(f"inrush pipe ended with exit code {child.returncode}")
    return epoch


def memory(task: Task) -> Epoch:
    """Python's reader of tars alone: each tar is in memory before the loop begins."""
    client = boto3_client()
    data = client.get_object(Bucket=task.bucket, Key=task.keys[0])["Body"].read()
    return lambda: (sample for _ in task.keys for sample in members(Held(data)))


LOOPS: dict[str, Loop] = {
    "aws s3 cp - (pipe:)": printed(lambda task: [task.programs["aws"], "s3", "cp", "URI", "-"]),
    "boto3 get_object": opened(boto3), "s3fs open": opened(s3fs),
    "smart_open": opened(smart_open), "s3torchconnector": s3torchconnector,
    "obstore get, stream": opened(obstore), "s3dlio get": s3dlio,
    "torchdata.nodes, boto3": torchdata, "mosaicml-streaming (MDS)": mosaic,
    "inrush open": opened(inrush_open), "inrush read_many": read_many,
    "inrush TarDataset": inrush_dataset("TarDataset", "jpg", 0),
    "inrush TarDataset, 2 workers": inrush_dataset("TarDataset", "jpg", 2),
    "inrush cat (pipe:)": printed(lambda task: [task.programs["inrush"], "cat", "URI"]),
    "inrush pipe (FIFO)": fifo}
