#!/usr/bin/env python3
"""What is checked from outside: other servers, other programs, many hours, what people install.

Each check prints a line for each case and a closing line. Exit code 1: a case failed; 2: the lab
could not do its work. Servers listen on loopback only, and what was made is gone at the end; what
is installed from PyPI stays in the build folder. `tools/check.py NAME --help` describes a check.
"""

import sys

from lab import driver
from lab.checks import (cluster, completions, dashboard, everyday, interleavings, interop, kernels,
                        memcheck, memory, metrics, mount_soak, mutate, package, page, powercut,
                        python, readers, soak)

PARTS = {
    "interop": driver.of(interop), "everyday": driver.of(everyday),
    "completions": driver.of(completions), "readers": driver.of(readers),
    "cluster": driver.of(cluster), "soak": driver.of(soak),
    "mount-soak": driver.of(mount_soak, on_disk=True), "memory": driver.of(memory),
    "metrics": driver.of(metrics), "dashboard": driver.of(dashboard, needs_programs=False),
    "page": driver.of(page), "python": driver.of(python, needs_programs=False),
    "package": driver.of(package, needs_programs=False),
    "interleavings": driver.of(interleavings, needs_programs=False),
    "kernels": driver.of(kernels, needs_programs=False),
    "memcheck": driver.of(memcheck, needs_programs=False), "powercut": driver.of(powercut),
    "mutate": driver.of(mutate, needs_programs=False)}

if __name__ == "__main__":
    sys.exit(driver.main(__doc__, PARTS, more=[soak.faults]))
