"""Loading the tensors of one safetensors file."""

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


def inrush(task: Task) -> Epoch:
    """`inrush.safetensors.load`."""
    import inrush.safetensors as package

    return lambda: map(touched, package.load(task.uris[0]).values())


def runai(task: Task) -> Epoch:
    """`SafetensorsStreamer` of runai-model-streamer, as its documentation has it."""
    from runai_model_streamer import SafetensorsStreamer

    def epoch() -> Iterator[Any]:
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(task.uris[0])
            yield from map(touched, dict(streamer.get_tensors()).values())
    return epoch


def downloaded(task: Task) -> Epoch:
    """`download_file` of boto3, then `safetensors.torch.load_file`."""
    from safetensors.torch import load_file

    client = boto3_client()

    def epoch() -> Iterator[Any]:
        file = Path(task.temp) / "model.safetensors"
        file.unlink(missing_ok=True)
        client.download_file(task.bucket, task.keys[0], str(file))
        yield from map(touched, load_file(file).values())
        file.unlink()
    return epoch


LOOPS: dict[str, Loop] = {
    "boto3, then load_file": downloaded, "runai-model-streamer": runai,
    "inrush.safetensors.load": inrush}
