"""Samples of a tar file: members that follow each other and share a name up to its first dot.

These are the rules of WebDataset: ``a/0001.jpg`` and ``a/0001.cls`` are the fields ``jpg`` and
``cls`` of the sample ``a/0001``.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, cast

#: What is read ahead of the headers of a tar, in bytes; larger members are read past it.
BUFFER_BYTES = 1 << 16
#: How far the reader of tars goes back: over the block at the end, and the byte before it.
BACK_BYTES = 2 * tarfile.BLOCKSIZE

_NAME = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$", re.DOTALL)


class Next(NamedTuple):
    """A sample, and where the reading of the tar would go on behind it."""

    sample: dict[str, Any]
    #: The byte of the tar, decompressed, where the next sample begins.
    offset: int


def samples(file: BinaryIO, uri: str, offset: int = 0) -> Iterator[Next]:
    """The samples of a tar, from where an earlier reading ended.

    One sample is in memory at a time. Names that end in ``.gz`` or ``.tgz`` are decompressed.

    :param file: the tar, at its beginning.
    :param uri: what it is called in errors and in ``__url__``.
    :param offset: the byte, decompressed, from which on it is read.
    :raises tarfile.ReadError: it is no tar, or damaged; the message has the address.
    :raises ValueError: two members of a sample have the same extension.
    """
    compressed = uri.endswith((".gz", ".tgz"))
    # Seeks within its buffer cost nothing: the reader of tars seeks at each header.
    plain: Any = _Forward(gzip.GzipFile(fileobj=file, mode="rb")) if compressed \
        else io.BufferedReader(cast(Any, file), BUFFER_BYTES)
    try:
        plain.seek(offset)
        tar = tarfile.TarFile(fileobj=plain, mode="r")
        for sample, ends_at in _grouped(tar, uri):
            yield Next(sample, ends_at)
        _check_end(plain, tar)
        # The checksum is at the end.
        while compressed and plain.read(BUFFER_BYTES):
            pass
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise tarfile.ReadError(f"{uri}: {error}") from error


class _Forward:
    """A file that is read forward, with steps back of `BACK_BYTES`, as the reader of tars needs."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file, self._at, self._last, self._again = file, 0, b"", b""

    def tell(self) -> int:
        """The byte that is read next."""
        return self._at

    def read(self, length: int) -> bytes:
        """So many bytes, or fewer at the end."""
        data, self._again = self._again[:length], self._again[length:]
        while len(data) < length:
            more = self._file.read(length - len(data))
            if not more:
                break
            data += more
        self._at += len(data)
        self._last = (self._last + data[-BACK_BYTES:])[-BACK_BYTES:]
        return data

    def seek(self, offset: int) -> None:
        """Goes to this byte; past the end to the end."""
        back = self._at - offset
        if back > len(self._last):
            raise io.UnsupportedOperation(f"{back} bytes back")
        if back > 0:
            self._again = self._last[-back:] + self._again
            self._last, self._at = self._last[:-back], offset
        while self._at < offset and self.read(min(BUFFER_BYTES, offset - self._at)):
            pass


def _grouped(tar: tarfile.TarFile, uri: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Samples, each with the byte behind it."""
    sample: dict[str, Any] = {}
    while (member := tar.next()) is not None:
        # A tar keeps all its members otherwise.
        tar.members = []  # type: ignore[attr-defined]
        found = _NAME.match(member.name)
        if not member.isreg() or found is None:
            continue
        key, extension = found[1], found[2].lower()
        if sample and sample["__key__"] != key:
            yield sample, member.offset
            sample = {}
        if not sample:
            sample = {"__key__": key, "__url__": uri}
        if extension in sample:
            raise ValueError(f"{uri}: the sample {key!r} has two members '.{extension}', the "
                             f"second at byte {member.offset}")
        content = tar.extractfile(member)
        assert content is not None, "a regular file"
        sample[extension] = content.read()
        if len(sample[extension]) != member.size:
            raise tarfile.ReadError(f"it ends within the member {member.name!r}")
    if sample:
        yield sample, tar.offset


def _check_end(file: Any, tar: tarfile.TarFile) -> None:
    """Python's reader takes a damaged header for the end of the tar."""
    file.seek(tar.offset)
    block = file.read(tarfile.BLOCKSIZE)
    if block.strip(b"\0"):
        raise tarfile.ReadError(f"the header at byte {tar.offset} is damaged")
