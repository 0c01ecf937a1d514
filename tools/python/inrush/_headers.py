"""What safetensors files have: their headers, and indexes of several files."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from . import _jobs
from ._errors import Error, NotFound
from ._native import ObjectInfo, Reactor

if TYPE_CHECKING:
    from . import Client

#: Most bytes of a header, as the format has it.
HEADER_BYTES_MAX = 100_000_000
#: Most bytes of an index of several files.
INDEX_BYTES_MAX = 100_000_000
#: Most dimensions of a tensor.
DIMENSIONS_MAX = 64
#: What is asked for of a file before the length of its header is known, in bytes.
FIRST_BYTES = 256 << 10
#: Objects beside an index that a listing is asked for: a page. Others are asked for one by one.
LISTED_MAX = 1000
#: Files beside an index whose beginnings are read with it, where they are not more.
GUESSED_MAX = 256
#: Objects that are asked for at the same time.
ASKED_MAX = 64
#: The name of the index, where a folder has several.
INDEX_NAME = "model.safetensors.index.json"

#: The names of types in the format, those of PyTorch (empty where it has none), and the bits of
#: an element. Another type is of a later version of the format: its tensors cannot be loaded.
TYPES = {
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


@dataclass(frozen=True)
class Found:
    """What an address has."""

    #: That of all files; of values of one name the first.
    metadata: dict[str, str]
    #: Each tensor that is wanted, and the object that it is in; in the order of files and bytes.
    tensors: dict[str, tuple[ObjectInfo, TensorInfo]]


def found(client: Client, uri: str, names: Collection[str] | None) -> Found:
    """The tensors of a file, of the files of an index, or of a folder.

    :param names: those that are wanted; None is all of them.
    :raises KeyError: there is no tensor of a name that is wanted.
    :raises ValueError: a file is no safetensors file, or the index is none.
    :raises inrush.NotFound: a file is missing; no other one was read then.
    """
    weights, sources, firsts = _files(client, uri, names)
    metadata: dict[str, str] = {}
    wanted: dict[str, tuple[ObjectInfo, TensorInfo]] = {}
    for file, header in zip(sources, read(client, sources.values(), firsts)):
        metadata = header.metadata | metadata
        for tensor in header.tensors:
            if weights is not None and weights.get(tensor.name) != file:
                continue
            if tensor.name in wanted:
                raise ValueError(f"the tensor {tensor.name!r} is in {header.source.uri} and in "
                                 f"{wanted[tensor.name][0].uri}: give the address of a file")
            if names is None or tensor.name in names:
                wanted[tensor.name] = header.source, tensor
    missing = sorted((set(weights or ()) if names is None else set(names)) - set(wanted))
    if missing:
        raise KeyError(f"{uri} has no tensor {missing[0]!r}"
                       + (f", nor {len(missing) - 1} others" if missing[1:] else ""))
    return Found(metadata, wanted)


def _files(client: Client, uri: str, names: Collection[str] | None
           ) -> tuple[dict[str, str] | None, dict[str, ObjectInfo], dict[str, bytes]]:
    """The file of each tensor, where an index says so, the files, and the first bytes of some."""
    folder = uri[:uri.rfind("/") + 1]
    if uri == folder:
        listed = {info.uri[len(folder):]: info for info in client.list(folder, recursive=False)
                  if isinstance(info, ObjectInfo)}
        indexes = [name for name in listed if name.endswith(".safetensors.index.json")]
        if not indexes:
            files = {name: info for name, info in listed.items() if name.endswith(".safetensors")}
            if not files:
                raise NotFound(f"{uri} has no *.safetensors", uri=uri)
            return None, files, {}
        if len(indexes) > 1 and INDEX_NAME not in indexes:
            raise ValueError(f"{uri} has several indexes: give the address of one, such as "
                             f"{folder}{indexes[0]}")
        uri = folder + (indexes[0] if len(indexes) == 1 else INDEX_NAME)
    elif uri.endswith(".json"):
        listed = _beside(client, folder)
    else:
        return None, {uri: client.stat(uri)}, {}
    index = listed.get(uri[len(folder):]) or client.stat(uri)
    weights, firsts = _index(client, index, [
        info for name, info in listed.items() if name.endswith(".safetensors")])
    needed = sorted({file for name, file in weights.items() if names is None or name in names})
    unknown = [file for file in needed if file not in listed]
    # Before a byte of any is read.
    infos = stats(client, (folder + file for file in unknown))
    for file, info in zip(unknown, infos):
        if isinstance(info, NotFound):
            raise NotFound(f"{info}; {uri} names it", uri=info.uri, attempts=info.attempts,
                           request_id=info.request_id) from info
        if isinstance(info, Exception):
            raise info
        listed[file] = info
    return weights, {file: listed[file] for file in needed}, firsts


def _beside(client: Client, folder: str) -> dict[str, ObjectInfo]:
    """Some of the objects of a folder by name, at the price of one question; none where a listing
    is not permitted."""
    try:
        page = islice(client.list(folder, recursive=False), LISTED_MAX)
        return {info.uri[len(folder):]: info for info in page if isinstance(info, ObjectInfo)}
    except Error:
        # The read of the index reports the failure.
        return {}


def stats(client: Client, uris: Iterable[str]) -> list[ObjectInfo | OSError]:
    """What each object is, or why that is not known; asked for at the same time."""
    asked = list(uris)
    jobs: Iterator[tuple[int, Callable[[Reactor], int]]] = (
        (at, partial(Reactor.stat, source=uri)) for at, uri in enumerate(asked))
    infos: dict[int, ObjectInfo | OSError] = {
        at: info if error is None else error
        for at, info, error in _jobs.run(client, jobs, ASKED_MAX)}
    return [infos[at] for at in range(len(asked))]


def _index(client: Client, info: ObjectInfo, beside: list[ObjectInfo]
           ) -> tuple[dict[str, str], dict[str, bytes]]:
    """The file of each tensor; and the first bytes of the files beside the index, which are likely
    to be those that it names: they cost no round trip of their own so.

    :raises ValueError: it is no index, or names files outside of its folder.
    """
    uri = info.uri
    if info.size > INDEX_BYTES_MAX:
        raise ValueError(f"{uri} has {info.size} bytes, an index has at most {INDEX_BYTES_MAX}")
    guessed = beside if len(beside) <= GUESSED_MAX else []
    first, *others = client.read_many([(info, None), *map(_beginning, guessed)],
                                      return_exceptions=True)
    if first.error is not None:
        raise first.error
    # A failure of one is reported when it is needed.
    firsts = {one.uri: other.data for one, other in zip(guessed, others) if other.error is None}
    try:
        parsed = json.loads(first.data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{uri} is no index: {error}") from None
    weights = parsed.get("weight_map") if isinstance(parsed, dict) else None
    if not isinstance(weights, dict):
        raise ValueError(f"{uri} is no index: it has no object 'weight_map'")
    for name, file in weights.items():
        if not isinstance(file, str) or not file or file.startswith("/") or \
                ".." in file.split("/"):
            raise ValueError(f"{uri}: the file of {name!r} is {file!r}, which is not in its folder")
    return weights, firsts


def _beginning(info: ObjectInfo) -> tuple[ObjectInfo, tuple[int, int]]:
    """What is asked for of a file at first."""
    return info, (0, min(FIRST_BYTES, info.size))


def read(client: Client, sources: Iterable[ObjectInfo],
         firsts: Mapping[str, bytes] | None = None) -> Iterator[Header]:
    """Reads and checks the headers of these files, all of them at the same time.

    :param firsts: what is there of some of them, by address.
    :raises ValueError: one is no safetensors file; it says why.
    :raises inrush.Error: one cannot be read.
    """
    infos, there = list(sources), firsts or {}
    asked = client.read_many(_beginning(info) for info in infos if info.uri not in there)
    texts = [_first(info, there[info.uri] if info.uri in there else next(asked).data)
             for info in infos]
    rests = client.read_many((info, (8 + len(text), length - len(text)))
                             for info, (length, text) in zip(infos, texts) if length > len(text))
    for info, (length, text) in zip(infos, texts):
        yield _parsed(info, text + next(rests).data if length > len(text) else text)


def _first(info: ObjectInfo, data: bytes) -> tuple[int, bytes]:
    """The length of a header, and what of it is there."""
    if info.size < 8:
        raise _refused(info, f"it has {info.size} bytes, at least 8 are needed")
    length = int.from_bytes(data[:8], "little")
    most = min(HEADER_BYTES_MAX, info.size - 8)
    if length > most:
        raise _refused(info, f"its header says that it has {length} bytes, at most {most} are "
                             "possible")
    return length, data[8:8 + length]


def _parsed(info: ObjectInfo, text: bytes) -> Header:
    """The header of a file.

    :raises ValueError: it is none.
    """
    try:
        parsed = json.loads(text.decode(), object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise _refused(info, f"its header: {error}") from None
    if not isinstance(parsed, dict):
        raise _refused(info, "its header is no JSON object")
    metadata = parsed.pop("__metadata__", {})
    if not isinstance(metadata, dict) or \
            not all(isinstance(value, str) for value in metadata.values()):
        raise _refused(info, "__metadata__ is no object of strings")
    tensors = []
    for name, entry in parsed.items():
        try:
            tensors.append(_tensor(name, entry, 8 + len(text)))
        except (ValueError, TypeError, KeyError) as error:
            raise _refused(info, f"the tensor {name!r}: {error}") from None
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.length))
    end = 8 + len(text)
    for tensor in tensors:
        if tensor.offset != end:
            raise _refused(info, f"the tensor {tensor.name!r} begins at byte {tensor.offset}, and "
                                 f"what is before it ends at byte {end}")
        end += tensor.length
    if end != info.size:
        raise _refused(info, f"its tensors end at byte {end}, and it has {info.size} bytes")
    return Header(info, tuple(tensors), metadata)


def _refused(info: ObjectInfo, what: str) -> ValueError:
    return ValueError(f"{info.uri} is no safetensors file: {what}")


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
    elements = steps = 1
    for size in shape:
        elements *= size
        # Of no elements at all there are strides, nevertheless.
        steps *= size or 1
    if steps >= 2**56:
        raise ValueError(f"its shape {shape} is larger than any memory")
    if dtype in TYPES:
        bits = elements * TYPES[dtype][1]
        # Elements of less than a byte have none for themselves.
        if bits % 8 or dtype == "F4" and (not shape or shape[-1] % 2):
            raise ValueError(f"its {elements} elements of type {dtype} end within a byte")
        if (end - start) * 8 != bits:
            raise ValueError(f"it has {end - start} bytes, its shape and type need {bits // 8}")
    return TensorInfo(name, dtype, tuple(shape), base + start, end - start)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name occurs twice")
    return made
