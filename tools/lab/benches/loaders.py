"""Data loaders over a mount: each sample once an epoch, and how fast.

* images: torchvision's ImageFolder in torch's DataLoader with 4 workers; images are decoded
* files: the same, but the loader only reads the bytes of each file
* webdataset: tar files at their paths in the mount, WebLoader with 4 workers
* tfrecords: TFRecordDataset of TensorFlow, 4 files at the same time

Each reads two epochs in one process from a mount without a cache, from one that fills a cache, from
a later one with that cache, and from copies of the files on the same disk. In every epoch each
sample must come exactly once with the CRC-32 that was written; the later mount must have received
no byte of an object. No epoch begins with pages of its files in the page cache.

The table has MB/s of samples: the first epoch without a cache and the one that fills it, which both
start the workers; and the second epochs from the cache and from the disk, which take turns, medians
of --runs. The origin is on loopback, so a network is not measured. `ratio` is the cache's speed
beside the disk's, wanted is 0.9; with --check less is a failure. As root the kernel reads the cache
by itself (FUSE passthrough); otherwise inrush does. `--only` and `--may-skip` name loaders.

images, files and webdataset need a Python with torch, torchvision and webdataset: --torch-python,
or what tools/bench.py python has installed. TensorFlow is installed into the build folder; it
has 1.2 GB and needs Python 3.10.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import chart, client, install, process
from lab.driver import Add, Lab
from lab.process import LabError, Word, Wrong, must, note, say

BUCKET = "loaders"
EPOCHS = 2
WANTED = 0.9
CONSUMER = install.CONSUMERS / "loaders.py"
KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
RUN_SECONDS, UNMOUNT_SECONDS = 600.0, 30.0
NEEDS = {"images": "torch, torchvision", "files": "torch, torchvision",
         "webdataset": "torch, webdataset", "tfrecords": "tensorflow"}
"""The kinds of loaders, and what each imports."""


@dataclass(frozen=True)
class Ground:
    """Where it takes place."""

    lab: Lab
    disk: Path

    @property
    def root(self) -> Path:
        """What is served."""
        return self.disk / "root"


@dataclass
class Loader:
    """One kind, its Python, and what is to come."""

    name: str
    python: Path
    expected: list[tuple[str, int]] = field(default_factory=list)
    bytes: int = 0

    def run(self, words: Sequence[str | Path]) -> list[dict[str, Any]]:
        """What the consumer printed."""
        # What torch and TensorFlow say of this machine is nothing to us.
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
        outcome = process.run([self.python, CONSUMER, words[0], self.name, *words[1:]],
                              seconds=RUN_SECONDS, env=env)
        if outcome.trouble:
            raise Wrong(outcome.trouble)
        return [json.loads(line) for line in outcome.stdout.splitlines()]

    def read(self, what: str, folder: Path, *behind: Path) -> list[float]:
        """MB/s of each epoch, all of whose samples are right."""
        epochs = self.run(["read", folder, str(EPOCHS), *behind])
        if len(epochs) != EPOCHS:
            raise Wrong(f"{what}: {len(epochs)} epochs, not {EPOCHS}")
        for number, epoch in enumerate(epochs):
            found = sorted((name, crc) for name, crc in epoch["samples"])
            if found != self.expected:
                differ = sorted(set(found) ^ set(self.expected))[:4]
                raise Wrong(f"{what}, epoch {number}: {len(found)} samples, not "
                            f"{len(self.expected)}, or not the same: {differ}")
        speeds = [self.bytes / 1e6 / epoch["seconds"] for epoch in epochs]
        note(f"  {self.name} {what}: {', '.join(f'{speed:,.0f} MB/s' for speed in speeds)}")
        return speeds


@contextmanager
def mounted(ground: Ground, url: str, name: str, words: Sequence[Word],
            summary: dict[str, Any]) -> Iterator[Path]:
    """While inside, the objects of a loader are mounted; then there is the summary of the mount."""
    point = ground.disk / "point"
    line = ground.lab.command("mount", "--foreground", "--quiet", "--json", *words,
                              f"s3://{BUCKET}/{name}/", point, url=url)
    with client.mounted(line, point, ground.lab.env(KEYS)) as server:
        yield point
        must([ground.lab.inrush, "unmount", point])
        server.ends(UNMOUNT_SECONDS)
    if server.child.returncode:
        raise Wrong(f"the mount ends with {server.child.returncode}: {server.last_words()}")
    summary.update(server.summary())


def measured(ground: Ground, loader: Loader) -> list[float]:
    """All runs of a loader: the figures of its row."""
    source = ground.root / BUCKET / loader.name
    written, = loader.run(["write", source, str(ground.lab.args.megabytes * 1_000_000)])
    loader.expected = sorted((name, crc) for name, crc in written["samples"])
    loader.bytes = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    objects = sum(path.is_file() for path in source.rglob("*"))
    copies = ground.disk / "copies"
    must(["cp", "-r", source, copies], seconds=RUN_SECONDS)
    with ground.lab.serving("--root", ground.root) as url:
        return in_turns(ground, loader, url, objects)


def in_turns(ground: Ground, loader: Loader, url: str, objects: int) -> list[float]:
    """Reads what is served in all ways."""
    copies, cache = ground.disk / "copies", ground.disk / "cache"
    with_cache, summary = ["--cache", cache], dict[str, Any]()
    with mounted(ground, url, loader.name, [], summary) as point:
        plain = loader.read("without a cache", point)
    with mounted(ground, url, loader.name, with_cache, summary) as point:
        filling = loader.read("filling the cache", point, cache)
    if summary["cache"]["kept_objects"] != objects:
        raise Wrong(f"{objects} objects, and of these are kept: {summary['cache']}")
    cached, disk = [], []
    for number in range(ground.lab.args.runs or 3):
        for what in ("cache", "disk")[::1 if number % 2 == 0 else -1]:
            if what == "disk":
                disk.append(loader.read("from the disk", copies)[-1])
                continue
            with mounted(ground, url, loader.name, with_cache, summary) as point:
                cached.append(loader.read("from the cache", point, cache)[-1])
            if summary["received_bytes"] or summary["cache"]["misses"]:
                raise Wrong(f"not all came from the cache: {summary}")
    middle = [statistics.median(speeds) for speeds in (cached, disk)]
    return [plain[0], filling[0], *middle, middle[0] / middle[1]]


def python_of(lab: Lab, name: str) -> Path:
    """A Python with what a loader imports."""
    if name == "tfrecords":
        return install.program("tensorflow")
    python = lab.args.torch_python or install.lab_folder() / "experiment/bin/python"
    if not python.is_file():
        raise LabError(f"{python} is missing; give --torch-python")
    must([python, "-c", f"import {NEEDS[name]}"], seconds=RUN_SECONDS)
    return Path(python)


def options(add: Add) -> None:
    """Of this measurement alone."""
    add("--megabytes", type=int, default=500, help="of each loader's samples (%(default)s)")
    add("--torch-python", type=Path, help="a Python with torch, torchvision and webdataset")


def run(lab: Lab) -> None:
    """Runs the loaders."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise LabError("nothing can be mounted here: /dev/fuse cannot be opened")
    found: dict[str, list[float]] = {}
    # All folders go at the end: ext4 looks around inodes that were deleted lately, which would slow
    # whoever fills a cache next.
    for name in lab.among(list(NEEDS)):
        ground = Ground(lab, lab.folder(name))
        (ground.root / BUCKET).mkdir(parents=True)
        try:
            figures = found[name] = measured(ground, Loader(name, python_of(lab, name)))
            lab.report(name, None, "each sample once an epoch")
        except LabError as error:
            lab.miss(name, error)
        except Wrong as error:
            lab.report(name, str(error))
        else:
            if lab.args.check and figures[-1] < WANTED:
                lab.complaints.append(f"{name}: the ratio is {figures[-1]:.2f}; wanted: {WANTED}")
    lab.keep("loaders", found)
    say(chart.markdown(["MB/s", "no cache", "filling it", "cache", "disk", "ratio"], [
        [name, *(f"{speed:,.0f}" for speed in figures[:-1]), f"{figures[-1]:.2f}"]
        for name, figures in found.items()]))
