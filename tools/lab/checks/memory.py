"""The memory of `inrush`: bounded, whatever the size and number of the objects.

    tools/check.py memory [--size-gib N] [--keys N] [--disk FOLDER] [--inrush PATH] [--origin PATH]

One huge object and very many tiny ones come from the in-repo origin, which computes them, and go to
nowhere and to disk: with the default flags the peak resident size stays under 300 MiB, and with
`--memory 64MiB` under 128 MiB. A line for each case, then `N passed, N failed`. A case that
needs more room than the disk has is skipped and said so.

Programs are the release builds of this checkout: `cargo build --release --workspace`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab import client, process
from lab.process import LabError, Outcome, say
from lab.servers import origin

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
    if outcome.timed_out or outcome.code != 0:
        end = "not done in time" if outcome.timed_out else f"exit {outcome.code}"
        return f"{end}: {outcome.last_words()}"
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


def run_case(case: Case, program: Path, endpoint: str, temp: Path) -> bool | None:
    """Runs one case and says how it went; `None` when there is no room for it."""
    needed = case.load.disk_bytes + DISK_MARGIN_BYTES
    free = shutil.disk_usage(temp).free
    if case.to_disk and free < needed:
        say(f"skip  {case.name}  {free / GIB:.1f} GiB of {needed / GIB:.1f} GiB are free")
        return None
    destination = temp / "destination" if case.to_disk else None
    try:
        outcome = client.get(
            program, [f"s3://{BUCKET}/{case.load.prefix}"], destination, endpoint=endpoint,
            options=["--no-sign-request", *case.options],
            env=client.clean_environment(temp), seconds=RUN_SECONDS)
        trouble = complaint(case, outcome, destination)
    finally:
        shutil.rmtree(temp / "destination", ignore_errors=True)
    figures = "" if outcome.code != 0 else (
        f"peak {peak(outcome) / MIB:.0f} MiB of {case.limit_bytes // MIB}, "
        f"{outcome.seconds:.1f} s")
    words = "; ".join(filter(None, (trouble, figures)))
    say(f"{'FAIL' if trouble else 'ok  '}  {case.name}  {words}")
    return trouble is None


def run_all(args: argparse.Namespace) -> int:
    """Runs every case; the exit code."""
    of = loads(args.size_gib, args.keys)
    results: list[bool | None] = []
    with tempfile.TemporaryDirectory(prefix="inrush-memory-", dir=args.disk) as folder:
        temp = Path(folder)
        with origin.serving(args.origin, synthetic(of), temp) as endpoint:
            for case in cases(of):
                results.append(run_case(case, args.inrush, endpoint, temp))
    failed = results.count(False)
    say(f"{results.count(True)} passed, {failed} failed")
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = client.argument_parser(__doc__)
    add = parser.add_argument
    add("--size-gib", type=int, default=20, help="the huge object (default: %(default)s)")
    add("--keys", type=int, default=200_000, help="the tiny objects (default: %(default)s)")
    add("--disk", type=Path, help="a folder on the disk to write to (default: the temp folder)")
    return parser.parse_args()


def main() -> int:
    """Runs the cases; the exit code."""
    args = arguments()
    process.unwind_on_signals()
    if not client.are_built(args.inrush, args.origin):
        return 2
    if args.size_gib < 1 or args.keys < 1:
        say("at least one GiB and one key")
        return 2
    try:
        return run_all(args)
    except LabError as error:
        say(f"no figure: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
