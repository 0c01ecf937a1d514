"""Loading the tensors of a checkpoint of `torch.distributed.checkpoint`, by its readers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .shared import Epoch, Loop, Task, s3torchconnector_config

ROWS, COLUMNS = 2_730, 1_024
"""The shape of each tensor, of 4 bytes an element."""


def loaded(reader: Callable[[Task], Any]) -> Loop:
    """`torch.distributed.checkpoint.load` with such a reader, into tensors that are there."""
    def loop(task: Task) -> Epoch:
        import torch
        import torch.distributed.checkpoint as dcp

        state = {name: torch.zeros(ROWS, COLUMNS) for name in task.keys}
        made = reader(task)

        def epoch() -> Iterator[Any]:
            with warnings.catch_warnings():
                # That there is one process.
                warnings.simplefilter("ignore")
                dcp.load(state, storage_reader=made)
            for tensor in state.values():
                yield tensor.reshape(-1).view(torch.uint8).numpy()
        return epoch
    return loop


def inrush(task: Task) -> Any:
    """`inrush.checkpoint`."""
    from inrush.checkpoint import StorageReader

    return StorageReader(task.folder)


def of_fsspec(protocol: str) -> Callable[[Task], Any]:
    """PyTorch's own reader over a file system of fsspec."""
    def reader(task: Task) -> Any:
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

        return FsspecReader(task.folder.replace("s3:", f"{protocol}:").rstrip("/"))
    return reader


def s3torchconnector(task: Task) -> Any:
    """The reader of s3torchconnector."""
    from s3torchconnector.dcp import S3StorageReader

    return S3StorageReader(path=task.folder, **s3torchconnector_config())


LOOPS: dict[str, Loop] = {
    "s3torchconnector": loaded(s3torchconnector), "FsspecReader, s3fs": loaded(of_fsspec("s3")),
    "inrush.fsspec, FsspecReader": loaded(of_fsspec("inrush")),
    "inrush.checkpoint": loaded(inrush)}
