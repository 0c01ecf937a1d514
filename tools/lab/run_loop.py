#!/usr/bin/env python3
"""Runs one loop and prints what it read, how long it took, and what it cost.

    run_loop.py WORKLOAD LOOP DIGEST TASK

What is measured begins when everything is imported and clients are made, and ends when the loop and
the processes that it started have ended. DIGEST is 1 where every byte is looked at, too. TASK is a
file of JSON.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import resource
import sys
import time
import zlib
from pathlib import Path
from typing import Any

# What a loop imports must not find a module of this folder.
sys.path.pop(0)
sys.path.append(str(Path(__file__).resolve().parents[1]))

from lab.loops.shared import Task  # noqa: E402

MODULUS = 1 << 64
LEAVE_SECONDS = 30.0


def used() -> tuple[float, float]:
    """Seconds of the processor in user mode and in the kernel, of children that ended, too."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime for usage in both), sum(usage.ru_stime for usage in both)


def measured(workload: str, name: str, digest: bool, task: Task) -> dict[str, Any]:
    """One pass: how many samples and bytes, their digest, and the price."""
    started = time.monotonic()
    loops = importlib.import_module(f"lab.loops.{workload}").LOOPS
    epoch = loops[name](task)
    gc.collect()
    begun, before = time.monotonic(), used()
    count, size, total = 0, 0, 0
    for sample in epoch():
        count += 1
        size += len(sample)
        if digest:
            total += zlib.crc32(sample)
    seconds = time.monotonic() - begun
    # Workers of a loader are counted once they have ended.
    del epoch
    gc.collect()
    for child in multiprocessing.active_children():
        child.join(LEAVE_SECONDS)
    after = used()
    return {"samples": count, "bytes": size, "digest": total % MODULUS if digest else None,
            "prepare_seconds": begun - started, "seconds": seconds,
            "user_seconds": after[0] - before[0], "system_seconds": after[1] - before[1]}


def main() -> None:
    """Prints one line of JSON, the last of standard output."""
    workload, name, digest, task = sys.argv[1:]
    found = measured(workload, name, digest == "1", Task(**json.loads(Path(task).read_text())))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
