"""Reads metrics with the parser of Prometheus' own client library, as long as somebody serves them.

    scrapes.py URL SECONDS       one line of JSON for each scrape, one every SECONDS
    scrapes.py FILE              one line for what the file has

A line has `types` and `values` by name, and `labels` of what has any. A text that the parser
refuses ends it with exit code 1. Run with the Python of a venv that has prometheus_client.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

GONE_SECONDS = 3.0
"""Time without an answer after which the program that served has ended."""


def read(text: str) -> dict[str, object]:
    """What a text of metrics says."""
    types, values, labels = {}, {}, {}
    for family in text_string_to_metric_families(text):
        if not family.samples:
            raise ValueError(f"{family.name} has no sample")
        for sample in family.samples:
            if sample.name in values:
                raise ValueError(f"{sample.name} comes twice")
            types[sample.name] = family.type
            values[sample.name] = sample.value
            if sample.labels:
                labels[sample.name] = sample.labels
    return {"types": types, "values": values, "labels": labels}


def main() -> int:
    """The exit code."""
    where = sys.argv[1]
    if not where.startswith("http"):
        print(json.dumps(read(Path(where).read_text())))
        return 0
    pause, seen = float(sys.argv[2]), time.monotonic()
    while time.monotonic() - seen < max(GONE_SECONDS, 2 * pause):
        try:
            with urllib.request.urlopen(where, timeout=5) as answer:
                text = answer.read().decode()
        except (urllib.error.URLError, http.client.HTTPException, OSError):
            time.sleep(0.1)
            continue
        seen = time.monotonic()
        print(json.dumps(read(text)), flush=True)
        time.sleep(pause)
    return 0


if __name__ == "__main__":
    sys.exit(main())
