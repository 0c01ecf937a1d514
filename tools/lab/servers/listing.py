"""ListObjectsV2 as static XML pages, and the nginx maps that choose among them.

A page is chosen by the raw query: encoding-type, prefix and continuation-token. Raw means
percent-encoded, and clients differ in what they encode, so each prefix and token is known in all
the spellings that mean the same. What the pages cannot answer (a delimiter, start-after, a prefix
that was not prepared, a made-up token) is refused with an error, never with an empty list.

Out of scope: delimiters, `max-keys` other than the page size, versions.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape

PAGE_KEYS = 1_000
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
QUOTES = {'"': "&quot;"}


@dataclass(frozen=True)
class Entry:
    """One object: its key and its file."""

    key: str
    path: Path
    size: int
    mtime: int

    @property
    def etag(self) -> str:
        """The entity tag that nginx makes from a file's times and length."""
        return f'"{self.mtime:x}-{self.size:x}"'


def scan(bucket: Path) -> list[Entry]:
    """All objects of a bucket's folder, keys in the order of their UTF-8 bytes."""
    entries = []
    for path in bucket.rglob("*"):
        if path.is_file():
            stat = path.stat()
            key = path.relative_to(bucket).as_posix()
            entries.append(Entry(key, path, stat.st_size, int(stat.st_mtime)))
    return sorted(entries, key=lambda entry: entry.key.encode())


def digest(entries: Sequence[Entry]) -> tuple[int, str]:
    """The length and the SHA-256 of all objects, one behind the other."""
    sha256 = hashlib.sha256()
    for entry in entries:
        sha256.update(entry.path.read_bytes())
    return sum(entry.size for entry in entries), sha256.hexdigest()


def spellings(text: str) -> set[str]:
    """How clients may write `text` in a query string; letter case of hex digits aside."""
    safe = ("", "/", "/=", "/~")
    return {quote(text, safe=letters) for letters in safe} | {quote_plus(text)}


def token(page: int) -> str:
    """The token that leads to `page`: none for the first, then one that needs encoding."""
    return "" if page == 0 else f"page/{page}+more=="


def contents(entry: Entry, url: bool) -> str:
    """The element of one object."""
    when = datetime.datetime.fromtimestamp(entry.mtime, datetime.timezone.utc)
    key = quote_plus(entry.key, safe="/") if url else escape(entry.key, QUOTES)
    return (f"<Contents><Key>{key}</Key>"
            f"<LastModified>{when:%Y-%m-%dT%H:%M:%S}.000Z</LastModified>"
            f"<ETag>{escape(entry.etag, QUOTES)}</ETag><Size>{entry.size}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>")


def page_xml(bucket: str, prefix: str, entries: Sequence[Entry], page: int, more: bool,
             url: bool) -> str:
    """One answer to ListObjectsV2."""
    shown = quote(prefix, safe="/") if url else escape(prefix, QUOTES)
    given = f"<ContinuationToken>{token(page)}</ContinuationToken>" if page else ""
    following = f"<NextContinuationToken>{token(page + 1)}</NextContinuationToken>" if more else ""
    encoding = "<EncodingType>url</EncodingType>" if url else ""
    return ('<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<ListBucketResult xmlns="{NAMESPACE}"><Name>{bucket}</Name>'
            f"<Prefix>{shown}</Prefix>{given}{following}<KeyCount>{len(entries)}</KeyCount>"
            f"<MaxKeys>{PAGE_KEYS}</MaxKeys>{encoding}"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{''.join(contents(entry, url) for entry in entries)}</ListBucketResult>\n")


def write_pages(folder: Path, bucket: str, entries: Sequence[Entry],
                prefixes: Iterable[str]) -> dict[str, str]:
    """Writes all pages of a bucket below `folder`; the map from raw query to page."""
    choices: dict[str, str] = {}
    for number, prefix in enumerate(dict.fromkeys(["", *prefixes])):
        below = [entry for entry in entries if entry.key.startswith(prefix)]
        starts = range(0, max(len(below), 1), PAGE_KEYS)
        for page, start in enumerate(starts):
            for mode in ("", "url"):
                name = f"{bucket}/{number}-{page}{mode}.xml"
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                part = below[start:start + PAGE_KEYS]
                more = page + 1 < len(starts)
                path.write_text(page_xml(bucket, prefix, part, page, more, mode == "url"))
                for ours in spellings(prefix):
                    for theirs in spellings(token(page)):
                        choices.setdefault(f"{bucket}:{mode}:{ours}:{theirs}".lower(), name)
    return choices


def maps(choices: dict[str, str]) -> str:
    """The nginx maps from `$args` to `$lab_page`, and to `$lab_refused` for what pages lack."""
    rows = "".join(f'    "{query}" "{name}";\n' for query, name in sorted(choices.items()))
    arguments = "".join(
        f'map $args $lab_{name} {{ default ""; "~(?:^|&){argument}=(?<found_{name}>[^&]*)" '
        f"$found_{name}; }}\n"
        for name, argument in (("encoding", "encoding-type"), ("prefix", "prefix"),
                               ("token", "continuation-token")))
    return (f"{arguments}"
            'map $args $lab_refused { default 0; "~(?:^|&)(?:delimiter|start-after)=[^&]" 1; }\n'
            'map "$lab_bucket:$lab_encoding:$lab_prefix:$lab_token" $lab_page {\n'
            f'    default "absent";\n{rows}}}\n')
