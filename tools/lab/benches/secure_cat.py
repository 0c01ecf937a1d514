"""One object over TLS through a reader of standard output: by `inrush cat`, and by curl.

CPU time is of producer and reader together: the reader is the same for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import streams
from lab.install import system_program
from lab.measure import Contender, Sample
from lab.process import LabError


@dataclass(frozen=True)
class Source:
    """An object, and who may be believed to have it."""

    url: str
    """Of the endpoint, in path style."""
    bucket: str
    key: str
    size: int
    bundle: Path


def contenders(program: Path, source: Source, options: Sequence[str], *, env: Mapping[str, str],
               seconds: float) -> dict[str, Contender]:
    """`program` and curl, in that order."""
    commands: dict[str, list[str | Path]] = {
        "inrush": [program, "cat", f"s3://{source.bucket}/{source.key}", "--endpoint-url",
                   source.url, "--region", "us-east-1", "--no-sign-request", "--ca-bundle",
                   source.bundle, *options],
        "curl": [system_program("curl"), "--disable", "--silent", "--show-error", "--fail",
                 "--http1.1", "--cacert", source.bundle,
                 f"{source.url}/{source.bucket}/{source.key}"],
    }

    def contender(name: str, command: list[str | Path]) -> Contender:
        def once(_every_byte: bool) -> Sample:
            outcome = streams.through_stdout(command, source.size, env=env, seconds=seconds)
            if outcome.timed_out or outcome.code != 0:
                raise LabError(f"{name}: exit {outcome.code}: {outcome.last_words()}")
            return Sample(
                bytes=source.size, files=1, seconds=outcome.seconds,
                cpu_seconds=outcome.cpu_seconds, user_seconds=outcome.user_seconds,
                peak_rss_bytes=outcome.peak_rss_bytes, own_gb_per_s=0.0)
        return once

    return {name: contender(name, command) for name, command in commands.items()}
