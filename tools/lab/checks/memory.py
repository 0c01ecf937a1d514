"""The memory of inrush: bounded, whatever the size and number of the objects.

One huge object and very many tiny ones come from the in-repo origin, which computes them, and go to
nowhere and to disk: with the default flags the peak resident size stays under 300 MiB, and with
`--memory 64MiB` under 128 MiB. A case that needs more room than the disk has is skipped.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lab import client
from lab.driver import Add, Lab
from lab.process import LabError, Outcome

MIB = 1 << 20
GIB = 1 << 30
BUCKET = "memory"
KEY_BYTES = 1
KEY_FOLDERS = 16
DISK_BYTES_OF_KEY = 8192
"""What a file of one byte takes at most: a block, and its share of inode and folder."""
DISK_MARGIN_BYTES = 2 * GIB
RUN_SECONDS = 1800.0
LIMIT_BYTES = 300 * MIB
LIMIT_BYTES_SMALL = 128 * MIB
SMALL = ("--memory", "64MiB")


@dataclass(frozen=True)
class Load:
    """Objects under one prefix."""

    name: str
    prefix: str
    objects: int
    bytes_each: int
    disk_bytes: int


@dataclass(frozen=True)
class Case:
    """One run and the memory it may take."""

    load: Load
    to_disk: bool
    options: tuple[str, ...]
    limit_bytes: int

    @property
    def name(self) -> str:
        """How it is called in its line."""
        where = "to disk" if self.to_disk else "to nowhere"
        return " ".join((self.load.name, where, *self.options))


def loads(size_gib: int, keys: int) -> list[Load]:
    """The huge one and the many."""
    size = size_gib * GIB
    return [Load(f"1 object of {size_gib} GiB", "huge/", 1, size, size),
            Load(f"{keys:,} objects of {KEY_BYTES} byte", "many/", keys, KEY_BYTES,
                 keys * DISK_BYTES_OF_KEY)]


def cases(of: list[Load]) -> list[Case]:
    """Every load to nowhere and to disk, with the default memory and with little."""
    return [Case(load, to_disk, options, limit)
            for load in of for to_disk in (False, True)
            for options, limit in (((), LIMIT_BYTES), (SMALL, LIMIT_BYTES_SMALL))]


def synthetic(of: list[Load]) -> list[str]:
    """The origin's arguments for these objects."""
    sets = [f"{BUCKET}/{load.prefix}:{load.objects}:{load.bytes_each}"
            + (f":folders={KEY_FOLDERS}" if load.objects > KEY_FOLDERS else "") for load in of]
    return [word for text in sets for word in ("--synthetic", text)]


def complaint(case: Case, outcome: Outcome, destination: Path | None) -> str | None:
    """What is wrong with a run; `None` when nothing is."""
    if outcome.trouble:
        return outcome.trouble
    summary = client.summary(outcome)
    wanted = {"objects": case.load.objects, "bytes": case.load.objects * case.load.bytes_each}
    wrong = [f"{summary[name]} {name} of {count}" for name, count in wanted.items()
             if summary[name] != count]
    if wrong:
        return ", ".join(wrong)
    if destination and written(destination) != (wanted["objects"], wanted["bytes"]):
        return "{} files of {} bytes are on disk".format(*written(destination))
    if peak(outcome) >= case.limit_bytes:
        return f"more than {case.limit_bytes // MIB} MiB"
    return None


def written(folder: Path) -> tuple[int, int]:
    """How many files are below a folder, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def peak(outcome: Outcome) -> int:
    """The highest resident size: sampled from outside, or as the program reports it."""
    return max(outcome.peak_rss_bytes, int(client.summary(outcome)["peak_rss_bytes"]))


def run_case(lab: Lab, case: Case, url: str) -> None:
    """Runs one case and says how it went."""
    needed = case.load.disk_bytes + DISK_MARGIN_BYTES
    free = shutil.disk_usage(lab.temp).free
    if case.to_disk and free < needed:
        lab.skip(case.name, f"{free / GIB:.1f} GiB of {needed / GIB:.1f} GiB are free")
        return
    destination = lab.temp / "destination" if case.to_disk else None
    try:
        outcome = client.fetch(
            lab.inrush, "get", f"s3://{BUCKET}/{case.load.prefix}", destination, url=url,
            options=["--no-sign-request", *lab.args.option, *case.options], env=lab.env(),
            seconds=RUN_SECONDS)
        trouble = complaint(case, outcome, destination)
    finally:
        shutil.rmtree(lab.temp / "destination", ignore_errors=True)
    figures = "" if outcome.code else (f"peak {peak(outcome) / MIB:.0f} MiB of "
                                       f"{case.limit_bytes // MIB}, {outcome.seconds:.1f} s")
    lab.report(case.name, trouble and f"{trouble}; {figures}", figures)


def options(add: Add) -> None:
    """Of this check alone."""
    add("--size-gib", type=int, default=20, help="the huge object (default: %(default)s)")
    add("--keys", type=int, default=200_000, help="the tiny objects (default: %(default)s)")


def run(lab: Lab) -> None:
    """Every case."""
    if lab.args.size_gib < 1 or lab.args.keys < 1:
        raise LabError("at least one GiB and one key")
    of = loads(lab.args.size_gib, lab.args.keys)
    url = lab.serve(*synthetic(of))
    for case in cases(of):
        run_case(lab, case, url)
