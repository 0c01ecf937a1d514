"""The static program for both processors: musl, linked by Zig's compiler, without a path of this
machine inside."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab import install
from lab.process import LabError, must, note

BUILD_SECONDS = 3600.0


@dataclass(frozen=True)
class Machine:
    """One processor, by its names."""

    name: str
    """As the kernel and Rust call it."""
    debian: str
    """As Debian, Go and OCI call it."""

    @property
    def target(self) -> str:
        """Rust's target."""
        return f"{self.name}-unknown-linux-musl"


MACHINES = {machine.name: machine for machine in
            (Machine("x86_64", "amd64"), Machine("aarch64", "arm64"))}


def version() -> str:
    """The version in Cargo.toml."""
    for line in (install.REPOSITORY / "Cargo.toml").read_text().splitlines():
        if line.startswith("version = "):
            return line.split('"')[1]
    raise LabError("Cargo.toml has no version")


def epoch() -> int:
    """The time of all files, in seconds since 1970: SOURCE_DATE_EPOCH, or the last commit's."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    return int(must(["git", "-C", install.REPOSITORY, "log", "-1", "--format=%ct"]))


def program(machine: Machine) -> Path:
    """Where the build leaves the program."""
    return install.build_folder() / machine.target / "release" / "inrush"


def add_target(machine: Machine) -> None:
    """Rust's standard library for this target: installed by rustup when it is missing."""
    there = must(["rustc", "--print", "target-libdir", "--target", machine.target]).strip()
    if Path(there).is_dir() and any(Path(there).glob("libstd-*.rlib")):
        return
    if not shutil.which("rustup"):
        raise LabError(f"rustc has no {machine.target}, and there is no rustup to add it")
    must(["rustup", "target", "add", machine.target], seconds=600)


def folders() -> dict[Path, str]:
    """The folders of the build, by what the program calls them. One that is inside another comes
    after it: the compilers take the last that fits."""
    found = {Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo"): "/cargo",
             install.REPOSITORY: "/inrush", install.build_folder(): "/target"}
    return dict(sorted(found.items(), key=lambda item: len(item[0].parts)))


def environment(machine: Machine) -> dict[str, str]:
    """For cargo: Zig in the path, and names of folders in the program that are alike everywhere."""
    folder = install.program("zig").parent
    for path in folders():
        if " " in str(path):
            raise LabError(f"{path}: a folder of the build must have no space in its name")
    target = machine.target.replace("-", "_")
    # These would replace the target's own flags.
    kept = {name: value for name, value in os.environ.items()
            if name not in ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS")}
    rust = [f"--remap-path-prefix={path}={name}" for path, name in folders().items()]
    c = [f"-ffile-prefix-map={path}={name}" for path, name in folders().items()]
    return {**kept, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "CARGO_ZIGBUILD_PYTHON_PATH": str(folder / "python"),
            f"CARGO_TARGET_{target.upper()}_RUSTFLAGS": " ".join(rust),
            f"CFLAGS_{target}": " ".join(c), "CARGO_TARGET_DIR": str(install.build_folder())}


def build(machine: Machine) -> Path:
    """Builds the program, with cargo's words on standard error; the path of the program."""
    add_target(machine)
    cargo = os.environ.get("CARGO", "cargo")
    command = [cargo, "zigbuild", "--release", "--locked", "--target", machine.target,
               "--package", "inrush", "--package", "inrush-origin", "--bins"]
    note(" ".join(command))
    try:
        child = subprocess.run(command, cwd=install.REPOSITORY, env=environment(machine),
                               check=False, timeout=BUILD_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"cargo zigbuild for {machine.target}: not done after "
                       f"{BUILD_SECONDS:.0f} s") from error
    if child.returncode != 0:
        raise LabError(f"cargo zigbuild for {machine.target}: exit {child.returncode}")
    return program(machine)


def runnable() -> Path:
    """The program of this machine's own processor, to print its manual and completions."""
    own = MACHINES.get(os.uname().machine)
    if own is None or not program(own).is_file():
        raise LabError("the program of this machine's processor is not built")
    return program(own)
