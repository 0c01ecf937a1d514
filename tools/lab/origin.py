"""The in-repo origin as a child, on a free port of loopback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .install import build_folder
from .process import LabError, Server

START_SECONDS = 10.0


def default_program() -> Path:
    """The release build of this checkout."""
    return build_folder() / "release" / "inrush-origin"


@contextmanager
def serving(program: Path, words: Sequence[str | Path], temp: Path) -> Iterator[str]:
    """The origin with these arguments; its endpoint. Its log and address are files in `temp`."""
    ready = temp / "origin.address"
    server = Server([program, "--listen", "127.0.0.1:0", "--ready-file", ready, *words],
                    temp / "origin.log")
    try:
        if not server.wait_ready(ready.is_file, START_SECONDS):
            raise LabError(f"the origin does not answer: {server.last_words()}")
        yield f"http://{ready.read_text().strip()}"
    finally:
        server.stop()
        ready.unlink(missing_ok=True)
