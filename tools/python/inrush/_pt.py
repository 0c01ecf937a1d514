"""What `torch.save` wrote, straight from an object."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, cast

import torch

from ._ranges import READ_BYTES, RangeFile
from ._stream import of_this_process

if TYPE_CHECKING:
    from . import Client, ObjectInfo

#: What is read of the beginning and of the end of a file at first: most have their pickle there,
#: and the directory of the zip file.
ENDS_BYTES = 256 << 10
#: What is read ahead of PyTorch, which reads one storage after the other, in bytes.
AHEAD_BYTES = 128 << 20
#: A read that begins at most this many bytes further goes on through what is between: headers and
#: padding of a zip file.
SKIPPED_BYTES_MAX = 64 << 10
#: How a zip file begins.
ZIP = b"PK\x03\x04"


def load(uri: str, map_location: Any = None, weights_only: bool = True, *,
         client: Client | None = None) -> Any:
    """Loads what `torch.save` wrote, as `torch.load` does: no file is written.

    The object is read once, ahead of PyTorch in the order of its bytes: up to 128 MiB. With
    ``map_location="meta"`` no large tensor is read.

    :param map_location: where the tensors are; see `torch.load`.
    :param weights_only: whether nothing but tensors and plain values is loaded, so that no code is
        run. Otherwise the object must be of somebody who is trusted.
    :raises ValueError: it is no zip file, as `torch.save` has written them since PyTorch 1.6.
    :raises pickle.UnpicklingError: it has more than `weights_only` permits.
    :raises RuntimeError: it is damaged.
    :raises inrush.Error: it cannot be read.
    """
    client = of_this_process(client)
    with _ZipFile(client, client.stat(uri)) as file:
        try:
            return torch.load(cast(IO[bytes], file), map_location=map_location,
                              weights_only=weights_only)
        except Exception:
            if file.failure is not None:
                # PyTorch says only that a record could not be read.
                raise file.failure from None
            raise


class _ZipFile(RangeFile):
    """A zip file whose members are read in order, after its ends."""

    def __init__(self, client: Client, info: ObjectInfo) -> None:
        super().__init__(client, info, 0, info.size)
        #: Why a read failed.
        self.failure: Exception | None = None
        length = min(ENDS_BYTES, info.size)
        ends = client.read_many([(info, (0, length)), (info, (info.size - length, length))])
        for at, end in zip((0, info.size - length), ends):
            if not at and not end.data.startswith(ZIP):
                raise ValueError(f"{info.uri} is no zip file, as torch.save has written them since "
                                 "PyTorch 1.6: load it with torch.load, and save it again")
            self.add(at, end.data)
        self._stream = client.open(info, read_ahead=AHEAD_BYTES, sequential=True)
        # Where the last piece ends that was read by itself.
        self._behind = length

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        # PyTorch takes a read that is shorter for the end of the file.
        view, got = memoryview(buffer), 0
        try:
            while got < len(view) and (more := self._readinto(view[got:])):
                got += more
        except Exception as error:
            self.failure = error
            raise
        return got

    def _readinto(self, buffer: memoryview) -> int:
        if self._at >= self._length or self.has(self._at):
            return super().readinto(buffer)
        behind = self._at - self._stream.tell()
        if not 0 <= behind <= SKIPPED_BYTES_MAX:
            if len(buffer) < READ_BYTES and not 0 <= self._at - self._behind <= SKIPPED_BYTES_MAX:
                # Something small, elsewhere.
                self._behind = self._at + READ_BYTES
                return super().readinto(buffer)
            self._stream.seek(self._at)
        elif behind:
            self._stream.read(behind)
        got = self._stream.readinto(buffer)
        self._at += got
        return got

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

