"""Invalid accesses to memory and leaks in the unit tests of src/sys, found by valgrind.

They run over epoll: memcheck does not know what the kernel writes into memory that io_uring shares
with a program, so the tests of that ring are left out. Installs valgrind when it is missing, as
root.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from lab import install, process
from lab.driver import Lab
from lab.process import LabError, expect, note

BUILD_SECONDS = 3600.0
MEMCHECK_SECONDS = 600.0
KNOWN = {
    ("SyscallParam", "ethtool::ask"):
        "the kernel copies all of an ifreq, and reads what the command has of it",
    ("SyscallParam", "epoll_wait"):
        "epoll_pwait has no size of a signal set where it has no set"}
"""What is no fault: a kind of memcheck's and part of a function's name, and why."""


def found(xml: Path) -> tuple[Counter[str], int]:
    """What memcheck found, by its kind and the functions on its stack; how much of it is known."""
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
        if any(kind == of and any(name in frame.get("fn", "") for frame in frames)
               for of, name in KNOWN):
            known += 1
            continue
        said = error.findtext("what") or error.findtext("xwhat/text") or kind
        ours = [frame for frame in frames if "inrush" in frame.get("fn", "")] or frames
        shown = ", ".join(f"{it.get('fn', '?')} ({it.get('file', '?')}:{it.get('line', '?')})"
                          for it in ours[:3])
        wrong[f"{said}: {shown}"] += 1
    return wrong, known


def unit_tests() -> str:
    """The program of the library's unit tests, built."""
    note("building the unit tests")
    # Of all packages, as `cargo test` builds them: alone, its libraries have other features.
    said = process.must(
        ["env", "-C", install.REPOSITORY, f"CARGO_TARGET_DIR={install.build_folder()}", "cargo",
         "test", "--locked", "--quiet", "--lib", "--no-run", "--message-format=json"], seconds=BUILD_SECONDS)
    built = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    programs = [message["executable"] for message in built
                if message["reason"] == "compiler-artifact" and message["profile"]["test"]
                and message["target"]["name"] == "inrush" and message["executable"]]
    if len(programs) != 1:
        raise LabError(f"cargo test built {len(programs)} programs")
    return str(programs[0])


def run(lab: Lab) -> None:
    """The tests under memcheck, and what it found."""
    program, xml = unit_tests(), lab.temp / "memcheck.xml"
    note("running them under valgrind")
    ran = process.run(
        [sys.executable, install.TOOLS / "lab/without_vdso.py", install.system_program("valgrind"),
         "--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite",
         "--child-silent-after-fork=yes", "--num-callers=40", "--xml=yes", f"--xml-file={xml}",
         program, "sys::", "--skip", "sys::uring", "--test-threads=1"],
        seconds=MEMCHECK_SECONDS, env={**os.environ, "INRUSH_RING": "epoll"})
    expect(ran.code == 0 and not ran.timed_out, f"the tests failed:\n{ran.stdout[-4000:]}", ran)
    wrong, known = found(xml)
    listed = "".join(f"\n  {times} x {what}" for what, times in wrong.most_common(20))
    lab.report("memcheck", f"{wrong.total()} errors:{listed}" if wrong else None,
               f"no error, no definite leak; {known} known, {ran.seconds:.0f} s")
