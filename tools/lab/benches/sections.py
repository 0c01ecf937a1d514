"""The benchmark: how near `inrush` is to what this machine can do, and to its peer.

    tools/bench.py [large] [small] [discard] [rss] [pipe] [stdout] [tls] [tls-disk] [tls-cat]
                   [verify] [verify-disk] [stalls] [stalls-stream] [list] [pace] [small-latency]
                   [small-discard] [throttle] [neighbor] [waiting] [ring] [startup] [gzip]
                   [gzip-many] [lines] [lines-latency] [slow-reader] [slow-channels]
                   [slow-rest] [--check] [--limit PATH]
                   [--receive-limit PATH] [--builtin-limit PATH] [--fifo-limit PATH] [--json FILE]

Without a name it runs the two claims, `large` and `small`.

* large: 4 objects of 1 GiB from nginx (one worker, plain HTTP, sources in memory) to files on disk,
  beside a limit program that receives and writes and does nothing else.
* small: 20,000 objects of 39,000 bytes in 256 folders from the same nginx to the same disk, beside
  s5cmd with its defaults.
* discard: the large objects to nowhere, beside a program that only receives.
* rss: the peak memory of runs that differ in object size, object count and `--memory`.

* pipe: the large objects through named pipes to a reader in another process, epoch after epoch until
  60 s have passed (`--stream-seconds`), beside a program that only receives and splices, and ends
  after one. A stream that collapses does so after seconds.
* stdout: one large object to a reader of standard output, again and again until 60 s have passed,
  beside the AWS command line and s5cmd. inrush has one process for all, the others one for each
  time. CPU time is of producer and reader together.
* tls: the large objects to nowhere over TLS 1.3 (AES-128-GCM), beside curl, which fetches them one
  after the other over one connection. `--check` wants at most 0.55 of curl's CPU time.
* tls-disk: the same to files on disk, beside s5cmd with its defaults. `--check` wants at least 3
  times its GB/s.
* tls-cat: one large object over TLS to a reader of standard output, beside curl through the same
  reader, and beside inrush without one, to nowhere. CPU time is of producer and reader together.
* gzip: `cat --gunzip` of one object of gzip of 256 MiB to a reader of standard output, beside curl
  with gzip and with pigz behind it. GB/s are of what the reader gets.
* gzip-many: the same of 16 objects of 16 MiB. `--check` wants of both at most 0.8 of the CPU time
  of curl with gzip.
* lines: `pipe --augmented-manifest` of 100,000 lines, each with an object of 1,000 bytes and a
  value, to a reader. `--check` wants at least 10,000 objects/s.
* lines-latency: the same from an inrush-origin that takes 20 ms to the first byte, beside
  `get --discard` of the same objects. `--check` wants at least 0.9 of its objects/s.
* verify: the large objects to nowhere from inrush-origin, which stores their CRC-64/NVME, with
  `--verify auto` beside `--verify off`. `--check` wants at most 1.15 of the CPU time of off.
* verify-disk: the same to files on disk.
* stalls: 4,000 objects of 8 MiB to nowhere from an inrush-origin that stalls 5 % of its answers for
  ever and has one dead address of four, beside one that does not. `--check` wants at least 0.85 of
  the speed.
* stalls-stream: the same by `cat`, in order.
* pace, pace-90, pace-25, pace-100ms, pace-none, pace-one, pace-cat, small-latency, small-discard,
  throttle, neighbor, waiting: the number of connections that inrush takes by itself, see
  tools/lab/benches/pace.py.
* slow-reader, slow-channels, slow-rest: streams to readers that are slower than the network, and to
  fast ones for long, see tools/lab/benches/slow_reader.py.
* ring: `--ring epoll` beside `--ring io_uring`: large, small, discard and pipe, and all but small
  over TLS, too. `--check` wants at least 0.8 of the speed at 1.6 times the CPU time or less. What
  writes files also runs beside s5cmd and the program of Amazon's transfer manager for Rust (built
  on first use: some minutes), and is to be faster than each, with less CPU time.
* startup: from the start of `inrush train` to the first byte that its command has read, in File,
  FastFile and Pipe mode, for 1, 10 and 50 GB in objects of 100 MB from an inrush-origin.
* list: `ls` of 1,000,000 keys from an inrush-origin that takes 20 ms for each page, beside one
  request at a time. `--check` wants at least 300,000 keys/s and 8 times the speed.

A limit program is called as `PATH PORT TARGET_PREFIX OUT_DIR CONNECTIONS SLOT_KIB OBJECTS` (large)
or `PATH PORT TARGET_PREFIX CONNECTIONS BUFFER_BYTES 0 1` (discard) or `PATH PORT TARGET_PREFIX
PIPE CONNECTIONS splice` (pipe), fetches TARGET_PREFIX0 to
TARGET_PREFIX3 in ranges of 8 MiB, and prints a line with `X GB/s cpu Y s/GB`. Runs alternate; large
files are deleted and the disk is synced between them, outside the measured time; many small ones
stay until the end. The first round warms up and is compared byte by byte; after that names and
sizes are.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab import client, compare, dataset, install, measure, peers, process, stolen, streams
from lab.benches import gzips, lines, listings, pace, rings, secure_cat, slow_reader, startup
from lab.process import LabError, Outcome, say
from lab.servers import authority, listing, nginx, origin

BUCKET = "bench"
CLAIMS = ("large", "small")
LARGE_OBJECTS = 4
SMALL_BYTES = 39_000
SMALL_FOLDERS = 256
RUN_SECONDS = 180.0
STREAM_TIMES = 3
"""How many times its `--stream-seconds` a stream may take."""
STREAM_OBJECTS_MAX = 2_000
"""Links to one object that are a stream longer than any run."""
SPEED = {"gb_per_s": "GB/s", "own_gb_per_s": "own GB/s", "cpu_s_per_gb": "CPU s/GB",
         "peak_rss_mib": "peak MiB"}
# Start, listing and renames count for inrush: its whole run is compared with a limit's own figure.
SPEED_RATIOS = {"gb_per_s": "own_gb_per_s", "own_gb_per_s": "own_gb_per_s",
                "cpu_s_per_gb": "cpu_s_per_gb"}
SECURE = {"gb_per_s": "GB/s", "cpu_s_per_tb": "CPU s/TB", "peak_rss_mib": "peak MiB"}
SECURE_RATIOS = {name: name for name in SECURE}
SECURE_VERSION = "TLSv1.3"
SECURE_NAMES = ("tls", "tls-disk", "tls-cat", "ring", "slow-reader")
ADDRESSES = tuple(f"127.0.0.{number}" for number in (1, 2, 3, 4))
STALLED = ("--dead", "3:silent", "--faults", "7:stalled")
STALLED_OBJECTS = 4_000
STALLED_MIB = 8
FILES = {"files_per_s": "files/s", "cpu_us_per_file": "CPU us/file",
         "user_us_per_file": "user us/file", "gb_per_s": "GB/s",
         "peak_rss_mib": "peak MiB"}
FILES_RATIOS = {"files_per_s": "files_per_s", "cpu_us_per_file": "cpu_us_per_file",
                "user_us_per_file": "user_us_per_file"}


@dataclass(frozen=True)
class Bound:
    """What `--check` wants of the ratio of inrush to its peer."""

    peer: str
    column: str
    value: float
    at_most: bool

    def complaint(self, figures: Mapping[str, Any]) -> str | None:
        """What is wrong with a benchmark's figures."""
        found = figures["ratios"][f"inrush / {self.peer}"][self.column]
        if found <= self.value if self.at_most else found >= self.value:
            return None
        side = "at most" if self.at_most else "at least"
        return (f"{self.column} is {found:.3f} of what {self.peer} has; "
                f"wanted: {side} {self.value:g}")


