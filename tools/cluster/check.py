#!/usr/bin/env python3
"""Runs the examples of this folder, and compares every byte that their jobs read.

    tools/cluster/check.py [--inrush PATH] [--origin PATH] [--only NAME...] [--may-skip NAME...]

* kubernetes: the Jobs have the fields that Kubernetes knows, and their containers' commands run
  here as the kubelet would start them, once for each pod. A sidecar that is killed fails the job.
* slurm: the script is a job of a cluster of two nodes on this machine.
* ray: the program with four workers on this machine.

All hosts together must have read every object, and none twice. One line for each check; exit 1 when
one failed, 2 when the lab itself could not work. What cannot be installed counts as failed unless
--may-skip names it: Ray and kubernetes-validate from PyPI into the build folder, Slurm by the
package manager, as root. Then it leaves the network: Ray and Slurm listen on all addresses. It
takes less than a minute after that, and removes all else that it made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lab import alone, client, install, origin, process, samples, signed  # noqa: E402
from lab import slurm, streams  # noqa: E402
from lab.process import LabError, Outcome, must, say  # noqa: E402

BUCKET = "lab"
SOURCE = f"s3://{BUCKET}/train/"
KEYS = ("AKIDCLUSTER", "secret/of+clusters")
SEED = 7
EPOCHS = 3
PODS = 2
WORKERS = 4
RUN_SECONDS = 120.0
STALL_SECONDS = 20
PARTS = ("kubernetes", "slurm", "ray")
# An epoch then takes many seconds.
SLOWLY = "1MB"
# The command of the Slurm job, on each node.
NODE = ('python3 "$0/files.py" "$SM_CHANNEL_TRAIN" >"$OUT/files-$SLURM_NODEID"; '
        'sha256sum <"$SM_INPUT_DIR/data/stream_0" >"$OUT/stream-$SLURM_NODEID"')


class Wrong(Exception):
    """An example does not do what it says."""


@dataclass(frozen=True)
class Lab:
    """What the checks need."""

    program: Path
    temp: Path
    env: Mapping[str, str]
    objects: Mapping[str, bytes]
    """Below `train/`, by the rest of the key, in the order of keys."""

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of each object."""
        return {key: hashlib.sha256(data).hexdigest() for key, data in self.objects.items()}

    def share(self, rank: int, count: int) -> dict[str, str]:
        """What the host of this rank must have of a channel in File mode."""
        return dict(list(self.hashes().items())[rank::count])

    def stream(self, epoch: int, rank: int, count: int) -> bytes:
        """What it must get from a shuffled channel in Pipe mode."""
        order = streams.shuffled(list(self.objects.values()), SEED, epoch)
        return b"".join(order[rank::count])


def expect(condition: bool, what: str, outcome: Outcome | None = None) -> None:
    """Fails unless the condition holds."""
    if not condition:
        words = f": exit {outcome.code}: {outcome.last_words()}" if outcome else ""
        raise Wrong(f"{what}{words}")


def succeeded(outcome: Outcome, what: str) -> Outcome:
    """The outcome, unless it is a failure."""
    expect(not outcome.timed_out, f"{what}: not done after {outcome.seconds:.0f} s", outcome)
    expect(outcome.code == 0, what, outcome)
    return outcome


def listed(text: str) -> dict[str, str]:
    """What files.py or sha256sum told: hashes by path."""
    pairs = (line.split(None, 1) for line in text.splitlines())
    return {path.strip(): digest for digest, path in pairs}


def read_yaml(file: Path) -> dict[str, Any]:
    """A manifest, by the parser that comes with kubernetes-validate."""
    python = install.kubernetes_validate().with_name("python")
    script = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)"
    with file.open("rb") as source:
        done = subprocess.run([python, "-c", script], stdin=source, capture_output=True,
                              check=True, timeout=RUN_SECONDS)
    return dict(json.loads(done.stdout))


@dataclass(frozen=True)
class Container:
    """A container of a manifest as a process of this machine."""

    words: list[str]
    env: dict[str, str]


