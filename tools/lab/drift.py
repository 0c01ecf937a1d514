"""Whether a figure of a long run stays flat: the median of its last quarter beside the first's.

Pure, so what it says is itself seen to be right on series that are made up: `self_test`. The first
tenth warms up and does not count. Shrinking is no drift.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.process import LabError, say

WARM_UP_SHARE = 0.1
SAMPLES_MIN = 12
MIB = 1 << 20


@dataclass(frozen=True)
class Limit:
    """A figure and by how much it may grow."""

    name: str
    unit: str
    tolerance: float


@dataclass(frozen=True)
class Drift:
    """A figure at both ends of a run."""

    limit: Limit
    samples: int
    first: float
    last: float

    @property
    def complaint(self) -> str | None:
        """What is wrong with it; `None` when it stays flat."""
        limit = self.limit
        if self.samples < SAMPLES_MIN:
            return f"{limit.name}: {self.samples} samples, not {SAMPLES_MIN}: run it for longer"
        if self.last - self.first <= limit.tolerance:
            return None
        return (f"{limit.name} grew from {self.first:g} to {self.last:g} {limit.unit}, "
                f"by more than {limit.tolerance:g}").replace(" ,", ",")

    def line(self) -> str:
        """One row of the table."""
        limit = self.limit
        return (f"{limit.name:24}{self.first:>15,.1f}{self.last:>15,.1f}{limit.tolerance:>15,.1f}  "
                f"{limit.unit}").rstrip()


def table(drifts: Sequence[Drift]) -> list[str]:
    """Prints a row for each; what is wrong with them."""
    say(f"{'median':24}{'first quarter':>15}{'last quarter':>15}{'may grow by':>15}")
    for each in drifts:
        say(each.line())
    return [each.complaint for each in drifts if each.complaint]


def measure(limit: Limit, series: Sequence[float]) -> Drift:
    """The medians of the first and the last quarter of what counts."""
    counted = series[int(len(series) * WARM_UP_SHARE):]
    quarter = len(counted) // 4
    if quarter == 0:
        return Drift(limit, len(series), 0.0, 0.0)
    return Drift(limit, len(series), statistics.median(counted[:quarter]),
                 statistics.median(counted[-quarter:]))


def doctored() -> Iterator[tuple[str, list[float], bool]]:
    """Series of a figure that may grow by 2; whether there is something wrong with them."""
    noise = random.Random(7)
    count = 400
    flat = [70.0 + noise.randint(-5, 5) for _ in range(count)]
    yield "flat", flat, False
    yield "as short as may be", flat[:1] * SAMPLES_MIN, False
    yield "too short", flat[:SAMPLES_MIN - 1], True
    yield "one more every fifty", [value + at // 50 for at, value in enumerate(flat)], True
    yield "a step in the middle", [value + 5 * (at > 220) for at, value in enumerate(flat)], True
    yield "growth in a warm-up", [value - 20 * (at < 40) for at, value in enumerate(flat)], False
    yield "peaks now and then", [value + 50 * (at % 9 == 0) for at, value in enumerate(flat)], False
    yield "a saw", [70.0 + at % 20 for at in range(count)], False
    yield "what is given back", [value - at // 50 for at, value in enumerate(flat)], False


def self_test() -> None:
    """Fails unless the measure finds the growing ones among those series, and no other."""
    limit = Limit("figure", "", 2)
    for name, series, wrong in doctored():
        drift = measure(limit, series)
        if (drift.complaint is not None) != wrong:
            raise LabError(f"the measure of drift is wrong about {name!r}: {drift}")
