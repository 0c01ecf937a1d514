"""Streams under measurement: a producer that feeds a reader in another process.

The producer's time counts, the reader's does not; how long it took is from the producer's start to
its exit, which comes after the reader has taken everything but the last pipe full.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from lab.process import LabError, Outcome, Word, run

READER = Path(__file__).with_name("reader.py")
Part = dict[str, Any]
"""What the reader prints."""
GOLDEN = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1
Item = TypeVar("Item")


def shuffled(items: Sequence[Item], seed: int, epoch: int) -> list[Item]:
    """The order of an epoch as the documentation of `inrush pipe` says it, without its code: a
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


def by_pipes(producer: Sequence[Word], prefix: Path, epochs: int, *words: str,
             env: Mapping[str, str], seconds: float) -> tuple[Outcome, list[Part]]:
    """Runs a producer that serves named pipes to its end; what was read of each."""
    command = [sys.executable, str(READER), str(prefix), "--epochs", str(epochs), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        try:
            outcome = run(producer, seconds=seconds, env=env)
            if outcome.trouble:
                # Its reader would wait for pipes that never come.
                reader.kill()
            out, _ = reader.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{prefix}: the reader sees no end") from error
        finally:
            reader.kill()
    return outcome, [json.loads(line) for line in out.splitlines()]


def in_shell(script: str, producer: Sequence[Word], words: Sequence[str], *,
             env: Mapping[str, str], seconds: float) -> tuple[Outcome, list[Part]]:
    """Runs a script whose arguments are the producer, and in which READER is the reader with these
    words; what was read."""
    parts = Path(env["HOME"]) / "parts"
    parts.write_text("")
    reader = shlex.join([sys.executable, str(READER), *words])
    outcome = run(["sh", "-c", script.replace("READER", f'{reader} >"$PARTS"'), "sh", *producer],
                  seconds=seconds, env={**env, "PARTS": str(parts)})
    return outcome, [json.loads(line) for line in parts.read_text().splitlines()]


def by_stdout(producer: Sequence[Word], *words: str, env: Mapping[str, str],
              seconds: float) -> tuple[Outcome, list[Part]]:
    """Runs a producer whose standard output is read to its end; the exit code is the producer's."""
    script = '{ "$@"; echo $? >"$PARTS.code"; } | READER; exit "$(cat "$PARTS.code")"'
    return in_shell(script, producer, ["-", *words], env=env, seconds=seconds)


def through_pipe(producer: Sequence[Word], prefix: Path, size: int, *, env: Mapping[str, str],
                 seconds: float) -> Outcome:
    """Runs a producer that serves one named pipe, whose reader must get every byte."""
    outcome, parts = by_pipes(producer, prefix, 1, env=env, seconds=seconds)
    return whole(outcome, parts, size, str(producer[0]))


def through_stdout(producer: Sequence[Word], size: int, *, env: Mapping[str, str],
                   seconds: float) -> Outcome:
    """Runs a producer whose standard output is read, every byte."""
    outcome, parts = by_stdout(producer, env=env, seconds=seconds)
    return whole(outcome, parts, size, str(producer[0]))


def long_pipe(producer: Sequence[Word], prefix: Path, size: int, enough: float, *,
              env: Mapping[str, str], seconds: float) -> tuple[Outcome, int]:
    """Runs a producer that serves pipes of `size` bytes for ever until an epoch of its reader ends
    after `enough` seconds, then ends it with SIGTERM; how many bytes were read. The time is that of
    the reader, from the producer's start."""
    # The producer's exit code is that of a signal, and its child's time counts.
    script = ('"$@" & feeder=$!; READER; code=$?; kill -TERM $feeder; wait $feeder; exit $code')
    started = time.monotonic()
    outcome, parts = in_shell(
        script, producer, [str(prefix), "--epochs", "1000000", "--enough", str(enough)], env=env,
        seconds=seconds)
    whole(outcome, parts, size, str(producer[0]))
    return replace(outcome, seconds=parts[-1]["ended"] - started), sum(
        part["bytes"] for part in parts)


def long_stdout(producer: Sequence[Word], size: int, enough: float, *,
                env: Mapping[str, str], seconds: float) -> tuple[Outcome, int]:
    """Runs a producer again and again until its reader has read a multiple of `size` bytes after
    `enough` seconds, and leaves; how many bytes were read."""
    # Who writes to a reader that has left may well end with 0.
    script = ('rm -f "$PARTS.over"; until [ -e "$PARTS.over" ]; do "$@" || break; done | '
              '{ READER; code=$?; touch "$PARTS.over"; exit $code; }')
    outcome, parts = in_shell(script, producer, ["-", "--part-bytes", str(size), "--enough",
                                                 str(enough)], env=env, seconds=seconds)
    whole(outcome, parts, size, str(producer[0]))
    if sum(part["seconds"] for part in parts) < enough:
        raise LabError(f"{producer[0]}: ended before its time: {outcome.last_words()}")
    return outcome, sum(part["bytes"] for part in parts)


def whole(outcome: Outcome, parts: Sequence[Part], size: int, name: str) -> Outcome:
    """The outcome, unless a part that was read has not its size, or there is none."""
    if outcome.timed_out or not parts or any(part["bytes"] != size for part in parts):
        got = ", ".join(str(part["bytes"]) for part in parts[-3:]) or "nothing"
        raise LabError(f"{name}: the reader got {got} of {size} bytes: {outcome.last_words()}")
    return outcome
