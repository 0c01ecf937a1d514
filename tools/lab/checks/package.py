"""What tools/package/make.py has made, taken apart, and its programs, run.

programs  static, small, quick to start, no folder of the build inside; `demo` compares all bytes;
          those of other processors run under qemu-user: help, guide, completions, ls, verify, get
debian    made twice they are the same; lintian finds no error; what is inside runs
image     made twice it is the same; digests; a container of it (crun): `demo`, names by
          /etc/resolv.conf alone, certificates, a read-only root, little locked memory, and with
          --seccomp-default the engine's default profile, as it is and with io_uring allowed
examples  the pod and the unit have the fields that Kubernetes and systemd know

`--only` names these. What this machine cannot do is named: "!! SKIPPED: ...". Installs what is
missing, as root (crun, qemu-user, lintian).
"""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import re
import shutil
import tarfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from lab import install, process
from lab.driver import Add, Lab
from lab.process import LabError, Outcome, Word, Wrong, expect, must, say
from package import binary, container, debian, image, make, names, seccomp
from package.binary import MACHINES, Machine
from package.container import Container

BINARY_BYTES_MAX = 20_000_000
START_SECONDS_MAX = 0.010
START_TIMES = 30
DEMO = ("demo", "--size", "64MiB")
SOURCE = "s3://lab/data/"
SYNTHETIC = ("lab/data/large:2:9MiB", "lab/data/small:50:39000")
NAME_SERVER = "127.0.0.153"
NAME = "origin.inrush.test"
PROGRAM_HEADER_INTERPRETER = 3
HOST_EXIT = 7
PARTS = ("programs", "debian", "image", "examples")


def skipped(what: str) -> None:
    """Names what this machine cannot do."""
    say(f"!! SKIPPED: {what}")


def has_interpreter(program: bytes) -> bool:
    """Whether the kernel would start a dynamic linker for it (elf(5), PT_INTERP)."""
    table = int.from_bytes(program[32:40], "little")
    size = int.from_bytes(program[54:56], "little")
    count = int.from_bytes(program[56:58], "little")
    kinds = [program[table + size * number:][:4] for number in range(count)]
    return PROGRAM_HEADER_INTERPRETER in [int.from_bytes(kind, "little") for kind in kinds]


