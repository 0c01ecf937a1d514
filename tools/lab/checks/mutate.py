"""Halves and doubles each limit of the pace, and prints the changes that no unit test notices.

    tools/check.py mutate [--jobs N] [NAME ...]

NAME: only limits whose names contain it. Each change runs the unit tests of src/engine/pace and
src/engine/peers/pace.rs, as a small crate in target/mutate: that takes seconds where the whole
program takes minutes. Of a share of more than 500 thousandths it is the distance from 1000 that is
halved and doubled. The exit code is 1 if a change goes unnoticed, or a test fails without one.
"""

from __future__ import annotations

import argparse
import queue
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.install import REPOSITORY as ROOT

LIMITS = "src/limits/pace.rs"
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
        shutil.copytree(ROOT / name, folder / name)
    for name in ("src/limits.rs", "src/engine/peers/pace.rs", "Cargo.lock"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "Cargo.toml").write_text(MANIFEST)
    (folder / "src/lib.rs").write_text(LIB)
    return folder


def failures(folder: Path) -> str | None:
    """The tests that fail there; None if none does."""
    command = ["timeout", "300", "cargo", "test", "--quiet", "--lib"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode in {0, 124}:
        return "they do not end" if ran.returncode else None
    failed = re.findall(r"^---- (?:\w+::)*(\w+) stdout", ran.stdout, re.MULTILINE)
    return " ".join(sorted(failed)) or sys.exit(f"it does not build:\n{ran.stderr}")


def changes(name: str, value: str) -> list[str]:
    """Half of a limit and twice as much."""
    if name.endswith("PER_MILLE") and int(value) > 500:
        distance = int(value) - 1000
        return [str(1000 + distance // 2), str(1000 + distance * 2)]
    return [f"({value}) / 2", f"({value}) * 2"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    source = (ROOT / LIMITS).read_text()
    folders: queue.Queue[Path] = queue.Queue()
    for number in range(args.jobs):
        folders.put(make_crate(ROOT / "target/mutate" / str(number)))
    if failed := failures(ROOT / "target/mutate/0"):
        sys.exit(f"without a change: {failed}")

    def attempt(change: tuple[re.Match[str], str]) -> bool:
        (limit, value), folder = change, folders.get()
        new = limit[0].replace(f"= {limit[2]};", f"= {value};")
        (folder / LIMITS).write_text(source.replace(limit[0], new))
        failed = failures(folder)
        folders.put(folder)
        print(f"{limit[1]} {limit[2]} -> {value}: {failed or 'SURVIVES'}", flush=True)
        return failed is not None

    limits = [limit for limit in LIMIT.finditer(source)
              if not args.names or any(name in limit[1] for name in args.names)]
    tried = [(limit, value) for limit in limits for value in changes(limit[1], limit[2])]
    with ThreadPoolExecutor(args.jobs) as pool:
        survive = list(pool.map(attempt, tried)).count(False)
    print(f"{len(limits)} limits, {len(tried)} changes, {survive} survive")
    return 1 if survive else 0


if __name__ == "__main__":
    sys.exit(main())
