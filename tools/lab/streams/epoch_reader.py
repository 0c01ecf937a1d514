#!/usr/bin/env python3
"""A reader that lives as long as the feeder it watches: epoch after epoch through named pipes.

    epoch_reader.py PIPE_PREFIX FEEDER_PID PACE_SECONDS MB_PER_S

Three of four epochs are read at MB_PER_S, as a training job would, and every fourth as fast as it
can; an epoch that takes less than PACE_SECONDS is followed by a rest. Prints a line of JSON for
each epoch: how many bytes, their SHA-256, and what the feeder has just before the next epoch is
opened. That is when it is at rest: everything it may fetch ahead is there. Ends with words on
standard error when nothing comes for a minute. A script beside `paced_reader`.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import sys
import time
from pathlib import Path

from paced_reader import WAIT_SECONDS, Pace, open_pipe, sleep_until

FAST_EVERY = 4
"""One epoch of this many is read as fast as it can be."""
STATUS = {"VmRSS": "rss_bytes", "VmHWM": "peak_bytes", "Threads": "threads"}


def read_epoch(path: Path, pace: Pace) -> tuple[int, str]:
    """Reads one pipe to its end: how many bytes, and their digest."""
    pipe = open_pipe(path, float("inf"))
    pace.begin()
    total, sha256 = 0, hashlib.sha256()
    try:
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while True:
            # Linux reports no hang-up before the first writer, so there is no false end.
            if not poll.poll(WAIT_SECONDS * 1000):
                raise SystemExit(f"{path.name}: nothing comes after byte {total}")
            count = os.readv(pipe, [pace.buffer])
            if count == 0:
                return total, sha256.hexdigest()
            total += count
            sha256.update(memoryview(pace.buffer)[:count])
            sleep_until(pace.take(count), float("inf"))
    finally:
        os.close(pipe)


def figures(pid: int, folder: Path) -> dict[str, int]:
    """What the feeder has: memory, threads, descriptors, names in its folder."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in STATUS:
            words = value.split()
            found[STATUS[name]] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return {**found, "descriptors": descriptors, "names": len(os.listdir(folder))}


def main() -> None:
    """Reads until it is ended."""
    prefix, pid, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    slow, fast = Pace(f"rate:{sys.argv[4]}"), Pace("all")
    epoch, due = 0, time.monotonic()
    while True:
        pace = fast if epoch % FAST_EVERY == FAST_EVERY - 1 else slow
        total, digest = read_epoch(prefix.with_name(f"{prefix.name}_{epoch}"), pace)
        due = max(due + seconds, time.monotonic())
        sleep_until(due, float("inf"))
        print(json.dumps({"epoch": epoch, "bytes": total, "sha256": digest,
                          **figures(pid, prefix.parent)}), flush=True)
        epoch += 1


if __name__ == "__main__":
    main()
