"""Streams to readers that are slower than the network, and to readers that read for long."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.benches.ground import BUCKET, UNSIGNED, Bench, Figures
from lab.driver import Add
from lab.process import INTERRUPTED, LabError, Word, die_with_parent, note, say
from lab.streams import READER
from lab.tcp_memory import Sampler

GIB = 1 << 30
SHARE_LEAST = 0.97
FAST_SHARE_LEAST = 0.9
REST_COSTS_SECONDS = 3.0
PART_GIB = 4
"""The part of a longer epoch that counts as an epoch."""
BURST = f"bursts:2:{GIB}"
UNLIMITED_EPOCHS = 12
LIMIT_TIMES, LIMIT_MORE_SECONDS = 3, 60
SPEED_LEAST_MB = 250.0
"""A reader without a rate may take as long as this one before its time is over."""
STOP_SECONDS = 20.0
CHANNELS, CHANNEL_MB = 20, 20
CHANNEL_EPOCHS, CHANNEL_PART_BYTES = 4, 300_000_000
SLOW_MB = 100
FAST_SECONDS = 30.0
REST_MB, REST_GIB = 500, 4
FULL = {"rates": "50,200,500,1000,bursts,unlimited", "commands": "pipe,cat",
        "servers": "nginx,origin", "over": "plain,tls", "rings": "io_uring,epoll"}
DEFAULTS = {"rates": "500,unlimited", "commands": "pipe", "servers": "nginx", "over": "plain",
            "rings": "io_uring"}


@dataclass(frozen=True)
class Part:
    """An epoch, or a part of one, as its reader saw it."""

    epoch: int
    part: int
    bytes: int
    seconds: float
    mb_per_s: float
    begun: float
    ended: float
    complete: bool


@dataclass(frozen=True)
class Stream:
    """A channel, what it streams, and how it is read."""

    name: str
    objects: int
    """Of 1 GiB."""
    epochs: int = 1
    manner: str = "all"
    part_bytes: int = 0
    enough_seconds: float = 1e9


@dataclass(frozen=True)
class Case:
    """How streams are served."""

    command: str = "pipe"
    server: str = "nginx"
    over: str = "plain"
    ring: str = "io_uring"

    @property
    def words(self) -> str:
        """Its name in tables."""
        return ", ".join(asdict(self).values())


@dataclass
class Fed:
    """What came of a run."""

    sampler: Sampler
    parts: list[list[Part]] = field(default_factory=list)
    """Of each reader."""
    channels: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int = 0

    def count(self, name: str) -> int:
        """A count of all channels."""
        return sum(int(channel[name]) for channel in self.channels)

    def retries(self, reason: str = "") -> int:
        """Attempts that failed, for all reasons or for one."""
        return sum(int(count) for channel in self.channels
                   for name, count in channel["retries"].items() if reason in ("", name))

    def in_flight(self) -> int:
        """The most requests in flight that the pace chose for a channel."""
        return max((int(moment["requests_in_flight"]) for channel in self.channels
                    for moment in channel["pace"]["timeline"]), default=0)

    def figures(self) -> dict[str, Any]:
        """Everything that does not belong to an epoch."""
        return {"stalls": self.retries("stall"), "hedges": self.count("hedges"),
                "retries": self.retries(), "connects": self.count("connects"),
                "requests_in_flight_max": self.in_flight(),
                "tcp_mib_start": self.sampler.start_mib, "tcp_mib_max": self.sampler.max_mib}

    def complaints(self) -> list[str]:
        """What is wrong whatever the readers' manner is."""
        found, figures = self.sampler.complaints(), self.figures()
        found += [f"{figures[name]} {name}; wanted: none"
                  for name in ("stalls", "hedges", "retries") if figures[name]]
        if self.exit_code not in (0, INTERRUPTED):
            found.append(f"exit code {self.exit_code}")
        if any(not part.complete for parts in self.parts for part in parts):
            found.append("the time was over before the last epoch was read")
        return found


def options(add: Add) -> None:
    """Of slow-reader, slow-channels and slow-rest."""
    for name, value in DEFAULTS.items():
        add(f"--{name}", help=f"of slow-reader: {FULL[name]} (default: {value})")
    add("--full", action="store_true", help="all of these: some hours")
    add("--epochs", type=int, default=6, help="of slow-reader (default: %(default)s)")
    add("--epoch-gib", type=int, default=4, help="of slow-reader (default: %(default)s)")
    add("--rest", type=float, default=150.0, metavar="SECONDS",
        help="of slow-rest (default: %(default)s)")


