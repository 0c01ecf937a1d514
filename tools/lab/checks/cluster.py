"""Every byte that the jobs of the examples in tools/cluster read.

* kubernetes: the Jobs have the fields that Kubernetes knows, and their containers' commands run
  here as the kubelet would start them, once for each pod. A sidecar of pipes that is killed fails
  the job; one that mounts is started again, with mounts that propagate as in a pod.
* slurm: the script is a job of a cluster of two nodes on this machine.
* ray: the program with four workers on this machine.

All hosts together must have read every object, and none twice. `--only` and `--may-skip` name these
three. Ray and kubernetes-validate come from PyPI into the build folder, Slurm from the package
manager, as root. Then it leaves the network: Ray and Slurm listen on all addresses. It takes less
than a minute after that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import dataset, driver, install, process, samples, streams
from lab.process import LabError, Outcome, Word, Wrong, expect, must, say, succeeded
from lab.servers import alone, slurm

HERE = install.TOOLS / "cluster"
BUCKET = "lab"
SOURCE = f"s3://{BUCKET}/train/"
KEYS = ("AKIDCLUSTER", "secret/of+clusters")
SEED = 7
EPOCHS = 3
PODS = 2
WORKERS = 4
RUN_SECONDS = 120.0
STALL_SECONDS = 20
# An epoch then takes many seconds.
SLOWLY = "1MB"
# The command of the Slurm job, on each node.
NODE = ('python3 "$0/files.py" "$SM_CHANNEL_TRAIN" >"$OUT/files-$SLURM_NODEID"; '
        'sha256sum <"$SM_INPUT_DIR/data/stream_0" >"$OUT/stream-$SLURM_NODEID"')


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


def listed(text: str) -> dict[str, str]:
    """The output of files.py or sha256sum: hashes by path."""
    pairs = (line.split(None, 1) for line in text.splitlines())
    return {path.strip(): digest for digest, path in pairs}


def read_yaml(file: Path) -> dict[str, Any]:
    """A manifest, by the parser that comes with kubernetes-validate."""
    python = install.program("kubernetes-validate").with_name("python")
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

    def run(self, what: str, words: Sequence[Word] = ()) -> Outcome:
        """Its command, or another one as it, which has to succeed."""
        outcome = process.run(words or self.words, seconds=RUN_SECONDS, env=self.env)
        return succeeded(outcome, what)

    def train(self, by: Sequence[Word] = ()) -> Outcome:
        """The training container's, whose program is in this folder; `by` begins the line."""
        return self.run("the training container", [*by, *in_this_folder(self.words)])


def container(lab: Lab, described: Mapping[str, Any], index: int, volume: Path,
              others: Mapping[str, Path] | None = None) -> Container:
    """The command of a container in the pod of this index, as the kubelet makes it of `command` and
    `args`; its volume and `others`, by their paths in it, are folders here, and its bucket is
    ours."""
    given = {entry["name"]: entry["value"] for entry in described.get("env", [])}
    given["JOB_COMPLETION_INDEX"] = str(index)
    places = {described["volumeMounts"][0]["mountPath"]: volume, **(others or {})}
    for mount in described["volumeMounts"]:
        expect(mount["mountPath"] in places, f"{mount['mountPath']} has a folder here")

    def here(word: str) -> str:
        return in_places(re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], word), places)

    words = [here(word) for word in [*described.get("command", []), *described.get("args", [])]]
    if "command" not in described:
        words.insert(0, str(lab.program))
    if words[1:2] == ["train"]:
        # The place that the image has by default.
        words[2:2] = ["--base-dir", str(volume)]
    return Container(words, {**lab.env, **given})


def in_places(word: str, places: Mapping[str, Path]) -> str:
    """A word of a container with its bucket and its folders as they are here."""
    paths = "|".join(re.escape(path) for path in places)
    word = word.replace("s3://BUCKET/", f"s3://{BUCKET}/")
    return re.sub(paths, lambda found: str(places[found[0]]), word)