def container(lab: Lab, described: Mapping[str, Any], index: int, volume: Path) -> Container:
    """The command of a container in the pod of this index, as the kubelet makes it of `command` and
    `args`; its volume is a folder here, and its bucket is ours."""
    given = {entry["name"]: entry["value"] for entry in described.get("env", [])}
    given["JOB_COMPLETION_INDEX"] = str(index)
    mount, = described["volumeMounts"]

    def here(word: str) -> str:
        word = re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], word)
        return word.replace("s3://BUCKET/", f"s3://{BUCKET}/").replace(
            mount["mountPath"], str(volume))

    words = [here(word) for word in [*described.get("command", []), *described.get("args", [])]]
    if "command" not in described:
        words.insert(0, str(lab.program))
    if words[1:2] == ["train"]:
        # The place that the image has by default.
        words[2:2] = ["--base-dir", str(volume)]
    return Container(words, {**lab.env, **given})


def in_this_folder(words: Sequence[str]) -> list[str | Path]:
    """A command of a training container: its program is in this folder."""
    return [sys.executable if words[0] == "python3" else words[0], HERE / words[1], *words[2:]]


def valid(name: str) -> dict[str, Any]:
    """A manifest that the schema of Kubernetes accepts, which knows when it must not."""
    validate, file = install.kubernetes_validate(), HERE / name
    must([validate, "--strict", file])
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as broken:
        broken.write(file.read_text().replace("completionMode:", "completionsMode:"))
        broken.flush()
        outcome = process.run([validate, "--strict", broken.name], seconds=RUN_SECONDS)
        expect(outcome.code != 0, "the schema has no fields")
    manifest = read_yaml(file)
    expect(manifest["spec"]["completions"] == PODS, f"{name} has {PODS} pods")
    say(f"ok    kubernetes  {name}: as the schema of Kubernetes says")
    return dict(manifest["spec"]["template"]["spec"])


def init_container(lab: Lab) -> None:
    """The Job that downloads first."""
    pod = valid("job-file.yaml")
    for index in range(PODS):
        volume = lab.temp / f"file-{index}"
        volume.mkdir()
        data = container(lab, pod["initContainers"][0], index, volume)
        succeeded(process.run(data.words, seconds=RUN_SECONDS, env=data.env), "the init container")
        training = container(lab, pod["containers"][0], index, volume)
        outcome = succeeded(process.run(in_this_folder(training.words), seconds=RUN_SECONDS,
                                        env=training.env), "the training container")
        has_its_share(lab, index, outcome)
    say(f"ok    kubernetes  job-file.yaml: {PODS} pods have read {len(lab.objects)} objects")


def has_its_share(lab: Lab, index: int, outcome: Outcome) -> None:
    """What files.py told is what the pod of this index must see."""
    wanted = {f"train/{key}": digest for key, digest in lab.share(index, PODS).items()}
    wanted |= {"test/only": hashlib.sha256(b"test").hexdigest()}
    found = listed(outcome.stdout)
    lists = {name for name in found if "/" not in name}
    expect(lists == {"train-manifest", "test-manifest"}, f"pod {index} has a list a channel")
    files = {name: digest for name, digest in found.items() if name not in lists}
    expect(files == wanted, f"pod {index} has its share of the files")


def mounted(lab: Lab) -> None:
    """The Job that mounts what it reads."""
    pod = valid("job-fastfile.yaml")
    described = pod["containers"][0]
    expect(described["securityContext"] == {"privileged": True}, "the container may mount")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or os.geteuid() != 0:
        say("skip  kubernetes  job-fastfile.yaml: nothing can be mounted here")
        return
    for index in range(PODS):
        volume = lab.temp / f"fastfile-{index}"
        volume.mkdir()
        training = container(lab, described, index, volume)
        end = training.words.index("--") + 1
        words = [*training.words[:end], *in_this_folder(training.words[end:])]
        outcome = succeeded(process.run(words, seconds=RUN_SECONDS, env=training.env),
                            "the training container")
        has_its_share(lab, index, outcome)
        left = list(volume.glob("input/data/*/*"))
        expect(not left, f"pod {index} has left {left}")
    say(f"ok    kubernetes  job-fastfile.yaml: {PODS} pods have read {len(lab.objects)} objects")


