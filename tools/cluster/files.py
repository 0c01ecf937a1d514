#!/usr/bin/env python3
"""Stands for a training program that reads files: files.py FOLDER

Prints the SHA-256 and the path of each file below the folder.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path


def main() -> None:
    """Reads everything once."""
    folder = Path(sys.argv[1])
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        print(hashlib.sha256(path.read_bytes()).hexdigest(), path.relative_to(folder))


if __name__ == "__main__":
    main()
