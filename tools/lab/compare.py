"""A downloaded tree against the one it came from: every byte, no more, no less."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.process import LabError
from lab.servers.listing import Entry

BLOCK = 1 << 20
TEMPORARY = ".inrush"
COMPLAINTS_MAX = 5


def first_difference(ours: Path, theirs: Path) -> int | None:
    """The offset of the first byte that differs, or of the shorter file's end."""
    offset = 0
    with ours.open("rb") as left, theirs.open("rb") as right:
        while True:
            a, b = left.read(BLOCK), right.read(BLOCK)
            if a != b:
                short = min(len(a), len(b))
                return offset + next((i for i in range(short) if a[i] != b[i]), short)
            if not a:
                return None
            offset += len(a)


def complain(key: str, file: Path, entry: Entry) -> str | None:
    """What is wrong with one file, if anything."""
    shown = key if len(key) <= 60 else f"{key[:40]}...({len(key.encode())} bytes)"
    if not file.is_file() or file.is_symlink():
        return f"{shown!r} is missing"
    if file.stat().st_size != entry.size:
        return f"{shown!r} has {file.stat().st_size} bytes, not {entry.size}"
    at = first_difference(file, entry.path)
    return None if at is None else f"{shown!r} differs at byte {at}"


def trees(destination: Path, entries: Sequence[Entry], prefix: str) -> list[str]:
    """What is wrong in `destination` after a download of `prefix`; empty when nothing is."""
    wanted = {entry.key[len(prefix):]: entry for entry in entries if entry.key.startswith(prefix)}
    complaints = []
    for path in destination.rglob("*"):
        key = path.relative_to(destination).as_posix()
        if path.name.startswith(TEMPORARY):
            complaints.append(f"{key!r} was left behind")
        elif not path.is_dir() and key not in wanted:
            complaints.append(f"{key!r} is no object")
    for key, entry in wanted.items():
        complaint = complain(key, destination / key, entry)
        if complaint:
            complaints.append(complaint)
    return complaints


def names_and_sizes(destination: Path, entries: Sequence[Entry], prefix: str) -> list[str]:
    """Compares names and sizes, and reads no file."""
    found = {path.relative_to(destination).as_posix(): path.stat().st_size
             for path in destination.rglob("*") if path.is_file()}
    wanted = [entry for entry in entries if entry.key.startswith(prefix)]
    right = found == {entry.key[len(prefix):]: entry.size for entry in wanted}
    return [] if right else [f"{len(found)} files are not the {len(wanted)} objects"]


def require(destination: Path, entries: Sequence[Entry], prefix: str, name: str,
            every_byte: bool) -> None:
    """Sees that the run of `name` left the objects of `prefix` and nothing else."""
    look = trees if every_byte else names_and_sizes
    complaints = look(destination, entries, prefix)
    if complaints:
        raise LabError(f"{name}: {summary(complaints)}")


def summary(complaints: Sequence[str]) -> str:
    """The first few complaints on one line."""
    more = len(complaints) - COMPLAINTS_MAX
    shown = "; ".join(complaints[:COMPLAINTS_MAX])
    return f"{shown}; and {more} more" if more > 0 else shown
