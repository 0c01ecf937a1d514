"""The origin of this repository as a server of the lab, and clients that know it by one name.

A name with several addresses is given to one child alone: in a mount namespace of its own, where
another file lies over /etc/hosts. That takes root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .install import build_folder
from .process import LabError, Server

NAME = "origin.test"
READY_SECONDS = 20.0
TOLD = "listening on http://"
OVER_HOSTS = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'


def default_program() -> Path:
    """The release build of this checkout."""
    return build_folder() / "release" / "inrush-origin"


@contextmanager
def serve(program: Path, temp: Path, addresses: Sequence[str],
          options: Sequence[str | Path]) -> Iterator[int]:
    """An origin on these addresses; its port, which is the same on all."""
    temp.mkdir(parents=True)
    listen = [word for address in addresses for word in ("--listen", f"{address}:0")]
    log = temp / "origin.log"
    server = Server([program, *listen, *options], log)

    def told() -> list[str]:
        return [line for line in log.read_text().splitlines() if line.startswith(TOLD)]

    try:
        if not server.wait_ready(lambda: len(told()) == len(addresses), READY_SECONDS):
            raise LabError(f"the origin does not start: {server.last_words()}")
        yield int(told()[0].rsplit(":", 1)[1])
    finally:
        server.stop()


def by_name(temp: Path, addresses: Sequence[str]) -> list[str]:
    """The beginning of a command line whose program finds all these addresses by `NAME`."""
    hosts = temp / "hosts"
    hosts.write_text("".join(f"{address} {NAME}\n" for address in addresses))
    return ["unshare", "--mount", "sh", "-c", OVER_HOSTS, "sh", str(hosts)]
