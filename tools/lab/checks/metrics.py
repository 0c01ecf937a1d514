"""Metrics of six commands, by Prometheus's parser, beside what the commands report.

`get --discard`, `sync`, `pipe`, `cat`, `train` and `mount` run side by side for that long, each
with an inrush-origin of its own on loopback, which limits its bandwidth and injects faults for get,
sync and pipe. prometheus_client scrapes each of them every second. Of every command must be true:

* each scrape is one that the parser takes, and has the same names and types as the others;
* no counter goes back, from one scrape to the next, and from the last one to `--metrics-file`;
* requests were in flight, and bytes came, in most scrapes;
* the numbers of the file are those of the JSON summary: bytes, objects, failures, retries;
* its origin has sent as many bytes of objects, and answered as many requests; or more, if there
  were retries.

`--only` names commands. prometheus_client comes from PyPI into the build folder. mount needs
/dev/fuse and root; without them it is left out, which is said.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import client, install
from lab.driver import Add, Lab
from lab.process import LabError, Server, Word, must
from lab.servers import origin

BUCKET = "lab"
SOURCE = f"s3://{BUCKET}/"
RATE_MB = 25
"""What each origin sends a second."""
OBJECT_MIB = 1
FAULTS = ("--faults", "7:mixed")
SCRAPES = install.CONSUMERS / "scrapes.py"
END_SECONDS = 90.0
"""How much longer than planned a command may take."""
LISTING_SHARE = 0.01
"""Largest share of listings in what an origin sends."""
AHEAD = 64
"""Most requests for the next epochs of a pipe, which nobody reads, that are cut short."""


@dataclass(frozen=True)
class Command:
    """How a command is called, and what it has to come to."""

    words: Sequence[str]
    """What it is called with; `$` is the folder where it may write."""
    faults: bool = False
    reader: str = ""
    """A shell command that reads what it offers."""
    end: str = ""
    """What ends it, when the reader is done."""
    report: bool = True
    """It prints a JSON summary to standard output."""
    share: float = 1.0
    """The part of the objects that there are for it, as it fetches them more than once."""


COMMANDS: dict[str, Command] = {
    "get": Command(["get", SOURCE, "--discard", "--json"], faults=True),
    "sync": Command(["sync", SOURCE, "$/files", "--json"], faults=True),
    "pipe": Command(["pipe", SOURCE, "$/train", "--json"], faults=True,
                    reader='until [ -p "$0/train_0" ]; do sleep 0.1; done; '
                           'exec cat "$0/train_0" > /dev/null'),
    "cat": Command(["cat", SOURCE], report=False),
    "train": Command(["train", "--base-dir", "$/job", "--channel", f"files={SOURCE}", "--channel",
                      f"stream={SOURCE},mode=Pipe", "--report", "$/report.jsonl", "--", "sh", "-c",
                      'exec cat "$0/job/input/data/stream_0" > /dev/null', "$"],
                     report=False, share=0.4),
    "mount": Command(["mount", "--foreground", SOURCE, "$/mount", "--ready-file", "$/ready"],
                     reader='mkdir -p "$0/mount"; until [ -e "$0/ready" ]; do sleep 0.1; done; '
                            'find "$0/mount" -type f -exec cat {} + > /dev/null',
                     end="unmount", report=False),
}
COUNTS = {"inrush_received_bytes_total": "bytes", "inrush_objects_total": "objects",
          "inrush_failed_objects_total": "failed_objects",
          "inrush_kept_objects_total": "kept_objects"}
"""What a JSON summary of files has, by the names of metrics."""
STREAM_COUNTS = {"inrush_received_bytes_total": "bytes"}
MOVING = ("inrush_received_bytes_total", "inrush_answers_total", "inrush_cpu_seconds_total")
"""Counters that every command moves."""


@dataclass
class Watched:
    """One command, and what was seen of it."""

    name: str
    folder: Path
    scrapes: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)

    def require(self, holds: bool, what: str) -> None:
        """Notes what does not hold."""
        if not holds:
            self.complaints.append(what)


def filled(words: Sequence[str], folder: Path) -> list[str]:
    """A command line for this folder."""
    return [str(folder) + word[1:] if word.startswith("$") and word[1:2] in ("", "/") else word
            for word in words]


def address(server: Server) -> str:
    """Where the command says that it serves."""
    def found() -> list[str]:
        lines = server.log.read_text(errors="replace").splitlines()
        return [line for line in lines if line.startswith("metrics: http")]

    if not server.wait_ready(lambda: bool(found()), 30):
        raise LabError(f"it serves no metrics: {server.last_words()}")
    return found()[0].removeprefix("metrics: ")


def follow(watched: Watched, command: Command, lab: Lab, python: Path, url: str) -> None:
    """The command from its start to its end, with everything that reads it."""
    folder = watched.folder
    (folder / "mount").mkdir()
    words = filled(command.words, folder)
    cut = words.index("--") if "--" in words else len(words)
    line = lab.command(*words[:cut], "--no-sign-request", "--metrics-listen", "127.0.0.1:0",
                       "--metrics-file", folder / "end.prom", url=url)
    # What it prints is a document, or objects that nobody wants here.
    out = "/dev/null" if watched.name == "cat" else folder / "out"
    limit = lab.args.seconds * 2 + END_SECONDS
    with ExitStack() as stack:
        def start(argv: Sequence[Word], out: Word) -> Server:
            to_file = ["sh", "-c", 'exec "$@" >"$0"', out]
            server = Server([*to_file, *argv], folder / "log", client.clean_environment(folder))
            stack.callback(server.stop)
            return server

        started = time.monotonic()
        server = start([*line, *words[cut:]], out)
        reader = start(["sh", "-c", command.reader, folder], "/dev/null")
        scraper = start([python, SCRAPES, address(server), "1"], folder / "scrapes")
        reader.child.wait(limit)
        if command.end:
            must([lab.inrush, command.end, folder / "mount"])
        code = server.child.wait(limit)
        watched.seconds = time.monotonic() - started
        scraper_code = scraper.child.wait(30)
    watched.require(code == 0, f"exit {code}: {(folder / 'log').read_text()[-300:]}")
    watched.require(scraper_code == 0, f"the parser: {(folder / 'log').read_text()[-300:]}")
    watched.scrapes = [json.loads(line) for line in (folder / "scrapes").read_text().splitlines()]
    watched.end = json.loads(must([python, SCRAPES, folder / "end.prom"]))
    if command.report:
        watched.summary = json.loads((folder / "out").read_text())


def check_scrapes(watched: Watched) -> None:
    """What must be true of the scrapes among themselves."""
    every, require = [*watched.scrapes, watched.end], watched.require
    require(len(every) > 3, f"only {len(every) - 1} scrapes")
    for name, kind in watched.end["types"].items():
        is_counter = name.endswith("_total")
        require((kind == "counter") == is_counter, f"{name} is a {kind}")
        values = [scrape["values"].get(name) for scrape in every]
        require(None not in values, f"{name} is not in every scrape")
        known = [value for value in values if value is not None]
        backwards = [(one, two) for one, two in zip(known, known[1:]) if two < one]
        if is_counter and backwards:
            require(False, f"{name} went back from {backwards[0][0]} to {backwards[0][1]}")
    require(all(scrape["types"] == watched.end["types"] for scrape in every), "types change")
    command = {scrape["labels"]["inrush_info"]["command"] for scrape in every}
    require(command == {watched.name}, f"it calls itself {command}")
    for name in MOVING:
        require(watched.end["values"][name] > 0, f"{name} is 0 at the end")
    flights = [scrape["values"]["inrush_requests_in_flight"] for scrape in watched.scrapes]
    busy = sum(flight > 0 for flight in flights)
    require(busy * 2 > len(flights), f"requests in flight in {busy} of {len(flights)} scrapes")


def total(counts: Mapping[str, int] | None) -> int:
    """All of what is counted by reason."""
    return sum((counts or {}).values())


def check_end(watched: Watched, faults: bool) -> None:
    """What must be true of the numbers at the end."""
    values, summary, require = watched.end["values"], watched.summary, watched.require
    received = values["inrush_received_bytes_total"]
    if summary:
        streams = "channels" in summary
        for name, said in (STREAM_COUNTS if streams else COUNTS).items():
            require(values[name] == summary[said],
                    f"{name} is {values[name]:.0f}, but {said} is {summary[said]}")
        parts = summary["channels"] if streams else [summary]
        retries = sum(total(part["retries"]) for part in parts)
        again = total(summary["control_retries"])
        require(values["inrush_retries_total"] == retries,
                f"inrush_retries_total is {values['inrush_retries_total']:.0f}, not {retries}")
        require(values["inrush_control_retries_total"] == again,
                f"inrush_control_retries_total is not {again}")
        ranges = sum(address["ranges"] for part in parts for address in part["addresses"])
        require(values["inrush_answers_total"] >= ranges, "inrush_answers_total is "
                f"{values['inrush_answers_total']:.0f}, but ranges came {ranges} times")
        require(abs(values["inrush_cpu_seconds_total"] - summary["cpu_seconds"]) < 0.5,
                f"inrush_cpu_seconds_total is {values['inrush_cpu_seconds_total']:.2f}, "
                f"but cpu_seconds is {summary['cpu_seconds']:.2f}")
    if watched.name == "train":
        lines = (watched.folder / "report.jsonl").read_text().splitlines()
        objects = [json.loads(line) for line in lines]
        files = [line for line in objects if line["channel"] == "files" and line["status"] == "ok"]
        require(values["inrush_objects_total"] == len(files),
                f"inrush_objects_total is {values['inrush_objects_total']:.0f}, "
                f"but --report has {len(files)} files")
    sent, gets = watched.origin["body_bytes"], watched.origin["gets"]
    answers = values["inrush_answers_total"]
    spare = AHEAD if watched.name == "train" else 0
    least = sent * (1 - LISTING_SHARE) - spare * (OBJECT_MIB << 20)
    # What is fetched a second time was sent twice.
    faults = faults or values["inrush_retries_total"] > 0
    require(received <= sent and (faults or received >= least),
            f"{received:.0f} bytes were received, but {sent} were sent")
    require(answers <= gets and (faults or answers >= gets - watched.origin["lists"] - spare),
            f"inrush_answers_total is {answers:.0f}, but {gets} requests were answered")


def described(watched: Watched) -> str:
    """What was seen, in one line."""
    values = watched.end.get("values", {})
    return (f"{len(watched.scrapes)} scrapes in {watched.seconds:.0f} s, "
            f"{values.get('inrush_received_bytes_total', 0):,.0f} bytes, "
            f"{values.get('inrush_answers_total', 0):,.0f} answers, "
            f"{values.get('inrush_retries_total', 0):.0f} retries")


def watch(lab: Lab, name: str, python: Path) -> Watched:
    """One command with its origin."""
    command, watched = COMMANDS[name], Watched(name, lab.folder(name))
    objects = round(lab.args.seconds * RATE_MB * 1e6 / (OBJECT_MIB << 20) * command.share)
    faults = FAULTS if command.faults else ()
    words = ["--synthetic", f"{BUCKET}/:{max(objects, 8)}:{OBJECT_MIB}MiB:folders=4",
             "--capacity", f"{RATE_MB}MB", *faults]
    try:
        with origin.serving(lab.origin, words, watched.folder) as url:
            follow(watched, command, lab, python, url)
        last = (watched.folder / "origin.log").read_text().strip().splitlines()[-1]
        watched.origin = json.loads(last)
        check_scrapes(watched)
        check_end(watched, command.faults)
    except (LabError, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        watched.complaints.append(f"{type(error).__name__}: {error}")
    return watched


def options(add: Add) -> None:
    """Of this check alone."""
    add("--seconds", type=float, default=120.0, help="of each command (default: %(default)s)")


def run(lab: Lab) -> None:
    """All commands at once: each is in a process of its own and waits most of the time."""
    names = lab.among(COMMANDS)
    if "mount" in names and (os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK)):
        lab.skip("mount", "it needs root and /dev/fuse")
        names.remove("mount")
    python = install.program("prometheus")
    with ThreadPoolExecutor(len(names)) as pool:
        for watched in pool.map(lambda name: watch(lab, name, python), names):
            lab.report(watched.name, "; ".join(watched.complaints) or None, described(watched))
