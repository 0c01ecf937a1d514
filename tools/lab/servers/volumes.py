"""Filesystems to download to: the temp folder's own, and XFS and ext4 on loop devices.

Loop mounts are made in a mount namespace of this process, and an image is unlinked as soon as it
is mounted: even after SIGKILL nothing stays mounted and no space stays taken.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lab.install import find, system_program
from lab.process import LIBC, LabError, must

CLONE_NEWNS = 0x0002_0000
MS_BIND = 0x1000
MS_REC_PRIVATE = 0x4000 | (1 << 18)
IMAGE_BYTES = 3 << 30


@dataclass(frozen=True)
class Volume:
    """A folder on a known filesystem."""

    name: str
    path: Path


@dataclass(frozen=True)
class Skipped:
    """What could not be had, and why."""

    name: str
    reason: str


def filesystem_of(path: Path) -> str:
    """The filesystem's name, as `df` prints it."""
    return must(["df", "--output=fstype", path]).split()[-1]


def private_mounts() -> str | None:
    """Gives this process mounts of its own; the reason when that is not allowed."""
    if os.geteuid() != 0:
        return "not root"
    if LIBC.unshare(CLONE_NEWNS) != 0:
        return f"no mount namespace: {os.strerror(ctypes.get_errno())}"
    if LIBC.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC_PRIVATE), None) != 0:
        return f"mounts cannot be made private: {os.strerror(ctypes.get_errno())}"
    return None


def add_hosts(stack: ExitStack, temp: Path, names: list[str]) -> str | None:
    """Lets `names` mean loopback for this process and its children; the reason when it cannot."""
    hosts = Path("/etc/hosts")
    copy = temp / "hosts"
    copy.write_text(hosts.read_text() + "\n127.0.0.1 " + " ".join(names) + "\n")
    if LIBC.mount(os.fsencode(copy), os.fsencode(hosts), None, ctypes.c_ulong(MS_BIND), None) != 0:
        return f"names cannot be added: {os.strerror(ctypes.get_errno())}"
    stack.callback(must, [find("umount") or "umount", hosts])
    return None


def loop_volume(stack: ExitStack, temp: Path, kind: str) -> Volume | Skipped:
    """A fresh filesystem of `kind` in a sparse image."""
    if not Path("/dev/loop-control").exists():
        return Skipped(kind, "no loop devices")
    image, point = temp / f"{kind}.img", temp / f"{kind}.mount"
    try:
        mkfs = system_program(f"mkfs.{kind}")
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        must([mkfs, "-q", image])
        point.mkdir()
        must([find("mount") or "mount", "-t", kind, "-o", "loop", image, point])
    except LabError as error:
        return Skipped(kind, str(error))
    finally:
        image.unlink(missing_ok=True)
    stack.callback(must, [find("umount") or "umount", point])
    return Volume(f"{kind} on loop", point)


def volumes(stack: ExitStack, temp: Path, no_mounts: str | None) -> list[Volume | Skipped]:
    """The temp folder's filesystem and what loop devices add to it.

    `no_mounts` is the reason why mounting is out of the question, if it is.
    """
    own = temp / "own"
    own.mkdir()
    kind = filesystem_of(own)
    found: list[Volume | Skipped] = [Volume(kind, own)]
    for extra in ("xfs", "ext4"):
        if extra != kind:
            found.append(Skipped(extra, no_mounts) if no_mounts
                         else loop_volume(stack, temp, extra))
    return found
