"""The command lines of `inrush` and the environment they run in.

The environment is this process's own without anything that would lend credentials, a region, a
profile or a proxy: a run depends on its arguments alone.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.install import build_folder
from lab.process import LabError, Outcome, run, say
from lab.servers import origin

SUMMARY_FIELDS = ("objects", "bytes", "seconds", "gigabytes_per_second",
                  "cpu_seconds_per_terabyte", "peak_rss_bytes")


def default_program() -> Path:
    """`INRUSH_BIN`, or the release build of this checkout."""
    return Path(os.environ.get("INRUSH_BIN") or build_folder() / "release" / "inrush")


def argument_parser(doc: str | None, *, with_origin: bool = True) -> argparse.ArgumentParser:
    """A parser whose help begins with the first line of a docstring, with the programs' options."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--inrush", type=Path, default=default_program(),
                        help="the program (default: INRUSH_BIN or the release build)")
    if with_origin:
        parser.add_argument("--origin", type=Path, default=origin.default_program(),
                            help="the in-repo server (default: the release build)")
    return parser


def are_built(*programs: Path) -> bool:
    """Whether all of them are there; says what to do about the first that is not."""
    for program in programs:
        if not program.is_file():
            say(f"{program} is missing; build it with `cargo build --release --workspace` or give "
                "its path")
            return False
    return True


def clean_environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without credentials, with an empty home, plus `extra`."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("AWS_") and "proxy" not in name.lower()}
    return {**kept, "HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true", **(extra or {})}


def get(program: Path, sources: Sequence[str], destination: Path | None, *, endpoint: str,
        options: Sequence[str], env: Mapping[str, str], seconds: float,
        within: Sequence[str] = ()) -> Outcome:
    """`inrush get`, to `destination` or, without one, to nowhere; with the JSON summary. `within`:
    what the command line begins with."""
    where = ["--discard"] if destination is None else [str(destination)]
    return _fetch([*within, program, "get", *sources, *where], endpoint, options, env, seconds)


def sync(program: Path, sources: Sequence[str], destination: Path, *, endpoint: str,
         options: Sequence[str], env: Mapping[str, str], seconds: float) -> Outcome:
    """`inrush sync`, with the JSON summary."""
    command = [program, "sync", *sources, str(destination)]
    return _fetch(command, endpoint, options, env, seconds)


def _fetch(command: Sequence[str | Path], endpoint: str, options: Sequence[str],
           env: Mapping[str, str], seconds: float) -> Outcome:
    return run([*command, "--endpoint-url", endpoint, "--region", "us-east-1", "--quiet",
                "--json", *options], seconds=seconds, env=env)


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
