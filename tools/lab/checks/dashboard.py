"""Checks the dashboard for Grafana with the types that Grafana makes from its schema.

    tools/check.py dashboard [--may-skip] [FILE]

It reads `tools/grafana/inrush.json` with grafana-foundation-sdk (from PyPI, into the build folder),
writes it again, and compares: a field that the schema does not have, or that has another value
there, is missing in what was written. Without the package that is a failure, or with --may-skip a
line that says so.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab import install, process
from lab.process import LabError, must, say
from lab.tally import Counts

BOARD = install.TOOLS / "grafana/inrush.json"
READER = install.CONSUMERS / "dashboard.py"
READ_SECONDS = 60.0


def lost(ours: Any, kept: Any, place: str = "") -> Iterator[str]:
    """What is in our JSON and was not kept as it is."""
    if isinstance(ours, dict) and isinstance(kept, dict):
        for name, value in ours.items():
            if name in kept:
                yield from lost(value, kept[name], f"{place}/{name}")
            else:
                yield f"{place}/{name} is not in the schema"
    elif isinstance(ours, list) and isinstance(kept, list) and len(ours) == len(kept):
        for number, (one, other) in enumerate(zip(ours, kept)):
            yield from lost(one, other, f"{place}[{number}]")
    elif ours != kept:
        yield f"{place} became {kept!r}"


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("board", nargs="?", type=Path, default=BOARD, metavar="FILE",
                        help="the dashboard (default: %(default)s)")
    parser.add_argument("--may-skip", action="store_true",
                        help="where the package cannot be had, say so and exit with 0")
    args = parser.parse_args()
    process.unwind_on_signals()
    try:
        python = install.grafana()
    except LabError as error:
        say(f"{'SKIPPED' if args.may_skip else 'FAILED'}: no types of Grafana here: {error}")
        return 0 if args.may_skip else 2
    counts = Counts()
    try:
        kept = json.loads(must([python, READER, args.board], seconds=READ_SECONDS))
        ours = json.loads(args.board.read_text(encoding="utf-8"))
        complaints = list(lost(ours, kept))
        counts.report("dashboard", "; ".join(complaints) or None, f"{len(ours['panels'])} panels")
    except LabError as error:
        say(f"FAILED: {error}")
        return 2
    return 1 if counts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
