"""How the consumers report what they got, and how the lab says what they should get.

A consumer runs with the Python of its own environment, so this file needs nothing but Python 3.10.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable


def fingerprint(record: bytes) -> str:
    """A record, so short that thousands of them can be compared as text."""
    return f"{len(record)}:{hashlib.sha256(record).hexdigest()[:24]}"


def fingerprints(records: Iterable[bytes]) -> list[str]:
    """All of them, in order."""
    return [fingerprint(record) for record in records]


def report(source: str, records: Iterable[bytes]) -> None:
    """One line for what came from one source."""
    print(json.dumps({"source": source, "records": fingerprints(records)}), flush=True)


def reported(output: str) -> dict[str, list[str]]:
    """The records of each source; a second line for a source is an error, and any other line."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        entry = json.loads(line)
        if entry["source"] in found:
            raise ValueError(f"{entry['source']} has two lines")
        found[entry["source"]] = entry["records"]
    return found