SPEEDS = {"list": (listings.KEYS_PER_S_MIN, "keys/s"),
          "lines": (lines.OBJECTS_PER_S_MIN, "objects/s")}
"""What `--check` wants a second, whatever it is beside."""

BOUNDS = {"gzip": Bound("curl, gzip", "cpu_s_per_gb", 0.8, at_most=True),
          "gzip-many": Bound("curl, gzip", "cpu_s_per_gb", 0.8, at_most=True),
          "lines-latency": Bound("unordered", "files_per_s", 0.9, at_most=False),
          "tls": Bound("curl", "cpu_s_per_tb", 0.55, at_most=True),
          "tls-disk": Bound("s5cmd", "gb_per_s", 3.0, at_most=False),
          "stalls": Bound("clean", "gb_per_s", 0.85, at_most=False),
          "list": Bound("single", "files_per_s", 8.0, at_most=False),
          "verify": Bound("off", "cpu_s_per_tb", 1.15, at_most=True),
          "verify-disk": Bound("off", "cpu_s_per_tb", 1.15, at_most=True)}


@dataclass(frozen=True)
class Bench:
    """Everything a run needs: the server, the objects, the disk."""

    args: argparse.Namespace
    server: nginx.Nginx
    entries: list[listing.Entry]
    disk: Path
    env: dict[str, str]
    root: Path
    """What is served."""
    bundle: Path | None = None
    """Whom the clients believe, where a benchmark is over TLS."""
    kept: list[Path] = field(default_factory=list)
    """What runs of many files wrote: it goes at the end. ext4 passes over inodes that were deleted
    in the last minutes, one by one, so that creating after deleting is many times dearer."""

    @property
    def destination(self) -> Path:
        """Where the next run writes."""
        return self.disk / f"destination{len(self.kept)}"

    def clear(self, keep: bool = False) -> None:
        """Deletes what a run wrote, or keeps it, and lets the disk settle."""
        if keep:
            self.kept.append(self.destination)
        else:
            shutil.rmtree(self.destination, ignore_errors=True)
        os.sync()

    def below(self, prefix: str) -> list[listing.Entry]:
        """The objects of a prefix."""
        return [entry for entry in self.entries if entry.key.startswith(prefix)]


