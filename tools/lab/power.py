"""What a disk may hold after a power failure, from a log of all that was written to it.

A flush makes durable what was written before it. What was written after the last flush may be
there, in part or not at all, in any order, and torn at the boundaries of sectors.
"""

from __future__ import annotations

import mmap
import os
import random
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lab.compare import first_difference
from lab.install import TOOLS
from lab.process import LabError, Server, must
from lab.servers.device import FLUSH, RECORD

READY_SECONDS = 10.0
SECTOR_BYTES = 4096
"""Of disks today. With a block that is torn within it ext4 cannot be mounted: its superblock has a
checksum."""
IMAGE_BYTES = 512 << 20

SHARES = (0.0, 0.5, 0.5, 0.9, 1.0)
"""How much of what was not flushed is on the disk."""
TORN_SHARE = 0.25
"""Of these writes, where not all or none is there."""


@dataclass(frozen=True)
class Kind:
    """A file system: how it is made, mounted and checked."""

    make: Sequence[str]
    mount: Sequence[str]
    check: Sequence[str]


EXT4 = Kind(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0"], ["-t", "ext4", "-o", "loop"],
            ["e2fsck", "-f", "-n"])
KINDS = {
    "ext4": EXT4,
    "xfs": Kind(["mkfs.xfs", "-q", "-f"], ["-t", "xfs", "-o", "loop"], ["xfs_repair", "-n", "-f"]),
    # A file's length may be on the disk before its bytes are.
    "writeback": replace(EXT4, mount=["-t", "ext4", "-o", "loop,data=writeback,nodelalloc"])}


@dataclass(frozen=True)
class Logged:
    """A file system on a device that logs."""

    kind: Kind
    point: Path
    base: Path
    """The disk before the first write of the log."""
    served: Path
    """The disk as the device has it."""
    log: Path

    def position(self) -> int:
        """How much is in the log now, in bytes."""
        return self.log.stat().st_size


def copy(source: Path, target: Path) -> None:
    """Copies a disk; zeros become holes."""
    must(["cp", "--sparse=always", source, target])


@contextmanager
def mounted(kind: Kind, disk: Path, point: Path) -> Iterator[Path]:
    """While inside, the file system of a file is mounted."""
    point.mkdir(exist_ok=True)
    must(["mount", *kind.mount, disk, point])
    try:
        yield point
    finally:
        must(["umount", point])


@contextmanager
def logged(kind: Kind, folder: Path) -> Iterator[Logged]:
    """While inside, a new file system of this kind is mounted on a device that logs."""
    made = Logged(kind, *(folder / name for name in ("mount", "base", "served", "log")))
    made.base.touch()
    os.truncate(made.base, IMAGE_BYTES)
    must([*kind.make, made.base])
    copy(made.base, made.served)
    device = folder / "device"
    device.touch()
    program = TOOLS / "lab/servers/device.py"
    server = Server([sys.executable, program, made.served, device, made.log], folder / "device.log")
    try:
        if not server.wait_ready(lambda: device.stat().st_size > 0, READY_SECONDS):
            raise LabError(f"the device does not answer: {server.last_words()}")
        with mounted(kind, device, made.point):
            yield made
        must(["umount", device])
        if not server.ends(READY_SECONDS) or server.child.returncode:
            raise LabError(f"the device has failed: {server.last_words()}")
    finally:
        server.stop()


class Disk:
    """The states of the disk of a log, in the order of their cuts."""

    def __init__(self, of: Logged) -> None:
        self.served, self.base = of.served, of.base.with_name("advanced")
        copy(of.base, self.base)
        with of.log.open("rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.records: list[tuple[bytes, int, int, int]] = []
        """Each with the place of its bytes."""
        self.ends: list[int] = []
        at = 0
        while at < len(self.bytes):
            kind, offset, length = RECORD.unpack_from(self.bytes, at)
            self.records.append((kind, offset, length, at + RECORD.size))
            at += RECORD.size + length
            self.ends.append(at)
        self.done = 0
        """Records that are in the base."""

    def index(self, position: int) -> int:
        """The number of records before this position of the log."""
        return bisect_right(self.ends, position)

    def write(self, disk: int, number: int, chance: random.Random | None = None) -> None:
        """Writes a record's bytes, or with `chance` some of its sectors."""
        _, offset, length, at = self.records[number]
        piece = SECTOR_BYTES if chance else max(length, 1)
        for start in range(0, length, piece):
            if chance is None or chance.random() < 0.5:
                os.pwrite(disk, self.bytes[at + start:at + min(start + piece, length)],
                          offset + start)

    def advance(self, index: int) -> None:
        """Writes the records before this one to the base."""
        if index < self.done:
            raise LabError("cuts are not in order")
        with self.base.open("r+b") as disk:
            for number in range(self.done, index):
                self.write(disk.fileno(), number)
        self.done = index

    def is_whole(self) -> bool:
        """Whether the log has all that the device was given. Then it is at its end."""
        self.advance(len(self.records))
        return first_difference(self.base, self.served) is None

    def cut(self, index: int, image: Path, chance: random.Random, lost: int = 0) -> None:
        """Makes the disk as it may be when the power fails after this number of records. With
        `lost`, that number of flushes before have done nothing, and all that came since is gone."""
        flushes = [number for number in range(index) if self.records[number][0] == FLUSH]
        flushed = flushes[-1 - lost] if len(flushes) > lost else 0
        self.advance(flushed)
        copy(self.base, image)
        share = 0.0 if lost else chance.choice(SHARES)
        with image.open("r+b") as disk:
            for number in range(flushed, index):
                if chance.random() < share:
                    torn = share < 1 and chance.random() < TORN_SHARE
                    self.write(disk.fileno(), number, chance if torn else None)
