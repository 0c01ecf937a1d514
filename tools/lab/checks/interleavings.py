"""What threads share, in all orders that they can take: the models of tests/interleavings.

A small crate in target/interleavings has copies of the sources below in which loom's types stand
for those of `std::sync`, what they need of other rooms, and the models, which are its tests. Each
model runs in every order with at most three interruptions of threads where they could run on
(`LOOM_MAX_PREEMPTIONS`). Then each fault of `planted` is planted, and the model beside it has to
fail.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import process
from lab.checks.planted import FAULTS
from lab.driver import Add, Lab
from lab.install import REPOSITORY, build_folder
from lab.process import LabError, expect, note

MODELS = REPOSITORY / "tests/interleavings"
SOURCES = [
    "engine/backlog.rs", "engine/budget.rs", "engine/endpoints.rs", "engine/handover.rs",
    "engine/lease.rs", "engine/pace", "engine/peers/addresses.rs", "engine/peers/served.rs",
    "engine/request.rs", "engine/schedule.rs", "engine/schedule", "engine/snapshot.rs",
    "engine/stream/feed.rs", "engine/stream/inflate.rs", "engine/stream/inline.rs",
    "engine/threads/agreement.rs", "error.rs", "error", "library/feed.rs", "limits.rs", "limits",
    "link/waiting.rs", "mount/serving/mailbox.rs", "plan/ranges.rs", "s3/redirect.rs",
    "s3/sign/keys.rs", "sys/loan.rs", "sys/pool.rs", "sys/readiness/writers.rs", "sys/slot.rs"]
CHANGES = [
    (r"std::(sync\b)", r"crate::\1"),
    (r"std::thread::(Builder|JoinHandle)", r"crate::sync::thread::\1"),
    (r"std::os::fd::OwnedFd", "crate::sys::OwnedFd"),
    (r"(?<!\w)(fuser|rustix|tokio)::", r"crate::stand_ins::\1::"),
    (r"pub\(super\)", "pub(crate)"),
    # Neither their unit tests nor their JSON.
    (r"#\[cfg\(test\)\]\n((?:#\[path.*\]\n)?(?:pub\(crate\) )?mod )", r"#[cfg(any())]\n\1"),
    (r", serde::Serialize|#\[serde\(.*\)\]\n", ""),
    # Less room, so that it is used up soon, and fewer atomics, each of which costs time.
    (r"(pub const ENDPOINTS_MAX: usize) = \d+", r"\1 = 2"),
    (r"(const (?:FEED_OBJECTS_MAX|BACKLOG_BUFFERS_AT_TURN|LINES_MAX): usize) = \d+", r"\1 = 1")]
MANIFEST = """[package]
name = "interleavings"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
loom = "=0.7.3"
memmap2 = "0.9"
zeroize = "1"
[lints.rust]
dead_code = "allow"
[profile.test]
opt-level = 0
debug = false
[profile.test.package.loom]
opt-level = 1
"""
SETTLE = re.compile(r"    pub fn settle\(&self\).*?\n    }\n", re.DOTALL)
SETTLE_IN = "files/file_download.rs"
BUILD_SECONDS = 600.0
RUN_SECONDS = 1800.0


def planted(name: str, text: str) -> str:
    """A source with all its faults, none of which is on."""
    right = text
    for number, fault in enumerate(FAULTS):
        on = f'crate::planted("{number}")'
        changes = dict(fault.changes if fault.source == name else ())
        if not any("PLANTED" in new for new in changes.values()):
            changes = {old: f"if PLANTED {{ {new} }} else {{ {old} }}"
                       for old, new in changes.items()}
        for old in changes:
            if right.count(old) != 1 or old not in text:
                raise LabError(f"src/{name} has not this once, for '{fault.what}':\n{old}")
        if changes:
            pattern = "|".join(map(re.escape, changes))
            text = re.sub(pattern, lambda old: changes[old[0]].replace("PLANTED", on), text)
    return text


def make_crate(folder: Path) -> None:
    """The crate of the models."""
    source, ours = folder / "src", REPOSITORY / "src"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(MODELS, source)
    for path in [ours / name for name in SOURCES]:
        for file in sorted(path.rglob("*.rs")) if path.is_dir() else [path]:
            name = str(file.relative_to(ours))
            text = planted(name, file.read_text())
            for pattern, changed in CHANGES:
                text = re.sub(pattern, changed, text)
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(text)
    settle = SETTLE.search(planted(SETTLE_IN, (ours / SETTLE_IN).read_text()))
    if not settle:
        raise LabError(f"src/{SETTLE_IN} has no settle")
    stand_ins = source / "stand_ins.rs"
    stand_ins.write_text(stand_ins.read_text().replace("        // SETTLE\n", settle[0]))
    shutil.copy(REPOSITORY / "Cargo.lock", folder / "Cargo.lock")
    (folder / "Cargo.toml").write_text(MANIFEST)


def build(folder: Path) -> str:
    """The program of the models."""
    note("building the models")
    said = process.must(
        ["env", "-C", folder, f"CARGO_TARGET_DIR={folder}/target", "cargo", "test", "--quiet",
         "--lib", "--no-run", "--message-format=json"], seconds=BUILD_SECONDS)
    built = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    return str(next(message["executable"] for message in built
                    if message["reason"] == "compiler-artifact" and message["executable"]))


def options(add: Add) -> None:
    """Of this check alone."""
    add("--jobs", type=int, default=2, help="runs at the same time (default: %(default)s)")


def run(lab: Lab) -> None:
    """Every model, then every fault."""
    folder = build_folder() / "interleavings"
    make_crate(folder)
    program = build(folder)
    ran = process.run([program, "--nocapture", f"--test-threads={lab.args.jobs}"],
                      seconds=RUN_SECONDS)
    explored = dict(re.findall(r"explored models::\w+::(\w+) (\d+)", ran.stdout))
    expect(ran.code == 0 and not ran.timed_out,
           f"a model failed:\n{ran.stderr[-4000:]}\n{ran.stdout[-4000:]}", ran)
    if unknown := {fault.model for fault in FAULTS} ^ set(explored):
        raise LabError(f"models without a fault, or faults without a model: {unknown}")
    orders = sum(map(int, explored.values()))
    lab.report("models", None, f"{len(explored)} hold in {orders:,} orders, {ran.seconds:.1f} s")

    def attempt(number: int) -> None:
        fault = FAULTS[number]
        ran = process.run([program, fault.model, "--nocapture"], seconds=RUN_SECONDS,
                          env={**os.environ, "INTERLEAVINGS_PLANT": str(number)})
        is_noticed = "panicked at" in ran.stderr and "explored" not in ran.stdout
        lab.report(fault.what, None if is_noticed else "NOT NOTICED",
                   f"{fault.model}, {ran.seconds:.1f} s")

    with ThreadPoolExecutor(lab.args.jobs) as pool:
        list(pool.map(attempt, range(len(FAULTS))))
