"""Invalid accesses to memory and leaks in the unit tests of src/sys, found by valgrind.

They run over epoll: memcheck does not know what the kernel writes into memory that io_uring shares
with a program, so the tests of that ring are left out. With `--python` it watches the native module
of the Python package instead, while a program reads in every way. Installs valgrind when it is
missing, as root.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from lab import install, process, wheel
from lab.driver import Add, Lab
from lab.process import LabError, Word, expect, note
from lab.servers import origin

BUILD_SECONDS = 3600.0
MEMCHECK_SECONDS = 900.0
LIBRARY = ("malloc", "realloc", "alloc::", "<alloc::", "core::", "<core::", "std::", "<std::")
"""The beginnings of functions that say nothing of who uses them."""
MODULE = "inrush/_native"
"""In the path of the native module."""
KNOWN = {
    ("SyscallParam", "ethtool::ask"):
        "the kernel copies all of an ifreq, and reads what the command has of it",
    ("SyscallParam", "epoll_wait"):
        "epoll_pwait has no size of a signal set where it has no set",
    ("Leak_DefinitelyLost", "PyTypeBuilder"):
        "pyo3 keeps what describes a class of Python as long as the process lives"}
"""What is no fault: a kind of memcheck's and part of a function's name, and why."""


def options(add: Add) -> None:
    """Of this check alone."""
    add("--python", action="store_true", help="the native module of the Python package instead")


def found(xml: Path, within: str) -> tuple[Counter[str], int]:
    """What memcheck found where a file of this name is on the stack, by its kind and the functions
    there; how much of it is known."""
    try:
        root = ElementTree.parse(xml).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise LabError(f"valgrind wrote no result: {error}") from error
    wrong: Counter[str] = Counter()
    known = 0
    for error in root.iter("error"):
        kind = error.findtext("kind", "")
        stack = error.find("stack")
        frames = [{part.tag: part.text or "" for part in frame}
                  for frame in (stack if stack is not None else [])]
        if not any(within in frame.get("obj", "") for frame in frames):
            # The interpreter's own.
            continue
        if any(kind == of and any(name in frame.get("fn", "") for frame in frames)
               for of, name in KNOWN):
            known += 1
            continue
        said = error.findtext("what") or error.findtext("xwhat/text") or kind
        ours = [frame for frame in frames if "inrush" in frame.get("fn", "")]
        ours = ours or [frame for frame in frames if not frame.get("fn", "").startswith(LIBRARY)]
        shown = ", ".join(f"{it.get('fn', '?')} ({it.get('file', '?')}:{it.get('line', '?')})"
                          for it in ours[:6])
        wrong[f"{said}: {shown}"] += 1
    return wrong, known


def unit_tests() -> str:
    """The program of the library's unit tests, built."""
    note("building the unit tests")
    # Of all packages, as `cargo test` builds them: alone, its libraries have other features.
    said = process.must(
        ["env", "-C", install.REPOSITORY, f"CARGO_TARGET_DIR={install.build_folder()}", "cargo",
         "test", "--locked", "--quiet", "--lib", "--no-run", "--message-format=json"],
        seconds=BUILD_SECONDS)
    built = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    programs = [message["executable"] for message in built
                if message["reason"] == "compiler-artifact" and message["profile"]["test"]
                and message["target"]["name"] == "inrush" and message["executable"]]
    if len(programs) != 1:
        raise LabError(f"cargo test built {len(programs)} programs")
    return str(programs[0])


def python_reads(lab: Lab) -> list[Word]:
    """A program that reads by the Python package, which is built and installed, from an origin."""
    python = wheel.tools() / "python"
    made = wheel.build("dev", python, install.build_folder() / "wheels")
    process.must([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                  "--no-deps", "--force-reinstall", made], seconds=300)
    build_folder = install.build_folder()
    process.must(["env", "-C", install.REPOSITORY, f"CARGO_TARGET_DIR={build_folder}", "cargo",
                  "build", "--locked", "--quiet", "--bin", "inrush-origin"], seconds=BUILD_SECONDS)
    sets = ("bucket/big/:1:8MiB", "bucket/small/:40:3000")
    words = [word for one in sets for word in ("--synthetic", one)]
    endpoint = lab.stack.enter_context(
        origin.serving(build_folder / "debug/inrush-origin", words, lab.temp))
    return [python, install.TOOLS / "lab/native_reads.py", endpoint, lab.temp / "into"]


def run(lab: Lab) -> None:
    """The tests or the reads under memcheck, and what it found."""
    xml = lab.temp / "memcheck.xml"
    of_python: bool = lab.args.python
    watched = python_reads(lab) if of_python else [
        unit_tests(), "sys::", "--skip", "sys::uring", "--test-threads=1"]
    note("running it under valgrind")
    ran = process.run(
        [sys.executable, install.TOOLS / "lab/without_vdso.py", install.system_program("valgrind"),
         "--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite",
         "--child-silent-after-fork=yes", "--num-callers=40", "--xml=yes", f"--xml-file={xml}",
         *watched],
        # The interpreter's own allocator would hide what is read behind a freed object.
        seconds=MEMCHECK_SECONDS,
        env={**os.environ, "INRUSH_RING": "epoll", "PYTHONMALLOC": "malloc"})
    expect(ran.code == 0 and not ran.timed_out, f"it failed:\n{ran.stdout[-4000:]}", ran)
    wrong, known = found(xml, MODULE if of_python else "")
    listed = "".join(f"\n  {times} x {what}" for what, times in wrong.most_common(20))
    lab.report("memcheck --python" if of_python else "memcheck",
               f"{wrong.total()} errors:{listed}" if wrong else None,
               f"no error, no definite leak; {known} known, {ran.seconds:.0f} s")