def in_this_folder(words: Sequence[str]) -> list[Word]:
    """A command of a training container: its program is in this folder."""
    return [sys.executable if words[0] == "python3" else words[0], HERE / words[1], *words[2:]]


def valid(name: str) -> dict[str, Any]:
    """A manifest that the schema of Kubernetes accepts, which knows when it must not."""
    validate, file = install.program("kubernetes-validate"), HERE / name
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
        container(lab, pod["initContainers"][0], index, volume).run("the init container")
        has_its_share(lab, index, container(lab, pod["containers"][0], index, volume).train())
    say(f"ok    kubernetes  job-file.yaml: {PODS} pods have read {len(lab.objects)} objects")


def has_its_share(lab: Lab, index: int, outcome: Outcome) -> None:
    """Fails unless files.py lists what the pod of this index must see."""
    wanted = {f"train/{key}": digest for key, digest in lab.share(index, PODS).items()}
    wanted |= {"test/only": hashlib.sha256(b"test").hexdigest()}
    found = listed(outcome.stdout)
    lists = {name for name in found if "/" not in name}
    expect(lists == {"train-manifest", "test-manifest"}, f"pod {index} has a list a channel")
    files = {name: digest for name, digest in found.items() if name not in lists}
    expect(files == wanted, f"pod {index} has its share of the files")


def can_mount(name: str) -> bool:
    """Whether this machine can mount; says so where it cannot."""
    if os.access("/dev/fuse", os.R_OK | os.W_OK) and os.geteuid() == 0:
        return True
    say(f"skip  kubernetes  {name}: nothing can be mounted here")
    return False


def mounted(lab: Lab) -> None:
    """The Job that mounts what it reads."""
    pod = valid("job-fastfile.yaml")
    described = pod["containers"][0]
    expect(described["securityContext"] == {"privileged": True}, "the container may mount")
    if not can_mount("job-fastfile.yaml"):
        return
    for index in range(PODS):
        volume = lab.temp / f"fastfile-{index}"
        volume.mkdir()
        training = container(lab, described, index, volume)
        end = training.words.index("--") + 1
        words = [*training.words[:end], *in_this_folder(training.words[end:])]
        has_its_share(lab, index, training.run("the training container", words))
        left = list(volume.glob("input/data/*/*"))
        expect(not left, f"pod {index} has left {left}")
    say(f"ok    kubernetes  job-fastfile.yaml: {PODS} pods have read {len(lab.objects)} objects")


@contextmanager
def propagating(volume: Path) -> Iterator[None]:
    """A folder as the kubelet gives it to containers that mount: a mount that is shared."""
    volume.mkdir()
    must(["mount", "--bind", volume, volume])
    try:
        must(["mount", "--make-shared", volume])
        yield
    finally:
        must(["umount", "--recursive", "--lazy", volume])


PROPAGATION = {"Bidirectional": "unchanged", "HostToContainer": "slave", "None": "private"}
"""What unshare(1) calls it."""


def alone_with(described: Mapping[str, Any], words: Sequence[Word]) -> list[Word]:
    """A command with mounts of its own, and with those of its volume as the manifest says."""
    how = described["volumeMounts"][0].get("mountPropagation", "None")
    return ["unshare", "--mount", f"--propagation={PROPAGATION[how]}", *words]


