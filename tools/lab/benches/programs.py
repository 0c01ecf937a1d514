"""Downloads of the same objects with inrush and with other programs: speed and price.

It builds inrush and its test server (not with --inrush and --origin), installs the other programs
at the versions of tools/lab/install.py (from PyPI into venvs, from crates.io by cargo, from Debian
by apt-get as root), and serves objects on loopback:

* large: 4 x 128 MiB; huge: one object of 512 MiB; small: 2,000 x 39,000 bytes in 64 folders;
  mixed: 300 objects from 1 KB to 32 MiB, two thirds of them below 100 KB. From nginx, one worker,
  over plain HTTP.
* tls: the objects of large over TLS 1.3 (AES-128-GCM).
* latency-large, latency-small, latency-mixed: from inrush-origin as S3 is seen from afar: 30 ms,
  give or take 10, to the first byte of each answer, and 90 MB/s on each connection.

Each download goes to files. How each program is called stands in tools/lab/peers.py. Programs take
turns within a round, every second round backwards. The first round warms up, and every byte that it
wrote is compared; after that names and sizes are. Between runs, outside the measured time, files
are emptied and the disk is synced. A program that fails is a row that says why.

Columns: GB/s and files/s from start to exit of the program, the median of the runs; the spread is
the difference of the fastest and the slowest in per cent of the median; `synced` counts the time
until all is on the disk (sync(2)), too; CPU time is that of the program's threads, in user mode and
in the kernel: writing the page cache back is the kernel's own work and not in it; memory is the
highest resident set. The ratio is the median of those within each round: above 1 inrush is faster,
or takes less CPU time.

FOLDER (default: compare in the build folder) gets `compare.md`, `compare.json` and `compare.svg`,
and the programs in `peers`. Cases and programs that were measured before and are not asked for
keep their figures in them. --quick takes tiny objects, one run, and the programs that are there
already; its results are in FOLDER/quick.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lab import chart, client, compare, dataset, install, measure, peers, process
from lab.benches.ground import BUCKET, OURS, SECURE_VERSION, UNSIGNED
from lab.driver import Add, Lab
from lab.process import LabError, must, note, say
from lab.servers import authority, listing, nginx

RUN_SECONDS = 90.0
FAR = ("--first-byte-latency", "30:10", "--connection-rate", "90MB")
COLUMNS = ("gb_per_s", "files_per_s", "synced_gb_per_s", "cpu_s_per_tb", "peak_rss_mib")
UNITS = {"gb_per_s": "GB/s", "files_per_s": "files/s"}
FORMS: dict[str, Callable[[float], str]] = {
    "gb_per_s": "{:.2f} GB/s".format, "files_per_s": "{:,.0f} files/s".format}


@dataclass(frozen=True)
class Sizes:
    """What is served."""

    large: int
    """Bytes of each of the four."""
    huge: int
    small: int
    """How many."""
    mixed: int
    mixed_most: int
    """Bytes of the largest."""


FULL = Sizes(128 * dataset.MIB, 512 * dataset.MIB, 2_000, 300, 32 * dataset.MIB)
QUICK = Sizes(4 * dataset.MIB, 16 * dataset.MIB, 50, 30, 2 * dataset.MIB)
LARGE_OBJECTS = 4
SMALL_BYTES = 39_000
SMALL_FOLDERS = 64
MIXED_LEAST = 1_000


@dataclass(frozen=True)
class Case:
    """Which objects, from which server, and in what unit their speed is reported."""

    prefix: str
    server: str
    column: str = "gb_per_s"


CASES: dict[str, Case] = {
    "large": Case("large/", "nginx"), "huge": Case("huge/", "nginx"),
    "small": Case("small/", "nginx", "files_per_s"), "mixed": Case("mixed/", "nginx"),
    "tls": Case("large/", "tls"), "latency-large": Case("large/", "far"),
    "latency-small": Case("small/", "far", "files_per_s"), "latency-mixed": Case("mixed/", "far"),
}
SERVERS = {"nginx": "nginx", "tls": "nginx over TLS 1.3",
           "far": "inrush-origin, 30 ms to the first byte, 90 MB/s on each connection"}


@dataclass(frozen=True)
class Taken(measure.Sample):
    """One run, and when all of it was on the disk."""

    synced_seconds: float

    @property
    def synced_gb_per_s(self) -> float:
        """Speed from the start of the program until the disk has everything."""
        return self.bytes / measure.GB / self.synced_seconds


def write_objects(bucket: Path, sizes: Sizes, prefixes: set[str]) -> None:
    """The objects that the wanted cases fetch."""
    if "large/" in prefixes:
        for number in range(LARGE_OBJECTS):
            dataset.write_stamped(bucket / f"large/object{number}", sizes.large, number)
    if "huge/" in prefixes:
        dataset.write_stamped(bucket / "huge/object", sizes.huge, LARGE_OBJECTS)
    if "small/" in prefixes:
        dataset.write_uniform(bucket, "small", sizes.small, SMALL_BYTES, SMALL_FOLDERS)
    if "mixed/" in prefixes:
        write_mixed(bucket, sizes)


def write_mixed(bucket: Path, sizes: Sizes) -> None:
    """Many small objects and few large ones, the same in each run: half of them have 0.1 % of the
    bytes."""
    source = random.Random("mixed")
    for number in range(sizes.mixed):
        steps = number / max(sizes.mixed - 1, 1)
        size = round(MIXED_LEAST * (sizes.mixed_most / MIXED_LEAST) ** (steps ** 2))
        path = bucket / f"mixed/{source.randrange(32):02}/{number:04}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.randbytes(size))


@dataclass
class Ground:
    """Where runs take place."""

    lab: Lab
    entries: Sequence[listing.Entry]
    urls: Mapping[str, str]
    bundle: Path
    disk: Path
    scratch: Path
    runs: int = 0

    def task(self, case: Case) -> peers.Task:
        """What the next run is to do, into an empty folder."""
        self.runs += 1
        destination = self.disk / str(self.runs)
        destination.mkdir()
        below = [entry for entry in self.entries if entry.key.startswith(case.prefix)]
        return peers.Task(self.urls[case.server], BUCKET, case.prefix, below, destination,
                          self.scratch, self.bundle if case.server == "tls" else None)

    def contender(self, name: str, case: Case) -> measure.Contender:
        """Runs of one program."""
        line_of = self.ours if name == OURS else peers.ALL[name].line

        def once(every_byte: bool) -> Taken:
            task = self.task(case)
            line = line_of(task)
            env = client.clean_environment(self.scratch, line.env)
            try:
                outcome = process.run(line.argv, seconds=RUN_SECONDS, env=env, keep_stdout=False)
                started = time.monotonic()
                os.sync()
                synced = outcome.seconds + time.monotonic() - started
                size = sum(entry.size for entry in task.entries)
                sample = measure.of_outcome(outcome, name, size, len(task.entries))
                compare.require(task.destination, task.entries, task.prefix, name, every_byte)
            finally:
                empty(task.destination)
            return Taken(**asdict(sample), synced_seconds=synced)

        return once

    def ours(self, task: peers.Task) -> peers.Line:
        """inrush with its defaults."""
        trusted = ["--ca-bundle", task.bundle] if task.bundle else []
        return peers.Line(self.lab.command(
            "get", f"s3://{task.bucket}/{task.prefix}", task.destination, UNSIGNED, "--quiet",
            *trusted, *self.lab.args.option, url=task.url))


def empty(destination: Path) -> None:
    """Frees the disk, but no inodes: for minutes after many were deleted, ext4 passes over each of
    them, one by one, whenever it creates a file."""
    for path in destination.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
    os.sync()


def contents(count: int, size: int) -> str:
    """What a case fetches, in words."""
    return f"{'1 object' if count == 1 else f'{count:,} objects'}, {size / measure.GB:.2f} GB"


def cores() -> str:
    """The processor, in words."""
    found = measure.machine(Path("/"))
    return f"{found['cpus']} cores, {found['cpu']}, Linux {found['kernel']}"


def measured(ground: Ground, name: str, wanted: Sequence[str]) -> dict[str, Any]:
    """All figures of a case."""
    case, args = CASES[name], ground.lab.args
    runs = args.runs or (1 if args.quick else 5)
    below = [entry for entry in ground.entries if entry.key.startswith(case.prefix)]
    size = sum(entry.size for entry in below)
    say(f"{name}: {contents(len(below), size)}, from {SERVERS[case.server]}")
    started, failures = time.monotonic(), dict[str, str]()
    warm_up = 0 if args.quick else 1
    contenders = {other: ground.contender(other, case) for other in (OURS, *wanted)}
    samples = measure.rounds(contenders, warm_up, runs, failures)
    if OURS not in samples:
        raise LabError(failures[OURS])
    ours = samples[OURS]
    programs = {other: {
        "medians": {column: measure.median(taken, column) for column in COLUMNS},
        "spread": measure.spread(taken, case.column),
        "speed_ratio": measure.ratio(ours, taken, "gb_per_s", "gb_per_s"),
        "cpu_ratio": measure.ratio(taken, ours, "cpu_s_per_tb", "cpu_s_per_tb"),
        "runs": [asdict(sample) for sample in taken],
    } for other, taken in samples.items()}
    return {"objects": len(below), "bytes": size, "server": SERVERS[case.server],
            "column": case.column, "runs": runs, "programs": programs, "failures": failures,
            "date": time.strftime("%Y-%m-%d"), "seconds": time.monotonic() - started,
            "machine": measure.machine(ground.disk),
            "versions": {OURS: must([ground.lab.inrush, "--version"]).split()[-1],
                         **{other: peers.ALL[other].version() for other in wanted}}}


def ranked(case: Mapping[str, Any]) -> list[str]:
    """The programs, fastest first."""
    programs = case["programs"]
    return sorted(programs, key=lambda name: -programs[name]["medians"]["gb_per_s"])


def case_table(case: Mapping[str, Any]) -> str:
    """A row for each program."""
    rows = []
    for name in ranked(case):
        found = case["programs"][name]
        medians = found["medians"]
        rows.append([
            f"**{name}**" if name == OURS else name, f"{medians['gb_per_s']:.3f}",
            f"{medians['files_per_s']:,.0f}", f"{found['spread']:.0%}",
            f"{medians['synced_gb_per_s']:.3f}", f"{medians['cpu_s_per_tb']:,.0f}",
            f"{medians['peak_rss_mib']:,.0f}", *ratios(name, found)])
    rows += [[name, reason, *[""] * 7] for name, reason in case["failures"].items()]
    return chart.markdown(["program", "GB/s", "files/s", "spread", "GB/s synced", "CPU-s/TB",
                           "peak MiB", "inrush's speed / its", "its CPU time / inrush's"], rows)


def ratios(name: str, found: Mapping[str, Any]) -> list[str]:
    """How many times as fast inrush is, and how many times as much CPU time the other takes."""
    return ["", ""] if name == OURS else [f"{found[key]:.2f}" for key in RATIOS]


RATIOS = ("speed_ratio", "cpu_ratio")


def others(case: Mapping[str, Any]) -> dict[str, Any]:
    """All programs but ours."""
    return {name: found for name, found in case["programs"].items() if name != OURS}


def summary(cases: Mapping[str, Any]) -> str:
    """A row for each case: inrush beside the best of all others, in speed and in CPU time."""
    rows = []
    for name, case in cases.items():
        medians = case["programs"][OURS]["medians"]
        row = [name, FORMS[case["column"]](medians[case["column"]]),
               f"{medians['cpu_s_per_tb']:,.0f}", f"{medians['peak_rss_mib']:.0f}"]
        for key in RATIOS:
            best = min(others(case).items(), key=lambda pair: pair[1][key], default=None)
            row.append(f"{best[1][key]:.2f} ({best[0]})" if best else "")
        rows.append(row)
    return chart.markdown(["case", "inrush", "CPU-s/TB", "peak MiB", "speed / fastest other",
                           "least CPU time of others / ours"], rows)


def brief(value: float) -> str:
    """A number with at least two digits."""
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def matrix(cases: Mapping[str, Any], head: str, number: Callable[[Mapping[str, Any], Any], float]
           ) -> str:
    """One number of every program in every case; `number` takes a program's figures and its
    case."""
    names = [OURS, *(name for name in peers.ALL
                     if any(name in case["versions"] for case in cases.values()))]
    rows = [[name, *(brief(number(case["programs"][name], case)) if name in case["programs"]
                     else "failed" if name in case["failures"] else ""
                     for case in cases.values())] for name in names]
    return chart.markdown([head, *cases], rows)


def losses(cases: Mapping[str, Any]) -> list[str]:
    """Where inrush is not ahead."""
    found = []
    for name, case in cases.items():
        for other, figures in others(case).items():
            for key, what in zip(RATIOS, ("speed", "CPU time"), strict=True):
                if figures[key] < 1:
                    found.append(f"{name}: {what}: {figures[key]:.2f} ({other})")
    return found


def document(report: Mapping[str, Any]) -> str:
    """The whole result in Markdown."""
    cases = report["cases"]
    last = list(cases.values())[-1]
    versions = {name: version for case in cases.values()
                for name, version in case["versions"].items()}
    lost = losses(cases)
    parts = ["# inrush beside other programs\n",
             f"{last['date']}, {report['command']}: {report['machine']}.\n", summary(cases),
             "Not ahead: " + ("; ".join(lost) if lost else "nowhere") + ".\n",
             matrix(cases, "files/s in cases of small objects, else GB/s",
                    lambda found, case: found["medians"][case["column"]]),
             matrix(cases, "CPU-s/TB", lambda found, _: found["medians"]["cpu_s_per_tb"]),
             matrix(cases, "peak MiB", lambda found, _: found["medians"]["peak_rss_mib"])]
    for name, case in cases.items():
        parts += [f"## {name}\n", f"{contents(case['objects'], case['bytes'])}, from "
                  f"{case['server']}; {case['runs']} runs, {case['seconds']:.0f} s.\n",
                  case_table(case)]
    parts += ["## Programs\n", chart.markdown(
        ["program", "version", "settings"],
        [[name, version, peers.ALL[name].settings if name in peers.ALL else "defaults"]
         for name, version in versions.items()])]
    return "\n".join(parts)


def drawing(report: Mapping[str, Any]) -> str:
    """The report as a drawing in SVG."""
    groups = []
    for name, case in report["cases"].items():
        columns = {case["column"]: UNITS[case["column"]], "cpu_s_per_tb": "CPU-seconds/TB",
                   "peak_rss_mib": "peak memory in MiB"}
        rows = [chart.Row(other, [chart.Bar(value, f"{value:,.{2 if value < 10 else 0}f}")
                                  for value in map(found["medians"].get, columns)],
                          is_ours=other == OURS)
                for other in ranked(case) for found in [case["programs"][other]]]
        rows += [chart.Row(other, [], reason=reason[:100])
                 for other, reason in case["failures"].items()]
        title = f"{name}: {contents(case['objects'], case['bytes'])}, {case['server']}"
        groups.append(chart.Group(title, list(columns.values()), rows))
    return chart.picture(f"inrush beside other programs: {report['machine']}", groups)


def merged(before: Mapping[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """A case with the programs that were measured before, too. A ratio is always to the runs of
    inrush in the same rounds; the figures of inrush are those from beside most programs."""
    kept = {name: figures for name, figures in before["programs"].items()
            if name not in found["programs"]}
    if len(before["programs"]) > len(found["programs"]):
        kept[OURS] = before["programs"][OURS]
    failures = {name: why for name, why in before["failures"].items()
                if name not in found["programs"]}
    return {**found, "programs": {**found["programs"], **kept},
            "failures": {**failures, **found["failures"]},
            "versions": {**before["versions"], **found["versions"]},
            "seconds": before["seconds"] + found["seconds"]}


def write_results(folder: Path, name: str, found: dict[str, Any], command: str) -> dict[str, Any]:
    """Adds the figures of a case to those that are there, and writes all forms again."""
    path = folder / "compare.json"
    cases = json.loads(path.read_text())["cases"] if path.is_file() else {}
    cases[name] = merged(cases[name], found) if name in cases else found
    report = {"command": f"`{command}`", "machine": cores(),
              "cases": {name: cases[name] for name in CASES if name in cases}}
    path.write_text(json.dumps(report, indent=1) + "\n")
    (folder / "compare.md").write_text(document(report))
    (folder / "compare.svg").write_text(drawing(report))
    return report


def build(lab: Lab) -> None:
    """The programs of this checkout, unless others are named."""
    for given, package in ((lab.args.inrush, "inrush"), (lab.args.origin, "inrush-origin")):
        if not given:
            must(["cargo", "build", "--release", "--locked", "--quiet", "--package", package,
                  "--manifest-path", install.REPOSITORY / "Cargo.toml"], seconds=1800)


def available(lab: Lab) -> list[str]:
    """The programs to compare with, installed."""
    wanted = []
    for name in lab.chosen("peer", peers.ALL):
        if lab.args.quick and not peers.ALL[name].is_installed():
            note(f"left out, since it is not installed: {name}")
            continue
        peers.ALL[name].line(peers.Task("http://127.0.0.1", BUCKET, "", [], lab.temp, lab.temp))
        wanted.append(name)
    return wanted


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Does the work and says how long it took."""
    started = time.monotonic()
    result = work()
    say(f"{what}: {time.monotonic() - started:.0f} s")
    return result


