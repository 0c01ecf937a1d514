"""Streams under measurement: a producer that feeds a reader in another process.

The producer's time counts, the reader's does not; how long it took is from the producer's start to
its exit, which comes after the reader has taken everything but the last pipe full.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from lab.process import LabError, Outcome, run

FOLDER = Path(__file__).parent
READER = FOLDER / "pipe_reader.py"
LONG_READER = FOLDER / "paced_reader.py"
GOLDEN = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1
Item = TypeVar("Item")


def shuffled(items: Sequence[Item], seed: int, epoch: int) -> list[Item]:
    """The order of an epoch by the words of `inrush pipe`'s documentation, written anew here: a
    Fisher-Yates shuffle whose words are SplitMix64's from seed XOR (epoch + 1) * GOLDEN."""
    order, state = list(items), seed ^ ((epoch + 1) * GOLDEN & WORD)
    for last in range(len(order) - 1, 0, -1):
        state = (state + GOLDEN) & WORD
        word = state
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & WORD
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & WORD
        word ^= word >> 31
        other = word * (last + 1) >> 64
        order[last], order[other] = order[other], order[last]
    return order


def through_pipe(producer: Sequence[str | Path], pipe: Path, size: int, *,
                 env: Mapping[str, str], seconds: float) -> Outcome:
    """Runs a producer that serves the named pipe `pipe` to its end."""
    with subprocess.Popen([sys.executable, str(READER), str(pipe)], stdout=subprocess.PIPE,
                          text=True) as reader:
        try:
            outcome = run(producer, seconds=seconds, env=env)
            out, _ = reader.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{pipe}: the reader sees no end") from error
        finally:
            reader.kill()
    expect(out, size, str(producer[0]))
    return outcome


def epochs(producer: Sequence[str | Path], pipes: Sequence[Path], *, env: Mapping[str, str],
           seconds: float) -> tuple[Outcome, list[str]]:
    """Runs a producer that serves these pipes one after the other; the digest of each."""
    script = 'for pipe; do "$PYTHON" "$READER" "$pipe" sha256; done'
    with subprocess.Popen(["sh", "-c", script, "sh", *[str(pipe) for pipe in pipes]],
                          stdout=subprocess.PIPE, text=True, start_new_session=True,
                          env={**env, "PYTHON": sys.executable, "READER": str(READER)}) as reader:
        try:
            outcome = run(producer, seconds=seconds, env=env)
            if outcome.timed_out or outcome.code != 0:
                # Its reader would wait for pipes that never come.
                os.killpg(reader.pid, signal.SIGKILL)
            out, _ = reader.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{pipes[-1]}: the reader sees no end") from error
        finally:
            # The shell's own child too: it would wait for a writer for ever.
            if reader.poll() is None:
                os.killpg(reader.pid, signal.SIGKILL)
    return outcome, out.split("\n")[:-1]


def stdout_digest(producer: Sequence[str | Path], *, env: Mapping[str, str],
                  seconds: float) -> tuple[Outcome, str]:
    """Runs a producer whose standard output is read to its end; the producer's exit code, and the
    digest of what came."""
    script = '{ "$@"; echo $? >"$CODE"; } | "$PYTHON" "$READER" - sha256'
    code = Path(env["HOME"]) / "code"
    outcome = run(["sh", "-c", script, "sh", *producer], seconds=seconds,
                  env={**env, "PYTHON": sys.executable, "READER": str(READER), "CODE": str(code)})
    if not outcome.timed_out:
        outcome = replace(outcome, code=int(code.read_text()))
    return outcome, outcome.stdout.strip()


def through_stdout(producer: Sequence[str | Path], size: int, *, env: Mapping[str, str],
                   seconds: float) -> Outcome:
    """Runs a producer whose standard output is read to its end."""
    command = ["sh", "-c", '"$@" | "$0" "$READER" - >"$COUNT"', sys.executable,
               *[str(part) for part in producer]]
    count = Path(env["HOME"]) / "count"
    outcome = run(command, seconds=seconds,
                  env={**env, "READER": str(READER), "COUNT": str(count)})
    expect(count.read_text(), size, str(producer[0]))
    return outcome


def long_pipe(producer: Sequence[str | Path], pipe: Path, size: int, enough: float, *,
              env: Mapping[str, str], seconds: float) -> tuple[Outcome, int]:
    """Runs a producer that serves pipes of `size` bytes for ever until an epoch of its reader ends
    after `enough` seconds, then ends it with SIGTERM; how many bytes were read. The time is that of
    the reader, from the producer's start."""
    # The producer's exit code is that of a signal, and its child's time counts.
    script = ('"$@" & feeder=$!; "$PYTHON" "$READER" "$PIPE" --epochs 1000000 '
              '--enough "$ENOUGH" >"$PARTS"; code=$?; kill -TERM $feeder; wait $feeder; exit $code')
    parts = Path(env["HOME"]) / "parts"
    started = time.monotonic()
    outcome = run(["sh", "-c", script, "sh", *producer], seconds=seconds, env={
        **env, "PYTHON": sys.executable, "READER": str(LONG_READER), "PIPE": str(pipe),
        "ENOUGH": str(enough), "PARTS": str(parts)})
    read = parts_in(parts, size, str(producer[0]), outcome)
    return replace(outcome, seconds=read[-1]["ended"] - started), sum(
        part["bytes"] for part in read)


def long_stdout(producer: Sequence[str | Path], size: int, enough: float, *,
                env: Mapping[str, str], seconds: float) -> tuple[Outcome, int]:
    """Runs a producer again and again until its reader has read a multiple of `size` bytes after
    `enough` seconds, and leaves; how many bytes were read."""
    # Who writes to a reader that has left may well end with 0.
    script = ('until [ -e "$OVER" ]; do "$@" || break; done | { '
              '"$PYTHON" "$READER" - --part-bytes "$SIZE" --enough "$ENOUGH" >"$PARTS"; '
              'code=$?; touch "$OVER"; exit $code; }')
    parts, over = Path(env["HOME"]) / "parts", Path(env["HOME"]) / "over"
    over.unlink(missing_ok=True)
    outcome = run(["sh", "-c", script, "sh", *producer], seconds=seconds, env={
        **env, "PYTHON": sys.executable, "READER": str(LONG_READER), "SIZE": str(size),
        "ENOUGH": str(enough), "PARTS": str(parts), "OVER": str(over)})
    read = parts_in(parts, size, str(producer[0]), outcome)
    if sum(part["seconds"] for part in read) < enough:
        raise LabError(f"{producer[0]}: ended before its time: {outcome.last_words()}")
    return outcome, sum(part["bytes"] for part in read)


def parts_in(parts: Path, size: int, name: str, outcome: Outcome) -> list[dict[str, Any]]:
    """What the reader of a long stream wrote; every part must have its size."""
    read = [json.loads(line) for line in parts.read_text().splitlines()]
    if outcome.timed_out or not read or any(part["bytes"] != size for part in read):
        raise LabError(f"{name}: {len(read)} times {size} bytes were not read: "
                       f"{outcome.last_words()}")
    return read


def expect(printed: str, size: int, name: str) -> None:
    """The reader must have got every byte."""
    if printed.strip() != str(size):
        raise LabError(f"{name}: the reader got {printed.strip() or 'nothing'} of {size} bytes")
