"""Each limit of the pace, halved and doubled, which a unit test has to notice.

`--only` takes parts of the limits' names. Each change runs the unit tests of src/engine/pace and
src/engine/peers/pace.rs, as a small crate in target/mutate: that takes seconds where the whole
program takes minutes. Of a share of more than 500 thousandths it is the distance from 1000 that is
halved and doubled. No test may fail without a change.
"""

from __future__ import annotations

import queue
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import process
from lab.driver import Add, Lab
from lab.install import REPOSITORY
from lab.process import LabError, Wrong

LIMITS = "src/limits/pace.rs"
TEST_SECONDS = 300.0
LIMIT = re.compile(r"pub const ((?:PACE|RATE)_\w+): \w+ = ([^;]+);")

MANIFEST = """[package]
name = "pace"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
serde = { version = "1", features = ["derive"] }
[profile.test]
opt-level = 2
"""
LIB = """pub mod limits;
pub mod engine {
    pub mod pace;
    pub mod peers {
        #[path = "pace.rs"]
        mod times;
        #[derive(Clone, Copy, PartialEq)]
        pub enum Phase { Connect, Head, Body }
    }
    pub mod endpoints {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct EndpointNumber(usize);
        impl EndpointNumber {
            pub const FIRST: Self = Self(0);
            pub fn at(index: usize) -> Self { Self(index) }
            pub fn index(self) -> usize { self.0 }
        } } }
"""


def make_crate(folder: Path) -> Path:
    """A crate of the pace alone."""
    (folder / "src/engine/peers").mkdir(parents=True, exist_ok=True)
    for name in ("src/limits", "src/engine/pace"):
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(REPOSITORY / name, folder / name)
    for name in ("src/limits.rs", "src/engine/peers/pace.rs", "Cargo.lock"):
        shutil.copy(REPOSITORY / name, folder / name)
    (folder / "Cargo.toml").write_text(MANIFEST)
    (folder / "src/lib.rs").write_text(LIB)
    return folder


def failures(folder: Path) -> str | None:
    """The tests that fail there; None if none does."""
    # A build folder of its own: those that run beside it are other sources of one name.
    words = ["env", "-C", folder, f"CARGO_TARGET_DIR={folder}/target"]
    ran = process.run([*words, "cargo", "test", "--quiet", "--lib"], seconds=TEST_SECONDS)
    if ran.timed_out or ran.code == 0:
        return "they do not end" if ran.timed_out else None
    failed = re.findall(r"^---- (?:\w+::)*(\w+) stdout", ran.stdout, re.MULTILINE)
    if not failed:
        raise LabError(f"it does not build:\n{ran.stderr}")
    return " ".join(sorted(failed))


def changes(name: str, value: str) -> list[str]:
    """Half of a limit and twice as much."""
    if name.endswith("PER_MILLE") and int(value) > 500:
        distance = int(value) - 1000
        return [str(1000 + distance // 2), str(1000 + distance * 2)]
    return [f"({value}) / 2", f"({value}) * 2"]


def options(add: Add) -> None:
    """Of this check alone."""
    add("--jobs", type=int, default=2, help="changes at the same time (default: %(default)s)")


def run(lab: Lab) -> None:
    """Every change."""
    source = (REPOSITORY / LIMITS).read_text()
    folders: queue.Queue[Path] = queue.Queue()
    for number in range(lab.args.jobs):
        folders.put(make_crate(REPOSITORY / "target/mutate" / str(number)))
    if failed := failures(REPOSITORY / "target/mutate/0"):
        raise Wrong(f"without a change: {failed}")

    def attempt(change: tuple[re.Match[str], str]) -> None:
        (limit, value), folder = change, folders.get()
        new = limit[0].replace(f"= {limit[2]};", f"= {value};")
        (folder / LIMITS).write_text(source.replace(limit[0], new))
        failed = failures(folder)
        folders.put(folder)
        shown = f"{limit[1]} {limit[2]} -> {value}"
        lab.report(shown, None if failed else "SURVIVES", failed or "")

    limits = [limit for limit in LIMIT.finditer(source)
              if not lab.args.only or any(name in limit[1] for name in lab.args.only)]
    tried = [(limit, value) for limit in limits for value in changes(limit[1], limit[2])]
    with ThreadPoolExecutor(lab.args.jobs) as pool:
        list(pool.map(attempt, tried))
