"""How many connections inrush opens by itself, beside numbers given by hand.

Objects come from an inrush-origin, which is started for each run and writes down what it has
sent every 100 ms. So a speed is that of a time within a run: where it says so, the first seconds,
in which a client looks for the right number, do not count, and the client is killed when the time
is over. CPU time and peak memory are of the whole run.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab import client, peers, streams
from lab.benches.ground import BUCKET, UNSIGNED, Bench, Figures
from lab.measure import GB, Bound, Contender, Sample
from lab.process import LabError, Outcome, Word, say
from lab.servers import origin

SOURCE = f"s3://{BUCKET}/"
WORKERS = ("--workers", "2")
LARGE = ("--synthetic", f"{BUCKET}/:256:1GiB")
ONE = ("--synthetic", f"{BUCKET}/:1:1TiB")
SMALL_BYTES = 39_000
NEAR = ("--first-byte-latency", "30", "--connection-rate")
PROFILES: dict[str, tuple[str, ...]] = {
    "pace-90": (*NEAR, "90MB"), "pace-25": (*NEAR, "25MB"),
    "pace-100ms": ("--first-byte-latency", "100"), "pace-none": ()}
DEFAULT = "default"
STATIC = (16, 32, 64, 128, 256, 512, 1024)
STATIC_SMALL = (32, 64, 128, 256, 512)
SETTLED = (2.0, 5.0)
"""The seconds that count, from the first request on."""
RUN_SECONDS = 120.0
SMALL_LATENCY_FILES = 20_000
SMALL_DISCARD_FILES = 200_000
THROTTLED: dict[str, tuple[int, int, int]] = {
    "39 KB": (2_000, 20_000, SMALL_BYTES), "8 MiB": (100, 1_000, 8 << 20)}
"""Requests a second, objects, and the size of each."""
THROTTLED_SECONDS = (3.0, 9.0)
CAPACITY = 1.0
"""GB/s of the line that a neighbor shares."""
NEIGHBOR = ("--capacity", "1GB", "--neighbor", "3000:10000:50")
BESIDE_SECONDS = (3.0, 13.0)
AFTER_SECONDS = (16.0, 19.0)
WAITING = 2_000
WAITING_WORKERS = ("--workers", "4")
"""A worker takes a part of them only."""
MANY_OBJECTS = 1_000_000

SPEED = {"gb_per_s": "GB/s", "cpu_seconds": "CPU s", "origin_cpu_seconds": "origin CPU s",
         "peak_rss_mib": "peak MiB", "connections": "connections"}
FILES = {"files_per_s": "files/s", **SPEED}
REFUSED = {"served_per_s": "served/s", "refused_percent": "refused %", "failed": "failed", **FILES}
BESIDE = {"beside_gb_per_s": "beside GB/s", "after_gb_per_s": "after GB/s", **SPEED}


@dataclass(frozen=True)
class Moment:
    """What the origin had done `seconds` after its first request."""

    seconds: float
    bytes: int
    requests: int
    throttled: int


@dataclass(frozen=True)
class Observed(Sample):
    """One run, as the origin saw it too."""

    origin_cpu_seconds: float
    connections: int
    moments: tuple[Moment, ...] = ()
    served_per_s: float = 0.0
    refused_percent: float = 0.0
    failed: int = 0
    """Objects."""
    beside_gb_per_s: float = 0.0
    after_gb_per_s: float = 0.0

    def between(self, start: float, end: float) -> tuple[Moment, float]:
        """What was done from one second to another, and how long that was exactly."""
        within = [moment for moment in self.moments if start <= moment.seconds <= end]
        if len(within) < 2:
            raise LabError(f"the run was over before second {end:g}")
        first, last = within[0], within[-1]
        done = Moment(last.seconds, last.bytes - first.bytes, last.requests - first.requests,
                      last.throttled - first.throttled)
        return done, last.seconds - first.seconds

    def gb_per_s_between(self, start: float, end: float) -> float:
        """The speed in that time."""
        done, seconds = self.between(start, end)
        return done.bytes / GB / seconds


def read_moments(samples: Path) -> tuple[Moment, ...]:
    """What the origin wrote down, from the last line before the first request on."""
    rows = [[int(word) for word in line.split()] for line in samples.read_text().splitlines()]
    idle = [row for row in rows if row[2] == 0]
    start = idle[-1][0] if idle else rows[0][0]
    return tuple(Moment((row[0] - start) / 1e3, row[1], row[2], row[3])
                 for row in rows if row[0] >= start)


Run = Callable[[str], Outcome]
"""Runs a client against an endpoint."""


def observe(bench: Bench, words: Sequence[Word], run: Run) -> tuple[Outcome, Observed]:
    """Runs a client against an origin of its own. Bytes and files are those of the whole run, as
    the origin counted them, and the seconds the client's."""
    with tempfile.TemporaryDirectory(prefix="inrush-bench-") as folder:
        samples = Path(folder) / "samples"
        before = children_seconds()
        with origin.serving(bench.lab.origin, [*WORKERS, *words, "--samples", samples],
                            Path(folder)) as url:
            outcome = run(url)
        origin_seconds = children_seconds() - before - outcome.cpu_seconds
        stats = json.loads((Path(folder) / "origin.log").read_text().splitlines()[-1])
        moments = read_moments(samples)
    return outcome, Observed(
        bytes=stats["body_bytes"], files=stats["gets"], seconds=outcome.seconds,
        cpu_seconds=outcome.cpu_seconds, user_seconds=outcome.user_seconds,
        peak_rss_bytes=outcome.peak_rss_bytes, own_gb_per_s=0.0,
        origin_cpu_seconds=origin_seconds, connections=stats["connections"], moments=moments)