def options(add: Add) -> None:
    """Of this measurement alone."""
    add("--folder", type=Path, default=install.build_folder() / "compare",
        help="for programs and results (default: %(default)s)")


def run(lab: Lab) -> None:
    """Installs, serves, measures and writes."""
    folder = lab.args.folder.resolve()
    results = folder / "quick" if lab.args.quick else folder
    results.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("INRUSH_LAB", str(folder / "peers"))
    timed("building inrush", lambda: build(lab))
    wanted = timed("installing the other programs", lambda: available(lab))
    command = " ".join(["tools/bench.py compare", *(["--quick"] if lab.args.quick else [])])
    memory, names = lab.in_memory(), lab.chosen("case", CASES)
    root, prefixes = memory / "root", {CASES[name].prefix for name in names}
    timed("writing the objects", lambda: write_objects(
        root / BUCKET, QUICK if lab.args.quick else FULL, prefixes))
    ours = authority.make(memory / "authority", [])
    near = lab.stack.enter_context(nginx.serve(
        root, memory / "nginx", {BUCKET: sorted(prefixes)}, authority=ours))
    urls = {"nginx": near.url, "tls": near.tls_url(SECURE_VERSION),
            "far": lab.serve("--root", root, *FAR)}
    ground = Ground(lab, listing.scan(root / BUCKET), urls, ours.bundle, lab.folder("files"),
                    lab.folder("scratch"))
    for name in names:
        figures = timed(name, partial(measured, ground, name, wanted))
        report = write_results(results, name, figures, command)
        say(case_table(figures))
    say(summary(report["cases"]))
    say(f"results: {results}/compare.md, compare.json, compare.svg")
