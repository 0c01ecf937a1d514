"""Tensors of safetensors files, straight from objects into their memory.

::

    import inrush.safetensors

    state = inrush.safetensors.load("s3://bucket/model/model.safetensors", device="cuda")
    state = inrush.safetensors.load("s3://bucket/model/model.safetensors.index.json")
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}: pip install 'inrush[safetensors]'", name=error.name) from error

from ._stream import of_this_process
from ._tensors import Filling, empty, fill

if TYPE_CHECKING:
    from . import Client, ObjectInfo

__all__ = ["Header", "TensorInfo", "load", "read_header"]

#: Most bytes of a header, as the format has it.
HEADER_BYTES_MAX = 100_000_000
#: Most bytes of an index of several files.
INDEX_BYTES_MAX = 100_000_000
#: Most dimensions of a tensor.
DIMENSIONS_MAX = 64
#: What is asked for of a header before its length is known, in bytes.
FIRST_BYTES = 64 << 10

#: The names of types in the format, those of PyTorch (empty where it has none), and the bits of
#: an element. Another type is of a later version of the format: its tensors cannot be loaded.
_TYPES = {
    "BOOL": ("bool", 8), "F4": ("float4_e2m1fn_x2", 4), "F6_E2M3": ("", 6), "F6_E3M2": ("", 6),
    "U8": ("uint8", 8), "I8": ("int8", 8), "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8), "F8_E8M0": ("float8_e8m0fnu", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8), "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "U16": ("uint16", 16), "I16": ("int16", 16), "F16": ("float16", 16), "BF16": ("bfloat16", 16),
    "U32": ("uint32", 32), "I32": ("int32", 32), "F32": ("float32", 32), "U64": ("uint64", 64),
    "I64": ("int64", 64), "F64": ("float64", 64), "C64": ("complex64", 64),
}


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    #: Where it begins in the object, in bytes.
    offset: int
    #: How long it is, in bytes.
    length: int


@dataclass(frozen=True)
class Header:
    """What a file has: its tensors in the order of their bytes, and its metadata."""

    source: ObjectInfo
    tensors: tuple[TensorInfo, ...]
    metadata: dict[str, str]


def read_header(uri: str, *, client: Client | None = None) -> Header:
    """Reads and checks the header of a file; none of its tensors.

    :raises ValueError: it is no safetensors file: a length beyond the object, JSON that is none,
        tensors that overlap, leave gaps or do not have the bytes of their shape. It says which.
    :raises inrush.Error: it cannot be read.
    """
    client = of_this_process(client)
    info = client.stat(uri)

    def refused(what: str) -> ValueError:
        return ValueError(f"{uri} is no safetensors file: {what}")

    if info.size < 8:
        raise refused(f"it has {info.size} bytes, at least 8 are needed")
    first = client.read(info, range=(0, min(FIRST_BYTES, info.size)))
    length = int.from_bytes(first[:8], "little")
    if length > HEADER_BYTES_MAX or length > info.size - 8:
        most = min(HEADER_BYTES_MAX, info.size - 8)
        raise refused(f"its header says that it has {length} bytes, at most {most} are possible")
    text = first[8:8 + length]
    if len(text) < length:
        text += client.read(info, range=(len(first), 8 + length - len(first)))
    try:
        parsed = json.loads(text, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise refused(f"its header: {error}") from None
    if not isinstance(parsed, dict):
        raise refused("its header is no JSON object")
    metadata = parsed.pop("__metadata__", {})
    if not isinstance(metadata, dict) or \
            not all(isinstance(value, str) for value in metadata.values()):
        raise refused("__metadata__ is no object of strings")
    found = []
    for name, entry in parsed.items():
        try:
            found.append(_tensor(name, entry, 8 + length))
        except (ValueError, TypeError, KeyError) as error:
            raise refused(f"the tensor {name!r}: {error}") from None
    found.sort(key=lambda tensor: (tensor.offset, tensor.length))
    end = 8 + length
    for tensor in found:
        if tensor.offset != end:
            raise refused(f"the tensor {tensor.name!r} begins at byte {tensor.offset}, and what is "
                          f"before it ends at byte {end}")
        end += tensor.length
    if end != info.size:
        raise refused(f"its tensors end at byte {end}, and it has {info.size} bytes")
    return Header(info, tuple(found), metadata)


def load(uri: str, *, device: str | torch.device = "cpu", client: Client | None = None,
         names: Collection[str] | None = None) -> dict[str, torch.Tensor]:
    """Loads tensors by name.

    Each range goes from the network into the tensor itself; for a GPU through a few pinned buffers,
    while others are read. No more memory is used than the tensors have, and those buffers.

    :param uri: a file, or the index of several (``...safetensors.index.json``), whose files are in
        the folder of the index.
    :param device: where the tensors are.
    :param names: the tensors that are wanted; None is all of them.
    :raises KeyError: there is no tensor of a name that is wanted.
    :raises TypeError: `names` is one string.
    :raises ValueError: a file is no safetensors file, or the index is none; see `read_header`. Or
        a tensor that is wanted is of a type that this PyTorch does not have.
    :raises inrush.Error: an object cannot be read.
    """
    if isinstance(names, str):
        raise TypeError("names is one str: give a list of names, [name]")
    client = of_this_process(client)
    where = torch.device(device)
    if uri.endswith(".json"):
        weights = _index(client, uri)
        folder = uri.rpartition("/")[0]
        files = sorted({file for name, file in weights.items() if names is None or name in names})
    else:
        weights, folder, files = None, "", []
    headers = [read_header(uri, client=client)] if weights is None else \
        [read_header(f"{folder}/{file}", client=client) for file in files]
    wanted: dict[str, tuple[ObjectInfo, TensorInfo]] = {}
    for at, header in enumerate(headers):
        for tensor in header.tensors:
            here = weights is None or weights.get(tensor.name) == files[at]
            if here and (names is None or tensor.name in names):
                wanted[tensor.name] = (header.source, tensor)
    missing = sorted((set(weights or ()) if names is None else set(names)) - set(wanted))
    if missing:
        raise KeyError(f"{uri} has no tensor {missing[0]!r}"
                       + (f", nor {len(missing) - 1} others" if missing[1:] else ""))
    return _read(client, wanted, where)


def _read(client: Client, wanted: dict[str, tuple[ObjectInfo, TensorInfo]],
          device: torch.device) -> dict[str, torch.Tensor]:
    types = {name: _dtype(tensor) for name, (_, tensor) in wanted.items()}
    out = {name: empty(_shape(tensor), types[name], device)
           for name, (_, tensor) in wanted.items()}
    fill(client, (Filling(source, [(tensor.offset, tensor.length)], partial(out.__getitem__, name),
                          lambda _: None)
                  for name, (source, tensor) in wanted.items()), device)
    return out


def _shape(tensor: TensorInfo) -> tuple[int, ...]:
    """The shape of the tensor in PyTorch, which has two F4 in one element."""
    return (*tensor.shape[:-1], tensor.shape[-1] // 2) if tensor.dtype == "F4" else tensor.shape


def _dtype(tensor: TensorInfo) -> torch.dtype:
    found = getattr(torch, _TYPES.get(tensor.dtype, ("", 0))[0], None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"the tensor {tensor.name!r} is of type {tensor.dtype}, which PyTorch "
                         f"{torch.__version__} does not have")
    return found


def _tensor(name: str, entry: Any, base: int) -> TensorInfo:
    """An entry of the header.

    :raises ValueError: it is none.
    """
    if not isinstance(entry, dict):
        raise ValueError("it is no JSON object")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str):
        raise ValueError(f"its type {str(dtype)[:100]} is no string")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or \
                not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
            raise ValueError(f"{str(numbers)[:100]} is no list of whole numbers")
    if len(shape) > DIMENSIONS_MAX or len(offsets) != 2:
        raise ValueError(f"it has {len(shape)} dimensions and {len(offsets)} offsets")
    start, end = offsets
    if start > end:
        raise ValueError(f"it has {end - start} bytes")
    if dtype in _TYPES:
        bits = prod(shape) * _TYPES[dtype][1]
        # Elements of less than a byte have none for themselves.
        if bits % 8 or dtype == "F4" and (not shape or shape[-1] % 2):
            raise ValueError(f"its {prod(shape)} elements of type {dtype} end within a byte")
        if (end - start) * 8 != bits:
            raise ValueError(f"it has {end - start} bytes, its shape and type need {bits // 8}")
    return TensorInfo(name, dtype, tuple(shape), base + start, end - start)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _index(client: Client, uri: str) -> dict[str, str]:
    """The file of each tensor.

    :raises ValueError: it is no index, or names files outside of its folder.
    """
    info = client.stat(uri)
    if info.size > INDEX_BYTES_MAX:
        raise ValueError(f"{uri} has {info.size} bytes, an index has at most {INDEX_BYTES_MAX}")
    try:
        parsed = json.loads(client.read(info))
    except ValueError as error:
        raise ValueError(f"{uri} is no index: {error}") from None
    weights = parsed.get("weight_map") if isinstance(parsed, dict) else None
    if not isinstance(weights, dict):
        raise ValueError(f"{uri} is no index: it has no object 'weight_map'")
    for name, file in weights.items():
        if not isinstance(file, str) or not file or file.startswith("/") or \
                ".." in file.split("/"):
            raise ValueError(f"{uri}: the file of {name!r} is {file!r}, which is not in its folder")
    return weights
