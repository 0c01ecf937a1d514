#!/usr/bin/env python3
"""What is measured: how near inrush is to what this machine can do, and to other programs.

Medians of runs that take turns, every second round backwards; a ratio is the median of those within
the rounds. `tools/bench.py NAME --help` describes a measurement and its options.
"""

import sys

from lab import driver
from lab.benches import experiment, loaders, mounts, programs, sections
from lab.driver import Part

PARTS = {
    **{name: Part(sections.run, section.__doc__ or "", sections.options)
       for name, section in sections.SECTIONS.items()},
    "compare": driver.of(programs, needs_programs=False, on_disk=True),
    "mounts": driver.of(mounts, on_disk=True), "loaders": driver.of(loaders, on_disk=True),
    "python": driver.of(experiment)}

if __name__ == "__main__":
    sys.exit(driver.main(__doc__, PARTS, ["large", "small"], [driver.of_measurements]))
