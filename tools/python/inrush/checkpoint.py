"""Checkpoints of torch.distributed.checkpoint, straight from objects into their tensors.

::

    import torch.distributed.checkpoint as dcp
    from inrush.checkpoint import StorageReader

    dcp.load(state, storage_reader=StorageReader("s3://bucket/run/step-1000"))
"""

from __future__ import annotations

import io
import os
import pickle
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}: pip install 'inrush[torch]'", name=error.name) from error

from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import (
    LoadItemType, LoadPlan, LoadPlanner, ReadItem)
from torch.distributed.checkpoint.storage import StorageReader as Reader
from torch.distributed.checkpoint.storage import StorageWriter as Writer
from torch.futures import Future

from ._errors import NotFound
from ._ranges import LARGE_BYTES_MIN, RangeFile, extent, together
from ._stream import of_this_process
from ._tensors import Filling, fill, runs_of, span_bytes

if TYPE_CHECKING:
    from . import Client, ObjectInfo

__all__ = ["StorageReader", "StorageWriter"]

#: Bytes of a large item's beginning and end that are read first: they say where its tensor is.
ENDS_BYTES = 4 << 10
#: Most bytes of a checkpoint's metadata.
METADATA_BYTES_MAX = 1 << 30

#: What metadata may be made of, beside types of data (`torch.dtype`): classes without behaviour.
_CLASSES = {
    "torch.distributed.checkpoint.metadata": (
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
        "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch": ("Size", "device"),
    "torch.serialization": ("_get_layout",),
    "builtins": ("set", "frozenset", "bytearray", "complex", "slice", "range", "tuple", "object"),
    "collections": ("OrderedDict",),
    "copyreg": ("_reconstructor",),
    "pathlib": ("Path", "PosixPath", "PurePosixPath"),
    "pathlib._local": ("Path", "PosixPath", "PurePosixPath"),
}


class StorageReader(Reader):  # type: ignore[misc,unused-ignore]
    """Reads a checkpoint for `torch.distributed.checkpoint.load`.

    Ranges are read in the order of their bytes, many at a time, and received in the tensors that
    are loaded where those have the same layout. Of a tensor of which a part is wanted, that part
    is read, and what lies between pieces of less than 16 KiB. Every file is of one version: one
    that is replaced meanwhile fails with `inrush.Changed`.

    :param uri: the folder of the checkpoint, ``s3://bucket/run/step-1000``.
    :param client: what reads; None is the client of this process.
    """

    def __init__(self, uri: str | os.PathLike[str], *, client: Client | None = None) -> None:
        super().__init__()
        self._uri = _folder(uri)
        self._given = client
        self._load_id = str(uuid.uuid4())
        self._stored: dict[Any, Any] = {}

    @property
    def checkpoint_id(self) -> str:
        """The folder of the checkpoint."""
        return self._uri

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is an address that this can read."""
        return str(checkpoint_id).startswith("s3://")

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """The next load is of this checkpoint; None is the same again."""
        if checkpoint_id:
            self._uri = _folder(checkpoint_id)
        self._load_id = str(uuid.uuid4())
        self._stored = {}

    def read_metadata(self, *_: Any, **words: Any) -> Metadata:
        """What the checkpoint has.

        :raises ValueError: it is no metadata of a checkpoint, or needs code to be run.
        :raises inrush.NotFound: the folder has none.
        """
        rank = words.get("rank")
        uri = f"{self._uri}/{'' if rank is None else f'__{rank}'}.metadata"
        client = of_this_process(self._given)
        try:
            info = client.stat(uri)
        except NotFound as error:
            raise NotFound(f"{error}; {self._uri} is no folder of a checkpoint, or saving it was "
                           "not finished", uri=uri, attempts=error.attempts,
                           request_id=error.request_id) from error
        if info.size > METADATA_BYTES_MAX:
            raise ValueError(
                f"{uri} has {info.size} bytes, at most {METADATA_BYTES_MAX} are possible")
        metadata = _metadata(uri, client.read(info))
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        cast(StorageMeta, metadata.storage_meta).load_id = self._load_id
        return metadata

    def set_up_storage_reader(
            self, metadata: Metadata, is_coordinator: bool, *_: Any, **__: Any) -> None:
        """Takes note of where the items of the checkpoint are."""
        if metadata.storage_data is None:
            raise ValueError(f"the metadata of {self._uri} do not say where its items are")
        self._stored = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Returns the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Returns the plans unchanged."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads the items of a plan; it has ended when this returns.

        :raises ValueError: an item is not what the metadata say.
        :raises inrush.NotFound: a file is missing; before anything is read.
        :raises inrush.Error: an object cannot be read.
        """
        client = of_this_process(self._given)
        items = self._located(client, plan.items)
        large = [item for item in items if item.is_large]
        others = _large(client, large, planner)
        _short(client, [item for item in items if not item.is_large] + others, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _located(self, client: Client, requests: Iterable[ReadItem]) -> list[_Item]:
        """Where the items are, in the order of their bytes."""
        files: dict[str, ObjectInfo] = {}
        wanted = [(request, self._stored[request.storage_index]) for request in requests]
        if wanted:
            names = len(self._uri) + 1
            files = {info.uri[names:]: info for info in client.list(f"{self._uri}/")}
        items = []
        for request, stored in wanted:
            if getattr(stored, "transform_descriptors", None):
                raise ValueError(
                    f"{request.storage_index.fqn!r} of {self._uri} was written with extensions "
                    f"{list(stored.transform_descriptors)}: read it with torch's FsspecReader over "
                    "inrush.fsspec")
            source = files.get(stored.relative_path)
            if source is None:
                # The error says what the server does.
                source = client.stat(f"{self._uri}/{stored.relative_path}")
            if stored.offset + stored.length > source.size:
                raise ValueError(
                    f"{source.uri} has {source.size} bytes, and {request.storage_index.fqn!r} "
                    f"ends at byte {stored.offset + stored.length}")
            items.append(_Item(request, source, stored.offset, stored.length))
        return sorted(items, key=lambda item: (item.source.uri, item.offset))


class StorageWriter(Writer):  # type: ignore[misc,unused-ignore]
    """Refuses: inrush only reads."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError(
            "inrush only reads: save with s3torchconnector's S3StorageWriter, or torch's "
            "FsspecWriter over another file system")

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("inrush only reads")

    reset = set_up_storage_writer = prepare_local_plan = _refused
    prepare_global_plan = write_data = finish = _refused

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Nothing can be written."""
        return False


@dataclass(frozen=True)
class _Item:
    """An item of the checkpoint that is wanted, and where its bytes are."""

    request: ReadItem
    source: ObjectInfo
    offset: int
    length: int

    @property
    def is_large(self) -> bool:
        return self.request.type != LoadItemType.BYTE_IO and self.length >= LARGE_BYTES_MIN

    @property
    def name(self) -> str:
        return f"{self.request.storage_index.fqn!r} in {self.source.uri}"


def _large(client: Client, items: list[_Item], planner: LoadPlanner) -> list[_Item]:
    """Loads large tensors; returns those whose bytes do not say where they are."""
    fillings: dict[torch.device, list[Filling]] = {}
    others = []
    ends = client.read_many(
        (item.source, part) for item in items
        for part in ((item.offset, ENDS_BYTES),
                     (item.offset + item.length - ENDS_BYTES, ENDS_BYTES)))
    for item in items:
        file = RangeFile(client, item.source, item.offset, item.length)
        file.add(0, next(ends).data)
        file.add(item.length - ENDS_BYTES, next(ends).data)
        view = _view(file)
        if view is None:
            others.append(item)
            continue
        at = item.offset + cast(Any, view.untyped_storage())._checkpoint_offset
        device, filling = _filling(item, at, _narrowed(view, item.request), planner)
        fillings.setdefault(device, []).append(filling)
    for device, some in fillings.items():
        fill(client, some, device)
    return others


def _view(file: RangeFile) -> torch.Tensor | None:
    """The tensor of an item, without bytes; None where it does not say at which byte they are.

    https://docs.pytorch.org/docs/stable/notes/serialization.html: a storage that was loaded to
    the device "meta" has its `_checkpoint_offset`.
    """
    try:
        found = torch.load(cast(IO[bytes], file), map_location="meta", weights_only=True)
    except (RuntimeError, ValueError, NotImplementedError, pickle.UnpicklingError, EOFError):
        return None
    is_plain = type(found) is torch.Tensor and found.layout == torch.strided \
        and not found.is_quantized and not found.is_conj() and not found.is_neg()
    if not is_plain or getattr(found.untyped_storage(), "_checkpoint_offset", None) is None:
        return None
    return cast(torch.Tensor, found)


def _target(item: _Item, wanted: torch.Tensor, planner: LoadPlanner) -> torch.Tensor:
    """The tensor that gets what is wanted of the item.

    :raises ValueError: it is of another shape.
    """
    target = planner.resolve_tensor(item.request).detach()
    if target.size() != wanted.size():
        raise ValueError(f"{item.name} has the shape {list(wanted.size())}, and what is to be "
                         f"loaded {list(target.size())}")
    return target


def _narrowed(stored: torch.Tensor, request: ReadItem) -> torch.Tensor:
    """The part that is wanted."""
    for dim, (start, length) in enumerate(zip(request.storage_offsets, request.lengths)):
        if length < stored.size(dim):
            stored = stored.narrow(dim, start, length)
    return stored


def _filling(item: _Item, base: int, wanted: torch.Tensor,
             planner: LoadPlanner) -> tuple[torch.device, Filling]:
    """How a tensor gets its bytes, whose storage begins at byte `base` of the object; and the
    device that they are received for: the CPU, unless they go straight into the target.
    """
    target = _target(item, wanted, planner)
    runs = runs_of(wanted)

    def packed(tensor: torch.Tensor) -> None:
        if tensor is not target:
            target.copy_(tensor.view(wanted.dtype).reshape(wanted.size()))
        planner.commit_tensor(item.request, target)

    def spread(tensor: torch.Tensor) -> None:
        target.copy_(tensor.view(wanted.dtype).as_strided(wanted.size(), wanted.stride()))
        planner.commit_tensor(item.request, target)

    def scratch(length: int) -> Callable[[], torch.Tensor]:
        return lambda: torch.empty(length, dtype=torch.uint8)

    cpu = torch.device("cpu")
    if runs is None:
        start = int(wanted.storage_offset()) * wanted.element_size()
        length = span_bytes(wanted)
        return cpu, Filling(item.source, [(base + start, length)], scratch(length), spread)
    ranges = [(base + start, length) for start, length in runs]
    if _is_packed(target) and target.dtype == wanted.dtype:
        return target.device, Filling(item.source, ranges, lambda: target, packed)
    length = wanted.numel() * wanted.element_size()
    return cpu, Filling(item.source, ranges, scratch(length), packed)


def _is_packed(tensor: torch.Tensor) -> bool:
    """Whether its bytes are in order, without a gap."""
    return tensor.layout == torch.strided and tensor.is_contiguous() and type(tensor) in (
        torch.Tensor, torch.nn.Parameter)


def _short(client: Client, items: list[_Item], planner: LoadPlanner) -> None:
    """Loads what is read whole."""
    groups = list(together(items))
    found = client.read_many((group[0].source, extent(group)) for group in groups)
    for group, result in zip(groups, found):
        start = group[0].offset
        for item in group:
            _load(item, result.data[item.offset - start:item.offset - start + item.length], planner)


def _load(item: _Item, data: bytes, planner: LoadPlanner) -> None:
    if item.request.type == LoadItemType.BYTE_IO:
        planner.load_bytes(item.request, io.BytesIO(data))
        return
    try:
        stored = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"{item.name} cannot be loaded: {error}") from error
    if not isinstance(stored, torch.Tensor):
        raise ValueError(f"{item.name} is no tensor, but {type(stored).__name__}")
    wanted = _narrowed(stored, item.request)
    target = _target(item, wanted, planner)
    target.copy_(wanted)
    planner.commit_tensor(item.request, target)


class _Unpickler(pickle.Unpickler):
    """Makes what metadata are made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _CLASSES.get(module, ()):
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"it needs {module}.{name}, which is no part of a checkpoint")


def _metadata(uri: str, data: bytes) -> Metadata:
    """:raises ValueError: they are none."""
    try:
        found = _Unpickler(io.BytesIO(data)).load()
    except Exception as error:
        raise ValueError(f"{uri} is no metadata of a checkpoint: {error}") from error
    if not isinstance(found, Metadata):
        raise ValueError(f"{uri} is no metadata of a checkpoint, but {type(found).__name__}")
    return found


def _folder(uri: str | os.PathLike[str]) -> str:
    """:raises ValueError: it is no address of a folder."""
    text = str(uri).rstrip("/")
    if not text.startswith("s3://"):
        raise ValueError(f"{uri!s} is no address s3://bucket/folder")
    return text