def children_seconds() -> float:
    """CPU time of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def killed(outcome: Outcome, name: str) -> None:
    """A run that was to go on until it was killed."""
    if not outcome.timed_out:
        raise LabError(f"{name}: exit {outcome.code} before its time: {outcome.last_words()}")


def get(bench: Bench, options: Sequence[Word], seconds: float = RUN_SECONDS,
        destination: Path | None = None) -> Run:
    """`inrush get` of everything."""
    return lambda url: client.fetch(
        bench.lab.inrush, "get", SOURCE, destination, url=url, env=bench.env,
        options=[UNSIGNED, *bench.args.option, *options], seconds=seconds)


def cat(bench: Bench, options: Sequence[Word], seconds: float) -> Run:
    """`inrush cat` of everything, through a named pipe to a reader that throws it away."""
    def run(url: str) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="inrush-bench-") as folder:
            pipe = Path(folder) / "pipe_0"
            os.mkfifo(pipe)
            # Its CPU time is the reader's own: it is not waited for by the lab's clock of children
            # before the origin has ended.
            with subprocess.Popen([sys.executable, str(streams.READER), f"{folder}/pipe"],
                                  stdout=subprocess.DEVNULL) as reader:
                try:
                    return bench.run(["sh", "-c", 'exec "$@" >"$PIPE"', "sh",
                                      *bench.command("cat", SOURCE, *options, url=url)],
                                     seconds, env={"PIPE": str(pipe)})
                finally:
                    reader.kill()
    return run


def connections(number: int | None) -> list[str]:
    """The option for a number of connections; none for the client's own."""
    return [] if number is None else ["--connections", str(number)]


def named(numbers: Sequence[int]) -> dict[str, int | None]:
    """The client's own number first, then those given by hand."""
    return {DEFAULT: None, **{str(number): number for number in numbers}}


def report(bench: Bench, title: str, contenders: dict[str, Contender],
           columns: dict[str, str], ratio: str = "", *bounds: Bound) -> Figures:
    """Runs the rounds and prints the table; all contenders are inrush."""
    if bench.args.without_inrush:
        raise LabError("nothing to run")
    return bench.finish(title, contenders, columns, (ratio,) if ratio else (), *bounds)


def want_best(bench: Bench, figures: Figures, column: str, share: float) -> Figures:
    """The client's own number has to be nearly as good as the best that was given by hand."""
    medians = figures["medians"]
    best = max((name for name in medians if name.isdigit()), key=lambda name: medians[name][column])
    found = medians[DEFAULT][column] / medians[best][column]
    say(f"best by hand: {best} connections; the default has {found:.3f} of it")
    figures |= {"best": best, "of_best": found}
    if bench.args.check and found < share:
        figures["complaints"].append(f"{column} is {found:.3f} of that of {best} connections; "
                                     f"wanted: at least {share:g}")
    return figures


def settled(bench: Bench, title: str, words: Sequence[Word],
            make: Callable[[Bench, Sequence[Word], float], Run] = get) -> Figures:
    """The speed after the first seconds."""
    start, end = SETTLED

    def contender(number: int | None) -> Contender:
        def once(_every_byte: bool) -> Sample:
            # The first request comes a little after the client's start.
            run = make(bench, connections(number), end + 0.5)
            outcome, seen = observe(bench, words, run)
            killed(outcome, "inrush")
            done, seconds = seen.between(start, end)
            return replace(seen, bytes=done.bytes, seconds=seconds, moments=())
        return once

    contenders = {name: contender(number) for name, number in named(STATIC).items()}
    title += f"; from second {start:g} to {end:g}"
    return want_best(bench, report(bench, title, contenders, SPEED, "gb_per_s"), "gb_per_s", 0.95)


