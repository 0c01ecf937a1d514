#!/usr/bin/env python3
"""A reader that is slower than the network, as a training job is.

    paced_reader.py PATH [--manner MANNER] [--epochs N] [--part-bytes N] [--enough SECONDS]
                    [--limit SECONDS]

PATH is the prefix of named pipes, which are read one after the other (PATH_0, PATH_1, ...), or `-`
for standard input. Manners:

    all                     as fast as it can (the default)
    rate:MB                 MB megabytes a second, in pieces of at most 1 MiB with sleeps
    bursts:SECONDS:BYTES    rests for SECONDS, then reads BYTES as fast as it can, and repeats
    rest:SECONDS:BYTES:MB   MB megabytes a second with one rest, after BYTES of an epoch

Prints a line of JSON for each epoch, or for each `--part-bytes` of it: its bytes, seconds and MB/s,
and when it began and ended by CLOCK_MONOTONIC, which all processes share. A part begins where the
one before ended, so the time between two epochs counts. After `--enough` seconds it begins no part
more; after `--limit` seconds or SIGTERM it prints the part it is in as incomplete and ends. It
fails with words on standard error if nothing comes for a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import time
from pathlib import Path
from types import FrameType

PIECE_BYTES = 1 << 20
UNPACED_BYTES = 16 << 20
"""The buffer of a reader that is as fast as it can."""
CATCH_UP_PIECES = 8
"""What a reader that was late may catch up: its own sleeps end late, too. More would hide that
nothing was there to be read."""
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
            raise SystemExit(f"{manner}: not all, rate:, bursts: or rest:")
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


class Reader:
    """Epochs in parts, and what was printed of them."""

    def __init__(self, manner: str, part_bytes: int, enough: float, limit: float) -> None:
        self.pace = Pace(manner)
        self.part_bytes = part_bytes
        started = time.monotonic()
        self.enough_at, self.deadline = started + enough, started + limit
        self.epoch = self.part = self.bytes = 0
        self.begun = 0.0

    def report(self, complete: bool) -> None:
        """Prints a part; the next one begins."""
        now = time.monotonic()
        seconds = now - self.begun
        print(json.dumps({
            "epoch": self.epoch, "part": self.part, "bytes": self.bytes, "seconds": seconds,
            "mb_per_s": self.bytes / 1e6 / seconds if seconds else 0.0, "begun": self.begun,
            "ended": now, "complete": complete}), flush=True)
        self.part, self.bytes, self.begun = self.part + 1, 0, now
        if complete and now >= self.enough_at:
            raise Over

    def read(self, stream: int) -> None:
        """Reads an epoch to its end, part by part."""
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        self.pace.begin()
        sleep_until(self.pace.due, self.deadline)
        while True:
            wait = min(WAIT_SECONDS, max(0.0, self.deadline - time.monotonic()))
            # Linux reports no hang-up before the first writer, so there is no false end.
            if not poll.poll(wait * 1000):
                if wait < WAIT_SECONDS:
                    raise Over
                raise SystemExit(f"epoch {self.epoch}: nothing comes after byte {self.bytes}")
            room = self.part_bytes - self.bytes if self.part_bytes else len(self.pace.buffer)
            count = os.readv(stream, [memoryview(self.pace.buffer)[:room]])
            if count == 0:
                break
            self.bytes += count
            due = self.pace.take(count)
            if self.bytes == self.part_bytes:
                self.report(complete=True)
            sleep_until(due, self.deadline)
        if self.bytes or not self.part_bytes:
            self.report(complete=True)

    def run(self, path: str, epochs: int) -> None:
        """Reads all epochs, or until its time is over."""
        try:
            for self.epoch in range(epochs):
                is_first = self.epoch == 0
                stream = 0 if path == "-" else open_pipe(Path(f"{path}_{self.epoch}"),
                                                         self.deadline)
                self.part = 0
                if is_first:
                    self.begun = time.monotonic()
                self.read(stream)
                os.close(stream)
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
    args = parser.parse_args()
    reader = Reader(args.manner, args.part_bytes, args.enough, args.limit)
    signal.signal(signal.SIGTERM, leave)
    reader.run(args.path, args.epochs)


if __name__ == "__main__":
    main()
