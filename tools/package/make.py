#!/usr/bin/env python3
"""Makes what people install, in one folder, from this checkout.

    tools/package/make.py [binary | deb | image | all] [--arch NAME ...] [--output FOLDER]
                          [--seccomp-default FILE] [--no-build]

binary  inrush-VERSION-linux-ARCH.tar.gz: the static program, its manual page, its completions
deb     inrush_VERSION_ARCH.deb
image   inrush-VERSION-oci.tar: an OCI image layout with all architectures asked for
all     all three (the default)

With --seccomp-default, the default profile of a container engine, also inrush-seccomp.json (see
tools/package/seccomp.py). What is made replaces what an earlier run made of the same kind; nothing
else in the folder is touched. SHA256SUMS lists all packages in it. Everything but the program
itself is the same, byte for byte, each time: times come from SOURCE_DATE_EPOCH, or from the last
commit.

Needs rustup, or Rust's musl targets. The compiler and linker (Zig) come from PyPI, pinned in
tools/lab/install.py. --no-build takes the programs that an earlier run built. Exit code 2:
something that is needed is missing; the message names it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab import install  # noqa: E402
from lab.process import LabError, must, say  # noqa: E402
from package import archive, binary, debian, image, licenses, seccomp  # noqa: E402
from package.archive import Entry  # noqa: E402
from package.binary import MACHINES, Machine  # noqa: E402

KINDS = ("binary", "deb", "image", "all")
SECCOMP = "inrush-seccomp.json"
SUMS = "SHA256SUMS"


def default_output() -> Path:
    """Where packages go unless somebody says otherwise."""
    return install.build_folder() / "package"


def tarball(machine: Machine, output: Path) -> Path:
    """The program with its manual page, completions, guide and examples, to unpack anywhere."""
    name = f"inrush-{binary.version()}-linux-{machine.name}"
    runnable = binary.runnable()
    entries = [
        Entry(name, mode=0o755),
        Entry(f"{name}/LICENSE", (install.REPOSITORY / "LICENSE").read_bytes()),
        Entry(f"{name}/third-party-licenses.txt", licenses.document(machine)),
        Entry(f"{name}/inrush", binary.program(machine).read_bytes(), 0o755),
        Entry(f"{name}/inrush.1", must([runnable, "man"]).encode()),
        Entry(f"{name}/inrush.bash", must([runnable, "completions", "bash"]).encode()),
        Entry(f"{name}/_inrush", must([runnable, "completions", "zsh"]).encode()),
        Entry(f"{name}/inrush.fish", must([runnable, "completions", "fish"]).encode()),
        Entry(f"{name}/examples", mode=0o755),
        Entry(f"{name}/guide", mode=0o755),
        *(Entry(f"{name}/{path}", content, mode)
          for path, (content, mode) in debian.reading().items()),
    ]
    path = output / f"{name}.tar.gz"
    path.write_bytes(archive.compressed(archive.tar(entries, binary.epoch())))
    return path


def make(kinds: set[str], machines: list[Machine], output: Path) -> list[Path]:
    """Makes the packages of these kinds from programs that are there; their paths."""
    output.mkdir(parents=True, exist_ok=True)
    made = []
    for machine in machines:
        if "binary" in kinds:
            made.append(tarball(machine, output))
        if "deb" in kinds:
            made.append(debian.build(machine, output))
    if "image" in kinds:
        made.append(image.build(machines, output))
    return made


def patterns(kinds: Iterable[str], machines: Iterable[Machine]) -> list[str]:
    """The names of the packages of these kinds, for these processors, of any version."""
    names = {"binary": [f"inrush-*-linux-{machine.name}.tar.gz" for machine in machines],
             "deb": [f"inrush_*_{machine.debian}.deb" for machine in machines],
             "image": ["inrush-*-oci.tar"]}
    return [name for kind in kinds for name in names[kind]]


def packages(output: Path, names: Iterable[str]) -> list[Path]:
    """The files in the folder, no folders and no links, whose names match one of these."""
    found = {path for name in names for path in output.glob(name)}
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def remove_earlier(output: Path, names: Iterable[str]) -> None:
    """Removes what an earlier run left there of what is made now, and nothing else."""
    for path in packages(output, names):
        path.unlink()


def profile_of(default: Path | None) -> dict[str, Any] | None:
    """The engine's default profile with io_uring allowed: read before anything is made."""
    return seccomp.allowing(json.loads(default.read_text())) if default else None


def write_sums(output: Path) -> None:
    """SHA256SUMS of the packages in the folder, for `sha256sum --check`."""
    files = packages(output, [*patterns(KINDS[:-1], MACHINES.values()), SECCOMP])
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (output / SUMS).write_text("".join(lines))


def arguments() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", nargs="?", default="all", choices=KINDS)
    parser.add_argument("--arch", nargs="+", action="extend", choices=MACHINES)
    parser.add_argument("--output", type=Path, default=default_output())
    parser.add_argument("--seccomp-default", type=Path)
    parser.add_argument("--no-build", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Builds, packs, and says what was made."""
    asked = arguments()
    machines = [MACHINES[name] for name in asked.arch or MACHINES]
    kinds = set(KINDS[:-1]) if asked.kind == "all" else {asked.kind}
    try:
        profile = profile_of(asked.seccomp_default)
        for machine in machines:
            if not asked.no_build:
                binary.build(machine)
            if not binary.program(machine).is_file():
                raise LabError(f"{binary.program(machine)} is not built")
        remove_earlier(asked.output, [*patterns(kinds, machines), SUMS])
        made = make(kinds, machines, asked.output)
        if profile is not None:
            made.append(asked.output / SECCOMP)
            made[-1].write_text(json.dumps(profile, indent=2) + "\n")
        write_sums(asked.output)
    except (LabError, OSError, ValueError, AttributeError, seccomp.NoProfile) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for path in made:
        say(f"{path.stat().st_size / 1e6:8.2f} MB  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
