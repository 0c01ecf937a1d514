"""Reads of mounts of inrush, rclone, s3fs and Mountpoint, in turn, and of a cache.

An inrush-origin on loopback serves 4 objects of 1 GiB, 2 of 64 MiB, 2,000 of 39,000 bytes in 64
folders, and one of 16 TiB that nobody reads: all of them together do not fit memory. `far` and
`random` have 20 ms to the first byte of each answer. Every run is a mount of its own, and begins
with an empty page cache. fio reads, with --readonly:

* one, four: one file, or four at the same time, in order, 1 MiB a read, 1 GiB each;
* one-direct, four-direct: the same with O_DIRECT, which skips the page cache;
* four-later: four, after two other files were read in the same way: with --page-cache auto inrush
  opens files past the page cache only then;
* far: four, with the latency;
* random: four threads, 500 reads of 39,000 bytes each, anywhere in the four files, with the
  latency. The readers wait for each read: nobody can make more than 4 reads in 20 ms.

small reads all small files once, with 16 threads; find lists all names; open is the time until the
first byte of a file that nobody has opened, without the latency, the median of 20 files. Listing
is part of none of them but find.

The rows `get` are `inrush get --discard` of the same objects. `cached` is inrush with --cache: its
second epoch, after a first one and a new mount; `disk` is the same files, copied to the same disk.

With --transports inrush alone takes part, over /dev/fuse and over io_uring, which the kernel has to
allow: echo Y > /sys/module/fuse/parameters/enable_uring. Two cases more are for it: opens-16 opens
and closes all small files with 16 threads, over and over, opens-1 with one.

Programs take turns, every second round backwards. Speed is the median of the runs; CPU time is that
of the mount's process, memory its peak. Debian's rclone and s3fs are installed by apt-get, as root,
which mounting needs in any case. Mountpoint for Amazon S3 takes part if --mountpoint, or
MOUNTPOINT_BIN, says where its program is.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab import chart, client, dataset, install, measure, peers, process
from lab.benches.ground import BUCKET, OURS
from lab.driver import Add, Lab
from lab.measure import Sample
from lab.process import LabError, Word, must, say

LARGE, LARGE_BYTES = 4, dataset.GIB
SMALL, SMALL_BYTES, SMALL_FOLDERS = 2_000, 39_000, 64
RANDOM_READS, RANDOM_BYTES = 500, 39_000
EARLIER, EARLIER_BYTES = 2, 64 << 20
HUGE = "16TiB"
LATENCY_MS = 20
THREADS = 16
OPEN_ROUNDS = 10
OPENS = 20
KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
READ_SECONDS = 300.0


@dataclass(frozen=True)
class Ground:
    """Where runs take place."""

    lab: Lab
    near: str
    far: str

    @property
    def scratch(self) -> Path:
        """A folder on the disk."""
        return self.lab.temp

    @property
    def env(self) -> dict[str, str]:
        """Of all programs."""
        return self.lab.env(KEYS)

    def url(self, case: Case) -> str:
        """The server of a case."""
        return self.far if case.is_far else self.near


@dataclass(frozen=True)
class Result(Sample):
    """One run, and how fast it was in the unit of its case."""

    speed: float


Work = Callable[[Path], float]
"""Reads below a mount, and says how fast."""


def fio(folder: Path, files: int, words: Sequence[str]) -> dict[str, Any]:
    """Reads `files` of the large files at the same time."""
    jobs = [word for number in range(files)
            for word in (f"--name=reader{number}", f"--filename={folder}/large/object{number}")]
    printed = must([install.system_program("fio"), "--readonly", "--allow_file_create=0",
                    "--thread", "--ioengine=psync", "--invalidate=0", "--fadvise_hint=0",
                    "--group_reporting", "--output-format=json", *words, *jobs],
                   seconds=READ_SECONDS)
    # Warnings stand before the document.
    read = json.loads(printed[printed.index("{"):])["jobs"][0]["read"]
    return dict(read)


def in_order(files: int, *words: str) -> Work:
    """GB/s of `files` readers."""
    def work(folder: Path) -> float:
        # From the first reader's start to the last one's end.
        found = fio(folder, files, ["--rw=read", "--bs=1M", *words])
        return float(found["io_bytes"]) / (float(found["runtime"]) / 1e3) / 1e9
    return work


def anywhere(folder: Path) -> float:
    """Reads a second of four readers."""
    found = fio(folder, LARGE, ["--rw=randread", f"--bs={RANDOM_BYTES}",
                                f"--number_ios={RANDOM_READS}", "--randseed=7"])
    return LARGE * RANDOM_READS / (float(found["runtime"]) / 1e3)


def read_earlier(folder: Path) -> None:
    """Reads some files one after the other, in order, 1 MiB a read."""
    for number in range(EARLIER):
        must(["dd", f"if={folder}/earlier/object{number}", "of=/dev/null", "bs=1M"],
             seconds=READ_SECONDS)


def files_of(folder: Path) -> list[Path]:
    """All small files."""
    return sorted(path for path in (folder / "small").rglob("*") if path.is_file())


def small(folder: Path) -> float:
    """Files a second of many threads."""
    paths = files_of(folder)
    if len(paths) != SMALL:
        raise LabError(f"{len(paths)} files, not {SMALL}")
    started = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        total = sum(len(data) for data in pool.map(Path.read_bytes, paths))
    elapsed = time.monotonic() - started
    if total != SMALL * SMALL_BYTES:
        raise LabError(f"{total} bytes")
    return SMALL / elapsed


def find(folder: Path) -> float:
    """Names a second."""
    started = time.monotonic()
    names = must([install.system_program("find"), folder], seconds=READ_SECONDS).count("\n")
    if names < SMALL + LARGE:
        raise LabError(f"{names} names")
    return names / (time.monotonic() - started)


def opens(threads: int) -> Work:
    """Files a second that are opened and closed: two requests of the kernel each."""
    def share(paths: list[Path]) -> None:
        for path in paths:
            os.close(os.open(path, os.O_RDONLY))

    def work(folder: Path) -> float:
        paths = files_of(folder) * OPEN_ROUNDS
        started = time.monotonic()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(share, (paths[number::threads] for number in range(threads))))
        return len(paths) / (time.monotonic() - started)
    return work


def first_byte(folder: Path) -> float:
    """Milliseconds until the first byte of a file, without the server's latency."""
    times = []
    for path in files_of(folder)[:OPENS]:
        started = time.monotonic()
        handle = os.open(path, os.O_RDONLY)
        try:
            os.read(handle, 1)
        finally:
            os.close(handle)
        times.append((time.monotonic() - started) * 1e3)
    return statistics.median(times) - LATENCY_MS


