"""A day's opens and closes of a mount: every byte right, and nothing that grows.

Processes open files of a mount at random, read a random part of each or all of it, compare it with
the original, and close it; some files stay open for a while, and pages are dropped (fadvise), so
that reads reach the mount. A million opens, the default, are a day's with 12 a second. Half of them
go to a mount without a cache, half to one whose cache has room for half of the objects: it goes on
to keep and to remove them. The origin fails about one request in a hundred.

Meanwhile it is noted what the mount's process has: descriptors, memory, threads. At the end the
median of each figure in the last quarter is compared with the one in the first. It fails if
something grew, a byte was wrong, a read failed, or the mount did not end as it should. Mounting
takes root.
"""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import client, dataset, drift, process
from lab.drift import MIB, Limit
from lab.driver import Add, Lab
from lab.process import LabError, Wrong, expect
from lab.servers import listing

BUCKET, PREFIX = "soak", "data/"
SMALL, SMALL_BYTES = 1_000, 39_000
SIZES = (0, 1, 4097, MIB - 1, MIB, MIB + 1, 3 * MIB + 5)
PROCESSES = 4
STEP = 2_000
"""Opens of one process between two reports."""
OPEN_MAX = 50
READ_BYTES_MAX = 300_000
SAMPLE_SECONDS = 0.25

LIMITS = {"descriptors": Limit("descriptors", "", 24), "threads": Limit("threads", "", 1),
          "rss": Limit("resident", "MiB", 8)}
"""How many files are open at the same time goes up and down, and descriptors with it."""


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


def end(mount: Mount) -> None:
    """Unmounts it by a signal: it says so, and is gone."""
    summary = mount.server.interrupted(mount.name)
    expect(not summary["failed_reads"], f"{mount.name}: {summary['failed_reads']} reads failed")
    expect(not mount.point.is_mount(), f"{mount.name} is mounted still")
    expect(bool(summary["retries"]),
           f"{mount.name}: no attempt has failed: the faults were not met")
    cache = summary["cache"]
    expect(not cache or cache["hits"] and cache["evicted_objects"],
           f"{mount.name}: its cache was not used: {cache}")


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


def options(add: Add) -> None:
    """Of this check alone."""
    add("--opens", type=int, default=1_000_000, help="how many (default: %(default)s)")


def run(lab: Lab) -> None:
    """Serves, mounts and prints the outcome."""
    if os.geteuid():
        raise LabError("mounting takes root")
    drift.self_test()
    complaints, mounts = [], list[Mount]()
    entries = write_objects(lab.temp / "root" / BUCKET)
    url = lab.serve("--root", lab.temp / "root", "--faults", lab.args.faults)
    cache = ["--cache", lab.temp / "kept", "--cache-size", str(sum(e.size for e in entries) // 2)]
    for name, more in (("plain", []), ("cache", cache)):
        point = lab.temp / name
        line = lab.command("mount", f"s3://{BUCKET}/{PREFIX}", point, "--foreground", "--quiet",
                           "--json", "--no-sign-request", "--memory", "32MiB", *more,
                           *lab.args.option, url=url)
        try:
            with client.mounted(line, point, lab.env()) as server:
                mounts.append(Mount(name, point, server))
                soak(mounts[-1], entries, lab.args.opens // 2)
        except Wrong as error:
            complaints.append(str(error))
    complaints += drift.table([each for mount in mounts for each in mount.drifts()])
    lab.keep("mount-soak", {mount.name: mount.series for mount in mounts})
    lab.report("mount-soak", "; ".join(complaints) or None, "every byte right, nothing grew: "
               f"{sum(mount.opens for mount in mounts):,} opens")
