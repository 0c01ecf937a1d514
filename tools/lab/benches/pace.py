"""Benchmarks of how many connections `inrush` opens by itself, beside numbers given by hand.

    pace            all four below: objects of 1 GiB to nowhere, for some seconds
    pace-90         30 ms to the first byte, 90 MB/s on each connection
    pace-25         30 ms, 25 MB/s
    pace-100ms      100 ms, no limit of a connection
    pace-none       no limit at all
    pace-one        one object of 1 TiB, 30 ms, 90 MB/s
    pace-cat        objects of 1 GiB by `cat` to a reader, 30 ms, 90 MB/s
    small-latency   20,000 objects of 39 KB to files, 20 ms, and s5cmd with its defaults
    small-discard   200,000 objects of 39 KB to nowhere
    throttle        2,000 requests of 39 KB a second, then 100 of 8 MiB; 503 beyond
    neighbor        1 GB/s, of which a neighbor takes half for 10 seconds
    waiting         peak memory: 2,000 connections that wait, and 1,000,000 objects

Objects come from an inrush-origin, which is started anew for each run and writes down what it has
sent every 100 ms. So a speed is that of a time within a run: where it says so, the first seconds,
in which a client looks for the right number, do not count, and the client is killed when the time
is over. CPU time and peak memory are of the whole run.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from lab import client, install, measure, process, streams
from lab.measure import GB
from lab.process import LabError, Outcome, say
from lab.servers import origin

BUCKET = "bench"
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


class Setting(Protocol):
    """What a benchmark is run with."""

    args: Namespace
    env: dict[str, str]

    @property
    def disk(self) -> Path:
        """A folder on the disk to write to."""


@dataclass(frozen=True)
class Moment:
    """What the origin had done `seconds` after its first request."""

    seconds: float
    bytes: int
    requests: int
    throttled: int


@dataclass(frozen=True)
class Observed(measure.Sample):
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


def observe(words: Sequence[str], run: Run) -> tuple[Outcome, Observed]:
    """Runs a client against an origin of its own. Bytes and files are those of the whole run, as
    the origin counted them, and the seconds the client's."""
    with tempfile.TemporaryDirectory(prefix="inrush-bench-") as folder:
        samples = Path(folder) / "samples"
        before = children_seconds()
        with origin.serving(origin.default_program(), [*WORKERS, *words, "--samples", samples],
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


def ended_well(outcome: Outcome, name: str) -> None:
    """A run that was to end by itself, and without an error."""
    if outcome.timed_out or outcome.code != 0:
        end = "not done in time" if outcome.timed_out else f"exit {outcome.code}"
        raise LabError(f"{name}: {end}: {outcome.last_words()}")


def killed(outcome: Outcome, name: str) -> None:
    """A run that was to go on until it was killed."""
    if not outcome.timed_out:
        raise LabError(f"{name}: exit {outcome.code} before its time: {outcome.last_words()}")


def get(bench: Setting, options: Sequence[str], seconds: float = RUN_SECONDS,
        destination: Path | None = None) -> Run:
    """`inrush get` of everything."""
    def run(url: str) -> Outcome:
        return client.get(
            bench.args.inrush, [SOURCE], destination, endpoint=url, env=bench.env,
            options=["--no-sign-request", *bench.args.option, *options], seconds=seconds)
    return run


def cat(bench: Setting, options: Sequence[str], seconds: float) -> Run:
    """`inrush cat` of everything, through a named pipe to a reader that throws it away."""
    command = ["sh", "-c", 'exec "$@" >"$PIPE"', "sh", str(bench.args.inrush), "cat", SOURCE,
               "--no-sign-request", "--region", "us-east-1", *bench.args.option, *options]

    def run(url: str) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="inrush-bench-") as folder:
            pipe = Path(folder) / "pipe"
            os.mkfifo(pipe)
            # Its CPU time is the reader's own: it is not waited for by the lab's clock of children
            # before the origin has ended.
            with subprocess.Popen([sys.executable, str(streams.READER), str(pipe)],
                                  stdout=subprocess.DEVNULL) as reader:
                try:
                    return process.run([*command, "--endpoint-url", url], seconds=seconds,
                                       env={**bench.env, "PIPE": str(pipe)})
                finally:
                    reader.kill()
    return run


