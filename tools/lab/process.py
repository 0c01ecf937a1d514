"""Child processes: servers that always stop, and runs that are bounded and measured.

Every child of the lab starts here. CPU time comes from `wait4`, so it counts all threads of the
child, the kernel's io_uring workers included. Peak RSS is sampled from `VmHWM`: `ru_maxrss` would
also count this process as it was when it forked.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

STOP_SECONDS = 5.0
INTERRUPT_SECONDS = 30.0
INTERRUPTED = 130
"""The exit code of `inrush` after SIGTERM."""
SAMPLE_SECONDS = 0.02
FAMILY_SAMPLES = 5
"""Samples between two looks at a whole family, which take longer."""
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


Word = str | Path
"""Of a command line."""


class LabError(Exception):
    """The lab itself could not do its work; says what and why."""


class Wrong(Exception):
    """Something that must hold does not; says what."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended and what it cost."""

    code: int
    seconds: float
    cpu_seconds: float
    user_seconds: float
    peak_rss_bytes: int
    stdout: str
    stderr: str
    timed_out: bool

    def last_words(self, limit: int = 400) -> str:
        """The end of what it said, on one line."""
        words = " | ".join((self.stderr or self.stdout).strip().splitlines()[-4:])
        return words[-limit:]

    @property
    def trouble(self) -> str | None:
        """What is wrong with a run that had to end well, if anything."""
        if self.timed_out:
            return f"not done after {self.seconds:.0f} s: {self.last_words()}"
        return f"exit {self.code}: {self.last_words()}" if self.code else None

    def well(self, name: str) -> Outcome:
        """The outcome of a run without which the lab cannot go on."""
        if self.trouble:
            raise LabError(f"{name}: {self.trouble}")
        return self


def expect(condition: bool, what: str, outcome: Outcome | None = None) -> None:
    """Fails unless the condition holds."""
    if not condition:
        raise Wrong(f"{what}: exit {outcome.code}: {outcome.last_words()}" if outcome else what)


def succeeded(outcome: Outcome, what: str) -> Outcome:
    """The outcome, unless it is a failure."""
    expect(outcome.trouble is None, f"{what}: {outcome.trouble}")
    return outcome


def unwind_on_signals() -> None:
    """Turns the first SIGTERM or SIGHUP into `SystemExit`, so that every `with` is left."""

    def leave(number: int, _frame: FrameType | None) -> None:
        for name in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, leave)


def die_with_parent() -> None:
    """In the child: get SIGTERM when the lab goes, however it goes."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def free_port() -> int:
    """A loopback port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A child that serves until it is left."""

    def __init__(self, argv: Sequence[Word], log: Path,
                 env: Mapping[str, str] | None = None, descriptors: Sequence[int] = ()) -> None:
        self.argv = [str(part) for part in argv]
        self.log = log
        with log.open("ab") as output:
            self.child = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=dict(env) if env is not None else None, preexec_fn=die_with_parent,
                pass_fds=descriptors)

    def wait_ready(self, ready: Callable[[], bool], seconds: float) -> bool:
        """True once `ready()`; false when the child has ended or the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.child.poll() is None:
            if ready():
                return True
            time.sleep(0.05)
        return False

    def last_words(self) -> str:
        """The end of its log, on one line."""
        return " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-4:])

    def interrupted(self, name: str) -> dict[str, Any]:
        """Ends `inrush` by SIGTERM, in time and with the exit code for it; its summary."""
        self.child.send_signal(signal.SIGTERM)
        expect(self.ends(INTERRUPT_SECONDS), f"{name} does not end within {INTERRUPT_SECONDS:g} s")
        code = self.child.returncode
        expect(code == INTERRUPTED, f"{name} ended with {code}: {self.last_words()}")
        return self.summary()

    def ends(self, seconds: float) -> bool:
        """Whether it ends by itself in this time."""
        with suppress(subprocess.TimeoutExpired):
            self.child.wait(seconds)
        return self.child.returncode is not None

    def summary(self) -> dict[str, Any]:
        """The last JSON in its log, where its errors stand, too."""
        found = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        expect(bool(found), f"it prints no summary: {self.last_words()}")
        summary: dict[str, Any] = json.loads(found[-1])
        return summary

    def stop(self) -> None:
        """SIGTERM, a bounded wait, then SIGKILL."""
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait(STOP_SECONDS)


def peak_rss(pid: int) -> int:
    """The child's highest resident size so far, in bytes; 0 when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def family_rss(pid: int) -> int:
    """What a process and its descendants have resident now, in bytes; what they share counts in
    each."""
    total = 0
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        total += sum(int(line.split()[1]) * 1024 for line in status.splitlines()
                     if line.startswith("VmRSS:"))
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
            total += sum(family_rss(int(child)) for child in children)
    except OSError:
        pass
    return total


def watch(child: subprocess.Popen[bytes], deadline: float, family: bool) -> tuple[int, bool]:
    """Waits for the end of `child` without reaping it: peak RSS, and whether it was killed."""
    peak, timed_out, count = 0, False, 0
    handle = os.pidfd_open(child.pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while not poll.poll(SAMPLE_SECONDS * 1000):
            peak = max(peak, peak_rss(child.pid))
            count += 1
            if family and count % FAMILY_SAMPLES == 0:
                peak = max(peak, family_rss(child.pid))
            if time.monotonic() > deadline and not timed_out:
                timed_out = True
                child.kill()
    finally:
        os.close(handle)
    return peak, timed_out


def run(argv: Sequence[Word], *, seconds: float, env: Mapping[str, str] | None = None,
        keep_stdout: bool = True, family: bool = False) -> Outcome:
    """Runs `argv` for at most `seconds` and returns what it cost; its peak RSS is with that of its
    `family` if `family` is true."""
    command = [str(part) for part in argv]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.monotonic()
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out if keep_stdout else subprocess.DEVNULL,
            stderr=err, env=dict(env) if env is not None else None, preexec_fn=die_with_parent)
        try:
            peak, timed_out = watch(child, started + seconds, family)
        except BaseException:
            child.kill()
            child.wait()
            raise
        elapsed = time.monotonic() - started
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return Outcome(
            code=child.returncode, seconds=elapsed,
            cpu_seconds=usage.ru_utime + usage.ru_stime, user_seconds=usage.ru_utime,
            peak_rss_bytes=peak or usage.ru_maxrss * 1024,
            stdout=out.read().decode(errors="replace"),
            stderr=err.read().decode(errors="replace"), timed_out=timed_out)


def must(argv: Sequence[Word], *, seconds: float = 60,
         env: Mapping[str, str] | None = None) -> str:
    """Runs a tool of the system that has to succeed; its stdout."""
    try:
        outcome = run(argv, seconds=seconds, env=env)
    except OSError as error:
        raise LabError(f"{argv[0]}: {error.strerror}") from error
    if outcome.code != 0:
        raise LabError(f"{' '.join(map(str, argv))}: exit {outcome.code}: {outcome.last_words()}")
    return outcome.stdout


def say(line: str) -> None:
    """One line to the reader, at once."""
    print(line, flush=True)


def note(line: str) -> None:
    """One line beside the results."""
    print(line, file=sys.stderr, flush=True)