def profile(name: str, about: str) -> Callable[[Bench], Figures]:
    """The section of one profile."""
    def run(bench: Bench) -> Figures:
        limits = " ".join(PROFILES[name]) or "no limit"
        return settled(bench, f"{name}: objects of 1 GiB to nowhere, {limits}",
                       [*LARGE, *PROFILES[name]])

    run.__doc__ = about
    return run


OF_PROFILES = {name: profile(name, about) for name, about in {
    "pace-90": "30 ms to the first byte, 90 MB/s on each connection.",
    "pace-25": "30 ms to the first byte, 25 MB/s on each connection.",
    "pace-100ms": "100 ms to the first byte, no limit of a connection.",
    "pace-none": "No limit at all."}.items()}


def pace(bench: Bench) -> Figures:
    """The four below: objects of 1 GiB to nowhere, for some seconds."""
    found = {name: run(bench) for name, run in OF_PROFILES.items()}
    return {"title": "pace", **found, "complaints": [
        f"{name}: {complaint}" for name, figures in found.items()
        for complaint in figures["complaints"]]}


def pace_one(bench: Bench) -> Figures:
    """One object of 1 TiB, 30 ms, 90 MB/s on each connection."""
    words = [*ONE, *PROFILES["pace-90"]]
    return settled(bench, f"pace-one: one object to nowhere, {' '.join(words[2:])}", words)


def pace_cat(bench: Bench) -> Figures:
    """Objects of 1 GiB by `cat` to a reader, 30 ms, 90 MB/s on each connection."""
    words = [*LARGE, *PROFILES["pace-90"]]
    return settled(bench, f"pace-cat: objects of 1 GiB as a stream, {' '.join(words[2:])}", words,
                   cat)


def small(count: int) -> list[str]:
    """What the origin has of small objects."""
    return ["--synthetic", f"{BUCKET}/:{count}:{SMALL_BYTES}:folders=256"]


def small_latency(bench: Bench) -> Figures:
    """20,000 objects of 39 KB to files, 20 ms, and s5cmd with its defaults."""
    words = [*small(SMALL_LATENCY_FILES), "--first-byte-latency", "20"]
    # Kept until the end, as in `small` and for its reason.
    destinations: Iterator[Path] = (bench.lab.folder(f"late-{number}") for number in range(1 << 20))

    def contender(program: str, run: Callable[[Path], Run]) -> Contender:
        def once(_every_byte: bool) -> Sample:
            destination = next(destinations)
            outcome, seen = observe(bench, words, run(destination))
            outcome.well(program)
            sizes = [path.stat().st_size for path in destination.rglob("*") if path.is_file()]
            if sizes != [SMALL_BYTES] * SMALL_LATENCY_FILES:
                raise LabError(f"{program}: {len(sizes)} files are not the objects")
            os.sync()
            return replace(seen, files=len(sizes), moments=())
        return once

    def s5cmd(destination: Path) -> Run:
        def run(url: str) -> Outcome:
            task = peers.Task(url, BUCKET, "", [], destination, bench.disk)
            return bench.run(peers.s5cmd(task).argv, RUN_SECONDS, keep_stdout=False)
        return run

    def ours(number: int | None) -> Callable[[Path], Run]:
        return lambda destination: get(bench, connections(number), destination=destination)

    contenders = {name: contender("inrush", ours(number))
                  for name, number in named(STATIC_SMALL).items()}
    contenders["s5cmd"] = contender("s5cmd", s5cmd)
    title = f"small-latency: {SMALL_LATENCY_FILES:,} objects of 39 KB to files, 20 ms"
    figures = report(bench, title, contenders, FILES, "files_per_s",
                     Bound("default / s5cmd", "files_per_s", 3.0))
    return want_best(bench, figures, "files_per_s", 0.9)


def whole(bench: Bench, words: Sequence[Word], options: Sequence[Word], files: int) -> Contender:
    """A run to nowhere from its start to its end."""
    def once(_every_byte: bool) -> Sample:
        outcome, seen = observe(bench, words, get(bench, options))
        if client.summary(outcome.well("inrush"))["objects"] != files:
            raise LabError(f"inrush: not {files} objects: {outcome.stdout[:200]}")
        return replace(seen, files=files, moments=())
    return once


