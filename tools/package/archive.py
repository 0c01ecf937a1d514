"""Archives that are the same, byte for byte, whenever and wherever they are made."""

from __future__ import annotations

import gzip
import io
import tarfile
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A file, or with `content` None a folder."""

    path: str
    content: bytes | None = None
    mode: int = 0o644


def tar(entries: list[Entry], epoch: int) -> bytes:
    """A tar archive of these entries in this order, all of root and of one time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.mtime, info.mode = epoch, entry.mode
            if entry.content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(entry.content)
                archive.addfile(info, io.BytesIO(entry.content))
    return out.getvalue()


def compressed(content: bytes) -> bytes:
    """The bytes as gzip, without a name or a time."""
    return gzip.compress(content, compresslevel=9, mtime=0)
