"""Samples of a tar file: members that follow each other and share a name up to its first dot.

These are the rules of WebDataset: ``a/0001.jpg`` and ``a/0001.cls`` are the fields ``jpg`` and
``cls`` of the sample ``a/0001``.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, cast

#: What is read ahead of the headers of a tar, in bytes; larger members are read past it.
BUFFER_BYTES = 1 << 16

_NAME = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$", re.DOTALL)


class Next(NamedTuple):
    """A sample, and where the reading of the tar would go on behind it."""

    sample: dict[str, Any]
    #: The byte of the tar where the next sample begins; 0 where the tar is compressed.
    offset: int
    #: How many samples of the tar were before it, where it is compressed; else 0.
    skip: int


def samples(file: BinaryIO, uri: str, offset: int = 0, skip: int = 0) -> Iterator[Next]:
    """The samples of a tar, from where an earlier reading ended.

    One sample is in memory at a time. Names that end in ``.gz`` or ``.tgz`` are decompressed.

    :param file: the tar, at its beginning.
    :param uri: what it is called in errors and in ``__url__``.
    :param offset: the byte from which on it is read; of a compressed one 0.
    :param skip: so many samples are left out.
    :raises tarfile.ReadError: it is no tar, or damaged; the message has the address and the byte.
    :raises ValueError: two members of a sample have the same extension.
    """
    compressed = uri.endswith((".gz", ".tgz"))
    try:
        if compressed:
            tar = tarfile.open(fileobj=file, mode="r|gz")
        else:
            # Seeks within its buffer cost nothing: the reader of tars seeks at each header.
            buffered = io.BufferedReader(cast(Any, file), BUFFER_BYTES)
            buffered.seek(offset)
            if offset and not buffered.peek(1):
                return
            tar = tarfile.TarFile(fileobj=buffered, mode="r")
        passed = 0
        for sample, ends_at in _grouped(tar, uri):
            passed += 1
            if passed > skip:
                yield Next(sample, 0 if compressed else ends_at, passed if compressed else 0)
        if not compressed:
            _check_end(cast(BinaryIO, buffered), tar)
    except (tarfile.TarError, EOFError) as error:
        raise tarfile.ReadError(f"{uri}: {error}") from error


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


def _check_end(file: BinaryIO, tar: tarfile.TarFile) -> None:
    """Python's reader takes a damaged header for the end of the tar."""
    file.seek(tar.offset)
    block = file.read(tarfile.BLOCKSIZE)
    if block.strip(b"\0"):
        raise tarfile.ReadError(f"the header at byte {tar.offset} is damaged")