def require(outcome: Outcome, name: str) -> None:
    """A run that failed ends the benchmark."""
    if outcome.timed_out or outcome.code != 0:
        end = "not done in time" if outcome.timed_out else f"exit {outcome.code}"
        raise LabError(f"{name}: {end}: {outcome.last_words()}")


def check(bench: Bench, prefix: str, name: str, every_byte: bool) -> None:
    """Sees that the run left the objects of `prefix` and nothing else."""
    compare.require(bench.destination, bench.entries, prefix, name, every_byte)


def inrush(bench: Bench, prefix: str, discard: bool = False,
           options: Sequence[str] = (), url: str = "") -> measure.Contender:
    """`inrush get` of a prefix, from the server's plain endpoint or from `url`."""
    objects = bench.below(prefix)

    def once(every_byte: bool) -> measure.Sample:
        outcome = client.get(
            bench.args.inrush, [f"s3://{BUCKET}/{prefix}"], None if discard else bench.destination,
            endpoint=url or bench.server.url,
            options=["--no-sign-request", *bench.args.option, *options],
            env=bench.env, seconds=RUN_SECONDS)
        require(outcome, "inrush")
        if not discard:
            check(bench, prefix, "inrush", every_byte)
        bench.clear(keep=len(objects) > SMALL_FOLDERS)
        return measure.Sample(
            bytes=sum(entry.size for entry in objects), files=len(objects),
            seconds=outcome.seconds, cpu_seconds=outcome.cpu_seconds,
            user_seconds=outcome.user_seconds, peak_rss_bytes=outcome.peak_rss_bytes,
            own_gb_per_s=client.summary(outcome)["gigabytes_per_second"])

    return once


def limit(bench: Bench, program: Path, arguments: Sequence[str], objects: int) -> measure.Contender:
    """A limit program; its CPU time is the one it prints, without its start."""

    def once(_every_byte: bool) -> measure.Sample:
        bench.destination.mkdir()
        outcome = process.run([program, str(bench.server.port), f"/{BUCKET}/large/object",
                               *arguments], seconds=RUN_SECONDS)
        require(outcome, program.name)
        gb_per_s, cpu_per_gb = measure.figures_of_limit(outcome.stdout)
        size = objects * dataset.GIB
        bench.clear()
        return measure.Sample(
            bytes=size, files=objects, seconds=outcome.seconds,
            cpu_seconds=cpu_per_gb * size / measure.GB, user_seconds=0.0,
            peak_rss_bytes=outcome.peak_rss_bytes, own_gb_per_s=gb_per_s)

    return once


def peer(bench: Bench, prefix: str, name: str, url: str = "") -> measure.Contender:
    """Another program with the settings of `lab.peers`, into a folder; what it prints goes
    nowhere."""
    objects = bench.below(prefix)

    def once(every_byte: bool) -> measure.Sample:
        bench.destination.mkdir()
        task = peers.Task(url or bench.server.url, BUCKET, prefix, objects, bench.destination,
                          bench.disk, bench.bundle if url else None)
        line = peers.ALL[name].line(task)
        outcome = process.run(line.argv, seconds=RUN_SECONDS, env={**bench.env, **line.env},
                              keep_stdout=False)
        taken = measure.of_outcome(outcome, name, sum(entry.size for entry in objects),
                                   len(objects))
        check(bench, prefix, name, every_byte)
        bench.clear(keep=len(objects) > SMALL_FOLDERS)
        return taken

    return once


def large(bench: Bench) -> tuple[str, dict[str, object]]:
    """File mode beside the limit of receiving and writing."""
    arguments = [str(bench.destination), str(bench.args.limit_connections),
                 str(bench.args.limit_slot_kib), str(LARGE_OBJECTS)]
    contenders = {"inrush": inrush(bench, "large/")}
    for name, program in (("limit", bench.args.limit), ("builtin", bench.args.builtin_limit)):
        if program:
            contenders[name] = limit(bench, program, arguments, LARGE_OBJECTS)
    return speed_table(bench, f"large: {large_objects(bench)} to files", contenders)


def discard(bench: Bench) -> tuple[str, dict[str, object]]:
    """Receiving alone beside the limit of receiving."""
    arguments = [str(bench.args.limit_connections), str(dataset.MIB), "0", "1"]
    contenders = {"inrush": inrush(bench, "large/", discard=True)}
    if bench.args.receive_limit:
        contenders["limit"] = limit(bench, bench.args.receive_limit, arguments, LARGE_OBJECTS)
    return speed_table(bench, f"discard: {large_objects(bench)} to nowhere", contenders)


def speed_table(bench: Bench, title: str, contenders: dict[str, measure.Contender]
                ) -> tuple[str, dict[str, object]]:
    """Runs the contenders that are wanted and compares bytes."""
    return finish(bench, title, contenders, SPEED, SPEED_RATIOS)


def small(bench: Bench) -> tuple[str, dict[str, object]]:
    """Many files beside s5cmd."""
    contenders = {"inrush": inrush(bench, "small/"), "s5cmd": peer(bench, "small/", "s5cmd")}
    title = f"small: {bench.args.small_count:,} objects of {SMALL_BYTES:,} bytes to files"
    return finish(bench, title, contenders, FILES, FILES_RATIOS)


