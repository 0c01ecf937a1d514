"""Tensors of safetensors files, straight from objects into their memory.

::

    import inrush.safetensors

    state = inrush.safetensors.load("s3://bucket/model/model.safetensors", device="cuda")

    with inrush.safetensors.open("s3://bucket/model/") as model:
        rows = model.get_slice("embed.weight")[:1000]
        for name, tensor in model.tensors():
            ...
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}: pip install 'inrush[safetensors]'", name=error.name) from error

from . import _headers
from ._client import Elements
from ._errors import Closed
from ._headers import Header, TensorInfo
from ._parts import (
    Named, Part, group_filling, index_of, shape_of, sharded, whole, without_bytes)
from ._ranges import together
from ._stream import of_this_process
from ._tensors import AHEAD_BYTES_MAX, fill, filled

if TYPE_CHECKING:
    from . import Client
    from ._ranks import Ranks

__all__ = ["Header", "Model", "Slice", "TensorInfo", "load", "open", "read_header"]

#: Dimension, number and count of the parts of a tensor.
Shard = tuple[int, int, int]
#: Bytes that are received or requested ahead, of tensors behind the one that is next.
AHEAD_BYTES = 320 << 20


def read_header(uri: str, *, client: Client | None = None) -> Header:
    """Reads and checks the header of a file; none of its tensors.

    :raises ValueError: it is no safetensors file: a length beyond the object, JSON that is none,
        tensors that overlap, leave gaps or do not have the bytes of their shape. It says which.
    :raises inrush.Error: it cannot be read.
    """
    client = of_this_process(client)
    header, = _headers.read(client, [client.stat(uri)])
    return header


def open(uri: str, device: str | torch.device = "cpu", names: Collection[str] | None = None,
         process_group: Any = None, *, shard: Mapping[str, Shard] | None = None,
         client: Client | None = None) -> Model:
    """Opens a file, the files of an index, or those of a folder, as `safetensors.safe_open` does.

    All headers are read at the same time, and checked: see `read_header`. Each later read is of the
    object that had the header: where it was replaced since, `Changed` is raised.

    :param uri: a file; the index of several (``...safetensors.index.json``), whose files are in its
        folder; or a folder (``s3://bucket/model/``), which is its index, or all its
        ``*.safetensors`` where it has none.
    :param device: where the tensors are.
    :param names: the tensors that are wanted; None is all of them.
    :param process_group: of `torch.distributed`. Its ranks, all of which must call this, and
        iterate over `tensors`, read each byte once: each reads a part, and has all tensors by
        broadcast. Rank 0 reads the headers. Whatever fails on one rank is raised by all of them.
        Give the group of a host, where each host is to read the model, or that of all of them.
    :param shard: of these tensors `tensors` and `get_tensor` bring a part only: by name, the
        dimension, the number of the part, and how many there are. `torch.chunk` has the same parts.
        Only the bytes of the part are read, if they are at least 16 KiB long without a gap; shorter
        ones are read with what is between them.
    :raises KeyError: there is no tensor of a name that is wanted, or in `shard`.
    :raises TypeError: `names` is one string.
    :raises ValueError: a file is no safetensors file, or the index is none; or the ranks do not
        want the same.
    :raises inrush.NotFound: a file is missing; before any is read.
    :raises inrush.Error: an object cannot be read.
    """
    return Model(uri, device, names, process_group, shard or {}, of_this_process(client))


def load(uri: str, *, device: str | torch.device = "cpu", client: Client | None = None,
         names: Collection[str] | None = None, process_group: Any = None,
         shard: Mapping[str, Shard] | None = None) -> dict[str, torch.Tensor]:
    """Loads tensors by name.

    Each range goes from the network into the tensor itself; for a GPU through a few pinned buffers,
    while others are read. No more memory is used than the tensors have, those buffers, and what
    short tensors are read together in.

    Arguments and errors are those of `open`. Also:

    :raises ValueError: a tensor that is wanted is of a type that this PyTorch does not have.
    """
    with open(uri, device, names, process_group, shard=shard, client=client) as model:
        return dict(model._tensors(AHEAD_BYTES_MAX))


class Model:
    """The tensors of one or several files, by name.

    Headers are in memory, and nothing else. It is a context manager; `close` ends what is read.
    """

    def __init__(self, uri: str, device: str | torch.device, names: Collection[str] | None,
                 process_group: Any, shard: Mapping[str, Shard], client: Client) -> None:
        if isinstance(names, str):
            raise TypeError("names is one str: give a list of names, [name]")
        self._uri = uri
        self._client = client
        self._device = torch.device(device)
        self._shard = dict(shard)
        wanted = None if names is None else frozenset(names)
        find = partial(_headers.found, client, uri, wanted)
        self._ranks: Ranks | None = None
        if process_group is not None:
            # Not before: PyTorch may be built without torch.distributed.
            from ._ranks import Ranks

            self._ranks = Ranks(process_group, self._device)
            parts = sorted((name, dim, count) for name, (dim, _, count) in shard.items())
            self._ranks.alike((uri, None if wanted is None else sorted(wanted), parts))
        found = find() if self._ranks is None else self._ranks.of_rank_0(find)
        self._metadata, self._found = found.metadata, found.tensors
        try:
            for name, (dim, rank, count) in self._shard.items():
                # What is wrong with one is said here.
                sharded(self._whole(name), dim, rank, count)
        except (KeyError, ValueError) as error:
            if self._ranks is not None:
                self._ranks.report(error)
            raise
        if self._ranks is not None:
            self._ranks.agree(None)
        self._is_closed = False
        self._passes: weakref.WeakSet[Elements[Named]] = weakref.WeakSet()

    def keys(self) -> list[str]:
        """The names of the tensors, in order of names."""
        return sorted(self._found)

    def offset_keys(self) -> list[str]:
        """The names of the tensors in the order of their files and bytes."""
        return list(self._found)

    def metadata(self) -> dict[str, str] | None:
        """The metadata of the file, or of all files, of which the first one has precedence; None
        where they have none."""
        return self._metadata or None

    def get_tensor(self, name: str) -> torch.Tensor:
        """Reads a tensor.

        :raises KeyError: there is none of this name.
        :raises ValueError: it is of a type that this PyTorch does not have.
        :raises inrush.Error: it cannot be read.
        """
        return self._read(self._wanted(name))

    def get_slice(self, name: str) -> Slice:
        """A tensor of which a part is to be read: ``model.get_slice(name)[:, 2:4]``.

        :raises KeyError: there is none of this name.
        """
        return Slice(self, self._whole(name))

    def tensors(self, names: Collection[str] | None = None) -> Iterator[Named]:
        """Reads all tensors: pairs of name and tensor, in the order of their files and bytes.

        With a process group this is for all ranks at the same time; `get_tensor` and `get_slice`
        are for each of them alone.

        What is ahead of the program is bounded: some 320 MiB, and the tensor that comes next. The
        first error ends it, and each later `next` raises `Closed`.

        :param names: of those that were opened; None is all of them.
        :raises KeyError: there is no tensor of a name.
        :raises ValueError: a tensor is of a type that this PyTorch does not have.
        :raises inrush.Error: an object cannot be read.
        """
        self._check()
        begun = Elements(self._client, self._tensors(AHEAD_BYTES, names))
        self._passes.add(begun)
        return begun

    def _tensors(self, ahead_bytes: int, names: Collection[str] | None = None
                 ) -> Iterator[Named]:
        chosen = self._found if names is None else names
        if self._ranks is not None:
            from ._shares import shared

            yield from shared(self._ranks, self._client, map(self._whole, chosen),
                              self._shard, self._device, ahead_bytes // self._ranks.size)
            return
        groups = list(together([self._wanted(name) for name in chosen]))
        ready: list[Named] = []
        fillings = (group_filling(group, self._device, ready.extend) for group in groups)
        with contextlib.closing(
                filled(self._client, fillings, self._device, ahead_bytes)) as turns:
            for _ in turns:
                ready.reverse()
                while ready:
                    # Nothing here keeps what the caller drops.
                    yield ready.pop()

    def _read(self, part: Part) -> torch.Tensor:
        self._check()
        out: list[torch.Tensor] = []
        fill(self._client, [part.filling(self._device, out.append)], self._device)
        return out[0]

    def _whole(self, name: str) -> Part:
        if name not in self._found:
            raise KeyError(f"{self._uri} has no tensor {name!r}")
        return whole(*self._found[name])

    def _wanted(self, name: str) -> Part:
        part = self._whole(name)
        return sharded(part, *self._shard[name]) if name in self._shard else part

    def _check(self) -> None:
        if self._is_closed:
            raise Closed(f"{self._uri} is closed: open it again")

    def close(self) -> None:
        """Ends what is read; what was handed out stays."""
        self._is_closed = True
        for begun in list(self._passes):
            begun.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<inrush.safetensors.Model {self._uri!r}, {len(self._found)} tensors>"


class Slice:
    """A tensor of which a part is to be read, as `safetensors.safe_open.get_slice` has it."""

    def __init__(self, model: Model, part: Part) -> None:
        self._model = model
        self._part = part

    def get_shape(self) -> list[int]:
        """The shape of the tensor."""
        return list(shape_of(self._part.info))

    def get_dtype(self) -> str:
        """Its type, as the format names it."""
        return self._part.info.dtype

    def __getitem__(self, index: Any) -> torch.Tensor:
        """Reads a part of the tensor: what its bytes have of `tensor[index]`.

        Of whole numbers, slices, ``...`` and None only the bytes of the part are read, if they are
        at least 16 KiB long without a gap, or all in a row; shorter ones are read with what is
        between them. For any other index the tensor is read.

        :raises IndexError: the tensor has no such part.
        :raises inrush.Error: it cannot be read.
        """
        view = index_of(without_bytes(self._part), index)
        if view is None:
            whole_one: torch.Tensor = self._model._read(self._part)[index]
            return whole_one
        part = Part(self._part.source, self._part.info, self._part.dtype, view)
        return self._model._read(part)
