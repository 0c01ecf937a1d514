"""Reads files through mappings, by commands on standard input: python3 mapper.py.

Each line of standard input is `WHAT PATH AT LENGTH TOUCHED`: PATH in hexadecimal, TOUCHED places in
the range that are read first, in this order, with commas. WHAT is `normal`, `random`, `sequential`
or `willneed`, which is the advice for the mapping (madvise(2)), or `readahead`, which is that
system call, and gives no bytes. The answer is a line `ok LENGTH`, and the bytes; or `error ERRNO`.
"""

import ctypes
import mmap
import os
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
ADVICE = {"normal": mmap.MADV_NORMAL, "random": mmap.MADV_RANDOM,
          "sequential": mmap.MADV_SEQUENTIAL, "willneed": mmap.MADV_WILLNEED}


def read_ahead(descriptor: int, at: int, length: int) -> bytes:
    """The system call readahead(2), which Python has not."""
    if LIBC.readahead(descriptor, ctypes.c_longlong(at), ctypes.c_size_t(length)) != 0:
        raise OSError(ctypes.get_errno(), "readahead")
    return b""


def read(descriptor: int, what: str, at: int, length: int, touched: list[int]) -> bytes:
    """These bytes of a mapping that begins on the page before them."""
    before = at % mmap.ALLOCATIONGRANULARITY
    with mmap.mmap(descriptor, before + length, prot=mmap.PROT_READ, offset=at - before) as mapped:
        mapped.madvise(ADVICE[what])
        for place in touched:
            mapped[before + place]
        return mapped[before:]


def answer(line: str) -> bytes:
    """What one line comes to."""
    what, path, at, length, touched = line.split(" ")
    places = [int(place) for place in touched.split(",") if place.strip()]
    descriptor = os.open(bytes.fromhex(path), os.O_RDONLY)
    try:
        if what == "readahead":
            return read_ahead(descriptor, int(at), int(length))
        return read(descriptor, what, int(at), int(length), places)
    finally:
        os.close(descriptor)


for line in sys.stdin:
    try:
        found = answer(line)
        sys.stdout.buffer.write(b"ok %d\n" % len(found) + found)
    except OSError as error:
        sys.stdout.buffer.write(b"error %d\n" % (error.errno or 0))
    sys.stdout.buffer.flush()