def rss(bench: Bench) -> tuple[str, dict[str, object]]:
    """Peak memory, which must depend on `--memory` alone."""
    contenders = {
        "1 x 1 GiB": inrush(bench, "one/"),
        "4 x 1 GiB": inrush(bench, "large/"),
        "small": inrush(bench, "small/"),
        "4 x 1 GiB, 64 MiB": inrush(bench, "large/", options=("--memory", "64MiB")),
        "small, 64 MiB": inrush(bench, "small/", options=("--memory", "64MiB")),
    }
    return finish(bench, "rss: peak memory", contenders, SPEED, {})


def sample(outcome: Outcome, size: int, gb_per_s: float) -> measure.Sample:
    """A run of one stream."""
    return measure.Sample(
        bytes=size, files=1, seconds=outcome.seconds, cpu_seconds=outcome.cpu_seconds,
        user_seconds=outcome.user_seconds, peak_rss_bytes=outcome.peak_rss_bytes,
        own_gb_per_s=gb_per_s)


def piped(bench: Bench, options: Sequence[str] = (), url: str = "") -> measure.Contender:
    """`inrush pipe` of the large objects to a reader."""
    size = LARGE_OBJECTS * bench.args.large_mib * dataset.MIB
    service = ["--endpoint-url", url or bench.server.url, "--region", "us-east-1",
               "--no-sign-request"]

    def ours(_every_byte: bool) -> measure.Sample:
        bench.destination.mkdir()
        outcome = streams.through_pipe(
            [bench.args.inrush, "pipe", f"s3://{BUCKET}/large/", bench.destination / "train",
             "--quiet", "--json", *service, *bench.args.option, *options],
            bench.destination / "train_0", size, env=bench.env, seconds=RUN_SECONDS)
        require(outcome, "inrush")
        epoch = json.loads(outcome.stdout)["channels"][0]["epochs"][0]
        bench.clear()
        return sample(outcome, size, epoch["gigabytes_per_second"])

    return ours


def piped_for_long(bench: Bench) -> measure.Contender:
    """`inrush pipe` of the large objects to a reader, epoch after epoch."""
    size = LARGE_OBJECTS * bench.args.large_mib * dataset.MIB

    def ours(_every_byte: bool) -> measure.Sample:
        bench.destination.mkdir()
        outcome, total = streams.long_pipe(
            [bench.args.inrush, "pipe", f"s3://{BUCKET}/large/", bench.destination / "train",
             "--epochs", "forever", "--quiet", "--json", "--endpoint-url", bench.server.url,
             "--region", "us-east-1", "--no-sign-request", *bench.args.option],
            bench.destination / "train", size, bench.args.stream_seconds, env=bench.env,
            seconds=STREAM_TIMES * bench.args.stream_seconds + RUN_SECONDS)
        require(outcome, "inrush")
        summary = json.loads(outcome.stdout)
        epochs = [epoch for epoch in summary["channels"][0]["epochs"] if epoch["bytes"] == size]
        bench.clear()
        taken = sample(outcome, total, size * len(epochs) / measure.GB / sum(
            epoch["seconds"] for epoch in epochs))
        return replace(taken, cpu_seconds=summary["cpu_seconds"], user_seconds=0.0,
                       peak_rss_bytes=summary["peak_rss_bytes"])

    return ours


def pipe(bench: Bench) -> tuple[str, dict[str, object]]:
    """Pipe mode beside the limit of receiving and splicing."""
    contenders: dict[str, measure.Contender] = {"inrush": piped_for_long(bench)}
    if bench.args.fifo_limit:
        contenders["limit"] = limit(bench, bench.args.fifo_limit,
                                    [str(bench.destination / "pipe"), "32", "splice"],
                                    LARGE_OBJECTS)
    return speed_table(bench, f"pipe: {large_objects(bench)} to a reader", contenders)


def stdout(bench: Bench) -> tuple[str, dict[str, object]]:
    """`cat` beside what others write to standard output."""
    source, url = f"s3://{BUCKET}/large/object0", bench.server.url
    many = f"s3://{BUCKET}/many/"
    service, size = ["--endpoint-url", url, "--no-sign-request"], bench.args.large_mib * dataset.MIB
    commands: dict[str, list[str | Path]] = {
        "inrush": [bench.args.inrush, "cat", many, "--quiet", "--region", "us-east-1", *service,
                   *bench.args.option],
        "aws": [install.program("awscli"), "s3", "cp", source, "-", "--region", "us-east-1", *service],
        "s5cmd": [install.s5cmd(), *service, "cat", source],
    }

    def contender(command: list[str | Path]) -> measure.Contender:
        def once(_every_byte: bool) -> measure.Sample:
            outcome, total = streams.long_stdout(
                command, size, bench.args.stream_seconds, env=bench.env,
                seconds=STREAM_TIMES * bench.args.stream_seconds + RUN_SECONDS)
            require(outcome, str(command[0]))
            return sample(outcome, total, 0.0)
        return once

    contenders = {name: contender(command) for name, command in commands.items()}
    columns = {name: title for name, title in SPEED.items() if name != "own_gb_per_s"}
    title = f"stdout: an object of {bench.args.large_mib:,} MiB to a reader, again and again"
    return finish(bench, title, contenders, columns,
                  {"gb_per_s": "gb_per_s", "cpu_s_per_gb": "cpu_s_per_gb"})