@dataclass(frozen=True)
class Case:
    """What is read, from where, and how its figure is printed."""

    work: Work
    unit: str
    is_far: bool = False
    form: str = "{:.2f}"
    bytes: int = 0
    reads: str = ""
    """What `get` fetches beside it; nothing where it has no such thing."""
    is_later: bool = False
    """Other files are read before."""


CACHED = ("one", "four", "small")
"""Cases in which the cache takes part."""

OF_TRANSPORTS = ("opens-1", "opens-16")
"""Cases that are run with --transports alone, unless they are named."""

CASES: dict[str, Case] = {
    "one": Case(in_order(1), "GB/s", bytes=LARGE_BYTES, reads="large/object0"),
    "four": Case(in_order(LARGE), "GB/s", bytes=LARGE * LARGE_BYTES, reads="large/"),
    "one-direct": Case(in_order(1, "--direct=1"), "GB/s", bytes=LARGE_BYTES,
                       reads="large/object0"),
    "four-direct": Case(in_order(LARGE, "--direct=1"), "GB/s", bytes=LARGE * LARGE_BYTES,
                        reads="large/"),
    "four-later": Case(in_order(LARGE), "GB/s", bytes=LARGE * LARGE_BYTES, reads="large/",
                       is_later=True),
    "far": Case(in_order(LARGE), "GB/s", True, bytes=LARGE * LARGE_BYTES, reads="large/"),
    "random": Case(anywhere, "reads/s", True, "{:,.0f}"),
    "small": Case(small, "files/s", False, "{:,.0f}"),
    "find": Case(find, "names/s", False, "{:,.0f}"),
    "open": Case(first_byte, "ms", True),
    "opens-1": Case(opens(1), "files/s", False, "{:,.0f}"),
    "opens-16": Case(opens(THREADS), "files/s", False, "{:,.0f}"),
}


