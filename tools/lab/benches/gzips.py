"""Objects of gzip: how they are made, and who unpacks them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from lab import peers
from lab.benches.ground import BUCKET, OURS, SPEED, Bench, Figures
from lab.dataset import MIB
from lab.install import system_program
from lab.measure import Bound
from lab.process import Word, must

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


def _unpacked(bench: Bench, name: str, title: str) -> Figures:
    """Objects of gzip as what they hold."""
    prefix = f"gzip/{name}/"
    objects = bench.below(prefix)
    urls = [f"{bench.server.url}/{BUCKET}/{entry.key}" for entry in objects]
    size = plain_bytes([entry.path for entry in objects])
    script = 'unpack=$1; shift; "$@" | "$unpack" -dc'
    commands: dict[str, list[Word]] = {
        OURS: bench.command("cat", "--gunzip", f"s3://{BUCKET}/{prefix}"),
        **{f"curl, {unpacker}": ["sh", "-c", script, "sh", system_program(unpacker),
                                 *peers.curl_words(), *urls] for unpacker in ("gzip", "pigz")}}
    contenders = {who: bench.to_reader(who, command, size, len(objects))
                  for who, command in commands.items()}
    return bench.finish(title, contenders, SPEED, ("gb_per_s", "cpu_s_per_gb"),
                        Bound("inrush / curl, gzip", "cpu_s_per_gb", 0.8, is_most=True))


def one(bench: Bench) -> Figures:
    """One object of gzip of 256 MiB by `cat --gunzip`, beside curl with gzip and with pigz.

    GB/s are of what the reader of standard output gets. `--check` wants at most 0.8 of the CPU time
    of curl with gzip."""
    return _unpacked(bench, "one",
                     f"gzip: an object of gzip of {MANY * MANY_MIB} MiB to a reader")


def many(bench: Bench) -> Figures:
    """16 objects of gzip of 16 MiB, each of which another core can inflate."""
    return _unpacked(bench, "many",
                     f"gzip-many: {MANY} objects of gzip of {MANY_MIB} MiB to a reader")
