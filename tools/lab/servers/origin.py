"""The in-repo origin as a child, on a free port of loopback, and clients that know it by one name.

A name with several addresses is given to one child alone: in a mount namespace of its own, where
another file lies over /etc/hosts. That takes root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.install import build_folder
from lab.process import LabError, Server

NAME = "origin.test"
START_SECONDS = 10.0
OVER_HOSTS = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'


def default_program() -> Path:
    """The release build of this checkout."""
    return build_folder() / "release" / "inrush-origin"


@contextmanager
def serving(program: Path, words: Sequence[str | Path], temp: Path,
            addresses: Sequence[str] = ("127.0.0.1",)) -> Iterator[str]:
    """The origin with these arguments; its endpoint, by the first of its addresses, which have one
    port. Its log and address are files in `temp`."""
    ready = temp / "origin.address"
    listen = [word for address in addresses for word in ("--listen", f"{address}:0")]
    server = Server([program, *listen, "--ready-file", ready, *words], temp / "origin.log")
    try:
        if not server.wait_ready(ready.is_file, START_SECONDS):
            raise LabError(f"the origin does not answer: {server.last_words()}")
        yield f"http://{ready.read_text().split()[0]}"
    finally:
        server.stop()
        ready.unlink(missing_ok=True)


def by_name(temp: Path, addresses: Sequence[str]) -> list[str]:
    """The beginning of a command line whose program finds all these addresses by `NAME`."""
    hosts = temp / "hosts"
    hosts.write_text("".join(f"{address} {NAME}\n" for address in addresses))
    return ["unshare", "--mount", "sh", "-c", OVER_HOSTS, "sh", str(hosts)]
