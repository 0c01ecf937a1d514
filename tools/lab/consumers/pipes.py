#!/usr/bin/env python3
"""Readers of Pipe channels as they are written in training programs, with the standard library.

    pipes.py WAY CHANNEL EPOCHS

* bring: as AWS's examples of algorithms that one brings along. Looks for the name ten times a
  second, opens the pipe without a buffer and reads 16 MiB at once.
* patient: as the MLIO library. Opens the pipe without waiting for its writer, tries three times and
  one second apart, waits with select(2) for the first byte and wherever there is none, and takes it
  for an error when there is still none after that.
* recordio: RecordIO as MXNet reads it, from the description of the format.

Prints what each epoch delivers: its bytes as one record, or its records.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from records import report

APPEAR_SECONDS = 60.0
BRING_BYTES = 16 << 20
PATIENT_BYTES = 1 << 20
PATIENT_ATTEMPTS = 3
PATIENT_SECONDS = 60.0
MAGIC = 0xCED7230A
WHOLE, FIRST, MIDDLE, LAST = range(4)


def appear(pipe: Path) -> None:
    """Waits for the name."""
    deadline = time.monotonic() + APPEAR_SECONDS
    while not pipe.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"{pipe.name} does not appear")
        time.sleep(0.1)


def bring(pipe: Path) -> Iterator[bytes]:
    """The bytes of one epoch."""
    appear(pipe)
    buffer, epoch = bytearray(BRING_BYTES), bytearray()
    with pipe.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            epoch += memoryview(buffer)[:count]
    yield bytes(epoch)


def open_patient(pipe: Path) -> int:
    """The pipe, which has to be there within two seconds."""
    for attempt in range(PATIENT_ATTEMPTS):
        try:
            return os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            if attempt + 1 == PATIENT_ATTEMPTS:
                raise
            time.sleep(1.0)
    raise AssertionError


def wait_for_data(descriptor: int) -> None:
    """Until there is something to read, or the end."""
    if not select.select([descriptor], [], [], PATIENT_SECONDS)[0]:
        raise SystemExit("Platform Error: SageMaker pipe channel timed out.")


def read_patient(descriptor: int) -> bytes:
    """What there is; nothing at the end."""
    attempts = 0
    while True:
        try:
            return os.read(descriptor, PATIENT_BYTES)
        except BlockingIOError:
            attempts += 1
            if attempts > 2:
                raise
            if attempts == 1:
                os.sched_yield()
            else:
                wait_for_data(descriptor)


def patient(pipe: Path) -> Iterator[bytes]:
    """The bytes of one epoch."""
    descriptor, epoch = open_patient(pipe), bytearray()
    try:
        wait_for_data(descriptor)
        while piece := read_patient(descriptor):
            epoch += piece
    finally:
        os.close(descriptor)
    yield bytes(epoch)


def recordio(pipe: Path) -> Iterator[bytes]:
    """The records of one epoch. Pieces of a record were cut where the magic number stood on a
    multiple of four, and the number was left out: it is put back."""
    appear(pipe)
    record = bytearray()
    begun = False
    with pipe.open("rb") as file:
        while head := file.read(8):
            magic, word = struct.unpack("<II", head)
            kind, length = word >> 29, word & ((1 << 29) - 1)
            if magic != MAGIC:
                raise SystemExit("Record IO header does not start with the magic number")
            if (kind in (WHOLE, FIRST)) == begun or kind > LAST:
                raise SystemExit(f"a piece of kind {kind} is out of its place")
            piece = file.read(length + -length % 4)
            if len(piece) < length or any(piece[length:]):
                raise SystemExit("the record is cut short, or not padded with zeros")
            record += (struct.pack("<I", MAGIC) if begun else b"") + piece[:length]
            begun = kind in (FIRST, MIDDLE)
            if not begun:
                yield bytes(record)
                record.clear()
    if begun:
        raise SystemExit("the last record has no end")


def main() -> None:
    """Reads the epochs one after the other."""
    way = {"bring": bring, "patient": patient, "recordio": recordio}[sys.argv[1]]
    folder, channel = Path(os.environ["SM_INPUT_DIR"]) / "data", sys.argv[2]
    for epoch in range(int(sys.argv[3])):
        name = f"{channel}_{epoch}"
        report(name, way(folder / name))


if __name__ == "__main__":
    main()