def chosen(args: Namespace, name: str) -> list[str]:
    """The values of an option of cases."""
    given: str | None = getattr(args, name)
    return (given or (FULL if args.full else DEFAULTS)[name]).split(",")


def epochs_of(args: Namespace, rate: str) -> int:
    """How many epochs a reader of this rate reads."""
    few = args.epochs == 1 or rate != "unlimited"
    return int(args.epochs if few else max(args.epochs, UNLIMITED_EPOCHS))


def write(bucket: Path, args: Namespace) -> None:
    """Objects of 1 GiB by their number: links to those in `large`."""
    wanted = {args.epoch_gib, PART_GIB, 1}
    wanted |= {args.epoch_gib * epochs_of(args, rate) for rate in chosen(args, "rates")}
    large = sorted((bucket / "large").iterdir())
    for count in wanted:
        folder = bucket / "stream" / str(count)
        folder.mkdir(parents=True)
        for number in range(count):
            (folder / f"{number:04}").hardlink_to(large[number % len(large)])


def prefixes(bucket: Path) -> list[str]:
    """The prefixes that are there."""
    folder = bucket / "stream"
    return [f"stream/{each.name}/" for each in folder.iterdir()] if folder.is_dir() else []


@contextmanager
def service(bench: Bench, case: Case) -> Iterator[list[Word]]:
    """The server of a case; the options that lead to it."""
    is_secure = case.over == "tls"
    options: list[Word] = ["--region", "us-east-1", UNSIGNED, "--ring", case.ring,
                           *bench.args.option]
    if case.server == "nginx":
        url, trust = (bench.secure_url, bench.trust) if is_secure else (bench.server.url, ())
        yield ["--endpoint-url", url, *options, *trust]
        return
    words: list[Word] = ["--root", bench.root]
    bundle = bench.disk / "slow-reader.pem"
    if is_secure:
        words += ["--tls", "--ca-out", bundle, "--tls-version", "1.3"]
        options += ["--ca-bundle", bundle]
    with bench.lab.serving(*words) as url:
        yield ["--endpoint-url", url.replace("http:", "https:") if is_secure else url, *options]


def rate_of(stream: Stream) -> float:
    """MB/s of a reader with a rate, else 0."""
    name, *numbers = stream.manner.split(":")
    return float(numbers[-1]) if name in ("rate", "rest") else 0.0


def limit_seconds(stream: Stream) -> float:
    """When a reader's time is over."""
    size = stream.epochs * stream.objects * GIB
    rests = 0.0
    if stream.manner.startswith("rest:"):
        rests = float(stream.manner.split(":")[1])
    elif stream.manner.startswith("bursts:"):
        rests = 2.0 * size / GIB
    seconds = size / 1e6 / (rate_of(stream) or SPEED_LEAST_MB)
    return min(LIMIT_TIMES * seconds, stream.enough_seconds) + rests + LIMIT_MORE_SECONDS


def command_line(program: Path, case: Case, streams: Sequence[Stream], folder: Path
                 ) -> list[Word]:
    """`inrush pipe` or `cat` of these streams, without what leads to the server."""
    sources = [f"s3://{BUCKET}/stream/{stream.objects}/" for stream in streams]
    if case.command == "cat":
        return [program, "cat", sources[0], "--quiet", "--json"]
    channels = [word for stream, source in zip(streams, sources, strict=True)
                for word in ("--channel", f"{stream.name}={source}")]
    return [program, "pipe", *channels, folder, "--quiet", "--json", "--epochs", "forever"]


