"""How long a training job waits for its data."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time

from lab import chart
from lab.benches.ground import BUCKET, UNSIGNED, Bench, Figures
from lab.process import note, say

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


def once(bench: Bench, url: str, mode: str) -> float:
    """One job; the seconds until its command has a byte."""
    with tempfile.TemporaryDirectory(prefix="startup-", dir=bench.disk) as folder:
        started = time.monotonic()
        outcome = bench.run(
            [bench.lab.inrush, "train", "--quiet", UNSIGNED, "--base-dir", folder,
             *bench.args.option, "--channel", f"train=s3://{BUCKET}/train/,mode={mode}", "--",
             sys.executable, "-S", "-c", COMMAND],
            env={"AWS_ENDPOINT_URL_S3": url, "AWS_REGION": "us-east-1"}).well("inrush train")
        return float(outcome.stdout) - started


def run(bench: Bench) -> Figures:
    """The start of `inrush train` to the first byte that its command has read, in each mode.

    For 1, 10 and 50 GB in objects of 100 MB, as in Amazon's advice for File mode. In File mode that
    is the whole download, in FastFile mode the first read of a mount, in Pipe mode the first range
    of the first object. The command is Python, which takes some 20 ms to start: they are part of
    the figures."""
    found: dict[str, dict[int, list[float]]] = {mode: {} for mode in MODES}
    for size in GIGABYTES:
        words = f"{BUCKET}/train/shard-:{size * 10**9 // OBJECT_BYTES}:{OBJECT_BYTES}"
        with bench.lab.serving("--synthetic", f"{words}:suffix=.bin:width=4") as url:
            for mode in MODES:
                free = shutil.disk_usage(bench.disk).free
                # A size that the disk cannot take is left out of File mode.
                if mode == "File" and free < size * 10**9 * SPARE:
                    note(f"  {size} GB in File mode: left out, {free / 1e9:.0f} GB are free")
                    continue
                found[mode][size] = [once(bench, url, mode) for _ in range(bench.runs)]
                rounded = [round(one, 3) for one in found[mode][size]]
                note(f"  {size} GB, {mode}: {json.dumps(rounded)} s")
    say(f"startup: seconds to the first byte of the command; medians of {bench.runs}\n")
    say(chart.markdown(["data set", *(f"{mode} mode" for mode in MODES)], [[f"{size} GB", *(
        f"{statistics.median(found[mode][size]):.2f} s" if size in found[mode]
        else "no room on the disk" for mode in MODES)] for size in GIGABYTES]))
    return {"seconds": found, "runs": bench.runs, "complaints": []}
