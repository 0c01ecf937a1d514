"""Augmented manifests of many lines whose objects are small, streamed in order to a reader."""

from __future__ import annotations

import json
from pathlib import Path

from lab import streams
from lab.benches.ground import BUCKET, OURS, RUN_SECONDS, Bench, Figures
from lab.measure import Bound, Contender, Sample, of_outcome

LINES = 100_000
FOLDERS = 20
OBJECT_BYTES = 1_000
LATENCY_MS = 20
COLUMNS = {"files_per_s": "objects/s", "cpu_us_per_file": "CPU us/object", "seconds": "seconds",
           "peak_rss_mib": "peak MiB"}
LEAST = Bound(OURS, "files_per_s", 10_000)


def key(number: int) -> str:
    """The object of a line, as the origin names its own, and as `write` does."""
    return f"lines/{number * FOLDERS // LINES:02}/{number:05}"


def write(bucket: Path) -> None:
    """The objects in a bucket that is a folder."""
    for folder in range(FOLDERS):
        (bucket / f"lines/{folder:02}").mkdir(parents=True)
    for number in range(LINES):
        (bucket / key(number)).write_bytes(number.to_bytes(4, "little") * (OBJECT_BYTES // 4))


def write_manifest(path: Path, bucket: str) -> None:
    """A line for each object, last ones first: another order than that of a listing."""
    with path.open("w") as file:
        for number in reversed(range(LINES)):
            line = {"source-ref": f"s3://{bucket}/{key(number)}", "class": str(number % 10)}
            file.write(json.dumps(line) + "\n")


def streamed(bench: Bench, folder: Path, url: str = "") -> Contender:
    """`inrush pipe` of a manifest in this folder."""
    manifest = folder / "lines.jsonl"
    write_manifest(manifest, BUCKET)

    def once(_every_byte: bool) -> Sample:
        outcome = streams.through_pipe(
            bench.command("pipe", "--augmented-manifest", manifest, "--attribute", "source-ref",
                          "--attribute", "class", folder / "train", url=url),
            folder / "train", LINES * (OBJECT_BYTES + 1), env=bench.env, seconds=RUN_SECONDS)
        return of_outcome(outcome, "inrush pipe", LINES * OBJECT_BYTES, LINES)

    return once


def in_order(bench: Bench) -> Figures:
    """100,000 lines of an augmented manifest to a reader.

    Each has an object of 1,000 bytes and a value. `--check` wants at least 10,000 objects/s."""
    return bench.finish(f"lines: {LINES:,} lines of an augmented manifest to a reader",
                        {OURS: streamed(bench, bench.lab.folder("lines"))}, COLUMNS, (), LEAST)


def late(bench: Bench) -> Figures:
    """These lines from a server that takes 20 ms, beside the objects in any order.

    In any order is `get --discard`, which lists them, and so knows their sizes without a question
    for each. `--check` wants at least 0.9 of its objects/s."""
    objects = f"{BUCKET}/lines/:{LINES}:{OBJECT_BYTES}:folders={FOLDERS}:width=5:suffix="
    with bench.lab.serving("--synthetic", objects, "--first-byte-latency",
                           str(LATENCY_MS)) as url:
        contenders = {
            OURS: streamed(bench, bench.lab.folder("lines-latency"), url),
            "unordered": bench.got("lines/", to_disk=False, url=url,
                                   load=(LINES, LINES * OBJECT_BYTES))}
        return bench.finish(
            f"lines-latency: {LINES:,} lines of an augmented manifest, objects of {OBJECT_BYTES} "
            f"bytes, {LATENCY_MS} ms, beside the same objects in any order", contenders, COLUMNS,
            ("files_per_s", "cpu_us_per_file"),
            Bound("inrush / unordered", "files_per_s", 0.9))
