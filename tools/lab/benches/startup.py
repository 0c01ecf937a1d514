"""How long a training job waits for its data: from the start of `inrush train` to the first byte
that its command has read.

In File mode that is the whole download, in FastFile mode the first read of a mount, in Pipe mode
the first range of the first object. The objects are computed by the in-repo origin, of 100 MB each,
as in Amazon's advice for File mode. The command is Python, which takes some 20 ms to start: they
are part of the figures.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import process
from lab.process import LabError, note
from lab.servers import origin

GIGABYTES = (1, 10, 50)
OBJECT_BYTES = 100_000_000
MODES = ("File", "FastFile", "Pipe")
SPARE = 1.2
"""How much more space there must be than the data take: others write to this disk, too."""
# The first file, or the first pipe; a monotonic clock is the same for all processes of a machine.
COMMAND = """
import os, time
folder = os.environ["SM_INPUT_DIR"] + "/data/"
name = folder + "train_0"
if not os.path.exists(name):
    name = folder + "train/" + min(os.listdir(folder + "train"))
with open(name, "rb", buffering=0) as file:
    assert len(file.read(1)) == 1
    print(time.monotonic())
"""


def once(program: Path, options: Sequence[str], env: Mapping[str, str], disk: Path, mode: str,
         seconds: float) -> float:
    """One job; the seconds until its command has a byte."""
    with tempfile.TemporaryDirectory(prefix="startup-", dir=disk) as folder:
        started = time.monotonic()
        outcome = process.run(
            [program, "train", "--quiet", "--no-sign-request", "--base-dir", folder, *options,
             "--channel", f"train=s3://bench/train/,mode={mode}", "--", sys.executable, "-S", "-c",
             COMMAND], seconds=seconds, env=env)
        if outcome.timed_out or outcome.code != 0:
            raise LabError(f"inrush train: exit {outcome.code}: {outcome.last_words()}")
        return float(outcome.stdout) - started


def run(program: Path, options: Sequence[str], env: Mapping[str, str], disk: Path, seconds: float,
        runs: int) -> tuple[str, dict[str, object]]:
    """All sizes in all modes; a size that the disk cannot take is left out of File mode."""
    found: dict[str, dict[int, list[float]]] = {mode: {} for mode in MODES}
    for size in GIGABYTES:
        words = ["--synthetic", f"bench/train/shard-:{size * 10**9 // OBJECT_BYTES}:"
                 f"{OBJECT_BYTES}:suffix=.bin:width=4"]
        with (tempfile.TemporaryDirectory(prefix="inrush-bench-") as folder,
              origin.serving(origin.default_program(), words, Path(folder)) as url):
            for mode in MODES:
                free = shutil.disk_usage(disk).free
                if mode == "File" and free < size * 10**9 * SPARE:
                    note(f"  {size} GB in File mode: left out, {free / 1e9:.0f} GB are free")
                    continue
                taken = [once(program, options, {**env, "AWS_ENDPOINT_URL_S3": url,
                                                 "AWS_REGION": "us-east-1"}, disk, mode, seconds)
                         for _ in range(runs)]
                note(f"  {size} GB, {mode}: {json.dumps([round(one, 3) for one in taken])} s")
                found[mode][size] = taken
    return table(found, runs), {"seconds": found, "runs": runs}


def table(found: Mapping[str, Mapping[int, Sequence[float]]], runs: int) -> str:
    """Markdown, as it stands in the guide."""
    lines = [f"startup: seconds to the first byte of the command; medians of {runs}", "",
             "| data set | File mode | FastFile mode | Pipe mode |", "|---|---|---|---|"]
    for size in GIGABYTES:
        cells = [f"{statistics.median(found[mode][size]):.2f} s" if size in found[mode]
                 else "no room on the disk" for mode in MODES]
        lines.append(f"| {size} GB | {' | '.join(cells)} |")
    return "\n".join(lines)
