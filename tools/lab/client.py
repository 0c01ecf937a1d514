"""The command lines of `inrush` and the environment they run in.

The environment is this process's own without anything that would lend credentials, a region, a
profile or a proxy: a run depends on its arguments alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.install import build_folder
from lab.process import LabError, Outcome, Server, Word, run

MOUNT_SECONDS = 30.0
SUMMARY_FIELDS = ("objects", "bytes", "seconds", "gigabytes_per_second",
                  "cpu_seconds_per_terabyte", "peak_rss_bytes")


def default_program() -> Path:
    """`INRUSH_BIN`, or the release build of this checkout."""
    return Path(os.environ.get("INRUSH_BIN") or build_folder() / "release" / "inrush")


def clean_environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without credentials, with an empty home, plus `extra`."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("AWS_") and "proxy" not in name.lower()}
    return {**kept, "HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true", **(extra or {})}


def command(program: Path, name: str, *words: Word, url: str) -> list[Word]:
    """A command line of the program that asks this endpoint."""
    return [program, name, *words, "--endpoint-url", url, "--region", "us-east-1"]


def fetch(program: Path, name: str, source: str, destination: Path | None, *, url: str,
          options: Sequence[Word], env: Mapping[str, str], seconds: float,
          within: Sequence[Word] = ()) -> Outcome:
    """`inrush get` or `sync` with its JSON summary, to `destination` or, without one, to nowhere.
    `within`: what the command line begins with."""
    line = command(program, name, source, destination or "--discard", url=url)
    return run([*within, *line, "--quiet", "--json", *options], seconds=seconds, env=env)


def summary(outcome: Outcome) -> dict[str, Any]:
    """The JSON summary of a run, with every field of the contract."""
    try:
        found = json.loads(outcome.stdout)
    except json.JSONDecodeError as error:
        raise LabError(f"the summary is no JSON ({error}): {outcome.stdout[:200]!r}") from error
    missing = [name for name in SUMMARY_FIELDS if name not in found]
    if missing:
        raise LabError(f"the summary lacks {', '.join(missing)}: {outcome.stdout[:200]!r}")
    return dict(found)


def is_mounted(point: Path) -> bool:
    """Whether something serves there; a process that has ended does not."""
    try:
        return point.is_mount()
    except OSError:
        return False


@contextmanager
def mounted(line: Sequence[Word], point: Path, env: Mapping[str, str]) -> Iterator[Server]:
    """While inside, the program of this line serves a mount; its log is beside the point."""
    point.mkdir(parents=True, exist_ok=True)
    log = point.with_name(f"{point.name}.log")
    log.unlink(missing_ok=True)
    server = Server(line, log, env=env)
    try:
        if not server.wait_ready(lambda: is_mounted(point), MOUNT_SECONDS):
            raise LabError(f"{Path(line[0]).name} does not mount: {server.last_words()}")
        yield server
    finally:
        run(["umount", "--lazy", "--quiet", point], seconds=MOUNT_SECONDS)
        server.stop()