@dataclass
class MountPod:
    """A pod with a sidecar that mounts."""

    lab: Lab
    pod: Mapping[str, Any]
    index: int
    folder: Path

    def __post_init__(self) -> None:
        self.sidecar, self.training = self.pod["initContainers"][0], self.pod["containers"][0]
        self.volume, self.run = self.folder / "data", self.folder / "run"
        self.run.mkdir(parents=True)
        self.places = {"/data": self.volume, "/run": self.run, "/cache": self.lab.temp / "cache"}

    def hook(self, described: Mapping[str, Any]) -> list[str]:
        """What the kubelet runs in the sidecar."""
        return [in_places(word, self.places) for word in described["exec"]["command"]]

    def start(self, log: str) -> process.Server:
        """The sidecar, once its probe says that it has started."""
        data = container(self.lab, self.sidecar, self.index, self.volume, self.places)
        words = alone_with(self.sidecar, data.words)
        server = process.Server(words, self.folder / log, data.env)
        probe = self.hook(self.sidecar["startupProbe"])
        is_there = server.wait_ready(
            lambda: process.run(probe, seconds=RUN_SECONDS).code == 0, RUN_SECONDS)
        if not is_there:
            server.stop()
        expect(is_there, f"the sidecar has started: {server.last_words()}")
        return server

    def read(self, by: Sequence[Word]) -> None:
        """The training container reads the share of its pod."""
        training = container(self.lab, self.training, self.index, self.volume)
        wanted = self.lab.share(self.index, PODS)
        found = listed(training.train(by).stdout)
        expect(found == wanted, f"pod {self.index} has its share of the files")

    def end(self, server: process.Server) -> str:
        """Ends the sidecar as the kubelet does, which runs its hook first; what it said."""
        hook = self.hook(self.sidecar["lifecycle"]["preStop"])
        inside = ["nsenter", f"--mount=/proc/{server.child.pid}/ns/mnt"]
        succeeded(process.run([*inside, *hook], seconds=RUN_SECONDS, env=self.lab.env), "the hook")
        server.ends(RUN_SECONDS)
        expect(server.child.poll() == 0, f"the sidecar ends by itself: {server.last_words()}")
        expect(not list((self.volume / "train").iterdir()), f"pod {self.index} has no mount left")
        return server.log.read_text()


def mount_sidecar(lab: Lab) -> None:
    """The Job with a mount beside the training container."""
    pod = valid("job-mount.yaml")
    sidecar = pod["initContainers"][0]
    expect(sidecar["restartPolicy"] == "Always", "the sidecar is one")
    expect(sidecar["securityContext"] == {"privileged": True}, "it may mount for others")
    if not can_mount("job-mount.yaml"):
        return
    (lab.temp / "cache").mkdir()
    for index in range(PODS):
        here = MountPod(lab, pod, index, lab.temp / f"mount-{index}")
        with propagating(here.volume):
            server = here.start("sidecar.log")
            try:
                here.read(alone_with(here.training, []))
                here.end(server)
            finally:
                server.stop()
    say(f"ok    kubernetes  job-mount.yaml: {PODS} pods have read {len(lab.objects)} objects")
    killed_mount(MountPod(lab, pod, 0, lab.temp / "mount-again"))


def killed_mount(here: MountPod) -> None:
    """A sidecar that the kernel kills while the training container runs; and what the pod before it
    has read is in the cache of the node."""
    with propagating(here.volume):
        first = here.start("first.log")
        training = process.Server(alone_with(here.training, ["sleep", "infinity"]),
                                  here.folder / "training.log")
        second = None
        try:
            by = ["nsenter", f"--mount=/proc/{training.child.pid}/ns/mnt"]
            here.read(by)
            first.child.kill()
            first.child.wait()
            # The container that takes its place has files of its own.
            (here.run / "ready").unlink()
            second = here.start("second.log")
            here.read(by)
            said = here.end(second)
        finally:
            training.stop()
            first.stop()
            if second:
                second.stop()
    hits = re.search(r"cache: ([1-9]\d*) of \d+ open files read from it; 0 objects kept", said)
    expect(bool(hits), f"all comes from the cache: {said}")
    say("ok    kubernetes  job-mount.yaml: a killed sidecar mounts again for a running container")


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
            outcome = training.train()
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
        reader.ends(RUN_SECONDS)
        said = reader.last_words()
        expect(reader.child.poll() == 1, f"the job fails: exit {reader.child.poll()}: {said}")
        expect("not whole" in said, f"it says why: {said}")
    finally:
        server.stop()
        reader.stop()
    say("ok    kubernetes  job-pipe.yaml: without its sidecar the job fails")