def curl(bench: Bench, prefix: str, url: str) -> measure.Contender:
    """curl of a prefix's objects to nowhere, one after the other over one connection."""
    objects = bench.below(prefix)
    size = sum(entry.size for entry in objects)
    command: list[str | Path] = [
        install.system_program("curl"), "--disable", "--silent", "--show-error", "--fail",
        "--http1.1", "--cacert", trusted(bench), "--write-out", "%{size_download}\\n"]
    for entry in objects:
        command += ["--output", "/dev/null", f"{url}/{BUCKET}/{entry.key}"]

    def once(_every_byte: bool) -> measure.Sample:
        outcome = process.run(command, seconds=RUN_SECONDS, env=bench.env)
        require(outcome, "curl")
        printed = sum(int(line) for line in outcome.stdout.split())
        if printed != size:
            raise LabError(f"curl: {printed} of {size} bytes")
        return measure.Sample(
            bytes=size, files=len(objects), seconds=outcome.seconds,
            cpu_seconds=outcome.cpu_seconds, user_seconds=outcome.user_seconds,
            peak_rss_bytes=outcome.peak_rss_bytes, own_gb_per_s=0.0)

    return once


def trusted(bench: Bench) -> Path:
    """The authority of a benchmark that is over TLS."""
    if not bench.bundle:
        raise LabError("the server has no certificate")
    return bench.bundle


def secured(bench: Bench, title: str, contenders: Mapping[str, measure.Contender]
            ) -> tuple[str, dict[str, object]]:
    """A benchmark over TLS; nginx's log must say that all used the same suite."""
    before = len(bench.server.agreements(SECURE_VERSION))
    figures = finish(bench, title, dict(contenders), SECURE, SECURE_RATIOS)
    found = {(agreement.protocol, agreement.suite)
             for agreement in bench.server.agreements(SECURE_VERSION, before)}
    if found != {(SECURE_VERSION, nginx.SUITES[SECURE_VERSION])}:
        raise LabError(f"not {nginx.SUITES[SECURE_VERSION]} alone: {sorted(found)}")
    return figures


def tls(bench: Bench) -> tuple[str, dict[str, object]]:
    """Receiving and decrypting beside curl."""
    url, options = bench.server.tls_url(SECURE_VERSION), ("--ca-bundle", str(trusted(bench)))
    contenders = {"inrush": inrush(bench, "large/", discard=True, options=options, url=url),
                  "curl": curl(bench, "large/", url)}
    return secured(bench, f"tls: {large_objects(bench)} over TLS to nowhere", contenders)


def tls_disk(bench: Bench) -> tuple[str, dict[str, object]]:
    """File mode over TLS beside s5cmd."""
    url, options = bench.server.tls_url(SECURE_VERSION), ("--ca-bundle", str(trusted(bench)))
    contenders = {"inrush": inrush(bench, "large/", options=options, url=url),
                  "s5cmd": peer(bench, "large/", "s5cmd", url)}
    return secured(bench, f"tls-disk: {large_objects(bench)} over TLS to files", contenders)


def tls_cat(bench: Bench) -> tuple[str, dict[str, object]]:
    """A stream over TLS beside curl's, and beside no reader."""
    url, options = bench.server.tls_url(SECURE_VERSION), ("--ca-bundle", str(trusted(bench)))
    source = secure_cat.Source(url, BUCKET, "one/object", bench.args.large_mib * dataset.MIB,
                               trusted(bench))
    contenders = secure_cat.contenders(bench.args.inrush, source, bench.args.option,
                                       env=bench.env, seconds=RUN_SECONDS)
    contenders["discard"] = inrush(bench, "one/", discard=True, options=options, url=url)
    title = f"tls-cat: an object of {bench.args.large_mib:,} MiB over TLS to a reader"
    return secured(bench, title, contenders)


def unpacked(bench: Bench, name: str, title: str) -> tuple[str, dict[str, object]]:
    """Objects of gzip as what they hold."""
    paths = sorted((bench.root / BUCKET / "gzip" / name).iterdir())
    place = (bench.server.url, f"s3://{BUCKET}/gzip/{name}/")
    contenders = gzips.contenders(bench.args.inrush, place, paths, bench.args.option,
                                  env=bench.env, seconds=RUN_SECONDS)
    columns = {column: head for column, head in SPEED.items() if column != "own_gb_per_s"}
    return finish(bench, title, contenders, columns,
                  {"gb_per_s": "gb_per_s", "cpu_s_per_gb": "cpu_s_per_gb"})


def gzip_one(bench: Bench) -> tuple[str, dict[str, object]]:
    """One object, which one core can inflate."""
    size = gzips.MANY * gzips.MANY_MIB
    return unpacked(bench, "one", f"gzip: an object of gzip of {size} MiB to a reader")


