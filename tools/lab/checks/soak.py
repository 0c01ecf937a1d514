"""Hours of pipe, get and sync under faults: every byte right, and nothing that grows.

One `inrush pipe --epochs forever` lives for the whole time; a reader takes epoch after epoch, three
of four at the pace of a training job, 200 MB/s. Each is compared by its checksum, and between two
of them is noted what the process has: descriptors, memory, threads, names in its folder. Beside it,
`inrush get` fills an empty folder, the folder is damaged, `inrush sync --delete` puts it right, and
the folder goes, over and over; after each run all bytes are compared and nothing else may stand
there or in the temporary folder. Objects come from the in-repo origin, which fails about one
request in a hundred.

The memory of all TCP sockets of the machine may never be over 300 MiB more than at the start.

At the end the median of each figure in the last quarter is compared with the one in the first. It
fails if something grew, a byte was wrong, a run ended as it should not, or no fault was met.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import client, compare, dataset, drift, process, streams, tcp_memory
from lab.drift import MIB, Limit
from lab.driver import Add, Lab
from lab.process import LabError, Wrong, expect, say, succeeded
from lab.servers import listing

BUCKET = "soak"
PREFIX = "data/"
SOURCE = f"s3://{BUCKET}/{PREFIX}"
CHANNEL = "train"
LARGE_SIZES = (24 * MIB + 5, 8 * MIB + 1, 8 * MIB)
SMALL_SIZES = (0, 1, 4097, MIB - 1, MIB, MIB + 1, *(39_000 + number for number in range(200)))
FETCHING = ("--no-sign-request", "--part-size", "1MiB")
"""Short ranges: more requests, so more of them meet a fault."""
READER_MB_PER_S = 200
EPOCH_SECONDS = 0.25
CYCLE_SECONDS = 1.0
"""At most one epoch and one cycle of runs in this time: the machine is not to be worn out."""
RUN_SECONDS = 120.0
REPORT_SECONDS = 60.0
MINUTES_MAX = 7 * 24 * 60

FEEDER = {"descriptors": Limit("pipe: descriptors", "", 2),
          "threads": Limit("pipe: threads", "", 2),
          "rss_bytes": Limit("pipe: resident", "MiB", 2),
          "peak_bytes": Limit("pipe: peak resident", "MiB", 4),
          "names": Limit("pipe: names in folder", "", 0)}
RUNS = {"get": Limit("get: peak of a run", "MiB", 32),
        "sync": Limit("sync: peak of a run", "MiB", 32)}
"""Each run is a process of its own. How many slots it touches depends on how many ranges meet: runs
of the same program differ by up to 24 MiB."""


@dataclass
class Soak:
    """What a soak needs, and what it has seen."""

    lab: Lab
    url: str
    entries: list[listing.Entry]
    env: dict[str, str]
    sampler: tcp_memory.Sampler
    series: dict[str, list[float]] = field(default_factory=dict)
    epochs: int = 0
    cycles: int = 0
    retries: int = 0

    @property
    def destination(self) -> Path:
        """Where runs write."""
        return self.lab.temp / "destination"

    @property
    def pipes(self) -> Path:
        """Where the named pipes are."""
        return self.lab.temp / "pipes"

    @property
    def scratch(self) -> Path:
        """The temporary folder of all that runs; nothing may stay there."""
        return self.lab.temp / "scratch"

    def take(self, name: str, value: float) -> None:
        """One more sample of a figure."""
        self.series.setdefault(name, []).append(value)

    def drifts(self) -> list[drift.Drift]:
        """Every figure at both ends."""
        return [drift.measure(limit, self.series.get(name, []))
                for name, limit in {**FEEDER, **RUNS}.items()]


def write_objects(bucket: Path) -> list[listing.Entry]:
    """Large ones in many ranges, small ones, and what is next to a boundary."""
    for number, size in enumerate((*LARGE_SIZES, *SMALL_SIZES)):
        key = f"{PREFIX}{number % 7}/{number:03}"
        dataset.write_object(bucket / key, size, key)
    return listing.scan(bucket)


@dataclass
class Feeder:
    """The long-lived `inrush pipe` and its reader."""

    soak: Soak
    epoch: tuple[int, str]
    feeder: process.Server
    reader: process.Server
    read_bytes: int = 0

    def look(self) -> None:
        """Takes what the reader has printed since; both must still be there."""
        with self.reader.log.open("rb") as log:
            log.seek(self.read_bytes)
            printed = log.read()
        whole = printed[:printed.rfind(b"\n") + 1]
        self.read_bytes += len(whole)
        for name, server in (("pipe", self.feeder), ("its reader", self.reader)):
            if server.child.poll() is not None:
                raise Wrong(f"{name} has ended with {server.child.returncode} after "
                            f"{self.soak.epochs} epochs: {server.last_words()}")
        self.believe(whole)

    def believe(self, lines: bytes) -> None:
        """Compares each epoch, and takes the figures."""
        for line in lines.splitlines():
            epoch = json.loads(line)
            if (epoch["bytes"], epoch["sha256"]) != self.epoch:
                raise Wrong(f"epoch {epoch['epoch']} has {epoch['bytes']} of {self.epoch[0]} "
                            f"bytes, or wrong ones: {self.feeder.last_words()}")
            self.soak.epochs += 1
            for name, limit in FEEDER.items():
                self.soak.take(name, epoch[name] / (MIB if limit.unit else 1))

    def end(self) -> None:
        """Interrupts the feeder: it says so, prints what it did, and leaves no pipe."""
        self.look()
        self.reader.stop()
        summary = self.feeder.interrupted("pipe")
        self.soak.retries += sum(map(retries, summary["channels"]))
        nothing_in(self.soak.pipes)


@contextmanager
def feeding(soak: Soak) -> Iterator[Feeder]:
    """A feeder and its reader; both are gone at the end, whatever happens."""
    soak.pipes.mkdir()
    prefix = soak.pipes / CHANNEL
    # A fixed number: what the pace chooses goes up and down, and descriptors with it.
    feeder = process.Server(
        soak.lab.command("pipe", SOURCE, prefix, "--epochs", "forever", "--quiet", "--json",
                         "--connections", "32", *FETCHING, url=soak.url),
        soak.lab.temp / "feeder.log", env=soak.env)
    try:
        reader = process.Server(
            [sys.executable, streams.READER, prefix, "--manner", f"training:{READER_MB_PER_S}",
             "--epochs", "1000000", "--least", str(EPOCH_SECONDS), "--sha256", "--watch",
             str(feeder.child.pid)],
            soak.lab.temp / "reader.log", env=soak.env)
        try:
            yield Feeder(soak, listing.digest(soak.entries), feeder, reader)
        finally:
            reader.stop()
    finally:
        feeder.stop()


def retries(summary: dict[str, Any]) -> int:
    """How many attempts have failed and were followed by another, whatever for."""
    return sum(int(count) for count in summary["retries"].values())


def nothing_in(folder: Path) -> None:
    """A folder must be empty."""
    left = sorted(path.name for path in folder.iterdir())
    expect(not left, f"{len(left)} names are left in {folder.name}: {', '.join(left[:5])}")


def one_run(soak: Soak, name: str) -> None:
    """`get` or `sync` into the destination, and all that must hold afterwards."""
    what = f"{name} in cycle {soak.cycles}"
    outcome = succeeded(client.fetch(
        soak.lab.inrush, name, SOURCE, soak.destination, url=soak.url, env=soak.env,
        options=[*FETCHING, *(["--delete"] if name == "sync" else [])], seconds=RUN_SECONDS), what)
    complaints = compare.trees(soak.destination, soak.entries, PREFIX)
    expect(not complaints, f"{what}: {compare.summary(complaints)}")
    summary = client.summary(outcome)
    soak.retries += retries(summary)
    soak.take(name, max(outcome.peak_rss_bytes, int(summary["peak_rss_bytes"])) / MIB)


def damage(soak: Soak) -> None:
    """What `sync` has to put right: a file gone, one of another length, one too many."""
    of = [soak.destination / entry.key[len(PREFIX):] for entry in soak.entries]
    of[soak.cycles % len(of)].unlink()
    with of[(soak.cycles + 1) % len(of)].open("ab") as file:
        file.write(b"more")
    stray = soak.destination / "stray" / "file"
    stray.parent.mkdir()
    stray.write_bytes(b"nobody's")


def cycle(soak: Soak) -> None:
    """Runs into an empty folder and over a damaged one; then the folder goes."""
    one_run(soak, "get")
    damage(soak)
    one_run(soak, "sync")
    expect(not (soak.destination / "stray").exists(),
           f"sync has left an empty folder in cycle {soak.cycles}")
    shutil.rmtree(soak.destination)
    nothing_in(soak.scratch)
    soak.cycles += 1


def work(soak: Soak) -> None:
    """Until the time is over; what does not hold ends it at once."""
    started = time.monotonic()
    deadline, report_at = started + soak.lab.args.minutes * 60, started + REPORT_SECONDS
    with feeding(soak) as feeder:
        while (now := time.monotonic()) < deadline:
            cycle(soak)
            feeder.look()
            # Sockets must not hold what a reader does not take.
            expect(not (grown := soak.sampler.complaints()), "".join(grown))
            if now >= report_at:
                report_at = now + REPORT_SECONDS
                process.note(f"  {(now - started) / 60:.0f} min: {progress(soak)}")
            time.sleep(max(0.0, now + CYCLE_SECONDS - time.monotonic()))
        feeder.end()
    expect(soak.retries > 0, "no attempt has failed: the faults were not met")


def progress(soak: Soak) -> str:
    """How much was done."""
    size = sum(entry.size for entry in soak.entries) / 1e6
    return (f"{soak.epochs:,} epochs, {soak.cycles:,} times get and sync, of {size:.0f} MB each, "
            f"{soak.retries:,} retries reported")


def faults(add: Add) -> None:
    """Of both soaks."""
    add("--faults", default="7:rare", metavar="SEED:PROFILE",
        help="of the origin of a soak (default: %(default)s); with `7:corrupt` it has to fail")


def options(add: Add) -> None:
    """Of this check alone."""
    add("--minutes", type=float, default=60, help="how long (default: %(default)s)")


def run(lab: Lab) -> None:
    """The origin, the soak, the verdict."""
    if not 0 < lab.args.minutes <= MINUTES_MAX:
        raise LabError(f"--minutes is more than 0 and at most {MINUTES_MAX}")
    drift.self_test()
    home, wrong = lab.folder("home"), None
    entries = write_objects(lab.temp / "root" / BUCKET)
    url = lab.serve("--root", lab.temp / "root", "--faults", lab.args.faults)
    env = client.clean_environment(home, {"TMPDIR": str(lab.folder("scratch"))})
    soak = Soak(lab, url, entries, env, tcp_memory.Sampler())
    try:
        with soak.sampler:
            work(soak)
        nothing_in(home)
    except Wrong as error:
        wrong = str(error)
    # What ended it early is the only complaint: there may be too few samples for others.
    grown = drift.table(soak.drifts())
    complaints = [wrong] if wrong else grown
    peak, start = soak.sampler.max_mib, soak.sampler.start_mib
    say(f"{'TCP memory: peak':24}{start:>15,.1f}{peak:>15,.1f}"
        f"{tcp_memory.GROWTH_MIB_MAX:>15,.1f}  MiB")
    lab.keep("soak", {"epochs": soak.epochs, "cycles": soak.cycles, "retries": soak.retries,
                      "tcp_mib_max": peak, "complaints": complaints, "series": soak.series})
    lab.report("soak", "; ".join(complaints) or None,
               f"every byte right, nothing grew, nothing left: {progress(soak)}")
