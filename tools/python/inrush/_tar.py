"""Samples of a tar file: members that follow each other and share a name up to its first dot.

These are the rules of WebDataset: ``a/0001.jpg`` and ``a/0001.cls`` are the fields ``jpg`` and
``cls`` of the sample ``a/0001``. Members such as ``__meta__/info.json`` are left out.
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
_END = bytes(tarfile.BLOCKSIZE)

_NAME = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$", re.DOTALL)
#: Members about the tar, such as ``__meta__/info.json``, which are of no sample.
_META = re.compile(r"__[^/]*__(?:/|$)")


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
    plain: Any = _Forward(gzip.GzipFile(fileobj=file, mode="rb")) if compressed else file
    try:
        plain.seek(offset)
        for sample, ends_at in _grouped(_members(plain, offset), uri):
            yield Next(sample, ends_at)
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
        """`length` bytes, or fewer at the end."""
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


class Member(NamedTuple):
    """A regular file of a tar."""

    name: str
    content: bytes
    #: Where its header begins.
    offset: int
    #: Where the next header begins.
    end: int


def _grouped(members: Iterator[Member], uri: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Samples, each with the byte behind it."""
    sample: dict[str, Any] = {}
    end = 0
    for member in members:
        end = member.end
        found = _NAME.match(member.name)
        if found is None or _META.match(member.name):
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
        sample[extension] = member.content
    if sample:
        yield sample, end


def _members(file: Any, offset: int) -> Iterator[Member]:
    """The regular files of a tar, from this header on.

    Plain headers, nearly all of them, are read here, four times as fast as by Python's reader,
    which has all others: long names, extended headers, folders, links, what is damaged.
    """
    tar: tarfile.TarFile | None = None
    while True:
        header = file.read(tarfile.BLOCKSIZE)
        if header == _END:
            return
        # A header for all that follow may change their names and sizes.
        found = _plain(header) if tar is None or not _of(tar, "pax_headers") else None
        if found is not None:
            name, size = found
            padding = -size % tarfile.BLOCKSIZE
            content = file.read(size)
            if len(content) != size:
                raise tarfile.ReadError(f"it ends within the member {name!r}")
            file.read(padding)
            end = offset + tarfile.BLOCKSIZE + size + padding
            yield Member(name, content, offset, end)
            offset = end
            continue
        file.seek(offset)
        if tar is None:
            tar = tarfile.TarFile(fileobj=file, mode="r")
        else:
            # It keeps all its members otherwise.
            cast(Any, tar).members, cast(Any, tar).offset = [], offset
        member = tar.next()
        if member is None:
            _check_end(file, tar)
            return
        offset = _of(tar, "offset")
        if member.isreg():
            yield Member(member.name, _content(tar, member), member.offset, offset)
        file.seek(offset)


def _of(tar: tarfile.TarFile, name: str) -> Any:
    return getattr(tar, name)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    content = tar.extractfile(member)
    assert content is not None, "a regular file"
    data = content.read()
    if len(data) != member.size:
        raise tarfile.ReadError(f"it ends within the member {member.name!r}")
    return data


def _plain(header: bytes) -> tuple[str, int] | None:
    """Name and size in the header of a regular file that says all about it; else nothing."""
    # The type, the magic number, and a name that goes on elsewhere.
    if len(header) != tarfile.BLOCKSIZE or header[156] != 0x30 or header[257:262] != b"ustar" or \
            header[345]:
        return None
    try:
        size = int(header[124:136].rstrip(b" \0"), 8)
        checksum = int(header[148:156].rstrip(b" \0"), 8)
    except ValueError:
        return None
    # The sum of all bytes, those of the sum itself as spaces. Adler-32 has it in its lower half.
    total = (zlib.adler32(header) & 0xFFFF) - 1 - sum(header[148:156]) + 8 * 0x20
    if (total - checksum) % 65_521 or size < 0:
        return None
    return header[:100].partition(b"\0")[0].decode("utf-8", "surrogateescape"), size


def _check_end(file: Any, tar: tarfile.TarFile) -> None:
    """Python's reader takes a damaged header for the end of the tar."""
    file.seek(tar.offset)
    block = file.read(tarfile.BLOCKSIZE)
    if block.strip(b"\0"):
        raise tarfile.ReadError(f"the header at byte {tar.offset} is damaged")
