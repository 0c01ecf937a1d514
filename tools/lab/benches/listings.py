"""Listings of many keys from a server that takes its time for each page.

The default beside one request at a time, in the same run. The first run of each is held against
the keys that the server has; after that the number of lines is counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import measure, process
from lab.process import LabError
from lab.servers import origin

KEYS = 1_000_000
FOLDERS = 20
PAGE_MS = 20
KEYS_PER_S_MIN = 300_000.0
SINGLE = ("--list-requests", "1")
COLUMNS = {"files_per_s": "keys/s", "cpu_us_per_file": "CPU us/key", "seconds": "seconds",
           "peak_rss_mib": "peak MiB"}
RATIOS = {"files_per_s": "files_per_s", "cpu_us_per_file": "cpu_us_per_file"}


def _keys() -> list[str]:
    """The keys of the server's set, in order."""
    return [f"p/{number * FOLDERS // KEYS:02}/{number:06}.bin" for number in range(KEYS)]


def _contender(command: Sequence[str | Path], env: Mapping[str, str],
               seconds: float) -> measure.Contender:
    def once(every_key: bool) -> measure.Sample:
        outcome = process.run(command, seconds=seconds, env=env)
        sample = measure.of_outcome(outcome, "inrush ls", len(outcome.stdout), KEYS)
        lines = outcome.stdout.splitlines()
        if len(lines) != KEYS:
            raise LabError(f"inrush ls: {len(lines)} lines of {KEYS}")
        if every_key and [line.split("s3://bench/", 1)[1] for line in lines] != _keys():
            raise LabError("inrush ls: other keys than the server has, or in another order")
        return sample
    return once


def run(program: Path, options: Sequence[str], env: Mapping[str, str], seconds: float,
        warm_up: int, runs: int) -> tuple[str, dict[str, object]]:
    """Lists a million keys, with the default and by one request at a time."""
    words = ["--synthetic", f"bench/p/:{KEYS}:1KiB:folders={FOLDERS}",
             "--first-byte-latency", str(PAGE_MS)]
    with (tempfile.TemporaryDirectory(prefix="inrush-bench-") as folder,
          origin.serving(origin.default_program(), words, Path(folder)) as url):
        command = [program, "ls", "--recursive", "s3://bench/p/", "--endpoint-url", url,
                   "--region", "us-east-1", "--no-sign-request", "--quiet", *options]
        contenders = {"inrush": _contender(command, env, seconds),
                      "single": _contender([*command, *SINGLE], env, seconds)}
        samples = measure.rounds(contenders, warm_up, runs)
    figures = measure.summarise(samples, COLUMNS, "inrush", RATIOS)
    title = f"ls of {KEYS:,} keys, {PAGE_MS} ms to a page, beside one request at a time"
    return measure.table(title, figures, COLUMNS), figures
