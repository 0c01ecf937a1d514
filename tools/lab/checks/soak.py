"""Hours of `inrush` under faults at a low rate: every byte right, and nothing that grows.

    tools/soak.py [--minutes N] [--faults SEED:PROFILE] [--disk FOLDER] [--inrush PATH]
                  [--origin PATH] [--json FILE]

One `inrush pipe --epochs forever` lives for the whole time; a reader takes epoch after epoch, three
of four at the pace of a training job, 200 MB/s. Each is compared by its checksum, and between two
of them is noted what the process has: descriptors, memory, threads, names in its folder. Beside it,
`inrush get` fills an empty folder, the folder is damaged, `inrush sync --delete` puts it right, and
the folder goes, over and over; after each run all bytes are compared and nothing else may stand
there or in the temporary folder. Objects come from the in-repo origin, which fails about one
request in a hundred.

The memory of all TCP sockets of the machine may never be over 300 MiB more than at the start.

At the end the median of each figure in the last quarter is held against the one in the first, and
one line says how it went. Exit code 1: something grew, a byte was wrong, a run ended as it
should not, or no fault was met; 2: the soak itself could not work.

Programs are the release builds of this checkout: `cargo build --release --workspace`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import client, compare, dataset, drift, process, streams, tcp_memory
from lab.drift import MIB, Limit
from lab.process import LabError, Outcome, say
from lab.servers import listing, origin

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
STOP_SECONDS = 20.0
REPORT_SECONDS = 60.0
MINUTES_MAX = 7 * 24 * 60
INTERRUPTED = 130
READER = streams.FOLDER / "epoch_reader.py"

FEEDER = {"descriptors": Limit("pipe: descriptors", "", 2),
          "threads": Limit("pipe: threads", "", 2),
          "rss_bytes": Limit("pipe: resident", "MiB", 2),
          "peak_bytes": Limit("pipe: peak resident", "MiB", 4),
          "names": Limit("pipe: names in folder", "", 0)}
RUNS = {"get": Limit("get: peak of a run", "MiB", 32),
        "sync": Limit("sync: peak of a run", "MiB", 32)}
"""Each run is a process of its own. How many slots it touches depends on how many ranges meet: runs
of the same program differ by up to 24 MiB."""


class Wrong(Exception):
    """Something that must hold does not; says what."""


@dataclass
class Soak:
    """What a soak needs, and what it has seen."""

    args: argparse.Namespace
    endpoint: str
    temp: Path
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
        return self.temp / "destination"

    @property
    def pipes(self) -> Path:
        """Where the named pipes are."""
        return self.temp / "pipes"

    @property
    def scratch(self) -> Path:
        """The temporary folder of all that runs; nothing may stay there."""
        return self.temp / "scratch"

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


def digest(entries: Sequence[listing.Entry]) -> tuple[int, str]:
    """What an epoch is: all objects, one behind the other."""
    total, sha256 = 0, hashlib.sha256()
    for entry in entries:
        sha256.update(entry.path.read_bytes())
        total += entry.size
    return total, sha256.hexdigest()


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
                raise Wrong(f"epoch {epoch['epoch']} has {epoch['bytes']} of {self.epoch[0]} bytes, "
                            f"or wrong ones: {self.feeder.last_words()}")
            self.soak.epochs += 1
            for name, limit in FEEDER.items():
                self.soak.take(name, epoch[name] / (MIB if limit.unit else 1))

    def end(self) -> None:
        """Interrupts the feeder: it says so, prints what it did, and leaves no pipe."""
        self.look()
        self.reader.stop()
        self.feeder.child.send_signal(signal.SIGTERM)
        try:
            code = self.feeder.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise Wrong(f"pipe does not end within {STOP_SECONDS:g} s of SIGTERM") from error
        if code != INTERRUPTED:
            raise Wrong(f"pipe ended with {code}, not {INTERRUPTED}: {self.feeder.last_words()}")
        summary = json.loads(self.feeder.log.read_text().splitlines()[-1])
        self.soak.retries += sum(map(retries, summary["channels"]))
        nothing_in(self.soak.pipes)


@contextmanager
def feeding(soak: Soak) -> Iterator[Feeder]:
    """A feeder and its reader; both are gone at the end, whatever happens."""
    soak.pipes.mkdir()
    prefix = soak.pipes / CHANNEL
    # A fixed number: what the pace chooses goes up and down, and descriptors with it.
    feeder = process.Server(
        [soak.args.inrush, "pipe", SOURCE, prefix, "--epochs", "forever", "--quiet", "--json",
         "--connections", "32",
         "--endpoint-url", soak.endpoint, "--region", "us-east-1", *FETCHING],
        soak.temp / "feeder.log", env=soak.env)
    try:
        reader = process.Server(
            [sys.executable, READER, prefix, str(feeder.child.pid), str(EPOCH_SECONDS),
             str(READER_MB_PER_S)],
            soak.temp / "reader.log", env=soak.env)
        try:
            yield Feeder(soak, digest(soak.entries), feeder, reader)
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
    if left:
        raise Wrong(f"{len(left)} names are left in {folder.name}: {', '.join(left[:5])}")


def one_run(soak: Soak, name: str) -> None:
    """`get` or `sync` into the destination, and all that must hold afterwards."""
    options = [*FETCHING, *(["--delete"] if name == "sync" else [])]
    command = client.sync if name == "sync" else client.get
    outcome: Outcome = command(soak.args.inrush, [SOURCE], soak.destination, env=soak.env,
                               endpoint=soak.endpoint, options=options, seconds=RUN_SECONDS)
    if outcome.timed_out or outcome.code != 0:
        end = "is not done in time" if outcome.timed_out else f"ended with {outcome.code}"
        raise Wrong(f"{name} {end} in cycle {soak.cycles}: {outcome.last_words()}")
    complaints = compare.trees(soak.destination, soak.entries, PREFIX)
    if complaints:
        raise Wrong(f"after {name} in cycle {soak.cycles}: {compare.summary(complaints)}")
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
    if (soak.destination / "stray").exists():
        raise Wrong(f"sync has left an empty folder in cycle {soak.cycles}")
    shutil.rmtree(soak.destination)
    nothing_in(soak.scratch)
    soak.cycles += 1


def run(soak: Soak) -> None:
    """Until the time is over; what does not hold ends it at once."""
    started = time.monotonic()
    deadline, report_at = started + soak.args.minutes * 60, started + REPORT_SECONDS
    with feeding(soak) as feeder:
        while (now := time.monotonic()) < deadline:
            cycle(soak)
            feeder.look()
            bounded(soak.sampler)
            if now >= report_at:
                report_at = now + REPORT_SECONDS
                process.note(f"  {(now - started) / 60:.0f} min: {progress(soak)}")
            time.sleep(max(0.0, now + CYCLE_SECONDS - time.monotonic()))
        feeder.end()
    if soak.retries == 0:
        raise Wrong("no attempt has failed: the faults were not met")


def bounded(sampler: tcp_memory.Sampler) -> None:
    """Sockets must not hold what a reader does not take."""
    grown = sampler.max_mib - sampler.start_mib
    if grown > tcp_memory.GROWTH_MIB_MAX:
        raise Wrong(f"TCP memory grew by {grown:,.0f} MiB, "
                    f"by more than {tcp_memory.GROWTH_MIB_MAX:g}")


def progress(soak: Soak) -> str:
    """How much was done."""
    size = sum(entry.size for entry in soak.entries) / 1e6
    return (f"{soak.epochs:,} epochs, {soak.cycles:,} times get and sync, of {size:.0f} MB each, "
            f"{soak.retries:,} retries reported")


def verdict(soak: Soak, wrong: str | None, seconds: float) -> int:
    """The table and the one line; the exit code."""
    drifts = soak.drifts()
    complaints = [wrong] if wrong else [each.complaint for each in drifts if each.complaint]
    say(drift.HEAD)
    for each in drifts:
        say(each.line())
    peak, start = soak.sampler.max_mib, soak.sampler.start_mib
    say(f"{'TCP memory: peak':24}{start:>15,.1f}{peak:>15,.1f}"
        f"{tcp_memory.GROWTH_MIB_MAX:>15,.1f}  MiB")
    if soak.args.json:
        soak.args.json.write_text(json.dumps(
            {"seconds": seconds, "epochs": soak.epochs, "cycles": soak.cycles,
             "retries": soak.retries, "tcp_mib_max": soak.sampler.max_mib,
             "complaints": complaints, "series": soak.series}))
    done = f"{seconds / 60:.1f} minutes, {progress(soak)}"
    if complaints:
        say(f"soak: FAILED after {done}: {'; '.join(complaints)}")
        return 1
    say(f"soak: passed: {done}; every byte right, nothing grew, nothing left")
    return 0


def run_all(args: argparse.Namespace) -> int:
    """The origin, the soak, the verdict; the exit code."""
    with tempfile.TemporaryDirectory(prefix="inrush-soak-", dir=args.disk) as folder:
        temp = Path(folder)
        entries = write_objects(temp / "root" / BUCKET)
        home = temp / "home"
        words = ["--root", temp / "root", "--faults", args.faults]
        with origin.serving(args.origin, words, temp) as endpoint:
            env = client.clean_environment(home, {"TMPDIR": str(temp / "scratch")})
            soak = Soak(args, endpoint, temp, entries, env, tcp_memory.Sampler())
            soak.scratch.mkdir()
            home.mkdir()
            started, wrong = time.monotonic(), None
            try:
                with soak.sampler:
                    run(soak)
                nothing_in(home)
            except Wrong as error:
                wrong = str(error)
            return verdict(soak, wrong, time.monotonic() - started)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = client.argument_parser(__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=60, help="how long (default: %(default)s)")
    add("--faults", default="7:rare", metavar="SEED:PROFILE",
        help="of the origin (default: %(default)s); with `7:corrupt` a soak has to fail")
    add("--disk", type=Path, help="a folder on the disk to write to (default: the temp folder)")
    add("--json", type=Path, help="write all samples to this file")
    return parser.parse_args()


def main() -> int:
    """Runs the soak; the exit code."""
    args = arguments()
    process.unwind_on_signals()
    if not client.are_built(args.inrush, args.origin):
        return 2
    if not 0 < args.minutes <= MINUTES_MAX:
        say(f"--minutes is more than 0 and at most {MINUTES_MAX}")
        return 2
    try:
        drift.self_test()
        return run_all(args)
    except LabError as error:
        say(f"soak: cannot work: {error}")
        return 2
    except KeyboardInterrupt:
        say("soak: interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
