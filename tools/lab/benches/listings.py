"""Listings of many keys from a server that takes its time for each page."""

from __future__ import annotations

from collections.abc import Sequence

from lab.benches.ground import BUCKET, OURS, Bench, Figures
from lab.measure import Bound, Contender, Sample, of_outcome
from lab.process import LabError, Word

KEYS = 1_000_000
FOLDERS = 20
PAGE_MS = 20
COLUMNS = {"files_per_s": "keys/s", "cpu_us_per_file": "CPU us/key", "seconds": "seconds",
           "peak_rss_mib": "peak MiB"}


def _contender(bench: Bench, command: Sequence[Word]) -> Contender:
    def once(every_key: bool) -> Sample:
        outcome = bench.run(command)
        sample = of_outcome(outcome, "inrush ls", len(outcome.stdout), KEYS)
        lines = outcome.stdout.splitlines()
        if len(lines) != KEYS:
            raise LabError(f"inrush ls: {len(lines)} lines of {KEYS}")
        keys = (f"p/{number * FOLDERS // KEYS:02}/{number:06}.bin" for number in range(KEYS))
        if every_key and [line.split(f"s3://{BUCKET}/", 1)[1] for line in lines] != list(keys):
            raise LabError("inrush ls: other keys than the server has, or in another order")
        return sample
    return once


def list_keys(bench: Bench) -> Figures:
    """`ls` of 1,000,000 keys, 20 ms for each page, beside one request at a time.

    The first run of each is compared with the keys that the server has. `--check` wants at least
    300,000 keys/s and 8 times the speed."""
    words = ["--synthetic", f"{BUCKET}/p/:{KEYS}:1KiB:folders={FOLDERS}",
             "--first-byte-latency", str(PAGE_MS)]
    with bench.lab.serving(*words) as url:
        command = bench.command("ls", "--recursive", f"s3://{BUCKET}/p/", url=url)
        contenders = {OURS: _contender(bench, command),
                      "single": _contender(bench, [*command, "--list-requests", "1"])}
        return bench.finish(
            f"list: ls of {KEYS:,} keys, {PAGE_MS} ms to a page, beside one request at a time",
            contenders, COLUMNS, ("files_per_s", "cpu_us_per_file"),
            Bound(OURS, "files_per_s", 300_000), Bound("inrush / single", "files_per_s", 8))
