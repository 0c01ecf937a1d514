"""Power failures: what the disk may hold then, and what the next run makes of it.

The program writes to ext4 and XFS on a block device that logs all writes and flushes. Meanwhile
another program syncs a file of its own now and then, and sometimes the whole file system, so that
the disk holds any state in between. Then the power fails again and again, at any position of the
log: the disk has what was flushed, and some of the rest, torn at the boundaries of sectors. The
file system is mounted, as after a boot, and looked at:

* With --durability file each file that has its name is whole and right, and so is each that the
  report has named before. After a run with --durability end or file that ended well all are there.
* The same command, run in another boot, ends well. Then every byte is right and nothing is left
  over. What was synced is not downloaded again.

At last flushes are lost that the device has confirmed, which must be noticed. --only names cases,
such as `get-file-xfs`. It takes root, FUSE, loop devices and 1 GiB of memory.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab import client, compare, dataset, install, power, process
from lab.driver import Add, Lab
from lab.process import LIBC, LabError, Wrong, expect, must
from lab.servers import listing, volumes

BUCKET, CHANNEL, EPOCHS = "power", "channel", 2
SMALL, SMALL_BYTES_MAX = 40, 200_000
MIB = 1 << 20
LARGE = (MIB // 4, MIB, MIB + 1, 3 * MIB + 5, 9 * MIB + 7)
PACE = "12MB/s"
"""So that a run takes a second or two, in which the power can fail."""
RUN_SECONDS = 60.0
REST_SECONDS = 0.3
"""After the end of the program, until the file system is unmounted."""
SYNC_SECONDS, SYNCFS_SHARE = (0.005, 0.12), 0.1
LOST_FLUSHES = (6, 7, 8)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Case:
    """One command on one file system."""

    command: str
    durability: str
    kind: str

    @property
    def name(self) -> str:
        """As `--only` has it."""
        return "-".join(filter(None, (self.command, self.durability, self.kind)))

    @property
    def has_files(self) -> bool:
        """Objects become files with their names."""
        return self.command in ("get", "sync")


CASES = {case.name: case for case in (
    *(Case("get", how, kind) for how in ("end", "file") for kind in ("ext4", "xfs")),
    *(Case("get", "none", kind) for kind in ("writeback", "xfs")),
    Case("sync", "end", "xfs"), Case("sync", "file", "ext4"),
    *(Case("mount", "", kind) for kind in power.KINDS),
    *(Case("pipe", "", kind) for kind in ("ext4", "xfs")))}


@dataclass(frozen=True)
class Ground:
    """Where all cases run, and the objects as they were and as they are."""

    lab: Lab
    memory: Path
    urls: Sequence[str]
    versions: Sequence[Sequence[listing.Entry]]

    @property
    def entries(self) -> Sequence[listing.Entry]:
        """The objects as they are."""
        return self.versions[-1]

    def command(self, name: str, *words: process.Word) -> list[process.Word]:
        """A command line that takes all objects."""
        return self.lab.command(name, f"s3://{BUCKET}/", *words, "--no-sign-request", "--quiet",
                                url=self.urls[-1])

    def run(self, case: Case, folder: Path, report: Path | None = None, version: int = -1) -> int:
        """The command of a case; how many objects it has downloaded."""
        if not case.has_files:
            return (self.mount if case.command == "mount" else self.pipe)(folder)
        # Only while it is watched.
        watched = ["--report", report, "--bandwidth-limit", PACE] if report else []
        delete = ["--delete"] if case.command == "sync" else []
        ran = client.fetch(
            self.lab.inrush, case.command, f"s3://{BUCKET}/", folder, url=self.urls[version],
            options=["--no-sign-request", "--durability", case.durability, *delete, *watched,
                     *self.lab.args.option], env=self.lab.env(), seconds=RUN_SECONDS)
        return int(client.summary(process.succeeded(ran, case.name))["objects"])

    def mount(self, folder: Path) -> int:
        """Reads all files of a mount that keeps them in the folder."""
        point = self.memory / "point"
        line = self.command("mount", point, "--foreground", "--json", "--cache", folder)
        with client.mounted(line, point, self.lab.env()) as server:
            complaints = compare.trees(point, self.entries, "")
            expect(not complaints, f"the mount: {compare.summary(complaints)}")
            # An empty object is not kept.
            empty = sum(not entry.size for entry in self.entries)
            return int(server.interrupted("mount")["cache"]["misses"]) - empty

    def pipe(self, folder: Path) -> int:
        """Reads epochs from pipes; then nothing but the markers is there."""
        ready, wanted = self.memory / "ready", listing.digest(self.entries)
        line = self.command("pipe", folder / CHANNEL, "--epochs", str(EPOCHS), "--epoch-markers",
                            "--ready-file", ready)
        server = process.Server(line, self.memory / "pipe.log", env=self.lab.env())
        try:
            # A pipe that was there before is replaced by then.
            expect(server.wait_ready(ready.is_file, RUN_SECONDS),
                   f"no pipe is there: {server.last_words()}")
            for pipe in (folder / f"{CHANNEL}_{epoch}" for epoch in range(EPOCHS)):
                expect(server.wait_ready(pipe.is_fifo, RUN_SECONDS), f"{pipe.name} is not there")
                read = listing.Entry("", pipe, wanted[0], 0)
                expect(listing.digest([read]) == wanted, f"{pipe.name} is wrong")
            expect(server.ends(RUN_SECONDS) and server.child.returncode == 0,
                   f"pipe ended with {server.child.returncode}: {server.last_words()}")
        finally:
            server.stop()
        found = {path.name: bool(path.stat().st_size) for path in folder.iterdir()}
        expect(found == {f"{CHANNEL}_{epoch}.ok": True for epoch in range(EPOCHS)},
               f"it has left {found}")
        return 0


@dataclass
class Recording:
    """A case as it ran, with positions in its log."""

    case: Case
    logged: power.Logged
    report: Path
    begin: int = 0
    exit: int = 0
    end: int = 0
    complete: dict[str, int] = field(default_factory=dict)
    """When each object was reported as complete, by its path."""

    def look(self) -> None:
        """Takes what is new in the report."""
        text = self.report.read_text() if self.report.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n") and (said := json.loads(line))["status"] == "ok":
                self.complete.setdefault(said["path"], self.logged.position())

    @contextmanager
    def syncing(self, chance: random.Random) -> Iterator[None]:
        """While inside, another program syncs its own file now and then."""
        end = threading.Event()

        def work() -> None:
            own = os.open(self.logged.point / "own", os.O_RDWR | os.O_CREAT)
            while not end.wait(chance.uniform(*SYNC_SECONDS)):
                self.look()
                os.pwrite(own, os.urandom(100), 0)
                (LIBC.syncfs if chance.random() < SYNCFS_SHARE else os.fsync)(own)
            os.close(own)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def record(ground: Ground, case: Case, chance: random.Random) -> Recording:
    """Runs a case on a device that logs."""
    folder = ground.memory / case.name
    folder.mkdir()
    with power.logged(power.KINDS[case.kind], folder) as logged:
        place, recording = logged.point / "data", Recording(case, logged, folder / "report")
        if case.command == "sync":
            # With `end` the second run syncs what the first one has not.
            before = "none" if case.durability == "end" else case.durability
            ground.run(Case("get", before, case.kind), place, version=0)
        recording.begin = logged.position()
        with recording.syncing(chance):
            ground.run(case, place, recording.report)
            recording.exit = logged.position()
            recording.look()
            time.sleep(REST_SECONDS)
            recording.end = logged.position()
    return recording


def at_rest(ground: Ground, recording: Recording, place: Path,
            position: int) -> Sequence[str | None]:
    """What is wrong with what the disk has, before the next run."""
    case = recording.case
    if case.durability == "end" and position >= recording.exit:
        return compare.trees(place, ground.entries, "")
    if case.durability != "file":
        return []
    versions = [{entry.key: entry for entry in of} for of in ground.versions]
    new, wrong = versions[-1], list[str | None]()
    for path in place.rglob("*"):
        key = path.relative_to(place).as_posix()
        if path.is_file() and not path.name.startswith(compare.TEMPORARY):
            complaints = [compare.complain(key, path, by[key]) for by in versions if key in by]
            wrong += complaints[-1:] if all(complaints) else []
    # That a file was deleted is not synced.
    there = new if position >= recording.exit else {
        key for key, reported in recording.complete.items() if reported <= position}
    return [*wrong, *(compare.complain(key, place / key, new[key]) for key in there)]


def after(ground: Ground, recording: Recording, place: Path, position: int) -> list[str]:
    """What is wrong with the next run, or with what it leaves."""
    case = recording.case
    try:
        again = ground.run(case, place)
    except (LabError, Wrong) as error:
        return [f"the next run: {error}"]
    if again and case.durability != "none" and position >= recording.exit:
        return [f"{again} objects that were synced were downloaded again"]
    return compare.trees(place, ground.entries, "") if case.has_files else []


def fail_power(ground: Ground, recording: Recording, disk: power.Disk, index: int,
               chance: random.Random, lost: int = 0) -> list[str]:
    """One power failure, after this number of records; what is wrong afterwards."""
    logged, position = recording.logged, disk.ends[index - 1]
    image = logged.log.with_name("image")
    disk.cut(index, image, chance, lost)
    with power.mounted(logged.kind, image, logged.point) as point:
        found = at_rest(ground, recording, point / "data", position)
        wrong = list(filter(None, found)) or after(ground, recording, point / "data", position)
    checked = process.run([*logged.kind.check, image], seconds=RUN_SECONDS)
    damaged = [f"the file system: {checked.last_words()}"] if checked.code else []
    return list(dict.fromkeys(wrong)) or damaged


@contextmanager
def another_boot(memory: Path) -> Iterator[None]:
    """While inside, the kernel's boot identifier is another one for this process."""
    other = memory / "boot_id"
    other.write_text(f"{uuid.uuid4()}\n")
    must(["mount", "--bind", other, BOOT_ID])
    try:
        yield
    finally:
        must(["umount", BOOT_ID])


