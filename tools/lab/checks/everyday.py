"""Everyday command lines of aws, s5cmd, rclone and curl, and those of inrush for them.

What people type stands in tools/lab/checks/command_lines.py, each line with its counterpart and
with what both have to do. Both run against the in-repo origin, each in an empty folder: signed,
without signatures, or over TLS. Compared are

* all files afterwards, by name and byte for byte, and no other may be there;
* standard output where an object or a range of it is written there;
* keys and sizes where objects are listed, and totals;
* whether files were kept, and their times, where the case says so;
* the exit code: that of inrush exactly, that of the other tool as success or failure.

Where both are meant to differ, the table says what each does and why; these reasons are printed at
the end. A tool that cannot be had is skipped, and counted; the side of inrush is still compared.

After that both programs are given the AWS profiles of tools/lab/checks/profiles.py, and must ask
the same server with the same key for the same region, or both refuse.

`--only` takes words of the lines. It installs what is missing (packages of the distribution as
root; s5cmd and the AWS command line into the build folder), and takes about a minute.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab import client, dataset, driver, install, process
from lab.checks import command_lines, printed, profiles
from lab.checks.command_lines import ACCESS_KEY, BUCKET, OBJECTS, SECRET_KEY, Case, Expect, Put
from lab.driver import Add
from lab.process import LabError, Outcome, say

RUN_SECONDS = 60.0
TOTAL_SECONDS = 900.0
PEERS = {"aws": lambda: install.program("awscli-login"), "s5cmd": install.s5cmd,
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
    reasons: list[str] = field(default_factory=list)
    """Of differences that are intended."""
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
    dataset.write_all(folder, {name: file.data for name, file in before.items()})
    for name, file in before.items():
        os.utime(folder / name, (file.seconds, file.seconds))


def code_complaint(side: Side) -> str | None:
    """What is wrong with the exit code, if anything."""
    outcome, wanted = side.outcome, side.expect.code
    if outcome.timed_out:
        return outcome.trouble
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


def run_case(of: driver.Lab, lab: Lab, case: Case) -> None:
    """Both lines of a case."""
    is_absent = case.program in lab.absent
    lines = [] if is_absent else [(case.program, case.theirs, case.peer or case.expect)]
    complaints = {program: run_line(lab, case, program, line, expect)
                  for program, line, expect in [*lines, (OURS, case.ours, case.expect)]}
    note_case(of, lab, f"{case.theirs} | {case.ours}", complaints, is_absent, case.why)


def note_case(of: driver.Lab, lab: Lab, shown: str, complaints: Mapping[str, str | None],
              is_absent: bool, why: str) -> None:
    """Counts a case; one without the other tool is skipped if inrush does as it has to."""
    found = [f"{program}: {complaint}" for program, complaint in complaints.items() if complaint]
    if is_absent and not found:
        of.skip(shown, "without the other tool")
    else:
        of.report(shown, f"\n      {'; '.join(found)}" if found else None)
    if why:
        lab.reasons.append(f"{shown}\n      {why}")


def write_buckets(folder: Path) -> None:
    """The objects as files, with their times."""
    dataset.write_all(folder / BUCKET, OBJECTS)
    for key in OBJECTS:
        os.utime(folder / BUCKET / key, (command_lines.MODIFIED[key], command_lines.MODIFIED[key]))
    dataset.write_all(folder / command_lines.OTHER_BUCKET, {"key": b"value"})


def start_servers(of: driver.Lab, bundle: Path) -> dict[str, str]:
    """The origin, once for each way to ask it; the endpoints."""
    write_buckets(of.temp / "buckets")
    urls = {}
    for name, words in SERVERS.items():
        secured = ("--ca-out", bundle) if name == "tls" else ()
        url = of.serve("--root", of.temp / "buckets", *STORED, *words, *secured)
        urls[name] = url.replace("http://", "https://") if secured else url
    return urls


def find_programs(folder: Path, inrush: Path, wanted: set[str]) -> dict[str, str]:
    """Links to all programs in `folder`, by their names; why those that are absent are."""
    (folder / OURS).symlink_to(inrush)
    absent = {}
    for name in sorted(wanted):
        try:
            (folder / name).symlink_to(PEERS[name]())
        except LabError as error:
            absent[name] = str(error)
            say(f"skip  {name} is not here: {error}")
    return absent


def run_form(of: driver.Lab, lab: Lab, servers: profiles.Lab, form: profiles.Form) -> None:
    """Both programs with a profile."""
    complaints: dict[str, str | None] = {}
    for program, wanted in [("aws", form.peer or form.asked), (OURS, form.asked)]:
        if program in lab.absent:
            continue
        asked, words = servers.asked(program, form)
        if tuple(asked) != tuple(wanted):
            complaints[program] = f"{', '.join(asked)}, not {', '.join(wanted)}: {words}"
    note_case(of, lab, f"profile: {form.name}", complaints, "aws" in lab.absent, form.why)


def options(add: Add) -> None:
    """Of this check alone."""
    add("--list", action="store_true", help="print the cases and run nothing")


def run(of: driver.Lab) -> None:
    """All cases."""
    shown = {f"{case.theirs} | {case.ours}": case for case in command_lines.CASES}
    named = {f"profile: {form.name}": form for form in profiles.FORMS}
    words = of.args.only or [""]
    cases = [case for line, case in shown.items() if any(word in line for word in words)]
    forms = [form for line, form in named.items() if any(word in line for word in words)]
    if of.args.list:
        say("\n".join([*shown, *named]))
        return
    if not cases and not forms:
        raise LabError(f"no case has {' or '.join(words)} in it; --list prints them all")
    (of.folder("home") / "rclone.conf").touch()
    programs, bundle = of.folder("programs"), of.temp / "authority.pem"
    absent = find_programs(programs, of.inrush,
                           {case.program for case in cases} | ({"aws"} if forms else set()))
    lab = Lab(of.temp, programs, absent, start_servers(of, bundle), bundle)
    for case in cases:
        run_case(of, lab, case)
    servers = profiles.Lab(of.stack, of.temp / "profiles", programs)
    for form in forms:
        run_form(of, lab, servers, form)
    if lab.reasons:
        say("\nDifferences that are intended:")
    for reason in lab.reasons:
        say(f"      {reason}")
