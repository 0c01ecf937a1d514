"""Rounds, medians and tables.

Contenders take turns within a round, and every second round goes backwards, so that a machine that
slows down or speeds up does so for all. A ratio is the median of the ratios within the rounds. The
first rounds warm up and are not counted; each run is checked before it counts.
"""

from __future__ import annotations

import os
import platform
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.process import LabError, Outcome, must, note

GB = 1e9
LIMIT_LINE = re.compile(r"([\d.]+) GB/s\s+(?:producer )?cpu ([\d.]+) s/GB")


@dataclass(frozen=True)
class Sample:
    """One run: what it moved, how long it took from start to exit, and at what price."""

    bytes: int
    files: int
    seconds: float
    cpu_seconds: float
    user_seconds: float
    """The part of it outside the kernel; 0 where it is not known."""
    peak_rss_bytes: int
    own_gb_per_s: float
    """What the program says of itself, its own start and end aside."""

    @property
    def gb_per_s(self) -> float:
        """Speed over the whole life of the process."""
        return self.bytes / GB / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU-seconds for each GB, in user mode and in the kernel."""
        return self.cpu_seconds / (self.bytes / GB)

    @property
    def cpu_s_per_tb(self) -> float:
        """CPU-seconds for each TB, in user mode and in the kernel."""
        return self.cpu_s_per_gb * 1e3

    @property
    def files_per_s(self) -> float:
        """Files over the whole life of the process."""
        return self.files / self.seconds

    @property
    def cpu_us_per_file(self) -> float:
        """CPU-microseconds for each file."""
        return self.cpu_seconds * 1e6 / self.files

    @property
    def user_us_per_file(self) -> float:
        """CPU-microseconds for each file outside the kernel, which vary least."""
        return self.user_seconds * 1e6 / self.files

    @property
    def peak_rss_mib(self) -> float:
        """The highest resident size, in MiB."""
        return self.peak_rss_bytes / (1 << 20)


Contender = Callable[[bool], Sample]
"""Makes one run; when asked to, it also compares every byte."""


def figures_of_limit(output: str) -> tuple[float, float]:
    """GB/s and CPU-seconds for each GB from the line of a limit program."""
    found = LIMIT_LINE.search(output)
    if not found:
        raise LabError(f"no line of a limit program: {output[:200]!r}")
    return float(found[1]), float(found[2])


def rounds(contenders: Mapping[str, Contender], warm_up: int, runs: int,
           failures: dict[str, str] | None = None) -> dict[str, list[Sample]]:
    """Runs everybody in turn; the samples that count. Who fails ends it all, or with `failures`
    only leaves it, with a reason there and without samples."""
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for number in range(warm_up + runs):
        order = list(samples)[:: 1 if number % 2 == 0 else -1]
        for name in order:
            counted = number >= warm_up
            try:
                sample = contenders[name](number == 0)
            except LabError as error:
                if failures is None:
                    raise
                note(f"  {error}")
                failures[name] = str(error)
                del samples[name]
                continue
            note(f"  {name}: {sample.seconds:.3f} s, {sample.gb_per_s:.3f} GB/s, "
                 f"CPU {sample.cpu_seconds:.3f} s{'' if counted else ' (warm-up)'}")
            if counted:
                samples[name].append(sample)
    return samples


def of_outcome(outcome: Outcome, name: str, size: int, files: int,
               own_gb_per_s: float = 0.0) -> Sample:
    """A run that had to end well, and to move `size` bytes in `files` files."""
    outcome.well(name)
    return Sample(
        bytes=size, files=files, seconds=outcome.seconds, cpu_seconds=outcome.cpu_seconds,
        user_seconds=outcome.user_seconds, peak_rss_bytes=outcome.peak_rss_bytes,
        own_gb_per_s=own_gb_per_s)


@dataclass(frozen=True)
class Bound:
    """What a median or a ratio has to be, by its row and column."""

    row: str
    column: str
    value: float
    is_most: bool = False

    def complaints(self, figures: Mapping[str, Any]) -> list[str]:
        """What is wrong with figures, if anything."""
        found = {**figures["medians"], **figures["ratios"]}[self.row][self.column]
        if found <= self.value if self.is_most else found >= self.value:
            return []
        side = "most" if self.is_most else "least"
        return [f"{self.row}: {self.column} is {found:,.5g}; wanted: at {side} {self.value:,g}"]


def spread(samples: Sequence[Sample], column: str) -> float:
    """The difference of the most and the least of one column, as a part of its median."""
    values = [float(getattr(sample, column)) for sample in samples]
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def median(samples: Sequence[Sample], column: str) -> float:
    """The median of one column."""
    return statistics.median(float(getattr(sample, column)) for sample in samples)


def ratio(left: Sequence[Sample], right: Sequence[Sample], over: str, under: str) -> float:
    """The median of `over`/`under` within each round; 0 when there is nothing to divide by."""
    pairs = [(getattr(a, over), getattr(b, under)) for a, b in zip(left, right, strict=True)]
    return statistics.median(a / b if b else 0.0 for a, b in pairs)


def summarise(samples: Mapping[str, Sequence[Sample]], columns: Mapping[str, str],
              first: str, against: Mapping[str, str]) -> dict[str, Any]:
    """Medians of all columns, and the ratios of `first` to the others.

    `against` names, for a column of `first`, the column of the others that it is divided by.
    """
    return {
        "runs": {name: [asdict(sample) for sample in taken] for name, taken in samples.items()},
        "medians": {name: {column: median(taken, column) for column in columns}
                    for name, taken in samples.items()},
        "ratios": {f"{first} / {name}": {over: ratio(samples[first], taken, over, under)
                                         for over, under in against.items()}
                   for name, taken in samples.items() if against and name != first},
    }


def table(summary: Mapping[str, Any], columns: Mapping[str, str]) -> str:
    """A short table: one row for each contender, one for each ratio."""
    width = 24
    lines = [" " * width + "".join(f"{head:>14}" for head in columns.values())]
    for kind, form in (("medians", "{:14.3f}"), ("ratios", "{:13.3f}x")):
        for name, values in summary[kind].items():
            cells = (form.format(values[column]) if column in values else " " * 14
                     for column in columns)
            lines.append(f"{name:{width}}" + "".join(cells))
    return "\n".join(lines)


def machine(disk: Path) -> dict[str, object]:
    """What the figures depend on."""
    information = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", information)
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "kernel": platform.release(), "cpus": len(os.sched_getaffinity(0)),
        "cpu": model[1] if model else platform.machine(),
        "memory_bytes": int(memory[1]) * 1024 if memory else 0,
        "filesystem": must(["df", "--output=fstype", disk]).split()[-1],
        "load": os.getloadavg()[0],
    }