def kubernetes(lab: Lab) -> None:
    """All Jobs."""
    init_container(lab)
    mounted(lab)
    mount_sidecar(lab)
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
            found = (out / f"stream-{rank}").read_text().split()[0]
            expect(found == digest, f"node {rank} got its share of the stream")
        left = list(lab.temp.glob("training-*/node-*"))
        expect(not left, f"nothing is left on the nodes: {left}")
        say(f"ok    slurm       train.sbatch: {count} nodes have read {len(lab.objects)} objects")
        missing = {**env, "SOURCE": f"s3://{BUCKET}/missing/"}
        outcome = process.run([*batch, "true"], seconds=RUN_SECONDS, env=missing)
        log = (out / "log").read_text()
        # srun kills the step at once, and on a busy machine leaves out the task's last line: then
        # it is the code by which inrush says that the input failed.
        named = "missing/" in log or "exit code 125" in log
        expect(outcome.code != 0 and named, f"a job without input fails: {log}")
        say("ok    slurm       train.sbatch: without its input the job fails")


def run_ray(lab: Lab) -> None:
    """The program on this machine."""
    python = install.program("ray")
    # Sockets have short names: not below our folder, which may be anywhere.
    with tempfile.TemporaryDirectory(prefix="ray-") as temp:
        env = {**lab.env, "RAY_USAGE_STATS_ENABLED": "0",
               "PATH": os.pathsep.join([str(python.parent), lab.env["PATH"]])}
        outcome = succeeded(process.run(
            [python, HERE / "ray_ingest.py", SOURCE, lab.temp / "workers", str(WORKERS), "--local",
             temp], seconds=RUN_SECONDS, env=env), "ray_ingest.py")
    found = [json.loads(line) for line in outcome.stdout.splitlines()]
    wanted = [{"rank": rank, "files": lab.share(rank, WORKERS)} for rank in range(WORKERS)]
    expect(found == wanted, "each worker has its share of the files")
    union = [key for worker in found for key in worker["files"]]
    expect(sorted(union) == sorted(lab.objects), "together they have all")
    say(f"ok    ray         ray_ingest.py: {WORKERS} workers have read {len(lab.objects)} objects")


CHECKS: dict[str, tuple[Callable[[], object], Callable[[Lab], None]]] = {
    "kubernetes": (lambda: install.program("kubernetes-validate"), kubernetes),
    "slurm": (install.slurm, run_slurm), "ray": (lambda: install.program("ray"), run_ray)}
"""What each needs, and what it does."""


def make_lab(of: driver.Lab) -> Lab:
    """The bucket, served."""
    sizes = [*samples.SIZES, *range(100_000, 1_500_000, 97_001)]
    objects = {f"{number % 3}/part-{number}": data
               for number, data in enumerate(samples.records("cluster", sizes))}
    dataset.write_all(of.temp / "buckets" / BUCKET, {
        **{f"train/{key}": data for key, data in objects.items()}, "test/only": b"test"})
    return Lab(of.inrush, of.temp, of.with_keys(*KEYS), dict(sorted(objects.items())))


def run(of: driver.Lab) -> None:
    """Installs what the checks need, leaves the network, and makes the checks."""
    names = []
    for name in of.among(CHECKS):
        try:
            CHECKS[name][0]()
            names.append(name)
        except LabError as error:
            of.miss(name, error)
    if refused := alone.go_alone():
        say(f"note  Ray and Slurm will listen on all addresses of this machine: {refused}")
    lab = make_lab(of)
    for name in names:
        try:
            CHECKS[name][1](lab)
            of.report(name, None)
        except LabError as error:
            # It does not run here, which says nothing of the example.
            of.miss(name, error)
        except Wrong as error:
            of.report(name, str(error))
