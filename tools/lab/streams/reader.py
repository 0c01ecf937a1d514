#!/usr/bin/env python3
"""A reader of streams, as training programs have it.

    reader.py PATH [--manner MANNER] [--epochs N] [--part-bytes N] [--enough SECONDS]
              [--limit SECONDS] [--least SECONDS] [--sha256] [--watch PID]

PATH is the prefix of named pipes, which are read one after the other (PATH_0, PATH_1, ...), or `-`
for standard input. Manners:

    all                     as fast as it can (the default)
    rate:MB                 MB megabytes a second, in pieces of at most 1 MiB with sleeps
    training:MB             that for three of four epochs, and each fourth as fast as it can
    bursts:SECONDS:BYTES    rests for SECONDS, then reads BYTES as fast as it can, and repeats
    rest:SECONDS:BYTES:MB   MB megabytes a second with one rest, after BYTES of an epoch

Prints a line of JSON for each epoch, or for each `--part-bytes` of it: its bytes, seconds and MB/s,
and when it began and ended by CLOCK_MONOTONIC, which all processes share; with `--sha256` their
digest, too. A part begins where the one before ended, so the time between two epochs counts. After
`--enough` seconds it begins no part more; after `--limit` seconds or SIGTERM it prints the part it
is in as incomplete and ends. It fails with words on standard error if nothing comes for a minute.

A part that takes less than `--least` seconds is followed by a rest. With `--watch` a line also has
what that process has then, just before the next pipe is opened: it is at rest, and everything that
it may fetch ahead is there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

PIECE_BYTES = 1 << 20
UNPACED_BYTES = 16 << 20
"""The buffer of a reader that is as fast as it can."""
CATCH_UP_PIECES = 8
"""What a reader that was late may catch up: its own sleeps end late, too. More would hide that
nothing was there to be read."""
FAST_EVERY = 4
"""One epoch of this many is read as fast as it can be, in training."""
STATUS = {"VmRSS": "rss_bytes", "VmHWM": "peak_bytes", "Threads": "threads"}
WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.002


class Over(Exception):
    """The reader's time is over."""


class Pace:
    """When the next piece may be read."""

    def __init__(self, manner: str) -> None:
        name, *numbers = manner.split(":")
        self.rate = 0.0
        self.rest_seconds = 0.0
        self.rest_bytes = 0.0
        self.is_repeated = name == "bursts"
        if name == "rate":
            (self.rate,) = map(float, numbers)
        elif name == "bursts":
            self.rest_seconds, self.rest_bytes = map(float, numbers)
        elif name == "rest":
            self.rest_seconds, self.rest_bytes, self.rate = map(float, numbers)
        elif name != "all":
            raise SystemExit(f"{manner}: not all, rate:, training:, bursts: or rest:")
        self.rate *= 1e6
        self.buffer = bytearray(UNPACED_BYTES if name == "all" else PIECE_BYTES)
        # Bursts begin with a rest: the one after an epoch's last byte belongs to the next epoch.
        self.due = time.monotonic() + (self.rest_seconds if self.is_repeated else 0.0)
        self.left = self.rest_bytes

    def begin(self) -> None:
        """An epoch begins; the rest of one that rests once is to come again."""
        self.due = max(self.due, time.monotonic() - self.late_most())
        if not self.is_repeated:
            self.left = self.rest_bytes

    def late_most(self) -> float:
        """How far behind its pace a reader may catch up."""
        return CATCH_UP_PIECES * PIECE_BYTES / self.rate if self.rate else 0.0

    def take(self, count: int) -> float:
        """Counts bytes that were read, and returns when to read on."""
        now = time.monotonic()
        if self.rate:
            self.due = max(self.due + count / self.rate, now - self.late_most())
        else:
            self.due = now
        if self.rest_seconds and self.left > 0:
            self.left -= count
            if self.left <= 0:
                self.due = max(self.due, now) + self.rest_seconds
                self.left = self.rest_bytes if self.is_repeated else 0
        return self.due


def open_pipe(path: Path, deadline: float) -> int:
    """The pipe, once it has a name. Without waiting for its writer: that has no deadline."""
    limit = min(deadline, time.monotonic() + WAIT_SECONDS)
    while time.monotonic() < limit:
        try:
            return os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            time.sleep(LOOK_SECONDS)
    if limit == deadline:
        raise Over
    raise SystemExit(f"{path.name} does not appear")


