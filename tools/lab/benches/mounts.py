"""Mounts the same objects with `inrush` and with other programs, in turn, and reads them.

    tools/bench.py mounts [--case NAME]... [--peer NAME]... [--runs N] [--inrush PATH] [--origin PATH]
    tools/bench.py mounts --transports [--case NAME]...

An inrush-origin on loopback serves 4 objects of 1 GiB and 2,000 of 39,000 bytes in 64 folders;
`far` and `random` with 20 ms to the first byte of each answer. Every run is a mount of its own, and
begins with an empty page cache. fio reads, with --readonly:

* one, four: one file, or four at the same time, in order, 1 MiB a read, 1 GiB each;
* one-direct, four-direct: the same with O_DIRECT, which skips the page cache;
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
MOUNTPOINT_BIN, says where its program is. MARKDOWN goes to standard output, all figures to --json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import chart, client, dataset, install, measure, process
from lab.process import LabError, must, note, say
from lab.servers import origin

BUCKET = "bench"
LARGE, LARGE_BYTES = 4, dataset.GIB
SMALL, SMALL_BYTES, SMALL_FOLDERS = 2_000, 39_000, 64
RANDOM_READS, RANDOM_BYTES = 500, 39_000
LATENCY_MS = 20
THREADS = 16
OPEN_ROUNDS = 10
OPENS = 20
KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
MOUNT_SECONDS, READ_SECONDS, STOP_SECONDS = 30.0, 300.0, 30.0


@dataclass(frozen=True)
class Ground:
    """Where runs take place."""

    args: argparse.Namespace
    near: str
    far: str
    scratch: Path

    def url(self, case: Case) -> str:
        """The server of a case."""
        return self.far if case.is_far else self.near


@dataclass(frozen=True)
class Result:
    """One run."""

    speed: float
    cpu_seconds: float
    peak_bytes: int


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
    "far": Case(in_order(LARGE), "GB/s", True, bytes=LARGE * LARGE_BYTES, reads="large/"),
    "random": Case(anywhere, "reads/s", True, "{:,.0f}"),
    "small": Case(small, "files/s", False, "{:,.0f}"),
    "find": Case(find, "names/s", False, "{:,.0f}"),
    "open": Case(first_byte, "ms", True),
    "opens-1": Case(opens(1), "files/s", False, "{:,.0f}"),
    "opens-16": Case(opens(THREADS), "files/s", False, "{:,.0f}"),
}


def inrush(ground: Ground, url: str, point: Path, *words: str | Path) -> list[str | Path]:
    """inrush with its defaults."""
    return [ground.args.inrush, "mount", "--foreground", "--quiet", f"s3://{BUCKET}/", point,
            "--endpoint-url", url, *words, *ground.args.option]


def rclone(ground: Ground, url: str, point: Path) -> list[str | Path]:
    """rclone as it reads best: no HEAD for each file, a listing that it keeps."""
    return [install.system_program("rclone"), "mount", f":s3:{BUCKET}", point, "--read-only",
            "--config", ground.scratch / "rclone.conf", "--s3-provider", "Other",
            "--s3-env-auth", "--s3-endpoint", url, "--s3-list-version", "2",
            "--use-server-modtime", "--no-checksum", "--dir-cache-time", "24h",
            "--attr-timeout", "1h", "--buffer-size", "64M", "--max-read-ahead", "1M"]


def s3fs(ground: Ground, url: str, point: Path) -> list[str | Path]:
    """s3fs with more requests at the same time than its default."""
    keys = ground.scratch / "s3fs.keys"
    keys.write_text("any:any\n")
    keys.chmod(0o600)
    return [install.system_program("s3fs"), BUCKET, point, "-f", "-o",
            f"ro,listobjectsv2,url={url},use_path_request_style,passwd_file={keys},"
            "parallel_count=32,multireq_max=100,stat_cache_expire=3600,max_stat_cache_size=100000,endpoint=us-east-1"]


def mountpoint(ground: Ground, url: str, point: Path) -> list[str | Path]:
    """Mountpoint for Amazon S3 with a listing that it keeps. Its target is the default elsewhere
    than on EC2: with 100 Gbit/s it opened 118 connections instead of 25, and read large files more
    slowly.

    Neither Debian nor PyPI nor crates.io has the program `mount-s3`: it is the crate mountpoint-s3
    of github.com/awslabs/mountpoint-s3. Compared was 1.24.0 as of commit 58817cab2, with two lines
    changed to fit mountpoint-s3-fs 0.11.0 and mountpoint-s3-client 0.22.1 from crates.io."""
    return [ground.args.mountpoint, BUCKET, point, "--foreground", "--read-only",
            "--endpoint-url", url, "--force-path-style", "--region", "us-east-1",
            "--metadata-ttl", "indefinite", "--maximum-throughput-gbps", "10"]


PEERS: dict[str, Callable[[Ground, str, Path], list[str | Path]]] = {
    "inrush": inrush, "rclone": rclone, "s3fs": s3fs, "mountpoint": mountpoint}


def drop_caches() -> None:
    """Empties the page cache."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_mounted(point: Path) -> bool:
    """Whether something serves there; a process that has ended does not."""
    try:
        return point.is_mount()
    except OSError:
        return False


