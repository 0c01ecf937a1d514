#!/usr/bin/env python3
"""CSV files in folders, as the XGBoost container finds them: tables.py CHANNEL...

It takes all files of a channel, down to three folders deep, and no other. Prints the rows of each
file, with its path below the channel.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

from records import report

FOLDERS_MAX = 3


def main() -> None:
    """One channel after the other."""
    for channel in sys.argv[1:]:
        folder = Path(os.environ[f"SM_CHANNEL_{channel.upper()}"])
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder)
            if len(name.parts) > FOLDERS_MAX + 1:
                raise SystemExit(f"{name} is too deep")
            with path.open(newline="", encoding="utf-8") as file:
                report(f"{channel}/{name}", ("\x1f".join(row).encode() for row in csv.reader(file)))


if __name__ == "__main__":
    main()