def small_discard(bench: Bench) -> Figures:
    """200,000 objects of 39 KB to nowhere."""
    words = small(SMALL_DISCARD_FILES)
    contenders = {name: whole(bench, words, connections(number), SMALL_DISCARD_FILES)
                  for name, number in named(STATIC_SMALL).items()}
    title = f"small-discard: {SMALL_DISCARD_FILES:,} objects of 39 KB to nowhere"
    return want_best(bench, report(bench, title, contenders, FILES, "files_per_s"),
                     "files_per_s", 0.9)


def throttle(bench: Bench) -> Figures:
    """2,000 requests of 39 KB a second, then 100 of 8 MiB; 503 beyond."""
    start, end = THROTTLED_SECONDS

    def contender(rate: int, files: int, size: int) -> Contender:
        words = ["--synthetic", f"{BUCKET}/:{files}:{size}", "--requests-per-second", str(rate)]

        def once(_every_byte: bool) -> Sample:
            outcome, seen = observe(bench, words, get(bench, []))
            if outcome.timed_out:
                raise LabError(f"inrush: not done in {RUN_SECONDS:g} s")
            failed = client.summary(outcome)["failed_objects"]
            if (outcome.code == 0) != (failed == 0):
                raise LabError(f"inrush: exit {outcome.code}: {outcome.last_words()}")
            done, seconds = seen.between(start, end)
            return replace(seen, files=files - failed, failed=failed, moments=(),
                           served_per_s=(done.requests - done.throttled) / seconds,
                           refused_percent=100 * done.throttled / max(done.requests, 1))
        return once

    title = (f"throttle: 503 beyond 2,000 requests of 39 KB a second, or 100 of 8 MiB; served and "
             f"refused from second {start:g} to {end:g}")
    # The first of them stands for the default; there is nothing to compare.
    return report(
        bench, title, {name: contender(*case) for name, case in THROTTLED.items()}, REFUSED, "",
        *(bound for name, (rate, _files, _size) in THROTTLED.items() for bound in (
            Bound(name, "served_per_s", 0.9 * rate), Bound(name, "failed", 0, is_most=True),
            Bound(name, "refused_percent", 2.0, is_most=True))))


def neighbor(bench: Bench) -> Figures:
    """1 GB/s, of which a neighbor takes half for 10 seconds, and goes."""
    def once(_every_byte: bool) -> Sample:
        outcome, seen = observe(bench, [*LARGE, *NEIGHBOR],
                                get(bench, [], AFTER_SECONDS[1] + 0.5))
        killed(outcome, "inrush")
        return replace(seen, beside_gb_per_s=seen.gb_per_s_between(*BESIDE_SECONDS),
                       after_gb_per_s=seen.gb_per_s_between(*AFTER_SECONDS), moments=())

    # Of the half that was left, and three seconds after the neighbor went.
    return report(
        bench, "neighbor: 1 GB/s, of which half is taken from second 3 to 13; after: from 16 on",
        {DEFAULT: once}, BESIDE, "", Bound(DEFAULT, "beside_gb_per_s", 0.85 * CAPACITY / 2),
        Bound(DEFAULT, "after_gb_per_s", 0.9 * CAPACITY))


def waiting(bench: Bench) -> Figures:
    """Peak memory: 2,000 connections that wait, and 1,000,000 objects."""
    late = [*small(SMALL_LATENCY_FILES), "--first-byte-latency", "1000"]
    by_hand, most = f"{WAITING} connections", f"at most {WAITING}"
    every = f"{MANY_OBJECTS:,} objects"
    contenders = {
        by_hand: whole(bench, late, [*WAITING_WORKERS, *connections(WAITING)],
                       SMALL_LATENCY_FILES),
        most: whole(bench, late, [*WAITING_WORKERS, "--max-connections", str(WAITING)],
                    SMALL_LATENCY_FILES),
        every: whole(bench, ["--synthetic", f"{BUCKET}/:{MANY_OBJECTS}:1KB:folders=100"], [],
                     MANY_OBJECTS)}
    return report(
        bench, f"waiting: {WAITING:,} connections that wait 1 s; {MANY_OBJECTS:,} objects of 1 KB",
        contenders, FILES, "",
        *(Bound(name, "peak_rss_mib", 200.0 if name == every else 150.0, is_most=True)
          for name in contenders))


SECTIONS: dict[str, Callable[[Bench], Figures]] = {
    "pace": pace, **OF_PROFILES, "pace-one": pace_one, "pace-cat": pace_cat,
    "small-latency": small_latency, "small-discard": small_discard,
    "throttle": throttle, "neighbor": neighbor, "waiting": waiting}
