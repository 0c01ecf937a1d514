"""The ring over epoll beside io_uring and beside other programs, in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lab.benches.ground import FILES, SPEED, Bench, Figures
from lab.measure import Bound, Contender
from lab.process import Word

SPEED_LEAST, CPU_MOST = 0.8, 1.6
"""What `--check` wants of epoll as parts of io_uring's speed and CPU time."""
SMALL = ("files_per_s", "cpu_us_per_file", "peak_rss_mib")


@dataclass(frozen=True)
class Case:
    """What is run over both rings: made of the options that a contender has more."""

    make: Callable[[Sequence[Word]], Contender]
    peers: Mapping[str, Contender] = field(default_factory=dict)
    """Other programs that do the same."""


def beside(bench: Bench, cases: Mapping[str, Case]) -> Figures:
    """Runs each case over both rings, and its peers."""
    found: Figures = {}
    for name in bench.lab.chosen("case", cases):
        case = cases[name]
        columns = {column: FILES[column] for column in SMALL} if name.startswith("small") else SPEED
        speed, cost, _ = columns
        contenders = {ring: case.make(("--ring", ring)) for ring in ("epoll", "io_uring")}
        bounds = [Bound("epoll / io_uring", speed, SPEED_LEAST),
                  Bound("epoll / io_uring", cost, CPU_MOST, is_most=True)]
        for other in case.peers:
            bounds += [Bound(f"epoll / {other}", speed, 1.0),
                       Bound(f"epoll / {other}", cost, 1.0, is_most=True)]
        found[name] = bench.finish(f"ring: {name}", {**contenders, **case.peers}, columns,
                                   tuple(columns), *bounds)
    return {"cases": found, "complaints": [
        f"{name}: {complaint}" for name, figures in found.items()
        for complaint in figures["complaints"]]}