def gzip_many(bench: Bench) -> tuple[str, dict[str, object]]:
    """Several objects, each of which another core can inflate."""
    return unpacked(bench, "many", f"gzip-many: {gzips.MANY} objects of gzip of "
                                   f"{gzips.MANY_MIB} MiB to a reader")


def lines_in_order(bench: Bench) -> tuple[str, dict[str, object]]:
    """An augmented manifest from nginx, which answers at once."""
    manifest = bench.disk / "lines.jsonl"
    lines.write_manifest(manifest, BUCKET)
    command = [bench.args.inrush, "--endpoint-url", bench.server.url, "--region", "us-east-1",
               "--no-sign-request", *bench.args.option]
    streamed = lines.streamed(command, manifest, bench.disk, env=bench.env, seconds=RUN_SECONDS)
    title = f"lines: {lines.LINES:,} lines of an augmented manifest to a reader"
    text, figures = finish(bench, title, {"inrush": streamed}, lines.COLUMNS, {})
    manifest.unlink()
    return text, figures


def lines_late(bench: Bench) -> tuple[str, dict[str, object]]:
    """Lines of an augmented manifest from a server with a delay."""
    args = bench.args
    return lines.run(args.inrush, args.option, bench.env, RUN_SECONDS, args.warm_up, args.runs)