class Check:
    """The checks, with what they share."""

    def __init__(self, of: Lab, temp: Path) -> None:
        asked = of.args
        self.packages: Path = asked.packages
        self.of, self.temp = of, temp
        self.profile = None
        if asked.seccomp_default:
            self.profile = json.loads(asked.seccomp_default.read_text())
        version = binary.version()
        self.tarballs = {
            machine: self.packages / f"inrush-{version}-linux-{machine.name}.tar.gz"
            for machine in MACHINES.values()}
        self.debs = {machine: self.packages / f"inrush_{version}_{machine.debian}.deb"
                     for machine in MACHINES.values()}
        self.image = self.packages / f"inrush-{version}-oci.tar"
        self.own = MACHINES.get(os.uname().machine)

    def run(self, words: Sequence[Word], seconds: float = 120) -> Outcome:
        """Runs a command without credentials, in a folder that goes away."""
        return process.run(words, seconds=seconds, env=self.of.env({"TMPDIR": str(self.temp)}))

    def programs(self) -> None:
        """The programs in the archives."""
        for machine, path in self.tarballs.items():
            if not path.is_file():
                skipped(f"no {path.name}")
                continue
            with tarfile.open(path) as archive:
                archive.extractall(self.temp / machine.name)
            folder = self.temp / machine.name / f"inrush-{binary.version()}-linux-{machine.name}"
            program = folder / "inrush"
            self.static(program)
            self.allowing(folder / "examples" / "seccomp.py")
            self.linked(folder)
            if machine == self.own:
                self.started(program)
                self.demonstrated([program], machine)
            elif self.own is None or not self.tarballs[self.own].is_file():
                skipped(f"{path.name}: no program of this machine's processor to compare it with")
            else:
                self.emulated(program, machine, self.own)

    def static(self, program: Path) -> None:
        """Nothing of the build's machine, no dynamic linker, not too large."""
        content = program.read_bytes()
        expect(not has_interpreter(content), f"{program} is not static")
        expect(len(content) < BINARY_BYTES_MAX, f"{program} has {len(content)} bytes")
        for folder in binary.folders():
            expect(str(folder).encode() not in content, f"{program} names {folder}")
        say(f"{program.parent.name}: static, {len(content) / 1e6:.1f} MB")

    def allowing(self, script: Path) -> None:
        """The archive's own script adds the calls of io_uring to a profile."""
        default = self.temp / "default.json"
        default.write_text(json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []}))
        outcome = self.run([script, default])
        expect(outcome.code == 0, f"{script.name} of the archive", outcome)
        names = [rule["names"] for rule in json.loads(outcome.stdout)["syscalls"]]
        expect(names == [list(seccomp.CALLS)], f"{script.name} of the archive", outcome)

    def linked(self, folder: Path) -> None:
        """What README links to in the guide is there."""
        links = re.findall(r"\]\(((?:src/)?guide/[^)#]+)", (folder / "README.md").read_text())
        missing = [link for link in links if not (folder / link).is_file()]
        expect(links != [] and not missing, f"README.md of the archive links to {missing}")

    def started(self, program: Path) -> None:
        """How long `--version` takes; the least of many, as other programs run beside it."""
        times = []
        for _ in range(START_TIMES):
            begun = time.monotonic()
            outcome = self.run([program, "--version"])
            times.append(time.monotonic() - begun)
            expect(outcome.stdout == f"inrush {binary.version()}\n", "--version", outcome)
        expect(min(times) < START_SECONDS_MAX, f"--version takes {min(times) * 1e3:.1f} ms")
        say(f"--version: {min(times) * 1e3:.1f} ms")

    def demonstrated(self, command: Sequence[Word], machine: Machine) -> None:
        """`demo` compares every byte; with each ring that the program has."""
        rings = self.rings(command)
        for ring in rings or [None]:
            words = [*command, *DEMO, "--json", *(["--ring", ring] if ring else [])]
            outcome = self.run(words, 600)
            expect(outcome.code == 0, f"demo ({machine.name}, {ring})", outcome)
            expect(json.loads(outcome.stdout)["verified"] is True, "demo compares", outcome)
            say(f"{machine.name}: demo{f' --ring {ring}' if ring else ''}: every byte right")

    def rings(self, command: Sequence[Word]) -> list[str]:
        """The rings that can be asked of this program here: none where it has no such option."""
        if "--ring" not in self.run([*command, "demo", "--help"]).stdout:
            return []
        emulated = len(command) > 1
        return ["epoll"] if emulated else ["io_uring", "epoll"]

    def emulated(self, program: Path, machine: Machine, this: Machine) -> None:
        """A program of another processor, under qemu-user, which has no io_uring, compared with the
        one of this machine."""
        own = self.temp / this.name / f"inrush-{binary.version()}-linux-{this.name}" / "inrush"
        command = [install.system_program(f"qemu-{machine.name}"), program]
        for words in (["--version"], ["get", "--help"], ["guide", "containers"], ["man"],
                      ["completions", "bash"]):
            outcome = self.run([*command, *words])
            wanted = self.run([own, *words]).stdout
            expect(outcome.code == 0 and outcome.stdout == wanted, " ".join(words), outcome)
        say(f"{machine.name}: help, guide, manual and completions as on {this.name}")
        with self.serving() as endpoint:
            asked = ["--endpoint-url", endpoint, "--region", "us-east-1", "--no-sign-request"]
            outcome = self.run([*command, "ls", "--recursive", "--summarize", SOURCE, *asked])
            expect(outcome.code == 0 and "large" in outcome.stdout, "ls", outcome)
            files = self.temp / "files"
            outcome = self.run([own, "get", "--quiet", SOURCE, files, *asked])
            expect(outcome.code == 0, "get", outcome)
            outcome = self.run([*command, "verify", "--strict", SOURCE, files, *asked], 300)
            expect(outcome.code == 0, "verify", outcome)
            damaged = next(path for path in files.iterdir() if path.stat().st_size > 1_000_000)
            with damaged.open("r+b") as file:
                file.write(b"\0damaged")
            outcome = self.run([*command, "verify", "--strict", SOURCE, files, *asked], 300)
            expect(outcome.code == 1 and damaged.name in outcome.stderr, "verify finds", outcome)
        say(f"{machine.name}: ls and verify right")
        if self.rings(command):
            self.demonstrated(command, machine)
        else:
            skipped(f"demo of {machine.name}: qemu-user has no io_uring, and this program no other "
                    "ring")

    def serving(self, *more: Word) -> AbstractContextManager[str]:
        """The in-repo origin with some objects."""
        words = [word for objects in SYNTHETIC for word in ("--synthetic", objects)]
        return self.of.serving("--checksum", "crc64nvme", *words, *more)

    def debian(self) -> None:
        """The Debian packages."""
        for machine, path in self.debs.items():
            if not path.is_file():
                skipped(f"no {path.name}")
                continue
            again = debian.build(machine, self.temp)
            expect(again.read_bytes() == path.read_bytes(), f"{path.name} differs when made again")
            tree = self.temp / f"deb-{machine.debian}"
            must(["dpkg-deb", "--extract", path, tree])
            must(["dpkg-deb", "--info", path])
            program = tree / "usr/bin/inrush"
            expect(program.read_bytes() == binary.program(machine).read_bytes(), "its program")
            outcome = self.run(["gzip", "-dc", tree / "usr/share/man/man1/inrush.1.gz"])
            expect(".TH inrush" in outcome.stdout, "its manual", outcome)
            for shell, script in debian.COMPLETIONS.items():
                if install.find(shell):
                    outcome = self.run([shell, "-n", tree / script])
                    expect(outcome.code == 0 and not outcome.stderr, f"its {shell}", outcome)
                else:
                    skipped(f"completions of {shell}: no {shell} to read them")
            pages = len(list((tree / "usr/share/doc/inrush/guide").glob("*.md")))
            expect(pages > 10, f"{pages} pages of the guide")
            lintian = install.system_program("lintian")
            outcome = self.run([lintian, "--allow-root", "--fail-on", "error", path], 300)
            expect(outcome.code == 0, f"lintian {path.name}: {outcome.stdout}", outcome)
            say(f"{path.name}: the same when made again, lintian finds no error, "
                f"{outcome.stdout.count('W: ')} warnings")

    def images(self) -> None:
        """The container image."""
        if not self.image.is_file():
            skipped(f"no {self.image.name}")
            return
        content = self.image.read_bytes()
        there = container.architectures(self.image)
        machines = [machine for machine in MACHINES.values() if machine.debian in there]
        own: Container | None = None
        for machine in machines:
            config = container.unpack(self.image, machine.debian,
                                      self.temp / machine.debian / "root")
            expect(config["config"]["User"] == image.USER, "its user")
            expect(config["architecture"] == machine.debian, "its architecture")
            if machine == self.own:
                own = Container(self.temp / machine.debian, config)
        again = image.build(machines, self.temp).read_bytes()
        digests = [hashlib.sha256(bytes_).hexdigest()[:12] for bytes_ in (content, again)]
        expect(digests[0] == digests[1], f"the image differs when made again: {digests}")
        say(f"{self.image.name}: {', '.join(machine.debian for machine in machines)}; digests "
            "right, the same when made again")
        if own is None:
            skipped("containers: the image has no program of this machine's processor")
            return
        outcome = own.run(["--version"])
        if outcome.code != 0:
            skipped(f"containers: crun cannot start one here: {outcome.last_words()}")
            return
        self.contained(own)

    def contained(self, own: Container) -> None:
        """Containers of the image."""
        data = self.temp / "data"
        data.mkdir()
        data.chmod(0o1777)
        own.mounts["/data"] = data
        self.ran(own, [*DEMO, "--json"], "as it is")
        own.read_only = True
        self.ran(own, [*DEMO, "--json"], "with a read-only root")
        # Room for the rings, not for the buffers.
        own.locked_memory_bytes = 1 << 20
        self.ran(own, [*DEMO, "--json"], "with 1 MiB of locked memory")
        self.named(own)
        if self.profile is None:
            skipped("the default seccomp profile: give it with --seccomp-default")
            return
        own.seccomp = seccomp.for_runtime(self.profile, own.config["architecture"])
        outcome = own.run([*DEMO, "--json"])
        if self.rings([binary.runnable()]):
            expect(outcome.code == 0, "demo under the default profile", outcome)
            say("container: demo under the engine's default profile, without io_uring")
        else:
            refused = outcome.code == HOST_EXIT and "io_uring is not available" in outcome.stderr
            expect(refused, "demo under the default profile names io_uring", outcome)
            say("container: under the engine's default profile demo says that io_uring is missing")
            skipped("demo under the default profile: this program has no other ring")
        allowing = seccomp.allowing(self.profile)
        own.seccomp = seccomp.for_runtime(allowing, own.config["architecture"])
        self.ran(own, [*DEMO, "--json"], "with io_uring added to the default profile")

    def ran(self, own: Container, words: Sequence[str], how: str) -> None:
        """Runs `demo` in the container."""
        outcome = own.run(words)
        expect(outcome.code == 0, f"container {how}", outcome)
        expect(json.loads(outcome.stdout)["verified"] is True, f"container {how}", outcome)
        say(f"container: demo {how}: every byte right")

    def named(self, own: Container) -> None:
        """Names are found without the C library's resolver."""
        resolv = self.temp / "resolv.conf"
        resolv.write_text(f"nameserver {NAME_SERVER}\n")
        own.mounts["/etc/resolv.conf"] = resolv
        asked = ["--region", "us-east-1", "--no-sign-request", "--retry-for", "2s"]
        try:
            self.resolved(own, asked)
        except names.AddressTaken as error:
            skipped(f"names by /etc/resolv.conf: {error}")
        del own.mounts["/etc/resolv.conf"]
        self.refused(own, asked)

    def resolved(self, own: Container, asked: Sequence[str]) -> None:
        """A name of a name server is found, and another is not."""
        with names.serving(NAME_SERVER, NAME, "127.0.0.1"), self.serving() as endpoint:
            by_name = endpoint.replace("127.0.0.1", NAME)
            outcome = own.run(["ls", SOURCE, "--endpoint-url", by_name, *asked])
            expect(outcome.code == 0 and "large" in outcome.stdout, "ls by a name", outcome)
            outcome = own.run(["ls", SOURCE, "--endpoint-url", "http://no.such.test", *asked])
            expect(outcome.code != 0 and "no.such.test" in outcome.stderr, "no such name", outcome)
        say("container: names by /etc/resolv.conf")

    def refused(self, own: Container, asked: Sequence[str]) -> None:
        """Authorities are found without a variable, and others are refused."""
        with self.serving("--tls", "--ca-out", self.temp / "ca.pem") as endpoint:
            by_tls = ["--endpoint-url", endpoint.replace("http:", "https:")]
            outcome = own.run(["ls", SOURCE, *asked, *by_tls])
            unknown = "--ca-bundle" in outcome.stderr
            expect(outcome.code != 0 and unknown, "an unknown authority is refused", outcome)
        say("container: an unknown authority is refused by the image's own certificates")

    def examples(self) -> None:
        """The pod and the unit."""
        folder = install.TOOLS / "package/examples"
        validate = install.program("kubernetes-validate")
        must([validate, "--strict", folder / "inrush-pod.yaml"])
        broken = self.temp / "broken.yaml"
        pod = (folder / "inrush-pod.yaml").read_text()
        broken.write_text(pod.replace("securityContext:", "securityContexts:", 1))
        expect(self.run([validate, "--strict", broken]).code != 0, "the schema has no fields")
        say("inrush-pod.yaml: as the schema of Kubernetes says")
        unit = folder / "inrush.service"
        analyze = install.find("systemd-analyze")
        if analyze:
            # It wants the program at its place.
            tree = self.temp / "units"
            (tree / "etc/systemd/system").mkdir(parents=True)
            (tree / "usr/bin").mkdir(parents=True)
            shutil.copy(unit, tree / "etc/systemd/system")
            shutil.copy(binary.runnable(), tree / "usr/bin/inrush")
            outcome = self.run([analyze, "verify", "--man=no", "--root", tree, "inrush.service"])
            # With the line's number; other complaints are of units that are not in this tree.
            complaints = [line for line in outcome.stderr.splitlines()
                          if re.search(r"inrush\.service:\d+:", line)]
            expect(not complaints, f"systemd-analyze: {complaints}")
            say("inrush.service: systemd-analyze has nothing to say")
        else:
            parsed = configparser.ConfigParser(strict=True)
            parsed.optionxform = str  # type: ignore[assignment,method-assign]
            parsed.read_string(unit.read_text())
            expect(set(parsed) == {"DEFAULT", "Unit", "Service", "Install"}, "sections of the unit")
            skipped("systemd-analyze verify inrush.service: no systemd here; its form is right")


def options(add: Add) -> None:
    """Of this check alone."""
    add("--packages", type=Path, default=make.default_output(), help="(default: %(default)s)")
    add("--seccomp-default", type=Path, help="the default profile of a container engine")


def run(of: Lab) -> None:
    """Makes the checks asked for."""
    own = MACHINES.get(os.uname().machine)
    if own and not of.args.origin:
        of.args.origin = binary.program(own).with_name("inrush-origin")
    for part in of.among(PARTS):
        check = Check(of, of.folder(part))
        parts = {"programs": check.programs, "debian": check.debian, "image": check.images,
                 "examples": check.examples}
        try:
            parts[part]()
            of.report(part, None)
        except Wrong as error:
            of.report(part, str(error))
        except OSError as error:
            raise LabError(f"{part}: {error}") from error
