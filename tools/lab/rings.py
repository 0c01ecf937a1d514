"""The ring over epoll beside io_uring: the same runs with both, in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import measure
from .process import say

SPEED_LEAST = 0.8
"""What `--check` wants of epoll at least, as a part of io_uring's speed."""
CPU_MOST = 1.6
"""And how much of its CPU time at most."""
LARGE = {"gb_per_s": "GB/s", "cpu_s_per_gb": "CPU s/GB", "peak_rss_mib": "peak MiB"}
SMALL = {"files_per_s": "files/s", "cpu_us_per_file": "CPU us/file", "peak_rss_mib": "peak MiB"}

MakeContender = Callable[[Sequence[str]], measure.Contender]
"""Makes a contender of the options that it has more than the others."""


def beside(runs: int, warm_up: int, cases: Mapping[str, MakeContender]
           ) -> tuple[str, dict[str, object]]:
    """Runs each case over both rings; the table and the figures."""
    tables: list[str] = []
    figures: dict[str, object] = {}
    for name, make in cases.items():
        columns = SMALL if name.startswith("small") else LARGE
        say(f"ring: {name}; medians of {runs}")
        contenders = {ring: make(("--ring", ring)) for ring in ("epoll", "io_uring")}
        samples = measure.rounds(contenders, warm_up, runs)
        ratios = {column: column for column in columns}
        summary = measure.summarise(samples, columns, "epoll", ratios)
        tables.append(measure.table(name, summary, columns))
        figures[name] = summary
    return "\n".join(tables), {"title": "ring: epoll beside io_uring", "cases": figures}


def complaints(figures: Mapping[str, Any]) -> list[str]:
    """What `--check` finds wrong."""
    found = []
    for name, summary in figures["cases"].items():
        ratios = summary["ratios"]["epoll / io_uring"]
        speed = ratios.get("gb_per_s", ratios.get("files_per_s"))
        cost = ratios.get("cpu_s_per_gb", ratios.get("cpu_us_per_file"))
        if speed < SPEED_LEAST:
            found.append(f"ring: {name}: epoll has {speed:.3f} of io_uring's speed; wanted: at "
                         f"least {SPEED_LEAST:g}")
        if cost > CPU_MOST:
            found.append(f"ring: {name}: epoll takes {cost:.3f} of io_uring's CPU time; wanted: "
                         f"at most {CPU_MOST:g}")
    return found
