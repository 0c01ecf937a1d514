"""The dashboard for Grafana, with the types that Grafana makes from its schema.

It reads `tools/grafana/inrush.json` with grafana-foundation-sdk (from PyPI, into the build folder),
writes it again, and compares: a field that the schema does not have, or that has another value
there, is missing in what was written. Where the package cannot be had that is a failure, or with
`--may-skip dashboard` a line that says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab import install
from lab.driver import Add, Lab
from lab.process import LabError, must

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


def options(add: Add) -> None:
    """Of this check alone."""
    add("--board", type=Path, default=BOARD, metavar="FILE", help="(default: %(default)s)")


def run(lab: Lab) -> None:
    """Reads and compares."""
    try:
        python = install.program("grafana")
    except LabError as error:
        lab.miss("dashboard", f"no types of Grafana here: {error}")
        return
    board = lab.args.board
    kept = json.loads(must([python, READER, board], seconds=READ_SECONDS))
    ours = json.loads(board.read_text(encoding="utf-8"))
    lab.report("dashboard", "; ".join(lost(ours, kept)) or None, f"{len(ours['panels'])} panels")
