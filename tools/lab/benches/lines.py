"""Augmented manifests of many lines whose objects are small, streamed in order to a reader.

The unordered rate of the same objects is that of `get --discard`, which lists them, and so knows
their sizes without a question for each.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import measure, process, streams
from lab.servers import origin

LINES = 100_000
FOLDERS = 20
OBJECT_BYTES = 1_000
LATENCY_MS = 20
OBJECTS_PER_S_MIN = 10_000.0
COLUMNS = {"files_per_s": "objects/s", "cpu_us_per_file": "CPU us/object", "seconds": "seconds",
           "peak_rss_mib": "peak MiB"}
RATIOS = {"files_per_s": "files_per_s", "cpu_us_per_file": "cpu_us_per_file"}


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


def streamed(command: Sequence[str | Path], manifest: Path, pipes: Path, *,
             env: Mapping[str, str], seconds: float) -> measure.Contender:
    """`inrush pipe` of the manifest; `command` is the program with the options of its service."""
    program, *service = command

    def once(_every_byte: bool) -> measure.Sample:
        outcome = streams.through_pipe(
            [program, "pipe", "--augmented-manifest", manifest, "--attribute", "source-ref",
             "--attribute", "class", pipes / "train", "--quiet", *service],
            pipes / "train_0", LINES * (OBJECT_BYTES + 1), env=env, seconds=seconds)
        return measure.of_outcome(outcome, "inrush pipe", LINES * OBJECT_BYTES, LINES)

    return once


def _unordered(command: Sequence[str | Path], source: str, env: Mapping[str, str],
               seconds: float) -> measure.Contender:
    program, *service = command

    def once(_every_byte: bool) -> measure.Sample:
        words = [program, "get", "--discard", source, "--quiet", *service]
        outcome = process.run(words, seconds=seconds, env=env)
        return measure.of_outcome(outcome, "inrush get", LINES * OBJECT_BYTES, LINES)

    return once


def run(program: Path, options: Sequence[str], env: Mapping[str, str], seconds: float,
        warm_up: int, runs: int) -> tuple[str, dict[str, object]]:
    """In order, beside the same objects in any order, with 20 ms to the first byte."""
    objects = f"bench/lines/:{LINES}:{OBJECT_BYTES}:folders={FOLDERS}:width=5:suffix="
    words = ["--synthetic", objects, "--first-byte-latency", str(LATENCY_MS)]
    with (tempfile.TemporaryDirectory(prefix="inrush-bench-") as folder,
          origin.serving(origin.default_program(), words, Path(folder)) as url):
        command = [program, "--endpoint-url", url, "--region", "us-east-1", "--no-sign-request",
                   *options]
        manifest = Path(folder) / "lines.jsonl"
        write_manifest(manifest, "bench")
        limits = {"env": env, "seconds": seconds}
        contenders = {
            "inrush": streamed(command, manifest, Path(folder), **limits),
            "unordered": _unordered(command, "s3://bench/lines/", **limits)}
        samples = measure.rounds(contenders, warm_up, runs)
    figures = measure.summarise(samples, COLUMNS, "inrush", RATIOS)
    title = (f"lines-latency: {LINES:,} lines of an augmented manifest, objects of {OBJECT_BYTES} "
             f"bytes, {LATENCY_MS} ms, beside the same objects in any order")
    return measure.table(title, figures, COLUMNS), figures