@contextmanager
def mounted(ground: Ground, line: Sequence[str | Path], point: Path) -> Iterator[int]:
    """While inside, the mount serves; its process."""
    point.mkdir(exist_ok=True)
    env = client.clean_environment(ground.scratch, KEYS)
    server = process.Server(line, ground.scratch / "mount.log", env=env)
    try:
        if not server.wait_ready(lambda: is_mounted(point), MOUNT_SECONDS):
            raise LabError(f"{Path(line[0]).name} does not mount: {server.last_words()}")
        yield server.child.pid
    finally:
        process.run(["umount", "--lazy", str(point)], seconds=STOP_SECONDS)
        server.stop()


def run_mount(ground: Ground, case: Case, line: Sequence[str | Path], point: Path) -> Result:
    """One run of a mount."""
    drop_caches()
    with mounted(ground, line, point) as pid:
        before = cpu_seconds(pid)
        speed = case.work(point)
        return Result(speed, cpu_seconds(pid) - before, process.peak_rss(pid))


def run_get(ground: Ground, case: Case) -> Result:
    """Reads the case's bytes by `inrush get --discard`."""
    drop_caches()
    outcome = process.run(
        [ground.args.inrush, "get", "--quiet", f"s3://{BUCKET}/{case.reads}", "--discard",
         "--endpoint-url", ground.url(case), *ground.args.option],
        seconds=READ_SECONDS, env=client.clean_environment(ground.scratch, KEYS))
    if outcome.code:
        raise LabError(f"get: exit {outcome.code}: {outcome.last_words()}")
    return Result(case.bytes / 1e9 / outcome.seconds, outcome.cpu_seconds, outcome.peak_rss_bytes)


def run_disk(case: Case, copies: Path) -> Result:
    """Reads the case's files on the disk."""
    drop_caches()
    return Result(case.work(copies), 0.0, 0)


