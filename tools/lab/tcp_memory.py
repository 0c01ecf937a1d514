"""The memory that the kernel holds for all TCP sockets of the machine, sampled five times a second.

A socket whose program does not read fills its receive buffer, of up to 32 MiB. Beyond
`net.ipv4.tcp_mem` the kernel drops what arrives, on every connection of the machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType

from lab import stolen

SAMPLE_SECONDS = 0.2
GROWTH_MIB_MAX = 300.0
"""What a run may add to the memory that TCP had when it began."""
SAMPLES_MAX = 200_000
"""How many are kept, the last ones: 11 hours."""
MIB = 1 << 20


def now_mib() -> float:
    """What `TCP: ... mem` of /proc/net/sockstat says, in MiB; it counts pages."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        if line.startswith("TCP:"):
            words = line.split()
            return int(words[words.index("mem") + 1]) * os.sysconf("SC_PAGE_SIZE") / MIB
    return 0.0


class Sampler:
    """Samples in a thread for as long as it is entered."""

    def __init__(self) -> None:
        self.start_mib = now_mib()
        self.max_mib = self.start_mib
        self.samples: deque[tuple[float, float, float]] = deque(maxlen=SAMPLES_MAX)
        """Times of CLOCK_MONOTONIC, MiB, and processor seconds stolen since the machine started."""
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        """Until it is left."""
        while not self.is_over.wait(SAMPLE_SECONDS):
            mib = now_mib()
            self.max_mib = max(self.max_mib, mib)
            self.samples.append((time.monotonic(), mib, stolen.now_seconds()))

    def __enter__(self) -> Sampler:
        self.thread.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None,
                 _trace: TracebackType | None) -> None:
        self.is_over.set()
        self.thread.join()

    def complaints(self) -> list[str]:
        """What is wrong with how much it grew, if anything."""
        grown = self.max_mib - self.start_mib
        return [f"TCP memory grew by {grown:,.0f} MiB; wanted: at most {GROWTH_MIB_MAX:g}"
                ] if grown > GROWTH_MIB_MAX else []

    def peak_mib(self, begun: float, ended: float) -> float:
        """The most between two times of CLOCK_MONOTONIC; the start's, where nothing was sampled."""
        within = (mib for at, mib, _ in list(self.samples)
                  if begun <= at <= ended + SAMPLE_SECONDS)
        return max(within, default=self.start_mib)

    def stolen_share(self, begun: float, ended: float) -> float:
        """Of all processors' time between two times, what the hypervisor gave to others."""
        within = [(at, seconds) for at, _, seconds in list(self.samples) if begun <= at <= ended]
        if len(within) < 2:
            return 0.0
        (first, before), (last, after) = within[0], within[-1]
        return stolen.share(after - before, last - first)