def connections(number: int | None) -> list[str]:
    """The option for a number of connections; none for the client's own."""
    return [] if number is None else ["--connections", str(number)]


def named(numbers: Sequence[int]) -> dict[str, int | None]:
    """The client's own number first, then those given by hand."""
    return {DEFAULT: None, **{str(number): number for number in numbers}}


def report(bench: Setting, title: str, contenders: Mapping[str, measure.Contender],
           columns: Mapping[str, str], ratio: str = "") -> tuple[str, dict[str, Any]]:
    """Runs the rounds; the table and the figures."""
    if bench.args.without_inrush:
        raise LabError("nothing to run")
    say(f"{title}; medians of {bench.args.runs}")
    samples = measure.rounds(contenders, bench.args.warm_up, bench.args.runs)
    # What the origin saw every 100 ms is not worth keeping.
    short = {name: [replace(sample, moments=()) for sample in taken
                    if isinstance(sample, Observed)]
             for name, taken in samples.items()}
    against = {ratio: ratio} if ratio else {}
    summary = measure.summarise(short, columns, DEFAULT, against)
    return measure.table("", summary, columns), {"title": title, "complaints": [], **summary}


def want_best(figures: dict[str, Any], column: str, share: float) -> None:
    """The client's own number has to be nearly as good as the best that was given by hand."""
    medians = figures["medians"]
    best = max((name for name in medians if name.isdigit()), key=lambda name: medians[name][column])
    found = medians[DEFAULT][column] / medians[best][column]
    figures["best"], figures["of_best"] = best, found
    say(f"best by hand: {best} connections; the default has {found:.3f} of it")
    want(figures, found >= share, f"{column} is {found:.3f} of that of {best} connections; "
                                  f"wanted: at least {share:g}")


def want(figures: dict[str, Any], is_so: bool, complaint: str) -> None:
    """Notes what `--check` complains of."""
    if not is_so:
        figures["complaints"].append(complaint)


def complaints(name: str, figures: Mapping[str, object]) -> list[str]:
    """What `--check` complains of in the figures of a benchmark of this module."""
    found = figures.get("complaints", [])
    assert isinstance(found, list)
    return [f"{name}: {complaint}" for complaint in found]


def settled(bench: Setting, title: str, words: Sequence[str],
            make: Callable[[Setting, Sequence[str], float], Run]) -> tuple[str, dict[str, Any]]:
    """The speed after the first seconds."""
    start, end = SETTLED

    def contender(number: int | None) -> measure.Contender:
        def once(_every_byte: bool) -> measure.Sample:
            # The first request comes a little after the client's start.
            run = make(bench, connections(number), end + 0.5)
            outcome, seen = observe(words, run)
            killed(outcome, "inrush")
            done, seconds = seen.between(start, end)
            return replace(seen, bytes=done.bytes, seconds=seconds)
        return once

    contenders = {name: contender(number) for name, number in named(STATIC).items()}
    title += f"; from second {start:g} to {end:g}"
    text, figures = report(bench, title, contenders, SPEED, "gb_per_s")
    want_best(figures, "gb_per_s", 0.95)
    return text, figures


def pace_of(name: str) -> Callable[[Setting], tuple[str, dict[str, Any]]]:
    """One profile."""
    def run(bench: Setting) -> tuple[str, dict[str, Any]]:
        words = PROFILES[name]
        limits = " ".join(words) or "no limit"
        return settled(bench, f"{name}: objects of 1 GiB to nowhere, {limits}",
                       [*LARGE, *words], get)
    return run


def pace(bench: Setting) -> tuple[str, dict[str, Any]]:
    """All profiles."""
    texts, figures = [], {"title": "pace", "complaints": []}
    for name in PROFILES:
        text, found = pace_of(name)(bench)
        texts.append(f"{name}\n{text}")
        say(texts[-1])
        figures[name] = found
        figures["complaints"] += [f"{name}: {complaint}" for complaint in found["complaints"]]
    return "", figures


def pace_one(bench: Setting) -> tuple[str, dict[str, Any]]:
    """One object."""
    words = [*ONE, *PROFILES["pace-90"]]
    return settled(bench, f"pace-one: one object to nowhere, {' '.join(words[2:])}", words, get)


