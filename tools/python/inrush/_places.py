"""Listings that are kept: objects of prefixes and manifests, compactly, and how they are chosen."""

from __future__ import annotations

import hashlib
import json
import operator
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Union, cast

from ._errors import NotFound, from_native
from ._native import ObjectInfo

if TYPE_CHECKING:
    from . import Client

#: Most bytes that one kept listing takes, as in the command.
LISTING_BYTES_MAX = 4 << 30
#: Most bytes of a manifest that is read.
MANIFEST_BYTES_MAX = 1 << 30
#: The size of an object that is not known, since a manifest names it.
UNKNOWN = 2**64 - 1

Source = Union[str, ObjectInfo, Iterable[Union[str, ObjectInfo]]]


def split(uri: str) -> tuple[str, str]:
    """Bucket and key of an address; the key is taken literally and may be empty.

    :raises ValueError: it is no address of S3.
    """
    scheme, separator, rest = uri.partition("://")
    if scheme != "s3" or not separator:
        raise ValueError(f"'{uri}' is no address: expected s3://BUCKET/KEY")
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise ValueError(f"'{uri}' has no bucket: expected s3://BUCKET/KEY")
    return bucket, key


class Listing(Sequence[Union[str, ObjectInfo]]):
    """Objects in an order, in a few buffers: 24 bytes each, the URI and the ETag.

    What a client reads: an `ObjectInfo`, or the address where nothing else is known, as of a
    manifest. Workers that are forked share the pages; for others it is one pickle of bytes.
    """

    def __init__(self) -> None:
        # Surrogates: names that are not UTF-8 come and go unchanged.
        self._uris, self._etags = bytearray(), bytearray()
        self._uri_ends, self._etag_ends, self._sizes = array("Q"), array("Q"), array("Q")

    def push(self, uri: str, size: int | None, etag: str | None) -> None:
        """Adds an object behind the others.

        :raises MemoryError: the listing would take more than `LISTING_BYTES_MAX`.
        """
        self._uris += uri.encode("utf-8", "surrogateescape")
        self._etags += (etag or "").encode("utf-8", "surrogateescape")
        self._uri_ends.append(len(self._uris))
        self._etag_ends.append(len(self._etags))
        self._sizes.append(UNKNOWN if size is None else size)
        if len(self._uris) + len(self._etags) + 24 * len(self) > LISTING_BYTES_MAX:
            raise MemoryError(f"the listing takes more than {LISTING_BYTES_MAX} bytes: "
                              "read a smaller prefix at a time")

    def __len__(self) -> int:
        return len(self._uri_ends)

    def uri(self, index: int) -> str:
        """The address of an object."""
        return _part(self._uris, self._uri_ends, index)

    def size(self, index: int) -> int | None:
        """The size of an object in bytes; None where only a manifest names it."""
        size = self._sizes[index]
        return None if size == UNKNOWN else size

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        index = operator.index(index)
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"object {index} of {len(self)}")
        size = self.size(index)
        if size is None:
            return self.uri(index)
        etag = _part(self._etags, self._etag_ends, index)
        return ObjectInfo(self.uri(index), size, etag or None)

    def fingerprint(self) -> str:
        """A hash of all addresses in their order, by which a resumed run knows its listing."""
        digest = hashlib.sha256(self._uri_ends.tobytes())
        digest.update(self._uris)
        return digest.hexdigest()[:32]


def _part(text: bytearray, ends: array[int], index: int) -> str:
    start = ends[index - 1] if index else 0
    return text[start:ends[index]].decode("utf-8", "surrogateescape")


def listing(client: Client, source: Source, *, manifest: str | None = None,
            suffix: str | tuple[str, ...] = "") -> Listing:
    """Lists what is to be read.

    A string that ends in a slash, or that has no key, is a prefix; another string is one object.
    Of a prefix the objects come in key order, without marks of folders (keys that end in a slash,
    of no bytes), so that object number `i` is that of the command's ``--shard``. Several sources
    follow each other.

    :param source: an address, an `ObjectInfo`, or several of them.
    :param manifest: the address or the path of a ManifestFile of SageMaker; then `source` is not
        used, and the objects are in the order of the manifest.
    :param suffix: takes only the objects of a prefix whose keys end so.
    :raises FileNotFoundError: a prefix has no objects that are taken, or an object is not there.
    :raises ValueError: there are no sources, one is no address, or the manifest is none.
    :raises inrush.Error: a request failed.
    """
    kept = Listing()
    if manifest is not None:
        for uri in _manifest(client, manifest):
            kept.push(uri, None, None)
        return kept
    sources = [source] if isinstance(source, str) or _is_info(source) else source
    for one in cast(Iterable[Any], sources):
        if not isinstance(one, str):
            kept.push(one.uri, one.size, one.etag)
            continue
        _, key = split(one)
        if key and not key.endswith("/"):
            info = _object(client, one)
            kept.push(info.uri, info.size, info.etag)
            continue
        before = len(kept)
        for info in _objects(client, one):
            if info.key.endswith(suffix):
                kept.push(info.uri, info.size, info.etag)
        if len(kept) == before:
            what = f" whose keys end in {suffix!r}" if suffix else ""
            raise FileNotFoundError(f"{one} has no objects{what}")
    if not kept:
        raise ValueError("there are no sources: give an address, several of them, or a manifest")
    return kept


def _is_info(source: object) -> bool:
    return hasattr(source, "uri") and hasattr(source, "size")


def _object(client: Client, uri: str) -> ObjectInfo:
    try:
        return client.stat(uri)
    except NotFound as error:
        message = f"{error}; for a folder, add a slash: {uri}/"
        raise from_native(error.kind, message, uri, error.attempts, error.request_id) from None


def _objects(client: Client, prefix: str) -> Iterator[ObjectInfo]:
    for info in client.list(prefix, recursive=True):
        if info.size > 0 or not info.uri.endswith("/"):
            yield info


def _manifest(client: Client, place: str) -> list[str]:
    """The addresses of a ManifestFile: each entry behind the first is appended to its prefix."""
    if place.startswith("s3://"):
        info = client.stat(place)
        if info.size > MANIFEST_BYTES_MAX:
            raise ValueError(f"{place} has more than {MANIFEST_BYTES_MAX} bytes")
        text = client.read(info)
    else:
        with open(place, "rb") as file:
            text = file.read(MANIFEST_BYTES_MAX + 1)
        if len(text) > MANIFEST_BYTES_MAX:
            raise ValueError(f"{place} has more than {MANIFEST_BYTES_MAX} bytes")
    why = f"{place} is not a manifest: "
    advice = '; expected [{"prefix": "s3://BUCKET/PREFIX"}, "KEY", ...]'
    try:
        # What editors of Windows put before the first character.
        entries = json.loads(text.decode("utf-8-sig"))
    except ValueError as error:
        raise ValueError(why + str(error)[:1000] + advice) from None
    head = entries[0] if isinstance(entries, list) and entries else None
    prefix = head.get("prefix") if isinstance(head, dict) else None
    if not isinstance(prefix, str):
        raise ValueError(why + 'entry 0 has no "prefix", a string' + advice)
    split(prefix)
    for index, entry in enumerate(entries[1:], 1):
        if not isinstance(entry, str) or not split(prefix + entry)[1]:
            raise ValueError(f"{why}entry {index} is no key{advice}")
    if len(entries) == 1:
        raise ValueError(why + "it has no objects" + advice)
    return [prefix + entry for entry in entries[1:]]