def feed(bench: Bench, case: Case, streams: Sequence[Stream], until: int | None = None) -> Fed:
    """Runs a producer and its readers until all of these are done, or the one that is named."""
    with ExitStack() as stack:
        options = stack.enter_context(service(bench, case))
        folder = Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="inrush-bench-", dir=bench.disk)))
        is_cat = case.command == "cat"
        readers = [start_reader(stack, folder, stream, is_cat) for stream in streams]
        errors = stack.enter_context((folder / "stderr").open("w+"))
        output = stack.enter_context((folder / "stdout").open("w+"))
        fed = Fed(stack.enter_context(Sampler()))
        producer = start(stack, [*command_line(bench.lab.inrush, case, streams, folder), *options],
                         env=bench.env, stderr=errors,
                         stdout=readers[0].stdin if is_cat else output)
        if readers[0].stdin:
            readers[0].stdin.close()
        waited = readers if until is None else [readers[until]]
        seconds = max(map(limit_seconds, streams)) + STOP_SECONDS
        wait(waited, producer, seconds)
        for reader in readers:
            reader.terminate()
        for reader, stream in zip(readers, streams, strict=True):
            reader.wait(STOP_SECONDS)
            fed.parts.append(parts_in(folder / f"{stream.name}.parts"))
        # The feeder of pipes serves for ever; a reader of standard output may have left.
        if not is_cat:
            producer.send_signal(signal.SIGTERM)
        fed.exit_code = ended(producer)
        said = errors if is_cat else output
        said.seek(0)
        lines = said.read().splitlines()
        errors.seek(0)
        words = errors.read().strip()[-400:]
    try:
        fed.channels = json.loads(lines[-1])["channels"]
    except (IndexError, KeyError, ValueError) as error:
        raise LabError(f"{case.words}: exit {fed.exit_code}, no summary: {words}") from error
    if any(not parts for parts in fed.parts):
        raise LabError(f"{case.words}: a reader got nothing: {words}")
    return fed


def start(stack: ExitStack, command: Sequence[Word], **words: Any) -> subprocess.Popen[bytes]:
    """A child that is gone when the stack is left."""
    child = subprocess.Popen([str(word) for word in command], preexec_fn=die_with_parent, **words)

    def kill() -> None:
        if child.poll() is None:
            child.kill()
            child.wait()

    stack.callback(kill)
    return child


def start_reader(stack: ExitStack, folder: Path, stream: Stream, is_cat: bool
                 ) -> subprocess.Popen[bytes]:
    """The reader of a stream; it writes its parts into a file beside the pipes."""
    parts = stack.enter_context((folder / f"{stream.name}.parts").open("w"))
    path = "-" if is_cat else folder / stream.name
    return start(
        stack, [sys.executable, READER, path, "--manner", stream.manner,
                "--epochs", str(stream.epochs), "--part-bytes", str(stream.part_bytes),
                "--enough", str(stream.enough_seconds), "--limit", str(limit_seconds(stream))],
        stdin=subprocess.PIPE if is_cat else subprocess.DEVNULL, stdout=parts)


def wait(readers: Sequence[subprocess.Popen[bytes]], producer: subprocess.Popen[bytes],
         seconds: float) -> None:
    """Until these readers have ended; a producer that ends before takes them with it."""
    deadline = time.monotonic() + seconds
    while any(reader.poll() is None for reader in readers):
        if time.monotonic() > deadline:
            raise LabError(f"a reader is not done after {seconds:.0f} s")
        if producer.poll() not in (None, 0):
            return
        time.sleep(0.02)
    codes = [reader.returncode for reader in readers if reader.returncode]
    if codes:
        raise LabError(f"a reader ended with {codes[0]}")


def ended(producer: subprocess.Popen[bytes]) -> int:
    """Waits for the producer's end; its exit code."""
    try:
        return producer.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"the producer is not done after {STOP_SECONDS:g} s") from error


def parts_in(path: Path) -> list[Part]:
    """What a reader wrote."""
    return [Part(**json.loads(line)) for line in path.read_text().splitlines()]


def shares(parts: Sequence[Part], rate: float) -> list[float]:
    """Each epoch's speed as a share of the reader's rate or, without one, of the first's."""
    whole = rate or parts[0].mb_per_s
    return [part.mb_per_s / whole for part in parts]


def too_slow(parts: Sequence[Part], rate: float) -> list[str]:
    """What is wrong with the speed of a reader's epochs."""
    found = shares(parts, rate)
    if rate:
        return [f"epoch {number} has {share:.3f} of the reader's rate; "
                f"wanted: at least {SHARE_LEAST:g}"
                for number, share in enumerate(found) if share < SHARE_LEAST]
    if found[-1] >= SHARE_LEAST:
        return []
    return [f"the last epoch has {found[-1]:.3f} of the first's speed; "
            f"wanted: at least {SHARE_LEAST:g}"]