def pace_cat(bench: Setting) -> tuple[str, dict[str, Any]]:
    """A stream."""
    words = [*LARGE, *PROFILES["pace-90"]]
    return settled(bench, f"pace-cat: objects of 1 GiB as a stream, {' '.join(words[2:])}", words,
                   cat)


def small(count: int) -> list[str]:
    """What the origin has of small objects."""
    return ["--synthetic", f"{BUCKET}/:{count}:{SMALL_BYTES}:folders=256"]


def small_latency(bench: Setting) -> tuple[str, dict[str, Any]]:
    """Many files from afar."""
    words = [*small(SMALL_LATENCY_FILES), "--first-byte-latency", "20"]
    folder = Path(tempfile.mkdtemp(prefix="small-latency-", dir=bench.disk))
    # Kept until the end, as in `small` and for its reason.
    destinations: Iterator[Path] = (folder / str(number) for number in range(1 << 20))

    def contender(program: str, run: Callable[[Path], Run]) -> measure.Contender:
        def once(_every_byte: bool) -> measure.Sample:
            destination = next(destinations)
            destination.mkdir()
            outcome, seen = observe(words, run(destination))
            ended_well(outcome, program)
            sizes = [path.stat().st_size for path in destination.rglob("*") if path.is_file()]
            if sizes != [SMALL_BYTES] * SMALL_LATENCY_FILES:
                raise LabError(f"{program}: {len(sizes)} files are not the objects")
            os.sync()
            return replace(seen, files=len(sizes))
        return once

    def s5cmd(destination: Path) -> Run:
        return lambda url: process.run(
            [install.s5cmd(), "--endpoint-url", url, "--no-sign-request", "cp", f"{SOURCE}*",
             f"{destination}/"], seconds=RUN_SECONDS, env=bench.env, keep_stdout=False)

    def ours(number: int | None) -> Callable[[Path], Run]:
        return lambda destination: get(bench, connections(number), destination=destination)

    contenders = {name: contender("inrush", ours(number))
                  for name, number in named(STATIC_SMALL).items()}
    contenders["s5cmd"] = contender("s5cmd", s5cmd)
    title = f"small-latency: {SMALL_LATENCY_FILES:,} objects of 39 KB to files, 20 ms"
    try:
        text, figures = report(bench, title, contenders, FILES, "files_per_s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    want_best(figures, "files_per_s", 0.9)
    found = figures["ratios"]["default / s5cmd"]["files_per_s"]
    want(figures, found >= 3.0, f"files_per_s is {found:.3f} of s5cmd's; wanted: at least 3")
    return text, figures


def whole(bench: Setting, words: Sequence[str], options: Sequence[str], files: int
          ) -> measure.Contender:
    """A run to nowhere from its start to its end."""
    def once(_every_byte: bool) -> measure.Sample:
        outcome, seen = observe(words, get(bench, options))
        ended_well(outcome, "inrush")
        if client.summary(outcome)["objects"] != files:
            raise LabError(f"inrush: not {files} objects: {outcome.stdout[:200]}")
        return replace(seen, files=files)
    return once


def small_discard(bench: Setting) -> tuple[str, dict[str, Any]]:
    """Many objects at once, without a disk."""
    words = small(SMALL_DISCARD_FILES)
    contenders = {name: whole(bench, words, connections(number), SMALL_DISCARD_FILES)
                  for name, number in named(STATIC_SMALL).items()}
    title = f"small-discard: {SMALL_DISCARD_FILES:,} objects of 39 KB to nowhere"
    text, figures = report(bench, title, contenders, FILES, "files_per_s")
    want_best(figures, "files_per_s", 0.9)
    return text, figures


def throttle(bench: Setting) -> tuple[str, dict[str, Any]]:
    """An origin that refuses what comes too fast."""
    start, end = THROTTLED_SECONDS

    def contender(rate: int, files: int, size: int) -> measure.Contender:
        words = ["--synthetic", f"{BUCKET}/:{files}:{size}", "--requests-per-second", str(rate)]

        def once(_every_byte: bool) -> measure.Sample:
            outcome, seen = observe(words, get(bench, []))
            if outcome.timed_out:
                raise LabError(f"inrush: not done in {RUN_SECONDS:g} s")
            failed = client.summary(outcome)["failed_objects"]
            if (outcome.code == 0) != (failed == 0):
                raise LabError(f"inrush: exit {outcome.code}: {outcome.last_words()}")
            done, seconds = seen.between(start, end)
            return replace(seen, files=files - failed, failed=failed,
                           served_per_s=(done.requests - done.throttled) / seconds,
                           refused_percent=100 * done.throttled / max(done.requests, 1))
        return once

    contenders = {name: contender(*case) for name, case in THROTTLED.items()}
    title = (f"throttle: 503 beyond 2,000 requests of 39 KB a second, or 100 of 8 MiB; served and "
             f"refused from second {start:g} to {end:g}")
    # The first of them stands for the default; there is nothing to compare.
    text, figures = report(bench, title, contenders, REFUSED)
    for name, (rate, _files, _size) in THROTTLED.items():
        found = figures["medians"][name]
        served, refused = found["served_per_s"], found["refused_percent"]
        want(figures, served >= 0.9 * rate, f"{name}: {served:.0f} served a second; wanted: at "
                                            f"least 0.9 of {rate}")
        want(figures, found["failed"] == 0, f"{name}: {found['failed']:.0f} objects failed")
        want(figures, refused < 2.0, f"{name}: {refused:.1f} % refused; wanted: less than 2 %")
    return text, figures


def neighbor(bench: Setting) -> tuple[str, dict[str, Any]]:
    """Somebody takes half of the capacity, and goes."""
    def once(_every_byte: bool) -> measure.Sample:
        outcome, seen = observe([*LARGE, *NEIGHBOR], get(bench, [], AFTER_SECONDS[1] + 0.5))
        killed(outcome, "inrush")
        return replace(seen, beside_gb_per_s=seen.gb_per_s_between(*BESIDE_SECONDS),
                       after_gb_per_s=seen.gb_per_s_between(*AFTER_SECONDS))

    title = "neighbor: 1 GB/s, of which half is taken from second 3 to 13; after: from 16 on"
    text, figures = report(bench, title, {DEFAULT: once}, BESIDE)
    found = figures["medians"][DEFAULT]
    beside, after = found["beside_gb_per_s"], found["after_gb_per_s"]
    want(figures, beside >= 0.85 * CAPACITY / 2,
         f"{beside:.3f} GB/s of the half that was left; wanted: at least 0.85 of it")
    want(figures, after >= 0.9 * CAPACITY,
         f"{after:.3f} GB/s three seconds after the neighbor went; wanted: at least 0.9 of "
         f"{CAPACITY:g}")
    return text, figures


def waiting(bench: Setting) -> tuple[str, dict[str, Any]]:
    """Memory of what waits."""
    late = [*small(SMALL_LATENCY_FILES), "--first-byte-latency", "1000"]
    contenders = {f"{WAITING} connections": whole(
        bench, late, [*WAITING_WORKERS, *connections(WAITING)], SMALL_LATENCY_FILES)}
    most_mib = {f"{WAITING} connections": 150.0}
    if "--max-connections" in process.must([bench.args.inrush, "get", "--help"]):
        contenders[f"at most {WAITING}"] = whole(
            bench, late, [*WAITING_WORKERS, "--max-connections", str(WAITING)],
            SMALL_LATENCY_FILES)
        most_mib[f"at most {WAITING}"] = 150.0
    name = f"{MANY_OBJECTS:,} objects"
    contenders[name] = whole(
        bench, ["--synthetic", f"{BUCKET}/:{MANY_OBJECTS}:1KB:folders=100"], [], MANY_OBJECTS)
    most_mib[name] = 200.0
    title = f"waiting: {WAITING:,} connections that wait 1 s; {MANY_OBJECTS:,} objects of 1 KB"
    text, figures = report(bench, title, contenders, FILES)
    for name, most in most_mib.items():
        found = figures["medians"][name]["peak_rss_mib"]
        want(figures, found < most, f"{name}: {found:.0f} MiB; wanted: less than {most:.0f}")
    return text, figures


BENCHES: dict[str, Callable[[Setting], tuple[str, dict[str, Any]]]] = {
    "pace": pace, **{name: pace_of(name) for name in PROFILES}, "pace-one": pace_one,
    "pace-cat": pace_cat, "small-latency": small_latency, "small-discard": small_discard,
    "throttle": throttle, "neighbor": neighbor, "waiting": waiting}