def inrush(ground: Ground, url: str, point: Path, *words: Word) -> list[Word]:
    """inrush with its defaults."""
    return ground.lab.command("mount", "--foreground", "--quiet", f"s3://{BUCKET}/", point, *words,
                              *ground.lab.args.option, url=url)


def drop_caches() -> None:
    """Empties the page cache."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def result(case: Case, speed: float, started: float, cpu: float, peak: int) -> Result:
    """A run that began at this time."""
    return Result(bytes=case.bytes, files=1, seconds=time.monotonic() - started, cpu_seconds=cpu,
                  user_seconds=0.0, peak_rss_bytes=peak, own_gb_per_s=0.0, speed=speed)


def of_mount(ground: Ground, case: Case, line: Sequence[Word], point: Path) -> measure.Contender:
    """Runs of a mount."""
    def once(_every_byte: bool) -> Result:
        drop_caches()
        with client.mounted(line, point, ground.env) as server:
            if case.is_later:
                read_earlier(point)
            started, before = time.monotonic(), cpu_seconds(server.child.pid)
            speed = case.work(point)
            return result(case, speed, started, cpu_seconds(server.child.pid) - before,
                          process.peak_rss(server.child.pid))
    return once


def of_get(ground: Ground, case: Case) -> measure.Contender:
    """Reads the case's bytes by `inrush get --discard`."""
    def once(_every_byte: bool) -> Result:
        drop_caches()
        outcome = process.run(
            ground.lab.command("get", "--quiet", f"s3://{BUCKET}/{case.reads}", "--discard",
                               *ground.lab.args.option, url=ground.url(case)),
            seconds=READ_SECONDS, env=ground.env)
        sample = measure.of_outcome(outcome, "get", case.bytes, 1)
        return Result(**asdict(sample), speed=sample.gb_per_s)
    return once


def of_disk(case: Case, copies: Path) -> measure.Contender:
    """Reads the case's files on the disk."""
    def once(_every_byte: bool) -> Result:
        drop_caches()
        started = time.monotonic()
        return result(case, case.work(copies), started, 0.0, 0)
    return once


def contenders(ground: Ground, name: str, wanted: Sequence[str], points: Path
               ) -> dict[str, measure.Contender]:
    """Who takes part in a case."""
    case = CASES[name]
    url = ground.url(case)
    if ground.lab.args.transports:
        return {transport: of_mount(ground, case, inrush(ground, url, points / transport, "--fuse",
                                                         transport), points / transport)
                for transport in ("device", "io_uring")}
    found = {}
    for peer in wanted:
        point = points / peer
        line = inrush(ground, url, point) if peer == OURS else peers.MOUNTS[peer](peers.Mount(
            url, BUCKET, point, ground.scratch, ground.lab.args.mountpoint))
        found[peer] = of_mount(ground, case, line, point)
    if case.reads:
        found["get"] = of_get(ground, case)
    if name in CACHED:
        line = inrush(ground, url, points / "cached", "--cache", ground.scratch / "cache")
        found["cached"] = of_mount(ground, case, line, points / "cached")
        found["disk"] = of_disk(case, ground.scratch / "copies")
    return found


def fill(ground: Ground, root: Path, points: Path) -> None:
    """The first epoch with a cache, and the copies beside it."""
    must(["cp", "-r", root / BUCKET, ground.scratch / "copies"], seconds=READ_SECONDS)
    line = inrush(ground, ground.near, points / "cached", "--cache", ground.scratch / "cache")
    with client.mounted(line, points / "cached", ground.env):
        must(["diff", "-r", root / BUCKET, points / "cached"], seconds=READ_SECONDS)
    # It syncs what it has written.
    os.sync()