def sleep_until(due: float, deadline: float) -> None:
    """Sleeps, but not beyond the deadline."""
    time.sleep(max(0.0, min(due, deadline) - time.monotonic()))
    if time.monotonic() >= deadline:
        raise Over


def figures(pid: int, folder: Path) -> dict[str, int]:
    """What a process has: memory, threads, descriptors, names in its folder."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in STATUS:
            words = value.split()
            found[STATUS[name]] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return {**found, "descriptors": descriptors, "names": len(os.listdir(folder))}


class Reader:
    """Epochs in parts, and what was printed of them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.is_training = args.manner.startswith("training:")
        self.usual, self.fast = Pace(args.manner.replace("training:", "rate:")), Pace("all")
        self.part_bytes = args.part_bytes
        started = time.monotonic()
        self.enough_at, self.deadline = started + args.enough, started + args.limit
        self.epoch = self.part = self.bytes = 0
        self.begun, self.due = 0.0, started
        self.sha256 = hashlib.sha256()

    @property
    def pace(self) -> Pace:
        """How this epoch is read."""
        is_fast = self.is_training and self.epoch % FAST_EVERY == FAST_EVERY - 1
        return self.fast if is_fast else self.usual

    def report(self, complete: bool) -> None:
        """Prints a part; the next one begins."""
        now = time.monotonic()
        seconds = now - self.begun
        found: dict[str, Any] = {
            "epoch": self.epoch, "part": self.part, "bytes": self.bytes, "seconds": seconds,
            "mb_per_s": self.bytes / 1e6 / seconds if seconds else 0.0, "begun": self.begun,
            "ended": now, "complete": complete}
        if self.args.sha256:
            found["sha256"], self.sha256 = self.sha256.hexdigest(), hashlib.sha256()
        self.due = max(self.due + self.args.least, now)
        sleep_until(self.due, float("inf"))
        if self.args.watch:
            found |= figures(self.args.watch, Path(self.args.path).parent)
        print(json.dumps(found), flush=True)
        self.part, self.bytes, self.begun = self.part + 1, 0, now
        if complete and now >= self.enough_at:
            raise Over

    def read(self, stream: int) -> None:
        """Reads an epoch to its end, part by part."""
        poll, pace = select.poll(), self.pace
        poll.register(stream, select.POLLIN)
        pace.begin()
        sleep_until(pace.due, self.deadline)
        while True:
            wait = min(WAIT_SECONDS, max(0.0, self.deadline - time.monotonic()))
            # Linux reports no hang-up before the first writer, so there is no false end.
            if not poll.poll(wait * 1000):
                if wait < WAIT_SECONDS:
                    raise Over
                raise SystemExit(f"epoch {self.epoch}: nothing comes after byte {self.bytes}")
            room = self.part_bytes - self.bytes if self.part_bytes else len(pace.buffer)
            piece = memoryview(pace.buffer)[:room]
            count = os.readv(stream, [piece])
            if count == 0:
                break
            self.bytes += count
            if self.args.sha256:
                self.sha256.update(piece[:count])
            due = pace.take(count)
            if self.bytes == self.part_bytes:
                self.report(complete=True)
            sleep_until(due, self.deadline)
        os.close(stream)
        if self.bytes or not self.part_bytes:
            self.report(complete=True)

    def run(self) -> None:
        """Reads all epochs, or until its time is over."""
        path = self.args.path
        try:
            for self.epoch in range(self.args.epochs):
                is_first = self.epoch == 0
                stream = 0 if path == "-" else open_pipe(Path(f"{path}_{self.epoch}"),
                                                         self.deadline)
                self.part = 0
                if is_first:
                    self.begun = time.monotonic()
                self.read(stream)
        except Over:
            if self.bytes:
                self.report(complete=False)


def leave(_number: int, _frame: FrameType | None) -> None:
    """On SIGTERM: the time is over."""
    raise Over


def main() -> None:
    """Reads what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("path")
    add("--manner", default="all")
    add("--epochs", type=int, default=1)
    add("--part-bytes", type=int, default=0)
    add("--enough", type=float, default=float("inf"))
    add("--limit", type=float, default=float("inf"))
    add("--least", type=float, default=0.0)
    add("--sha256", action="store_true")
    add("--watch", type=int)
    reader = Reader(parser.parse_args())
    signal.signal(signal.SIGTERM, leave)
    reader.run()


if __name__ == "__main__":
    main()
