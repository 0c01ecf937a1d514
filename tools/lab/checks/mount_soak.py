"""A day's opens and closes of `inrush mount` in minutes: every byte right, and nothing that grows.

    tools/check.py mount-soak [--opens N] [--option WORD]... [--inrush PATH] [--origin PATH] [--json FILE]

Processes open files of a mount at random, read a random part of each or all of it, compare it with
the original, and close it; some files stay open for a while, and pages are dropped (fadvise), so
that reads reach the mount. A million opens, the default, are a day's with 12 a second. Half of them
go to a mount without a cache, half to one whose cache has room for half of the objects: it goes on
to keep and to remove them. The origin fails about one request in a hundred.

Meanwhile it is noted what the mount's process has: descriptors, memory, threads. At the end the
median of each figure in the last quarter is held against the one in the first. Exit code 1:
something grew, a byte was wrong, a read failed, or the mount did not end as it should; 2: it could
not work. Mounting takes root.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab import client, dataset, drift, process
from lab.drift import MIB, Limit
from lab.process import LabError, say
from lab.servers import listing, origin

BUCKET, PREFIX = "soak", "data/"
SMALL, SMALL_BYTES = 1_000, 39_000
SIZES = (0, 1, 4097, MIB - 1, MIB, MIB + 1, 3 * MIB + 5)
PROCESSES = 4
STEP = 2_000
"""Opens of one process between two reports."""
OPEN_MAX = 50
READ_BYTES_MAX = 300_000
SAMPLE_SECONDS = 0.25
MOUNT_SECONDS, STOP_SECONDS = 30.0, 30.0

LIMITS = {"descriptors": Limit("descriptors", "", 24), "threads": Limit("threads", "", 1),
          "rss": Limit("resident", "MiB", 8)}
"""How many files are open at the same time goes up and down, and descriptors with it."""


class Wrong(Exception):
    """Something that must hold does not; says what."""


@dataclass
class Mount:
    """One mount, and what was seen of it."""

    name: str
    point: Path
    server: process.Server
    opens: int = 0
    series: dict[str, list[float]] = field(default_factory=dict)

    def look(self) -> None:
        """Takes a sample of each figure."""
        if self.server.child.poll() is not None:
            raise Wrong(f"{self.name}: the mount has ended: {self.server.last_words()}")
        of = Path(f"/proc/{self.server.child.pid}")
        status = dict(line.split(":", 1) for line in (of / "status").read_text().splitlines())
        for figure, value in {"descriptors": len(list((of / "fd").iterdir())),
                              "threads": int(status["Threads"]),
                              "rss": int(status["VmRSS"].split()[0]) / 1024}.items():
            self.series.setdefault(figure, []).append(value)

    def drifts(self) -> list[drift.Drift]:
        """Every figure at both ends."""
        return [drift.measure(Limit(f"{self.name}: {limit.name}", limit.unit, limit.tolerance),
                              self.series.get(figure, [])) for figure, limit in LIMITS.items()]


def write_objects(bucket: Path) -> list[listing.Entry]:
    """Many small ones, and what is next to a boundary."""
    for number, size in enumerate((*SIZES, *([SMALL_BYTES] * SMALL))):
        key = f"{PREFIX}{number % 7}/{number:04}"
        dataset.write_object(bucket / key, size, key)
    return listing.scan(bucket)


def read_some(job: tuple[Path, Sequence[listing.Entry], int, int]) -> str | None:
    """What one process does; what is wrong, if anything is."""
    point, entries, seed, count = job
    chance = random.Random(seed)
    kept: list[int] = []
    try:
        for _ in range(count):
            entry = chance.choice(entries)
            handle = os.open(point / entry.key[len(PREFIX):], os.O_RDONLY)
            kept.append(handle)
            offset = chance.randrange(entry.size + 1) if chance.random() < 0.5 else 0
            length = READ_BYTES_MAX if chance.random() < 0.5 else chance.randrange(5000)
            data = os.pread(handle, length, offset)
            with entry.path.open("rb") as original:
                original.seek(offset)
                if data != original.read(length):
                    return f"seed {seed}: {length} bytes at {offset} of {entry.key} are wrong"
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            if len(kept) > chance.randrange(OPEN_MAX):
                while kept:
                    os.close(kept.pop())
    except OSError as error:
        return f"seed {seed}: {error}"
    finally:
        for handle in kept:
            os.close(handle)
    return None


@contextmanager
def mounted(args: argparse.Namespace, endpoint: str, temp: Path, name: str,
            words: Sequence[str | Path]) -> Iterator[Mount]:
    """While inside, the mount serves."""
    point, ready = temp / name, temp / f"{name}.ready"
    point.mkdir()
    server = process.Server(
        [args.inrush, "mount", f"s3://{BUCKET}/{PREFIX}", point, "--foreground", "--quiet",
         "--json", "--ready-file", ready, "--no-sign-request", "--endpoint-url", endpoint,
         "--region", "us-east-1", "--memory", "32MiB", *words, *args.option],
        temp / f"{name}.log", env=client.clean_environment(temp / "home", {}))
    try:
        if not server.wait_ready(ready.is_file, MOUNT_SECONDS):
            raise LabError(f"{name}: it does not mount: {server.last_words()}")
        yield Mount(name, point, server)
    finally:
        process.run(["umount", "--lazy", str(point)], seconds=STOP_SECONDS)
        server.stop()


def end(mount: Mount) -> None:
    """Unmounts it by a signal: it says so, and is gone."""
    mount.server.child.send_signal(signal.SIGTERM)
    try:
        code = mount.server.child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Wrong(f"{mount.name}: it does not end within {STOP_SECONDS:g} s") from error
    summary = json.loads(mount.server.log.read_text().splitlines()[-1])
    if code != 130 or summary["failed_reads"] or mount.point.is_mount():
        raise Wrong(f"{mount.name}: exit {code}, {summary['failed_reads']} reads failed")
    if not summary["retries"]:
        raise Wrong(f"{mount.name}: no attempt has failed: the faults were not met")
    cache = summary["cache"]
    if cache and not (cache["hits"] and cache["evicted_objects"]):
        raise Wrong(f"{mount.name}: its cache was not used: {cache}")


def soak(mount: Mount, entries: Sequence[listing.Entry], opens: int) -> None:
    """All of it on one mount."""
    steps = max(1, opens // STEP)
    jobs = ((mount.point, entries, seed, STEP) for seed in range(steps))
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        done = pool.imap_unordered(read_some, jobs)
        left = steps
        while left:
            try:
                wrong = done.next(timeout=SAMPLE_SECONDS)
            except multiprocessing.TimeoutError:
                mount.look()
                continue
            if wrong:
                raise Wrong(f"{mount.name}: {wrong}")
            mount.opens += STEP
            left -= 1
            mount.look()
    end(mount)


def run_all(args: argparse.Namespace) -> int:
    """Serves, mounts and prints the outcome; returns the exit code."""
    complaints, mounts, started = [], list[Mount](), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="inrush-mount-soak-", dir=args.disk) as folder:
        temp = Path(folder)
        (temp / "home").mkdir()
        entries = write_objects(temp / "root" / BUCKET)
        size = sum(entry.size for entry in entries)
        words = ["--root", temp / "root", "--faults", args.faults]
        with origin.serving(args.origin, words, temp) as endpoint:
            cache = ["--cache", temp / "kept", "--cache-size", str(size // 2)]
            for name, more in (("plain", []), ("cache", cache)):
                try:
                    with mounted(args, endpoint, temp, name, more) as mount:
                        mounts.append(mount)
                        soak(mount, entries, args.opens // 2)
                except Wrong as error:
                    complaints.append(str(error))
    say(drift.HEAD)
    for mount in mounts:
        for each in mount.drifts():
            say(each.line())
            complaints += [each.complaint] if each.complaint else []
    if args.json:
        args.json.write_text(json.dumps({mount.name: mount.series for mount in mounts}))
    opens = sum(mount.opens for mount in mounts)
    done = f"{opens:,} opens in {(time.monotonic() - started) / 60:.1f} minutes"
    if complaints:
        say(f"mount soak: FAILED after {done}: {'; '.join(complaints)}")
        return 1
    say(f"mount soak: passed: {done}; every byte right, nothing grew")
    return 0


def main() -> int:
    """The exit code."""
    parser = client.argument_parser(__doc__)
    add = parser.add_argument
    add("--opens", type=int, default=1_000_000, help="how many (default: %(default)s)")
    add("--faults", default="7:rare", metavar="SEED:PROFILE", help="of the origin")
    add("--option", action="append", default=[], help="an option more of mount; repeatable")
    add("--disk", type=Path, help="a folder on the disk to write to (default: the temp folder)")
    add("--json", type=Path, help="write all samples to this file")
    args = parser.parse_args()
    process.unwind_on_signals()
    if not client.are_built(args.inrush, args.origin):
        return 2
    if os.geteuid():
        say("mounting takes root")
        return 2
    try:
        drift.self_test()
        return run_all(args)
    except LabError as error:
        say(f"mount soak: cannot work: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