def replay(ground: Ground, recording: Recording, cuts: int, seed: str) -> tuple[str | None, str]:
    """Lets the power fail; the first complaint, and what was done."""
    begun, chance, disk = time.monotonic(), random.Random(seed), power.Disk(recording.logged)
    begin, ended, end = map(disk.index, (recording.begin, recording.exit, recording.end))
    behind = max(1, cuts // 4)
    indexes = sorted([ended, *(chance.randint(begin + 1, ended) for _ in range(cuts - behind)),
                      *(chance.randint(ended, end) for _ in range(behind - 1))])
    for number, index in enumerate(indexes):
        if wrong := fail_power(ground, recording, disk, index, chance):
            return (f"failure {number} of {cuts} after record {index} (the run: {begin} to {ended})"
                    f", seed {seed}: {compare.summary(wrong)}"), ""
    return None, (f"{cuts} power failures among {end - begin} writes and flushes, "
                  f"{time.monotonic() - begun:.0f} s")


def lose_flushes(ground: Ground, recording: Recording) -> str | None:
    """What is wrong, if a device that loses what it has confirmed is not noticed."""
    disk = power.Disk(recording.logged)
    index = disk.index(recording.exit)
    if not disk.is_whole():
        return "the log lacks writes"
    for lost in LOST_FLUSHES:
        if not fail_power(ground, recording, power.Disk(recording.logged), index, random.Random(0),
                          lost):
            return f"{lost} lost flushes were not noticed"
    return None


def write_objects(lab: Lab) -> list[Path]:
    """The objects as they were and as they are: one half is replaced, one is deleted, one new."""
    old, new = roots = [lab.temp / name for name in ("old", "new")]
    chance = random.Random(BUCKET)
    sizes = [0, 1, *(chance.randrange(SMALL_BYTES_MAX) for _ in range(SMALL)), *LARGE]
    for number, size in enumerate(sizes):
        key = f"{BUCKET}/{number % 5}/{'deep/' * (number % 3)}{number:03}"
        for root in roots:
            dataset.write_object(root / key, size, f"{root.name if number % 2 else ''} {key}")
        if number % 2 == 0:
            shutil.copystat(old / key, new / key)
    for root in roots:
        dataset.write_object(root / BUCKET / root.name, SMALL_BYTES_MAX, root.name)
    return roots


def options(add: Add) -> None:
    """Of this check alone."""
    add("--cuts", type=int, default=65, help="power failures of all cases (default: %(default)s)")
    add("--seed", default="0", help="of their positions (default: %(default)s)")


def run(lab: Lab) -> None:
    """Records each case and lets the power fail."""
    # Programs of file systems may be where only administrators look.
    os.environ["PATH"] = install.SYSTEM_PATH
    if not os.geteuid():
        for program in ("mkfs.ext4", "mkfs.xfs", "mount", "losetup", "unshare", "fsfreeze"):
            install.system_program(program)
    refused = volumes.private_mounts() or process.run(
        [install.TOOLS / "lab/can_mount.sh"], seconds=RUN_SECONDS).trouble
    if refused:
        lab.miss("powercut", f"this machine lets nobody mount a file system: {refused}")
        return
    memory = lab.folder("memory")
    must(["mount", "-t", "tmpfs", "tmpfs", memory])
    lab.stack.callback(must, ["umount", "--lazy", memory])
    roots = write_objects(lab)
    urls = [lab.serve("--root", root, "--checksum", "crc64nvme") for root in roots]
    ground = Ground(lab, memory, urls, [listing.scan(root / BUCKET) for root in roots])
    names = lab.among(CASES)
    for name in names:
        seed = f"{lab.args.seed} {name}"
        recording = record(ground, CASES[name], random.Random(seed))
        with another_boot(memory):
            lab.report(name, *replay(ground, recording, max(2, lab.args.cuts // len(names)), seed))
            if name.startswith("get-end"):
                lab.report(f"{name}, lost flushes", lose_flushes(ground, recording))
        shutil.rmtree(recording.logged.log.parent)
