"""The wheel of the Python package, for every Linux whose C library is not older than its tag says.

The Rust library and the C below it need no function of glibc that is new, but a linker takes the
newest version of each that its machine has: linked on Debian 12, the module starts with glibc 2.34
and later. So its last step, and no other, is Zig's, whose linker knows the versions that an older
glibc had. What the module needs then is counted by auditwheel (PEP 600).
"""

from __future__ import annotations

import json
import os
import platform
import re
import zipfile
from pathlib import Path

from lab import install
from lab.process import LabError, must, note

GLIBC = (2, 17)
"""The oldest that the wheel is for: that of the oldest Linux that Rust's own library is for."""
MACHINE = platform.machine()
TAG = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{MACHINE}"
MATURIN = "maturin==1.16.0"
AUDITWHEEL = "auditwheel==6.8.2"
BUILD_SECONDS = 3 * 3600.0


def linker() -> Path:
    """A linker for that glibc, as rustc calls it."""
    zig = install.program("zig").parent
    # Zig's own unwinder would be a second one beside that of glibc, which unwinds the threads that
    # Python ends at its exit: the two do not know each other's frames.
    unwinder = must(["cc", "-print-file-name=libgcc_s.so.1"], seconds=20).strip()
    # rustc knows by the end of the name that it takes the options of a C compiler.
    path = zig / f"glibc-{GLIBC[0]}-{GLIBC[1]}-cc"
    target = f"{MACHINE}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    path.write_text(
        "#!/bin/sh\n"
        f"CARGO_ZIGBUILD_PYTHON_PATH='{zig}/python' exec '{zig}/cargo-zigbuild' zig cc -- "
        f"-target {target} '{unwinder}' \"$@\"\n")
    path.chmod(0o755)
    return path


def build(profile: str, interpreter: Path, into: Path) -> Path:
    """Builds the wheel of this checkout with a profile of cargo; its path.

    :param interpreter: a Python that the wheel is for, such as that of a venv.
    :raises LabError: it needs more than its tag says.
    """
    note(f"building a wheel ({profile})")
    env = {**os.environ, "CARGO_TARGET_DIR": str(install.build_folder())}
    must([tools() / "maturin", "build", "--locked", "--quiet", "--profile", profile,
          "--manifest-path", install.REPOSITORY / "tools/python/Cargo.toml",
          "--interpreter", interpreter, "--compatibility", TAG.removesuffix(f"_{MACHINE}"),
          "--out", into, "--", "-C", f"linker={linker()}"],
         seconds=BUILD_SECONDS, env=env)
    wheel = max(into.glob("inrush-*.whl"), key=lambda path: path.stat().st_mtime)
    check_tag(wheel)
    return wheel


def tools() -> Path:
    """The folder of maturin and auditwheel."""
    return install.venv("wheel", MATURIN, AUDITWHEEL) / "bin"


def check_tag(wheel: Path) -> None:
    """Compares the tag in the name of a wheel, and the one inside, with what its module needs.

    :raises LabError: it would be installed where it cannot be imported.
    """
    named = wheel.stem.rpartition("-")[2].split(".")
    with zipfile.ZipFile(wheel) as files:
        inside, = (name for name in files.namelist() if name.endswith(".dist-info/WHEEL"))
        tags = re.findall(r"^Tag: .*-(\S+)$", files.read(inside).decode(), re.MULTILINE)
    if sorted(tags) != sorted(named):
        raise LabError(f"{wheel.name} has other tags inside: {' '.join(tags)}")
    shown = json.loads(must([tools() / "auditwheel", "show", "--json", wheel], seconds=120))
    needed = glibc_of(shown.get("overall_tag", ""))
    if needed is None:
        raise LabError(f"{wheel.name}: no manylinux tag holds: {shown}")
    promised = [glibc for tag in named if (glibc := glibc_of(tag)) is not None]
    if not promised or min(promised) < needed:
        raise LabError(f"{wheel.name} needs what its name does not say: "
                       f"it is {shown['overall_tag']}")


def glibc_of(tag: str) -> tuple[int, int] | None:
    """The glibc that a tag promises to be enough; `None` of another tag."""
    found = re.fullmatch(rf"manylinux_(\d+)_(\d+)_{MACHINE}", tag)
    return (int(found[1]), int(found[2])) if found else None
