#!/usr/bin/env python3
"""Stands for a training program that reads pipes beside `inrush pipe`.

    pipes.py CHANNEL EPOCHS [SECONDS]

Prints the SHA-256 and the number of bytes of each epoch. An epoch without its marker is not whole,
because what fed the pipe has failed: the program ends with exit code 1, and the job is run again.
So it does when nothing comes for SECONDS (300): the pipe may have lost its writer for ever.
"""

from __future__ import annotations

import hashlib
import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BLOCK = 1 << 20


def open_pipe(pipe: Path, seconds: float) -> int:
    """The pipe, once it has a name: the other container lists the bucket first. Opened without
    waiting for a writer, so that poll(2) can do that for a limited time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            return os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            time.sleep(0.1)
    sys.exit(f"{pipe.name} does not appear within {seconds:.0f} s")


def blocks(pipe: Path, seconds: float) -> Iterator[bytes]:
    """The bytes of an epoch, to their end."""
    descriptor = open_pipe(pipe, seconds)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        # Linux reports no hang-up before the first writer, so there is no false end.
        while poll.poll(seconds * 1000):
            block = os.read(descriptor, BLOCK)
            if not block:
                return
            yield block
        sys.exit(f"{pipe.name}: nothing comes for {seconds:.0f} s")
    finally:
        os.close(descriptor)


def main() -> None:
    """The epochs, one after the other."""
    channel = Path(sys.argv[1])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 300.0
    for epoch in range(int(sys.argv[2])):
        pipe = channel.with_name(f"{channel.name}_{epoch}")
        count, sha256 = 0, hashlib.sha256()
        for block in blocks(pipe, seconds):
            count += len(block)
            sha256.update(block)
        if not Path(f"{pipe}.ok").exists():
            sys.exit(f"epoch {epoch} is not whole: {count} bytes came, and no marker")
        print(sha256.hexdigest(), count, flush=True)


if __name__ == "__main__":
    main()
