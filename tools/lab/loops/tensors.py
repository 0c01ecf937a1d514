"""Loading the tensors of a model: safetensors files and their index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .shared import Epoch, Loop, Task, boto3_client

PAGE = 4096


def touched(tensor: Any) -> Any:
    """The bytes of a tensor, a byte of each page of which was looked at: a file that is only mapped
    into memory is read then."""
    import torch

    data = tensor.reshape(-1).view(torch.uint8).numpy()
    data[::PAGE].max()
    return data


def inrush_load(task: Task) -> Epoch:
    """`inrush.safetensors.load`."""
    import inrush.safetensors as package

    return lambda: map(touched, package.load(task.folder).values())


def inrush_open(task: Task) -> Epoch:
    """`tensors` of `inrush.safetensors.open`: one tensor after the other, in bounded memory."""
    import inrush.safetensors as package

    def epoch() -> Iterator[Any]:
        with package.open(task.folder) as model:
            for _, tensor in model.tensors():
                yield touched(tensor)
    return epoch


def runai(task: Task) -> Epoch:
    """`SafetensorsStreamer` of runai-model-streamer, as its documentation has it."""
    from runai_model_streamer import SafetensorsStreamer

    def epoch() -> Iterator[Any]:
        with SafetensorsStreamer() as streamer:
            streamer.stream_files(task.uris)
            for _, tensor in streamer.get_tensors():
                yield touched(tensor)
    return epoch


def downloaded(task: Task) -> Epoch:
    """`download_file` of boto3, then `safetensors.torch.load_file`."""
    from safetensors.torch import load_file

    client = boto3_client()

    def epoch() -> Iterator[Any]:
        file = Path(task.temp) / "model.safetensors"
        for key in task.keys:
            client.download_file(task.bucket, key, str(file))
            yield from map(touched, load_file(file).values())
            file.unlink()
    return epoch


LOOPS: dict[str, Loop] = {
    "boto3, then load_file": downloaded, "runai-model-streamer": runai,
    "inrush.safetensors.load": inrush_load, "inrush.safetensors.open": inrush_open}