def measured(runs: Mapping[str, Sequence[Sample]]) -> dict[str, Any]:
    """The medians of each program in a case."""
    return {name: {
        "speed": measure.median(taken, "speed"), "spread": measure.spread(taken, "speed"),
        "cpu_seconds": measure.median(taken, "cpu_seconds"),
        "peak_mib": measure.median(taken, "peak_rss_mib"),
        "runs": [asdict(sample) for sample in taken]} for name, taken in runs.items()}


def markdown(rows_of: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each program in each case."""
    rows = []
    for name, found in rows_of.items():
        case = CASES[name]
        for other, row in found.items():
            ours = found.get(OURS, found.get("io_uring", row))
            # Of times the shorter is the faster.
            pair = (row, ours) if case.unit == "ms" else (ours, row)
            ratio = pair[0]["speed"] / pair[1]["speed"]
            cpu = f"{row['cpu_seconds']:.2f}" if row["cpu_seconds"] else ""
            rows.append([name, other, f"{case.form.format(row['speed'])} {case.unit}",
                         f"{abs(row['spread']):.0%}", f"{ratio:.2f}", cpu,
                         f"{row['peak_mib']:.0f}" if row["peak_mib"] else ""])
    return chart.markdown(["case", "program", "speed", "spread", "inrush's speed / its", "CPU s",
                           "peak MiB"], rows)


def write_objects(bucket: Path) -> None:
    """What is served."""
    for number in range(LARGE):
        dataset.write_stamped(bucket / f"large/object{number}", LARGE_BYTES, number)
    for number in range(EARLIER):
        dataset.write_stamped(bucket / f"earlier/object{number}", EARLIER_BYTES, LARGE + number)
    dataset.write_uniform(bucket, "small", SMALL, SMALL_BYTES, SMALL_FOLDERS)


def options(add: Add) -> None:
    """Of this measurement alone."""
    add("--transports", action="store_true", help="compare inrush over /dev/fuse and io_uring")
    add("--mountpoint", type=Path, default=os.environ.get("MOUNTPOINT_BIN") or None,
        help="the program of Mountpoint for Amazon S3; without it that takes no part")


def run(lab: Lab) -> None:
    """Serves, mounts and measures."""
    if os.geteuid():
        raise LabError("mounting, and emptying the page cache, take root")
    cases = lab.chosen("case", CASES, [name for name in CASES
                                       if lab.args.transports or name not in OF_TRANSPORTS])
    known = (OURS, *peers.MOUNTS)
    wanted = [] if lab.args.transports else lab.chosen(
        "peer", known, [peer for peer in known if peer != "mountpoint" or lab.args.mountpoint])
    if "mountpoint" in wanted and not lab.args.mountpoint:
        raise LabError("--peer mountpoint takes --mountpoint PATH")
    for program in ("fio", "find", *(peer for peer in ("rclone", "s3fs") if peer in wanted)):
        install.system_program(program)
    root, points = lab.in_memory() / "root", lab.folder("points")
    write_objects(root / BUCKET)
    made = ["--root", root, "--synthetic", f"{BUCKET}/huge/:1:{HUGE}"]
    near = lab.serve(*made)
    far = lab.serve(*made, "--first-byte-latency", f"{LATENCY_MS}:0")
    ground, found = Ground(lab, near, far), dict[str, Any]()
    if not lab.args.transports and any(name in CACHED for name in cases):
        fill(ground, root, points)
    for name in cases:
        say(f"{name}, in {CASES[name].unit}")
        found[name] = measured(measure.rounds(contenders(ground, name, wanted, points), 0,
                                              lab.args.runs or 3, {}))
        lab.keep("mounts", found)
    say(f"{time.strftime('%Y-%m-%d')}, {measure.machine(lab.temp)['cpus']} cores")
    say(markdown(found))