@dataclass
class Table:
    """What was measured."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, case: str, name: str, results: Sequence[Result]) -> None:
        """The medians of a program in a case."""
        speeds = [result.speed for result in results]
        middle = statistics.median(speeds)
        self.rows.setdefault(case, {})[name] = {
            "speed": middle, "spread": (max(speeds) - min(speeds)) / abs(middle) if middle else 0.0,
            "cpu_seconds": statistics.median(result.cpu_seconds for result in results),
            "peak_mib": statistics.median(result.peak_bytes for result in results) / dataset.MIB,
            "runs": speeds}


def contenders(ground: Ground, name: str, points: Path) -> dict[str, Callable[[], Result]]:
    """Who takes part in a case."""
    case, found = CASES[name], dict[str, Callable[[], Result]]()
    url = ground.url(case)
    if ground.args.transports:
        for transport in ("device", "io_uring"):
            line = inrush(ground, url, points / transport, "--fuse", transport)
            found[transport] = lambda line=line, at=transport: run_mount(  # type: ignore[misc]
                ground, case, line, points / at)
        return found
    for peer in ground.args.peer:
        line = PEERS[peer](ground, url, points / peer)
        found[peer] = lambda line=line, peer=peer: run_mount(  # type: ignore[misc]
            ground, case, line, points / peer)
    if case.reads:
        found["get"] = lambda: run_get(ground, case)
    if name in CACHED:
        cache, copies = ground.scratch / "cache", ground.scratch / "copies"
        line = inrush(ground, url, points / "cached", "--cache", cache)
        found["cached"] = lambda: run_mount(ground, case, line, points / "cached")
        found["disk"] = lambda: run_disk(case, copies)
    return found


def fill(ground: Ground, root: Path, points: Path) -> None:
    """The first epoch with a cache, and the copies beside it."""
    must(["cp", "-r", root / BUCKET, ground.scratch / "copies"], seconds=READ_SECONDS)
    line = inrush(ground, ground.near, points / "cached", "--cache", ground.scratch / "cache")
    with mounted(ground, line, points / "cached"):
        must(["diff", "-r", root / BUCKET, points / "cached"], seconds=READ_SECONDS)
    # It syncs what it has written.
    os.sync()


def measured(ground: Ground, table: Table, name: str, points: Path) -> None:
    """All runs of a case."""
    who = contenders(ground, name, points)
    results: dict[str, list[Result]] = {other: [] for other in who}
    for number in range(ground.args.runs):
        for other in list(results)[:: 1 if number % 2 == 0 else -1]:
            try:
                result = who[other]()
            except LabError as error:
                note(f"  {other}: {error}")
                del results[other]
                continue
            note(f"  {name} {other}: {CASES[name].form.format(result.speed)} "
                 f"{CASES[name].unit}, CPU {result.cpu_seconds:.2f} s")
            results[other].append(result)
    for other, taken in results.items():
        table.note(name, other, taken)


def markdown(table: Table) -> str:
    """A row for each program in each case."""
    rows = []
    for name, found in table.rows.items():
        case = CASES[name]
        for other, row in found.items():
            ours = found.get("inrush", found.get("io_uring", row))
            # Of times the shorter is the faster.
            pair = (row, ours) if case.unit == "ms" else (ours, row)
            ratio = pair[0]["speed"] / pair[1]["speed"]
            cpu = f"{row['cpu_seconds']:.2f}" if row["cpu_seconds"] else ""
            rows.append([name, other, f"{case.form.format(row['speed'])} {case.unit}",
                         f"{row['spread']:.0%}", f"{ratio:.2f}", cpu,
                         f"{row['peak_mib']:.0f}" if row["peak_mib"] else ""])
    return chart.markdown(["case", "program", "speed", "spread", "inrush's speed / its", "CPU s",
                           "peak MiB"], rows)


def write_objects(bucket: Path) -> None:
    """What is served."""
    for number in range(LARGE):
        dataset.write_stamped(bucket / f"large/object{number}", LARGE_BYTES, number)
    dataset.write_uniform(bucket, "small", SMALL, SMALL_BYTES, SMALL_FOLDERS)


def run_all(args: argparse.Namespace) -> Table:
    """Serves, mounts and measures."""
    for program in ("fio", "rclone", "s3fs", "find"):
        peers = () if args.transports else args.peer
        if program in ("fio", "find") or program in peers:
            install.system_program(program)
    folder, table = tempfile.TemporaryDirectory, Table()
    with folder(prefix="inrush-mounts-", dir=args.memory_folder) as memory, \
            folder(prefix="inrush-mounts-", dir=args.disk) as disk:
        root, scratch, points = Path(memory) / "root", Path(disk), Path(disk) / "points"
        points.mkdir()
        (scratch / "rclone.conf").touch()
        write_objects(root / BUCKET)
        words = ["--root", root]
        near_at, far_at = Path(memory) / "near", Path(memory) / "far"
        near_at.mkdir()
        far_at.mkdir()
        with origin.serving(args.origin, words, near_at) as near, \
                origin.serving(args.origin, [*words, "--first-byte-latency", f"{LATENCY_MS}:0"],
                               far_at) as far:
            ground = Ground(args, near, far, scratch)
            if not args.transports and any(name in CACHED for name in args.case):
                fill(ground, root, points)
            for name in args.case:
                measured(ground, table, name, points)
    return table


def main() -> int:
    """The exit code."""
    parser = client.argument_parser(__doc__)
    add = parser.add_argument
    add("--case", action="append", choices=CASES, help="repeatable (default: all)")
    add("--peer", action="append", choices=PEERS, help="repeatable (default: all)")
    add("--transports", action="store_true", help="compare inrush over /dev/fuse and io_uring")
    add("--runs", type=int, default=3, help="runs of each (default: %(default)s)")
    add("--mountpoint", type=Path, default=os.environ.get("MOUNTPOINT_BIN") or None,
        help="the program of Mountpoint for Amazon S3; without it that takes no part")
    add("--option", action="append", default=[], help="an option more for inrush; repeatable")
    add("--disk", type=Path, default=install.build_folder(),
        help="a folder for the cache, 9 GB (default: %(default)s)")
    add("--memory-folder", type=Path, default=Path("/dev/shm"),
        help="a folder for the sources, 5 GB (default: %(default)s)")
    add("--json", type=Path, help="also write all figures to this file")
    args = parser.parse_args()
    args.case = args.case or [name for name in CASES
                              if args.transports or name not in OF_TRANSPORTS]
    args.peer = args.peer or [peer for peer in PEERS if peer != "mountpoint" or args.mountpoint]
    if "mountpoint" in args.peer and not args.mountpoint:
        parser.error("--peer mountpoint takes --mountpoint PATH")
    process.unwind_on_signals()
    if not client.are_built(args.inrush, args.origin):
        return 2
    if os.geteuid():
        say("mounting, and emptying the page cache, take root")
        return 2
    try:
        table = run_all(args)
    except LabError as error:
        say(f"no figure: {error}")
        return 2
    if args.json:
        args.json.write_text(json.dumps(table.rows, indent=1) + "\n")
    say(f"{time.strftime('%Y-%m-%d')}, {measure.machine(args.disk)['cpus']} cores")
    say(markdown(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