def beside_clean(bench: Bench, what: str, columns: dict[str, str],
                 contender: Callable[[str, Sequence[str]], measure.Contender],
                 ) -> tuple[str, dict[str, object]]:
    """An origin of four addresses, one of them dead, that stalls 5 % of its answers for ever,
    beside one that does not. A contender is made of the endpoint and what its command line begins
    with."""
    program = origin.default_program()
    options = ["--synthetic", f"{BUCKET}/:{STALLED_OBJECTS}:{STALLED_MIB}MiB"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inrush-bench-")))
        within = origin.by_name(folder, ADDRESSES)
        contenders = {}
        for name, faults in (("inrush", STALLED), ("clean", ())):
            (folder / name).mkdir()
            url = stack.enter_context(
                origin.serving(program, [*options, *faults], folder / name, ADDRESSES))
            port = url.rsplit(":", 1)[1]
            contenders[name] = contender(f"http://{origin.NAME}:{port}", within)
        return finish(
            bench, f"{STALLED_OBJECTS:,} objects of {STALLED_MIB} MiB {what}; 5 % of the "
            "answers stall, and one of four addresses is dead",
            contenders, columns, {"gb_per_s": "gb_per_s", "cpu_s_per_gb": "cpu_s_per_gb"})


def stalls(bench: Bench) -> tuple[str, dict[str, object]]:
    """Late ranges in File mode."""
    total = STALLED_OBJECTS * STALLED_MIB * dataset.MIB

    def contender(endpoint: str, within: Sequence[str]) -> measure.Contender:
        def once(_every_byte: bool) -> measure.Sample:
            outcome = client.get(
                bench.args.inrush, [f"s3://{BUCKET}/"], None, endpoint=endpoint, env=bench.env,
                seconds=RUN_SECONDS, options=["--no-sign-request", *bench.args.option],
                within=within)
            require(outcome, "inrush")
            summary = client.summary(outcome)
            process.note(f"    retries {summary['retries']}, hedges {summary['hedges']} "
                         f"({summary['hedges_won']} won), moved {summary['moves']}")
            return measure.Sample(
                bytes=total, files=STALLED_OBJECTS, seconds=outcome.seconds,
                cpu_seconds=outcome.cpu_seconds, user_seconds=outcome.user_seconds,
                peak_rss_bytes=outcome.peak_rss_bytes,
                own_gb_per_s=summary["gigabytes_per_second"])
        return once

    return beside_clean(bench, "to nowhere", SPEED, contender)


def stalls_stream(bench: Bench) -> tuple[str, dict[str, object]]:
    """Late ranges of a stream, which comes in order: each is waited for."""
    total = STALLED_OBJECTS * STALLED_MIB * dataset.MIB

    def contender(endpoint: str, within: Sequence[str]) -> measure.Contender:
        command = [*within, bench.args.inrush, "cat", f"s3://{BUCKET}/", "--no-sign-request",
                   "--endpoint-url", endpoint, "--region", "us-east-1", *bench.args.option]

        def once(_every_byte: bool) -> measure.Sample:
            outcome = streams.through_stdout(command, total, env=bench.env, seconds=RUN_SECONDS)
            require(outcome, "inrush")
            return sample(outcome, total, 0.0)
        return once

    columns = {name: title for name, title in SPEED.items() if name != "own_gb_per_s"}
    return beside_clean(bench, "in a stream", columns, contender)


def verified(bench: Bench, title: str, is_discard: bool) -> tuple[str, dict[str, object]]:
    """Bytes held against their checksums beside bytes that are not."""
    program = origin.default_program()
    words: list[str | Path] = ["--root", bench.root, "--checksum", "crc64nvme"]
    with (tempfile.TemporaryDirectory(prefix="inrush-bench-") as folder,
          origin.serving(program, words, Path(folder)) as url):
        contenders = {name: inrush(bench, "large/", is_discard, ["--verify", mode], url)
                      for name, mode in (("inrush", "auto"), ("off", "off"))}
        return finish(bench, title, contenders, SECURE, SECURE_RATIOS)


def verify(bench: Bench) -> tuple[str, dict[str, object]]:
    """Verification without a disk."""
    title = f"verify: {large_objects(bench)} to nowhere, --verify auto beside off"
    return verified(bench, title, is_discard=True)


def verify_disk(bench: Bench) -> tuple[str, dict[str, object]]:
    """Verification in File mode."""
    title = f"verify-disk: {large_objects(bench)} to files, --verify auto beside off"
    return verified(bench, title, is_discard=False)


def list_keys(bench: Bench) -> tuple[str, dict[str, object]]:
    """Pages of a listing."""
    args = bench.args
    return listings.run(args.inrush, args.option, bench.env, RUN_SECONDS, args.warm_up, args.runs)


def startups(bench: Bench) -> tuple[str, dict[str, object]]:
    """How long a job waits for its data."""
    return startup.run(bench.args.inrush, bench.args.option, bench.env, bench.disk, RUN_SECONDS,
                       bench.args.runs)


def ring(bench: Bench) -> tuple[str, dict[str, object]]:
    """Both rings, in turns."""
    url, trust = bench.server.tls_url(SECURE_VERSION), ("--ca-bundle", str(trusted(bench)))

    def got(prefix: str, discard: bool, secure: bool) -> rings.MakeContender:
        return lambda options: inrush(
            bench, prefix, discard, (*options, *(trust if secure else ())), url if secure else "")

    def streamed(secure: bool) -> rings.MakeContender:
        return lambda options: piped(
            bench, (*options, *(trust if secure else ())), url if secure else "")

    def others(prefix: str, secure: bool) -> dict[str, measure.Contender]:
        where = url if secure else ""
        return {name: peer(bench, prefix, name, where) for name in ("s5cmd", "transfer-manager")}

    cases = {"large": rings.Case(got("large/", False, False), others("large/", False)),
             "large, TLS": rings.Case(got("large/", False, True), others("large/", True)),
             "discard": rings.Case(got("large/", True, False)),
             "discard, TLS": rings.Case(got("large/", True, True)),
             "pipe": rings.Case(streamed(False)), "pipe, TLS": rings.Case(streamed(True)),
             "small": rings.Case(got("small/", False, False), others("small/", False)),
             "small, discard": rings.Case(got("small/", True, False))}
    if bench.args.case:
        cases = {name: make for name, make in cases.items() if name in bench.args.case}
    return rings.beside(bench.args.runs, bench.args.warm_up, cases)


def large_objects(bench: Bench) -> str:
    """What the large objects are."""
    return f"{LARGE_OBJECTS} objects of {bench.args.large_mib:,} MiB"


def finish(bench: Bench, title: str, contenders: dict[str, measure.Contender],
           columns: dict[str, str], ratios: dict[str, str]) -> tuple[str, dict[str, object]]:
    """Runs the rounds; the table and the figures."""
    if bench.args.without_inrush:
        contenders = {name: run for name, run in contenders.items() if name != "inrush"}
    if not contenders:
        raise LabError("nothing to run")
    say(f"{title}; medians of {bench.args.runs}")
    samples = measure.rounds(contenders, bench.args.warm_up, bench.args.runs)
    summary = measure.summarise(samples, columns, next(iter(contenders)), ratios)
    return measure.table("", summary, columns), {"title": title, **summary}


BENCHES: dict[str, Callable[[Bench], tuple[str, dict[str, object]]]] = {
    "large": large, "small": small, "discard": discard, "rss": rss,
    "pipe": pipe, "stdout": stdout, "tls": tls, "tls-disk": tls_disk,
    "tls-cat": tls_cat, "verify": verify, "verify-disk": verify_disk, "stalls": stalls,
    "stalls-stream": stalls_stream, "list": list_keys, "ring": ring, "gzip": gzip_one,
    "gzip-many": gzip_many, "lines": lines_in_order, "lines-latency": lines_late,
    "startup": startups, **pace.BENCHES, **slow_reader.BENCHES}


def write_objects(bucket: Path, args: argparse.Namespace) -> None:
    """The objects that the wanted benchmarks fetch."""
    wanted = set(args.names)
    if wanted & {"gzip", "gzip-many"}:
        gzips.write(bucket / "gzip")
    if "lines" in wanted:
        lines.write(bucket)
    if wanted - {"small", "stalls", "stalls-stream", *pace.BENCHES, "list", "startup", "gzip",
                 "gzip-many", "lines", "lines-latency"}:
        size = args.large_mib * dataset.MIB
        for number in range(LARGE_OBJECTS):
            dataset.write_stamped(bucket / f"large/object{number}", size, number)
        (bucket / "one").mkdir()
        (bucket / "one/object").hardlink_to(bucket / "large/object0")
        if "stdout" in wanted:
            (bucket / "many").mkdir()
            for number in range(STREAM_OBJECTS_MAX):
                (bucket / f"many/{number:04}").hardlink_to(bucket / "large/object0")
    if wanted & {"small", "rss", "ring"}:
        dataset.write_uniform(bucket, "small", args.small_count, SMALL_BYTES, SMALL_FOLDERS)
    if wanted & set(slow_reader.BENCHES):
        slow_reader.write(bucket, args)


def run_all(args: argparse.Namespace) -> list[str]:
    """Serves the objects and runs one benchmark after the other; what `--check` complains of."""
    report: dict[str, object] = {}
    complaints: list[str] = []
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory
        memory = Path(stack.enter_context(folder(prefix="inrush-bench-", dir=args.memory_folder)))
        disk = Path(stack.enter_context(folder(prefix="inrush-bench-", dir=args.disk)))
        root = memory / "root"
        write_objects(root / BUCKET, args)
        prefixes = {BUCKET: ["large/", "small/", "one/", "many/", "gzip/one/", "gzip/many/",
                             *slow_reader.prefixes(root / BUCKET)]}
        secure = set(args.names) & set(SECURE_NAMES)
        ours = authority.make(memory / "authority", []) if secure else None
        server = stack.enter_context(
            nginx.serve(root, memory / "nginx", prefixes, authority=ours))
        bench = Bench(args, server, listing.scan(root / BUCKET), disk,
                      client.clean_environment(disk), root,
                      ours.bundle if ours else None)
        report["machine"] = measure.machine(disk)
        version = process.run([install.system_program("nginx"), "-v"], seconds=5)
        report["nginx"] = version.stderr.strip()
        for name in args.names:
            stolen_seconds, begun = stolen.now_seconds(), time.monotonic()
            text, figures = BENCHES[name](bench)
            share = stolen.share(stolen.now_seconds() - stolen_seconds, time.monotonic() - begun)
            report[name] = {**figures, "stolen_share": share}
            say(f"{text}\nprocessor time stolen by other machines: {share:.1%}\n")
            complaint = BOUNDS[name].complaint(figures) if args.check and name in BOUNDS else None
            if complaint:
                complaints.append(f"{name}: {complaint}")
            complaints += pace.complaints(name, figures) if args.check else []
            complaints += slow_reader.complaints_of(name, figures) if args.check else []
            if args.check and name in SPEEDS and (slow := measure.too_few(figures, *SPEEDS[name])):
                complaints.append(f"{name}: {slow}")
            if args.check and name == "ring":
                complaints += rings.complaints(figures)
            if args.json:
                args.json.write_text(json.dumps(report, indent=1) + "\n")
    return complaints


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = client.argument_parser(__doc__, with_origin=False)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHES)} (default: {CLAIMS})")
    add("--option", action="append", default=[], help="an option more for inrush; repeatable")
    add("--without-inrush", action="store_true", help="measure only what it is compared with")
    add("--limit", type=Path, help="a program that only receives and writes")
    add("--builtin-limit", type=Path, help="another one, called in the same way")
    add("--receive-limit", type=Path, help="a program that only receives")
    add("--fifo-limit", type=Path, help="a program that only receives and splices")
    add("--limit-connections", type=int, default=16, help="(default: %(default)s)")
    add("--limit-slot-kib", type=int, default=1024, help="(default: %(default)s)")
    add("--runs", type=int, default=5, help="runs that count (default: %(default)s)")
    add("--warm-up", type=int, default=1, help="runs that do not (default: %(default)s)")
    add("--check", action="store_true",
        help="exit code 1 when a figure of these is not what it has to be: "
             f"{', '.join([*BOUNDS, 'ring', *pace.BENCHES, *slow_reader.BENCHES])}")
    add("--case", action="append", help="a case of ring, such as 'pipe, TLS'; repeatable")
    add("--large-mib", type=int, default=1024,
        help="size of a large object; limit programs know 1024 alone (default: %(default)s)")
    add("--small-count", type=int, default=20_000, help="(default: %(default)s)")
    add("--stream-seconds", type=float, default=60.0,
        help="how long pipe and stdout read at least (default: %(default)s)")
    add("--disk", type=Path, help="a folder on the disk to write to (default: the temp folder)")
    add("--memory-folder", type=Path, default=Path("/dev/shm"),
        help="a folder for the sources; 5 GiB (default: %(default)s)")
    add("--json", type=Path, help="also write all figures to this file")
    slow_reader.add_arguments(parser)
    return parser.parse_args()


def main() -> int:
    """Runs what was asked for; the exit code."""
    args = arguments()
    process.unwind_on_signals()
    args.names = args.names or list(CLAIMS)
    if set(args.names) - set(BENCHES) or args.runs < 1:
        say(f"benchmarks are {', '.join(BENCHES)}; at least one run")
        return 2
    if not args.without_inrush and not client.are_built(args.inrush):
        return 2
    if args.check and args.without_inrush:
        say("--check compares inrush: leave --without-inrush out")
        return 2
    try:
        complaints = run_all(args)
    except LabError as error:
        say(f"no figure: {error}")
        return 2
    for complaint in complaints:
        say(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
