"""Data loaders of training programs over `inrush mount`: each sample once an epoch, and how fast.

    tools/bench.py loaders [--only NAME...] [--may-skip NAME...] [--runs N] [--megabytes N] [--check]
                     [--torch-python PATH] [--inrush PATH] [--origin PATH] [--disk FOLDER]

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
beside the disk's, wanted is 0.9; with --check less is a failure. Exit 1 when something is wrong, 2
when the lab itself could not work. As root the kernel reads the cache by itself (FUSE passthrough);
otherwise inrush does.

images, files and webdataset need a Python with torch, torchvision and webdataset: --torch-python,
or what tools/bench.py python has installed. TensorFlow is installed into the build folder; it
has 1.2 GB and needs Python 3.10. What is missing counts as failed unless --may-skip names it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import chart, client, install, process
from lab.process import LabError, must, note, say
from lab.servers import origin

BUCKET = "loaders"
EPOCHS = 2
WANTED = 0.9
CONSUMER = install.CONSUMERS / "loaders.py"
KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
RUN_SECONDS, MOUNT_SECONDS = 600.0, 30.0
NEEDS = {"images": "torch, torchvision", "files": "torch, torchvision",
         "webdataset": "torch, webdataset", "tfrecords": "tensorflow"}
"""The kinds of loaders, and what each imports."""


class Wrong(Exception):
    """Not every sample came once."""


@dataclass(frozen=True)
class Ground:
    """Where it takes place."""

    args: argparse.Namespace
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
        if outcome.code or outcome.timed_out:
            raise Wrong(f"exit {outcome.code}: {outcome.last_words()}")
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
def mounted(ground: Ground, url: str, name: str, words: Sequence[str | Path],
            summary: dict[str, Any]) -> Iterator[Path]:
    """While inside, the objects of a loader are mounted; then there is the summary of the mount."""
    point, log = ground.disk / "point", ground.disk / "mount.log"
    point.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    line = [ground.args.inrush, "mount", "--foreground", "--quiet", "--json", "--endpoint-url",
            url, *words, f"s3://{BUCKET}/{name}/", point]
    env = client.clean_environment(ground.disk, KEYS)
    server = process.Server(line, log, env=env)
    try:
        if not server.wait_ready(point.is_mount, MOUNT_SECONDS):
            raise LabError(f"it does not mount: {server.last_words()}")
        yield point
        must([ground.args.inrush, "unmount", point])
        server.wait_ready(lambda: False, MOUNT_SECONDS)
    finally:
        server.stop()
    if server.child.returncode:
        raise Wrong(f"the mount ends with {server.child.returncode}: {server.last_words()}")
    summary.update(json.loads(log.read_text().splitlines()[-1]))


def measured(ground: Ground, loader: Loader) -> list[float]:
    """All runs of a loader: the figures of its row."""
    source = ground.root / BUCKET / loader.name
    written, = loader.run(["write", source, str(ground.args.megabytes * 1_000_000)])
    loader.expected = sorted((name, crc) for name, crc in written["samples"])
    loader.bytes = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    objects = sum(path.is_file() for path in source.rglob("*"))
    copies = ground.disk / "copies"
    must(["cp", "-r", source, copies], seconds=RUN_SECONDS)
    with origin.serving(ground.args.origin, ["--root", ground.root], ground.disk) as url:
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
    for number in range(ground.args.runs):
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


def torch_python(args: argparse.Namespace, name: str) -> Path:
    """A Python with what a loader imports."""
    python = args.torch_python or install.lab_folder() / "experiment/bin/python"
    if not python.is_file():
        raise LabError(f"{python} is missing; give --torch-python")
    must([python, "-c", f"import {NEEDS[name]}"], seconds=RUN_SECONDS)
    return Path(python)


def python_of(args: argparse.Namespace, name: str) -> Path:
    """The Python of a loader."""
    return install.program("tensorflow") if name == "tfrecords" else torch_python(args, name)


def run_all(args: argparse.Namespace) -> int:
    """Runs the loaders; the exit code."""
    rows, failed, absent = [], 0, list[str]()
    # All go at the end: ext4 looks around inodes that were deleted lately, which would slow whoever
    # fills a cache next.
    with tempfile.TemporaryDirectory(prefix="inrush-loaders-", dir=args.disk) as disk:
        for name in args.only:
            ground = Ground(args, Path(disk) / name)
            (ground.root / BUCKET).mkdir(parents=True)
            try:
                figures = measured(ground, Loader(name, python_of(args, name)))
            except LabError as error:
                failed += name not in args.may_skip
                absent.append(name)
                say(f"\n!! SKIPPED: {name}: {error}\n")
                continue
            except Wrong as error:
                failed += 1
                say(f"FAIL  {name:10}  {error}")
                continue
            say(f"ok    {name:10}  each sample once an epoch")
            failed += args.check and figures[-1] < WANTED
            rows.append([name, *(f"{speed:,.0f}" for speed in figures[:-1]),
                         f"{figures[-1]:.2f}"])
    say(chart.markdown(["MB/s", "no cache", "filling it", "cache", "disk", "ratio"], rows))
    left_out = f"; LEFT OUT: {', '.join(absent)}" if absent else ""
    say(f"{len(rows)} read, {failed} failed; wanted is a ratio of {WANTED}{left_out}")
    return 1 if failed else 0


def main() -> int:
    """The exit code."""
    parser = client.argument_parser(__doc__)
    add = parser.add_argument
    add("--only", nargs="+", choices=NEEDS, default=list(NEEDS), metavar="NAME",
        help=f"which: {', '.join(NEEDS)}")
    add("--may-skip", nargs="+", choices=NEEDS, default=[], metavar="NAME",
        help="which may be absent")
    add("--runs", type=int, default=3, help="runs from the cache and the disk (%(default)s)")
    add("--megabytes", type=int, default=500, help="of each loader's samples (%(default)s)")
    add("--check", action="store_true", help=f"fail where the ratio is below {WANTED}")
    add("--torch-python", type=Path, help="a Python with torch, torchvision and webdataset")
    add("--disk", type=Path, default=install.build_folder(),
        help="a folder for objects, cache and copies (default: %(default)s)")
    args = parser.parse_args()
    process.unwind_on_signals()
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        say("nothing can be mounted here: /dev/fuse cannot be opened")
        return 2
    if not client.are_built(args.inrush, args.origin):
        return 2
    args.inrush, args.origin = args.inrush.resolve(), args.origin.resolve()
    try:
        return run_all(args)
    except LabError as error:
        say(f"no figure: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
