#!/usr/bin/env python3
"""A reader as training programs have it: a named pipe (or standard input), unbuffered, into one
buffer of 16 MiB until the end. Prints how many bytes there were; with `sha256` behind the path
their digest, too.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

BUFFER_BYTES = 16 << 20
WAIT_SECONDS = 60.0


def read_all(path: str, digest: bool) -> str:
    """Waits until the path is there, then reads it to its end; what to print of that."""
    deadline = time.monotonic() + WAIT_SECONDS
    while path != "-" and not Path(path).exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"{path} does not appear")
        time.sleep(0.001)
    buffer = bytearray(BUFFER_BYTES)
    total, sha256 = 0, hashlib.sha256()
    with open(0 if path == "-" else path, "rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            total += count
            if digest:
                sha256.update(memoryview(buffer)[:count])
    return f"{total} {sha256.hexdigest()}" if digest else str(total)


if __name__ == "__main__":
    print(read_all(sys.argv[1], sys.argv[2:] == ["sha256"]))
