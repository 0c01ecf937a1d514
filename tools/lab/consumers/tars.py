#!/usr/bin/env python3
"""webdataset over tar files: tars.py NAME=URLS...

URLS is what webdataset takes: a path with braces, or `pipe:COMMAND`. `$DATA` in it is the folder of
the channels. Prints every field of every sample, in order, with its key in front.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import webdataset
from records import report


def fields(urls: str) -> Iterator[bytes]:
    """Every field of every sample."""
    for sample in webdataset.WebDataset(urls, shardshuffle=False):
        for name, value in sample.items():
            if not name.startswith("_"):
                yield f"{sample['__key__']}.{name}=".encode() + value


def main() -> None:
    """One data set after the other."""
    data = os.path.join(os.environ["SM_INPUT_DIR"], "data")
    for word in sys.argv[1:]:
        name, urls = word.split("=", 1)
        report(name, fields(urls.replace("$DATA", data)))


if __name__ == "__main__":
    main()
