"""The ring over epoll beside io_uring and beside other programs, in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab import measure
from lab.process import say

SPEED_LEAST = 0.8
"""What `--check` wants of epoll at least, as a part of io_uring's speed."""
CPU_MOST = 1.6
"""And how much of its CPU time at most."""
LARGE = {"gb_per_s": "GB/s", "cpu_s_per_gb": "CPU s/GB", "peak_rss_mib": "peak MiB"}
SMALL = {"files_per_s": "files/s", "cpu_us_per_file": "CPU us/file", "peak_rss_mib": "peak MiB"}

MakeContender = Callable[[Sequence[str]], measure.Contender]
"""Makes a contender of the options that it has more than the others."""


@dataclass(frozen=True)
class Case:
    """What is run over both rings."""

    make: MakeContender
    peers: Mapping[str, measure.Contender] = field(default_factory=dict)
    """Other programs that do the same."""


def beside(runs: int, warm_up: int, cases: Mapping[str, Case]) -> tuple[str, dict[str, object]]:
    """Runs each case over both rings, and its peers; the table and the figures."""
    tables: list[str] = []
    figures: dict[str, object] = {}
    for name, case in cases.items():
        columns = SMALL if name.startswith("small") else LARGE
        say(f"ring: {name}; medians of {runs}")
        contenders = {ring: case.make(("--ring", ring)) for ring in ("epoll", "io_uring")}
        contenders.update(case.peers)
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
        for pair, ratios in summary["ratios"].items():
            other = pair.removeprefix("epoll / ")
            ring = other == "io_uring"
            least, most = (SPEED_LEAST, CPU_MOST) if ring else (1.0, 1.0)
            speed = ratios.get("gb_per_s", ratios.get("files_per_s"))
            cost = ratios.get("cpu_s_per_gb", ratios.get("cpu_us_per_file"))
            if speed < least:
                found.append(f"ring: {name}: epoll has {speed:.3f} of the speed of {other}; "
                             f"wanted: at least {least:g}")
            if cost > most:
                found.append(f"ring: {name}: epoll takes {cost:.3f} of the CPU time of {other}; "
                             f"wanted: at most {most:g}")
    return found