def sidecar(lab: Lab, pod: Mapping[str, Any]) -> None:
    """The Job that is fed while it runs."""
    expect(pod["initContainers"][0]["restartPolicy"] == "Always", "the sidecar is one")
    for index in range(PODS):
        volume = lab.temp / f"pipe-{index}"
        volume.mkdir()
        data = container(lab, pod["initContainers"][0], index, volume)
        training = container(lab, pod["containers"][0], index, volume)
        server = process.Server(data.words, lab.temp / f"sidecar-{index}.log", data.env)
        try:
            outcome = succeeded(process.run(in_this_folder(training.words), seconds=RUN_SECONDS,
                                            env=training.env), "the training container")
        finally:
            # As the kubelet ends it.
            server.stop()
        parts = [lab.stream(epoch, index, PODS) for epoch in range(EPOCHS)]
        wanted = "".join(f"{hashlib.sha256(part).hexdigest()} {len(part)}\n" for part in parts)
        expect(outcome.stdout == wanted, f"pod {index} got its share of each epoch")
        expect(server.child.returncode == 130, f"the sidecar ends: {server.child.returncode}")
        expect(not any(path.is_fifo() for path in volume.iterdir()), "no pipe is left")
    say(f"ok    kubernetes  job-pipe.yaml: {PODS} pods, {EPOCHS} epochs")


def killed_sidecar(lab: Lab, pod: Mapping[str, Any]) -> None:
    """A sidecar that the kernel kills in the middle of an epoch."""
    volume = lab.temp / "killed"
    volume.mkdir()
    data = container(lab, pod["initContainers"][0], 0, volume)
    training = container(lab, pod["containers"][0], 0, volume)
    words = [*data.words[:2], "--bandwidth-limit", SLOWLY, *data.words[2:]]
    server = process.Server(words, lab.temp / "sidecar-killed.log", data.env)
    reader = process.Server([*in_this_folder(training.words), str(STALL_SECONDS)],
                            lab.temp / "reader.log", training.env)
    try:
        # It is there as soon as the first pipe is open.
        expect(server.wait_ready((volume / "train_1").is_fifo, RUN_SECONDS), "the epoch begins")
        server.child.kill()
        server.child.wait()
        reader.wait_ready(lambda: False, RUN_SECONDS)
        told = reader.last_words()
        expect(reader.child.poll() == 1, f"the job fails: exit {reader.child.poll()}: {told}")
        expect("not whole" in told, f"it says why: {told}")
    finally:
        server.stop()
        reader.stop()
    say("ok    kubernetes  job-pipe.yaml: without its sidecar the job fails")


def kubernetes(lab: Lab) -> None:
    """All Jobs."""
    init_container(lab)
    mounted(lab)
    pod = valid("job-pipe.yaml")
    sidecar(lab, pod)
    killed_sidecar(lab, pod)


def run_slurm(lab: Lab) -> None:
    """The script on a cluster of two nodes."""
    out, script = lab.temp / "out", HERE / "train.sbatch"
    out.mkdir()
    count = len(slurm.NODES)
    with slurm.cluster(lab.temp / "slurm") as variables:
        env = {**lab.env, **variables, "OUT": str(out), "LOCAL": str(lab.temp), "SOURCE": SOURCE}
        batch = ["sbatch", "--wait", "--output", out / "log", "--chdir", lab.temp, script]
        outcome = process.run([*batch, "bash", "-c", NODE, HERE], seconds=RUN_SECONDS, env=env)
        expect(outcome.code == 0, f"the job: {(out / 'log').read_text()}", outcome)
        for rank in range(count):
            files = listed((out / f"files-{rank}").read_text())
            expect(files == lab.share(rank, count), f"node {rank} has its share of the files")
            digest = hashlib.sha256(lab.stream(0, rank, count)).hexdigest()
            told = (out / f"stream-{rank}").read_text().split()[0]
            expect(told == digest, f"node {rank} got its share of the stream")
        left = list(lab.temp.glob("training-*/node-*"))
        expect(not left, f"nothing is left on the nodes: {left}")
        say(f"ok    slurm       train.sbatch: {count} nodes have read {len(lab.objects)} objects")
        missing = {**env, "SOURCE": f"s3://{BUCKET}/missing/"}
        outcome = process.run([*batch, "true"], seconds=RUN_SECONDS, env=missing)
        log = (out / "log").read_text()
        expect(outcome.code != 0 and "missing/" in log, f"a job without input fails: {log}")
        say("ok    slurm       train.sbatch: without its input the job fails")


