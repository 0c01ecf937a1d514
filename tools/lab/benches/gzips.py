"""Objects of gzip through a reader of standard output: by `inrush cat --gunzip`, and by curl with
gzip and with pigz behind it.

GB/s are of what the reader gets. CPU time is of all programs before the reader, and of the reader,
which is the same for all.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import streams
from lab.dataset import MIB
from lab.install import system_program
from lab.measure import Contender, Sample, of_outcome
from lab.process import must

MANY = 16
MANY_MIB = 16
WORDS = 4096
BASE_MIB = 8
"""Length after which the text repeats: deflate looks 32 KiB back."""


def _text() -> bytes:
    """Lines of words and numbers, which deflate makes about three times shorter."""
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9)))
             for _ in range(WORDS)]
    lines, length = [], 0
    while length < BASE_MIB * MIB:
        line = f"{chance.randrange(10**6)},{' '.join(chance.choices(words, k=12))},{length}\n"
        lines.append(line)
        length += len(line)
    return "".join(lines).encode()


def _write(path: Path, text: bytes, packed_bytes: int) -> None:
    """A file of one member, of about `packed_bytes`."""
    plain, program = path.with_suffix(""), system_program("pigz")
    plain.write_bytes(text)
    must([program, "-6", "-k", "-f", "-S", path.suffix, plain])
    times = max(1, round(packed_bytes / path.stat().st_size))
    with plain.open("wb") as file:
        for _ in range(times):
            file.write(text)
    must([program, "-6", "-f", "-S", path.suffix, plain], seconds=300)


def write(folder: Path) -> None:
    """One object, and several that are as long together."""
    text = _text()
    for name in ("one", "many"):
        (folder / name).mkdir(parents=True)
    _write(folder / "one/object.gz", text, MANY * MANY_MIB * MIB)
    _write(folder / "many/00.gz", text, MANY_MIB * MIB)
    for number in range(1, MANY):
        (folder / f"many/{number:02}.gz").hardlink_to(folder / "many/00.gz")


def plain_bytes(paths: Sequence[Path]) -> int:
    """What the files hold together."""
    command = 'cat "$@" | gzip -dc | wc -c'
    return int(must(["sh", "-c", command, "sh", *paths], seconds=120))


def contenders(program: Path, place: tuple[str, str], paths: Sequence[Path],
               options: Sequence[str], *, env: Mapping[str, str],
               seconds: float) -> dict[str, Contender]:
    """`program`, and curl with gzip and with pigz; `place` is the endpoint and the source."""
    url, source = place
    bucket_and_prefix = source.removeprefix("s3://")
    urls = [f"{url}/{bucket_and_prefix}{path.name}" for path in paths]
    size = plain_bytes(paths)
    curl = [system_program("curl"), "--disable", "--silent", "--show-error", "--fail", "--http1.1"]

    def piped(unpacker: str) -> list[str | Path]:
        script = 'unpack=$1; shift; "$@" | "$unpack" -dc'
        return ["sh", "-c", script, "sh", system_program(unpacker), *curl, *urls]

    commands: dict[str, list[str | Path]] = {
        "inrush": [program, "cat", "--gunzip", source, "--endpoint-url", url, "--region",
                   "us-east-1", "--no-sign-request", *options],
        "curl, gzip": piped("gzip"),
        "curl, pigz": piped("pigz"),
    }

    def contender(name: str, command: list[str | Path]) -> Contender:
        def once(_every_byte: bool) -> Sample:
            outcome = streams.through_stdout(command, size, env=env, seconds=seconds)
            return of_outcome(outcome, name, size, len(paths))
        return once

    return {name: contender(name, command) for name, command in commands.items()}