def described(fed: Fed, title: str, rate: float) -> str:
    """The table of a run with one reader."""
    figures, parts = fed.figures(), fed.parts[0]
    of = "of rate" if rate else "of first"
    lines = [title, f"{'epoch':>8}{'GiB':>8}{'seconds':>10}{'MB/s':>10}{of:>10}{'TCP MiB':>10}"
             f"{'stolen':>10}"]
    for number, (part, share) in enumerate(zip(parts, shares(parts, rate), strict=True)):
        peak = fed.sampler.peak_mib(part.begun, part.ended)
        stolen = fed.sampler.stolen_share(part.begun, part.ended)
        cut = "" if part.complete else "  cut"
        lines.append(f"{number:8}{part.bytes / GIB:8.2f}{part.seconds:10.2f}{part.mb_per_s:10.0f}"
                     f"{share:10.3f}{peak:10.0f}{stolen:10.3f}{cut}")
    lines.append("  " + ", ".join(f"{name} {value:,.0f}" for name, value in figures.items()))
    return "\n".join(lines)


def record(fed: Fed, complaints: Sequence[str]) -> dict[str, Any]:
    """A run for the JSON file."""
    parts = [[{**asdict(part), "tcp_mib_max": fed.sampler.peak_mib(part.begun, part.ended),
               "stolen_share": fed.sampler.stolen_share(part.begun, part.ended)}
              for part in parts] for parts in fed.parts]
    return {**fed.figures(), "parts": parts, "complaints": list(complaints)}


def outcome(title: str, cases: Mapping[str, dict[str, Any]]) -> Figures:
    """The figures of a section; its tables are printed already."""
    wrong = sum(bool(case["complaints"]) for case in cases.values())
    say(f"{title}: {wrong} of {len(cases)} cases are not as they should be")
    return {"title": title, "cases": dict(cases), "complaints": [
        f"{case}: {complaint}" for case, found in cases.items()
        for complaint in found["complaints"]]}