def run_ray(lab: Lab) -> None:
    """The program on this machine."""
    python = install.ray()
    # Sockets have short names: not below our folder, which may be anywhere.
    with tempfile.TemporaryDirectory(prefix="ray-") as temp:
        env = {**lab.env, "RAY_USAGE_STATS_ENABLED": "0",
               "PATH": os.pathsep.join([str(python.parent), lab.env["PATH"]])}
        outcome = succeeded(process.run(
            [python, HERE / "ray_ingest.py", SOURCE, lab.temp / "workers", str(WORKERS), "--local",
             temp], seconds=RUN_SECONDS, env=env), "ray_ingest.py")
    told = [json.loads(line) for line in outcome.stdout.splitlines()]
    wanted = [{"rank": rank, "files": lab.share(rank, WORKERS)} for rank in range(WORKERS)]
    expect(told == wanted, "each worker has its share of the files")
    union = [key for worker in told for key in worker["files"]]
    expect(sorted(union) == sorted(lab.objects), "together they have all")
    say(f"ok    ray         ray_ingest.py: {WORKERS} workers have read {len(lab.objects)} objects")


CHECKS: dict[str, tuple[Callable[[], object], Callable[[Lab], None]]] = {
    "kubernetes": (install.kubernetes_validate, kubernetes),
    "slurm": (install.slurm, run_slurm), "ray": (install.ray, run_ray)}
"""What each needs, and what it does."""


def make_lab(stack: ExitStack, args: argparse.Namespace) -> Lab:
    """The bucket, served."""
    temp = Path(stack.enter_context(tempfile.TemporaryDirectory(
        prefix="inrush-cluster-", dir=args.temp.resolve() if args.temp else None)))
    sizes = [*samples.SIZES, *range(100_000, 1_500_000, 97_001)]
    objects = {f"{number % 3}/part-{number}": data
               for number, data in enumerate(samples.records("cluster", sizes))}
    bucket = temp / "buckets" / BUCKET
    for key, data in {**{f"train/{key}": data for key, data in objects.items()},
                      "test/only": b"test"}.items():
        path = bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    env = stack.enter_context(signed.serving(args.inrush, args.origin, temp, KEYS))
    return Lab(args.inrush.resolve(), temp, env, dict(sorted(objects.items())))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inrush", type=Path, default=client.default_program(),
                        help="the program to test (default: INRUSH_BIN or the release build)")
    parser.add_argument("--origin", type=Path, default=origin.default_program(),
                        help="the server (default: the release build)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="NAME",
                        help=f"which: {', '.join(PARTS)}")
    parser.add_argument("--may-skip", nargs="+", choices=PARTS, default=[], metavar="NAME",
                        help="which may be absent, or not run here")
    parser.add_argument("--temp", type=Path, help="where to work (default: the temp folder)")
    return parser.parse_args()


def prepare(names: Sequence[str]) -> list[str]:
    """Installs what the checks need, and leaves the network; which checks cannot be made."""
    absent = []
    for name in names:
        try:
            CHECKS[name][0]()
        except LabError as error:
            absent.append(name)
            say(f"\n!! SKIPPED: {name}: {error}\n")
    refused = alone.go_alone()
    if refused:
        say(f"note  Ray and Slurm will listen on all addresses of this machine: {refused}")
    return absent


def main() -> int:
    """Makes the checks; the exit code."""
    args = arguments()
    process.unwind_on_signals()
    for program in (args.inrush, args.origin):
        if not program.is_file():
            say(f"{program} is missing; build it with `cargo build --release --workspace` or give "
                "its path")
            return 2
    absent = prepare(args.only)
    started, passed = time.monotonic(), 0
    failed = len(set(absent) - set(args.may_skip))
    for name in [name for name in args.only if name not in absent]:
        try:
            with ExitStack() as stack:
                CHECKS[name][1](make_lab(stack, args))
            passed += 1
        except LabError as error:
            # It does not run here, which says nothing of the example.
            failed += name not in args.may_skip
            absent.append(name)
            say(f"\n!! SKIPPED: {name}: {error}\n")
        except Wrong as error:
            failed += 1
            say(f"FAIL  {name:10}  {error}")
    left_out = f"; LEFT OUT: {', '.join(absent)}" if absent else ""
    say(f"{passed} passed, {failed} failed in {time.monotonic() - started:.0f} s{left_out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
