"""What the sections of the benchmark have in common: the server, the objects, the disk, and runs of
inrush and of others against them.

A contender makes one run, and sees for itself that it did what it was to do.
"""

from __future__ import annotations

import os
import shutil
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import client, compare, measure, peers, process, streams
from lab.driver import Lab
from lab.measure import Bound, Contender, Sample, of_outcome
from lab.process import LabError, Word, say
from lab.servers import listing, nginx

BUCKET = "bench"
OURS = "inrush"
RUN_SECONDS = 180.0
KEPT_FILES = 256
"""The most files of a run that are deleted behind it; more are kept."""
UNSIGNED = "--no-sign-request"
SPEED = {"gb_per_s": "GB/s", "cpu_s_per_gb": "CPU s/GB", "peak_rss_mib": "peak MiB"}
SECURE = {"gb_per_s": "GB/s", "cpu_s_per_tb": "CPU s/TB", "peak_rss_mib": "peak MiB"}
FILES = {"files_per_s": "files/s", "cpu_us_per_file": "CPU us/file",
         "user_us_per_file": "user us/file", "gb_per_s": "GB/s", "peak_rss_mib": "peak MiB"}
SECURE_VERSION = "TLSv1.3"
Figures = dict[str, Any]
"""With `complaints`, of which `--check` makes failures."""


@dataclass(frozen=True)
class Bench:
    """Everything a run needs: the server, the objects, the disk."""

    lab: Lab
    server: nginx.Nginx
    entries: list[listing.Entry]
    root: Path
    """What is served."""
    bundle: Path | None = None
    """Whom the clients believe, where a section is over TLS."""
    kept: list[Path] = field(default_factory=list)
    """What runs of many files wrote: it goes at the end. ext4 passes over inodes that were deleted
    in the last minutes, one by one, so that creating after deleting is many times dearer."""

    @property
    def args(self) -> Namespace:
        """The command line."""
        return self.lab.args

    @property
    def runs(self) -> int:
        """How many count."""
        return int(self.args.runs or 5)

    @property
    def disk(self) -> Path:
        """A folder on the disk to write to."""
        return self.lab.temp

    @property
    def env(self) -> dict[str, str]:
        """Of all programs."""
        return self.lab.env()

    @property
    def destination(self) -> Path:
        """Where the next run writes."""
        return self.disk / f"destination{len(self.kept)}"

    @property
    def secure_url(self) -> str:
        """The endpoint over TLS 1.3."""
        return self.server.tls_url(SECURE_VERSION)

    @property
    def trust(self) -> tuple[Word, ...]:
        """The option that makes inrush believe it."""
        return ("--ca-bundle", self.trusted)

    @property
    def trusted(self) -> Path:
        """The authority of a section that is over TLS."""
        if not self.bundle:
            raise LabError("the server has no certificate")
        return self.bundle

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

    def load(self, prefix: str) -> tuple[int, int]:
        """How many objects there are, and how many bytes."""
        objects = self.below(prefix)
        return len(objects), sum(entry.size for entry in objects)

    def command(self, name: str, *words: Word, url: str = "") -> list[Word]:
        """A command line of inrush, from the server's plain endpoint or from `url`."""
        return self.lab.command(name, *words, UNSIGNED, "--quiet", *self.args.option,
                                url=url or self.server.url)

    def check(self, prefix: str, name: str, every_byte: bool) -> None:
        """Sees that the run left the objects of `prefix` and nothing else."""
        compare.require(self.destination, self.entries, prefix, name, every_byte)
        self.clear(keep=self.load(prefix)[0] > KEPT_FILES)

    def run(self, command: Sequence[Word], seconds: float = RUN_SECONDS,
            **more: Any) -> process.Outcome:
        """Runs a program in the environment of all."""
        env = {**self.env, **more.pop("env", {})}
        return process.run(command, seconds=seconds, env=env, **more)

    def got(self, prefix: str, *options: Word, to_disk: bool = True, url: str = "",
            load: tuple[int, int] | None = None, within: Sequence[Word] = ()) -> Contender:
        """`inrush get` of a prefix; `load` is given where others than our server have it."""
        files, size = load or self.load(prefix)

        def once(every_byte: bool) -> Sample:
            outcome = client.fetch(
                self.lab.inrush, "get", f"s3://{BUCKET}/{prefix}",
                self.destination if to_disk else None, url=url or self.server.url,
                options=[UNSIGNED, *self.args.option, *options], env=self.env,
                seconds=RUN_SECONDS, within=within).well(OURS)
            summary = client.summary(outcome)
            if summary["hedges"] or summary["moves"]:
                process.note(f"    retries {summary['retries']}, hedges {summary['hedges']} "
                             f"({summary['hedges_won']} won), moved {summary['moves']}")
            if to_disk:
                self.check(prefix, OURS, every_byte)
            return of_outcome(outcome, OURS, size, files, summary["gigabytes_per_second"])

        return once

    def peer(self, prefix: str, name: str, url: str = "") -> Contender:
        """Another program with the settings of `lab.peers`, into a folder; what it prints goes
        nowhere."""
        objects = self.below(prefix)

        def once(every_byte: bool) -> Sample:
            self.destination.mkdir()
            line = peers.ALL[name].line(peers.Task(
                url or self.server.url, BUCKET, prefix, objects, self.destination, self.disk,
                self.bundle if url else None))
            outcome = self.run(line.argv, env=line.env, keep_stdout=False)
            taken = of_outcome(outcome, name, sum(entry.size for entry in objects), len(objects))
            self.check(prefix, name, every_byte)
            return taken

        return once

    def to_reader(self, name: str, command: Sequence[Word], size: int, files: int = 1) -> Contender:
        """A program whose standard output is read; CPU time is of both together."""
        def once(_every_byte: bool) -> Sample:
            outcome = streams.through_stdout(command, size, env=self.env, seconds=RUN_SECONDS)
            return of_outcome(outcome, name, size, files)

        return once

    def finish(self, title: str, contenders: Mapping[str, Contender], columns: Mapping[str, str],
               against: Sequence[str] | Mapping[str, str] = (), *bounds: Bound) -> Figures:
        """Runs the rounds and prints the table. The first contender's columns `against` are divided
        by those of each other."""
        if self.args.without_inrush:
            contenders = {name: run for name, run in contenders.items() if name != OURS}
        if not contenders:
            raise LabError("nothing to run")
        say(f"{title}; medians of {self.runs}")
        samples = measure.rounds(contenders, self.args.warm_up, self.runs)
        pairs = against if isinstance(against, Mapping) else {name: name for name in against}
        figures = {"title": title, **measure.summarise(samples, columns, next(iter(contenders)),
                                                       pairs)}
        say(measure.table(figures, columns))
        complaints = [complaint for bound in bounds if self.args.check
                      for complaint in bound.complaints(figures)]
        return {**figures, "complaints": complaints}
