"""Processor time that the hypervisor gave to other machines while this one had work (`steal` of
proc_stat(5)). A figure that was measured meanwhile says little about the program.
"""

from __future__ import annotations

import os
from pathlib import Path

STEAL_FIELD = 8
"""Of the line `cpu`: user, nice, system, idle, iowait, irq, softirq, steal."""


def now_seconds() -> float:
    """Of all processors, since the machine started."""
    first, _, _ = Path("/proc/stat").read_text().partition("\n")
    return int(first.split()[STEAL_FIELD]) / os.sysconf("SC_CLK_TCK")


def share(stolen_seconds: float, passed_seconds: float) -> float:
    """Of the time of all processors."""
    return stolen_seconds / passed_seconds / (os.cpu_count() or 1) if passed_seconds > 0 else 0.0
