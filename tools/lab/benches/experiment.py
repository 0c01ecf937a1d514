"""Empty training loops: what reading S3 costs a Python program.

images    a loop over objects of 39,000 bytes
tars      a loop over the files of tars of 64 MiB, images of 39,000 bytes
tensors   the tensors of a model of 2 GiB: 4 safetensors files and their index
checkpoint  a checkpoint of torch.distributed of 1 GiB into tensors that are there
array     an object of 4 GiB into memory

Each loop does nothing with its samples but count them and their bytes. It runs in a process of its
own, against an inrush-origin on loopback that answers at once, and against one that waits 20 ms
before each answer. Imports, clients and listings come before the loop and are not measured; the
processes that a loop starts are, and their processor time and memory count. Everybody signs.

A first run compares the CRC-32 of all samples and finds out how large a set each loop reads in
about --seconds. Then all take turns, --runs times. Every run must have exactly the samples and
bytes of its set: else nothing is printed, and the exit code is 2. A peer that cannot be installed
or does not run is a row that says why.

`--case` names one of these workloads, `--peer` a part of a loop's name. Packages come from PyPI
into --venv, at the versions of tools/lab/benches/python_peers.py. --lend names folders of packages
that need not be installed again, such as the site-packages with PyTorch. Without --wheel a release
wheel is built. --check fails where inrush is not ahead. --show makes one table and one plot of the
figures of several runs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab import client, driver, install, measure, process, wheel
from lab.benches import epochs, figures, python_peers
from lab.benches.epochs import Set
from lab.driver import Add
from lab.measure import Sample
from lab.process import LabError, note, say

RUN_LOOP = install.TOOLS / "lab/run_loop.py"
RUN_SECONDS = 300.0
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "example-secret"}
IMAGE_COUNTS = (4, 64, 250, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
TAR_COUNTS = (1, 2, 4, 8, 16)
QUICK_IMAGE_COUNTS = (4, 64, 500)
QUICK_TAR_COUNTS = (1, 2)
LARGE_BYTES, QUICK_LARGE_BYTES = 4 << 30, 256 << 20
AGAIN_BELOW = 0.4
"""A set is large enough once it takes this part of --seconds."""
PROGRAM = "inrush get --discard"


@dataclass(frozen=True)
class Way:
    """One loop: the packages it needs, and with which set it begins."""

    name: str
    needs: Sequence[str] = ()
    first: int = 1
    sets: str = ""
    """Other sets than those of its workload."""

    @property
    def ours(self) -> bool:
        """Whether it is one of inrush."""
        return self.name.startswith("inrush")


WAYS: dict[str, Sequence[Way]] = {
    "images": (
        Way("aws s3 cp -", ["aws"], 0), Way("boto3, 16 threads", ["boto3"]),
        Way("s3fs cat", ["s3fs"]), Way("smart_open, 16 threads", ["smart_open"]),
        Way("s3torchconnector, 8 workers", ["s3torchconnector"]),
        Way("obstore get_async", ["obstore"]), Way("s3dlio get_many", ["s3dlio"]),
        Way("torchdata.nodes, boto3", ["torchdata"]), Way(PROGRAM),
        Way("inrush read_many", first=2), Way("inrush read_many of addresses", first=2),
        Way("inrush StreamDataset", ["torch"], 2),
        Way("inrush StreamDataset, 2 workers", ["torch"], 2),
        Way("inrush ObjectDataset, 2 workers", ["torch"], 2)),
    "tars": (
        Way("aws s3 cp - (pipe:)", ["aws"], 0), Way("boto3 get_object", ["boto3"], 0),
        Way("s3fs open", ["s3fs"], 0), Way("smart_open", ["smart_open"], 0),
        Way("s3torchconnector", ["s3torchconnector"], 0),
        Way("obstore get, stream", ["obstore"], 0), Way("s3dlio get", ["s3dlio"], 0),
        Way("torchdata.nodes, boto3", ["torchdata"], 0),
        Way("mosaicml-streaming (MDS)", ["streaming"], 0, sets="shards"),
        Way("inrush open", first=0), Way("inrush read_many", first=0),
        Way("inrush TarDataset", ["torch"], 0), Way("inrush TarDataset, 2 workers", ["torch"], 0),
        Way("inrush cat (pipe:)", first=0), Way("inrush pipe (FIFO)", first=0)),
    "tensors": (
        Way("boto3, then load_file", ["safetensors"], 0),
        Way("runai-model-streamer", ["runai_model_streamer"], 0),
        Way("inrush.safetensors.load", ["torch"], 0),
        Way("inrush.safetensors.open", ["torch"], 0)),
    "checkpoint": (
        Way("s3torchconnector", ["s3torchconnector"], 0),
        Way("FsspecReader, s3fs", ["s3fs", "torch"], 0),
        Way("inrush.fsspec, FsspecReader", ["torch"], 0),
        Way("inrush.checkpoint", ["torch"], 0)),
    "array": (
        Way("boto3 download_fileobj", ["boto3"], 0), Way("s3dlio get", ["s3dlio"], 0),
        Way("obstore get_range_async", ["obstore", "numpy"], 0), Way(PROGRAM, first=0),
        Way("inrush read", first=0), Way("inrush read_into", ["numpy"], 0)),
}
LATENCIES = {"images": (0, 20), "tars": (0, 20), "tensors": (0, 20), "checkpoint": (0, 20),
             "array": (0,)}


@dataclass(frozen=True)
class Lab:
    """What the loops run with."""

    of: driver.Lab
    venv: python_peers.Venv
    programs: Mapping[str, str]

    @property
    def seconds(self) -> float:
        """Of a run, about."""
        return float(self.of.args.seconds or (0.2 if self.of.args.quick else 1.2))

    def env(self, endpoint: str) -> dict[str, str]:
        """Where the server is, and as whom; for all of them."""
        return self.of.env({
            **KEYS, "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1", "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
            "RUNAI_STREAMER_LOG_LEVEL": "WARNING", "PYTHONPATH": ""})


@dataclass
class Found:
    """The figures of one workload with one latency."""

    runs: dict[str, list[Sample]] = field(default_factory=dict)
    prepared: dict[str, float] = field(default_factory=dict)
    """Seconds before the loop, of its last run."""
    absent: dict[str, str] = field(default_factory=dict)


class Wrong(LabError):
    """A loop did not read what it was to read."""


def compare(name: str, figures: Mapping[str, Any], wanted: Set, digest: int | None) -> None:
    """Refuses a run that has other samples than its set.

    :raises Wrong: it says which.
    """
    for what, found, expected in (("samples", figures["samples"], wanted.samples),
                                  ("bytes", figures["bytes"], wanted.bytes),
                                  ("as digest", figures["digest"], digest)):
        if found != expected:
            raise Wrong(f"{name}: {found} {what}, not {expected}, of {wanted.prefix}")


def self_test() -> None:
    """Refuses to measure anything where a loop that cheats would not be seen."""
    wanted = Set("b", "p/", ["p/0", "p/1"], 2, 20, lambda _endpoint: 7)
    right = {"samples": 2, "bytes": 20, "digest": 7}
    compare("right", right, wanted, 7)
    for name, wrong in (("a sample is lost", {"samples": 1, "bytes": 20}),
                        ("a sample comes twice", {"samples": 3}), ("it is cut", {"bytes": 19}),
                        ("another content", {"digest": 8}), ("not compared", {"digest": None})):
        try:
            compare(name, {**right, **wrong}, wanted, 7)
        except Wrong:
            continue
        raise LabError(f"the comparison does not see that {name}")


def run_program(lab: Lab, endpoint: str, wanted: Set) -> tuple[Sample, float]:
    """The command, as a whole process, its listing included."""
    outcome = client.fetch(lab.of.inrush, "get", f"s3://{wanted.bucket}/{wanted.prefix}", None,
                           url=endpoint, options=[], env=lab.env(endpoint), seconds=RUN_SECONDS)
    sample = measure.of_outcome(outcome, PROGRAM, wanted.bytes, wanted.samples)
    summary = client.summary(outcome)
    compare(PROGRAM, {"samples": summary["objects"], "bytes": summary["bytes"], "digest": None},
            wanted, None)
    return sample, 0.0


def run_loop(lab: Lab, workload: str, way: Way, endpoint: str, wanted: Set,
             every_byte: bool) -> tuple[Sample, float]:
    """One run: its figures, and the seconds before the loop.

    :raises Wrong: it read something else.
    :raises LabError: it did not run.
    """
    if way.name == PROGRAM:
        return run_program(lab, endpoint, wanted)
    with tempfile.TemporaryDirectory(dir=lab.of.temp) as folder:
        task = Path(folder) / "task.json"
        task.write_text(json.dumps({
            "endpoint": endpoint, "bucket": wanted.bucket, "prefix": wanted.prefix,
            "keys": list(wanted.keys), "temp": folder, "programs": dict(lab.programs)}))
        outcome = process.run(
            [lab.venv.python, RUN_LOOP, workload, way.name, str(int(every_byte)), task],
            seconds=RUN_SECONDS, env=lab.env(endpoint), family=True)
    figures = json.loads(outcome.well(way.name).stdout.splitlines()[-1])
    compare(way.name, figures, wanted, wanted.digest(endpoint) if every_byte else None)
    cpu = figures["user_seconds"] + figures["system_seconds"]
    return Sample(bytes=figures["bytes"], files=figures["samples"], seconds=figures["seconds"],
                  cpu_seconds=cpu, user_seconds=figures["user_seconds"],
                  peak_rss_bytes=outcome.peak_rss_bytes, own_gb_per_s=0.0,
                  ), figures["prepare_seconds"]


def fitting(lab: Lab, workload: str, way: Way, endpoint: str, sets: Sequence[Set]) -> Set:
    """Compares every byte once; the largest set that the loop reads in about `--seconds`."""
    at = min(way.first, len(sets) - 1)
    every_byte = True
    while True:
        taken, _ = run_loop(lab, workload, way, endpoint, sets[at], every_byte)
        every_byte = False
        room = lab.seconds / taken.seconds
        fits = [number for number, larger in enumerate(sets)
                if larger.samples <= sets[at].samples * room]
        best = max(fits, default=0)
        note(f"  {way.name}: {sets[at].samples} samples in {taken.seconds:.2f} s")
        if room < 1 / AGAIN_BELOW or best <= at:
            return sets[min(at, max(best, 0))]
        at = best


def rounds(lab: Lab, workload: str, endpoint: str, data: epochs.Data) -> Found:
    """All ways of a workload, one after the other and in turns."""
    found, contenders = Found(), {}
    for way in WAYS[workload]:
        if not is_wanted(way, lab.of.args.peer):
            continue
        sets = getattr(data, way.sets or workload)
        try:
            if missing := [need for need in way.needs if need in lab.venv.missing]:
                raise LabError(lab.venv.missing[missing[0]])
            wanted = fitting(lab, workload, way, endpoint, sets)
        except Wrong:
            raise
        except LabError as error:
            if way.ours:
                raise LabError(f"{way.name}: {error}") from error
            found.absent[way.name] = str(error)
            note(f"!! ABSENT: {way.name}: {error}")
            continue
        contenders[way.name] = contender(lab, workload, way, endpoint, wanted, found)
    runs = lab.of.args.runs or (1 if lab.of.args.quick else 3)
    found.runs = measure.rounds(contenders, 0, runs)
    return found


def contender(lab: Lab, workload: str, way: Way, endpoint: str, wanted: Set,
              found: Found) -> measure.Contender:
    """What makes one run that counts."""
    def once(_every_byte: bool) -> Sample:
        taken, found.prepared[way.name] = run_loop(lab, workload, way, endpoint, wanted, False)
        return taken
    return once


def is_wanted(way: Way, words: Sequence[str]) -> bool:
    """Whether `--peer` asks for it."""
    return not words or any(word in way.name for word in words)


def measured(of: driver.Lab, workloads: Sequence[str]) -> dict[str, Any]:
    """Installs, serves, and runs everything that was asked for."""
    args = of.args
    wanted = {need for name in workloads for way in WAYS[name] for need in way.needs
              if is_wanted(way, args.peer)}
    made = args.wheel or wheel.build(
        "release", Path(args.python), install.build_folder() / "wheels" / "release")
    venv = python_peers.venv(args.venv, made, args.lend, wanted - {"aws"}, args.python)
    programs = {"inrush": str(venv.folder / "bin/inrush")}
    if "aws" in wanted:
        try:
            programs["aws"] = str(install.program("awscli"))
        except LabError as error:
            venv = python_peers.Venv(venv.folder, {**venv.missing, "aws": str(error)})
    mds = "streaming" in wanted and "streaming" not in venv.missing
    note("writing objects")
    data = epochs.write(
        of.temp / "root", workloads,
        image_counts=QUICK_IMAGE_COUNTS if args.quick else IMAGE_COUNTS,
        tar_counts=QUICK_TAR_COUNTS if args.quick else TAR_COUNTS,
        large_bytes=QUICK_LARGE_BYTES if args.quick else LARGE_BYTES,
        python=venv.python, has_mds=mds)
    lab = Lab(of, venv, programs)
    report: dict[str, Any] = {"machine": measure.machine(of.temp), "versions": venv.versions(),
                              "workloads": {}}
    for workload in workloads:
        for latency in args.latency if args.latency is not None else LATENCIES[workload]:
            say(f"{workload}, {latency} ms to the first byte")
            with of.serving(*data.words, "--workers", "2", "--first-byte-latency",
                            str(latency)) as endpoint:
                found = rounds(lab, workload, endpoint, data)
            report["workloads"].setdefault(workload, {})[str(latency)] = as_document(found)
            of.keep("python", report)
    return report


def as_document(found: Found) -> dict[str, Any]:
    """The figures for the report."""
    return {
        "ways": {name: {"medians": {column: measure.median(taken, column)
                                    for column in figures.COLUMNS},
                        "samples": taken[0].files, "prepare_seconds": found.prepared[name],
                        "runs": [asdict(sample) for sample in taken]}
                 for name, taken in found.runs.items()},
        "absent": found.absent}


def options(add: Add) -> None:
    """Of this measurement alone."""
    add("--latency", nargs="+", type=int, metavar="MS",
        help="to the first byte (default: 0 and 20; of array 0)")
    add("--wheel", type=Path, help="the package (default: a release build of this checkout)")
    add("--venv", type=Path, default=install.build_folder() / "lab" / "experiment")
    add("--lend", nargs="+", type=Path, default=[], metavar="FOLDER")
    add("--python", default=sys.executable, help="interpreter of the venv")
    add("--seconds", type=float, help="of a run, about (default: 1.2; 0.2 with --quick)")
    add("--markdown", type=Path, help="write the tables to this file")
    add("--svg", type=Path, help="write the plot to this file")
    add("--show", nargs="+", type=Path, metavar="FILE", help="figures of --json; runs nothing")


def run(of: driver.Lab) -> None:
    """Runs what was asked for, or shows what was measured before."""
    args = of.args
    self_test()
    workloads = of.chosen("case", WAYS)
    report = figures.merged([json.loads(path.read_text())["python"] for path in args.show]) \
        if args.show else measured(of, workloads)
    tables = figures.markdown(report)
    say(tables)
    if args.markdown:
        args.markdown.write_text(tables)
    if args.svg:
        args.svg.write_text(figures.plot(report))
    if args.check:
        of.complaints += figures.complaints(report)