def slow_reader(bench: Bench) -> Figures:
    """One stream to a reader that is slower than the network, or reads for long.

    `--rates` MB/s, `bursts` (2 s of rest, then 1 GiB as fast as it can) or `unlimited`, by
    `--commands`, from `--servers`, over `--over` plain or tls, with `--rings`; in `--epochs` epochs
    of `--epoch-gib` GiB (unlimited: at least 12). By default 500 MB/s and unlimited, by pipe, from
    nginx, plain: 2 minutes. `--full`: every case, which takes hours. `--epochs 1 --epoch-gib 100`:
    one epoch of 100 GiB; each 4 GiB of it count as an epoch here.

    An epoch's speed is that of the reader, from the end of the epoch before. `cat` has one stream,
    of which `--epoch-gib` GiB count as an epoch. A case has three times the time that its rates
    need, and a minute; an epoch that is cut then counts as far as it came. TCP memory is that of
    the whole machine: nothing else should run.

    `--check` wants each epoch at 0.97 of the reader's rate (bursts and unlimited: the last at 0.97
    of the first), at most 300 MiB more TCP memory than at the start, no stall, no hedge and no
    retry."""
    args, cases = bench.args, {}
    for command, server, over, ring, rate in itertools.product(
            *(chosen(args, name) for name in ("commands", "servers", "over", "rings", "rates"))):
        case, epochs = Case(command, server, over, ring), epochs_of(args, rate)
        manner = {"unlimited": "all", "bursts": BURST}.get(rate, f"rate:{rate}")
        part = min(args.epoch_gib, PART_GIB) * GIB
        is_cat = command == "cat"
        times = epochs if is_cat else 1
        stream = Stream("train", args.epoch_gib * times, epochs // times, manner, part)
        name = f"{case.words}, {rate}"
        note(f"slow-reader: {name}")
        fed = feed(bench, case, [stream])
        complaints = [*too_slow(fed.parts[0], rate_of(stream)), *fed.complaints()]
        say(described(fed, f"slow-reader: {name}", rate_of(stream)))
        cases[name] = record(fed, complaints)
    return outcome("slow-reader", cases)


def slow_channels(bench: Bench) -> Figures:
    """A channel as fast as it can be, alone and beside a slow one; 20 channels of 20 MB/s.

    The slow one has 100 MB/s, in one process with it.     `--check` wants the fast channel at 0.9
    of what it has alone."""
    return outcome("slow-channels", {"two channels": two_channels(bench),
                                     f"{CHANNELS} channels": many_channels(bench)})


def mean_mb(parts: Sequence[Part]) -> float:
    """A reader's speed over all its epochs."""
    return sum(part.bytes for part in parts) / 1e6 / (parts[-1].ended - parts[0].begun)


def two_channels(bench: Bench) -> dict[str, Any]:
    """A fast one, alone and beside a slow one."""
    fast = Stream("fast", PART_GIB, 10_000, "all", 0, FAST_SECONDS)
    slow = Stream("slow", PART_GIB, 10, f"rate:{SLOW_MB}", 0)
    note("slow-channels: two channels")
    alone = feed(bench, Case(), [fast])
    both = feed(bench, Case(), [fast, slow], until=0)
    share = mean_mb(both.parts[0]) / mean_mb(alone.parts[0])
    slow_share = mean_mb(both.parts[1]) / SLOW_MB
    say(f"two channels: fast {mean_mb(alone.parts[0]):,.0f} MB/s alone, {share:.3f} of it beside "
        f"one that gets {slow_share:.3f} of its {SLOW_MB} MB/s")
    complaints = [complaint for complaint in both.complaints() if "time was over" not in complaint]
    if share < FAST_SHARE_LEAST:
        complaints.append(f"the fast channel keeps {share:.3f} of its speed; "
                          f"wanted: at least {FAST_SHARE_LEAST:g}")
    if slow_share < SHARE_LEAST:
        complaints.append(f"the slow channel has {slow_share:.3f} of its reader's rate")
    return {**record(both, complaints), "fast_share": share, "slow_share": slow_share}


def many_channels(bench: Bench) -> dict[str, Any]:
    """Many slow ones."""
    size = CHANNEL_EPOCHS * CHANNEL_PART_BYTES
    enough = size / 1e6 / CHANNEL_MB * SHARE_LEAST
    note(f"slow-channels: {CHANNELS} channels")
    fed = feed(bench, Case(), [
        Stream(f"train{number:02}", 1, 100, f"rate:{CHANNEL_MB}", CHANNEL_PART_BYTES, enough)
        for number in range(CHANNELS)])
    found = [mean_mb(parts) / CHANNEL_MB for parts in fed.parts]
    say(f"{CHANNELS} channels at {CHANNEL_MB} MB/s: at least {min(found):.3f} of it; "
        + ", ".join(f"{name} {value:,.0f}" for name, value in fed.figures().items()))
    complaints = [f"channel {number} has {share:.3f} of its reader's rate; "
                  f"wanted: at least {SHARE_LEAST:g}"
                  for number, share in enumerate(found) if share < SHARE_LEAST]
    return {**record(fed, [*complaints, *fed.complaints()]), "shares": found}


def slow_rest(bench: Bench) -> Figures:
    """500 MB/s with one rest of `--rest` seconds (150) in the middle of an epoch.

    A server may well close connections over it. `--check` wants that a rest costs itself and at
    most 3 s more."""
    seconds = bench.args.rest
    size = REST_GIB * GIB
    stream = Stream("train", REST_GIB, 1, f"rest:{seconds:g}:{size // 2}:{REST_MB}")
    note(f"slow-rest: {seconds:g} s")
    fed = feed(bench, Case(), [stream])
    part = fed.parts[0][0]
    more = part.seconds - seconds - size / 1e6 / REST_MB
    title = f"slow-rest: a rest of {seconds:g} s costs itself and {more:.2f} s"
    say(described(fed, title, REST_MB))
    complaints = []
    if not part.complete or more > REST_COSTS_SECONDS:
        complaints.append(f"a rest of {seconds:g} s costs {more:.1f} s more; "
                          f"wanted: at most {REST_COSTS_SECONDS:g}")
    return outcome("slow-rest", {"rest": {**record(fed, complaints), "more_seconds": more}})


SECTIONS: dict[str, Callable[[Bench], Figures]] = {
    "slow-reader": slow_reader, "slow-channels": slow_channels, "slow-rest": slow_rest}
