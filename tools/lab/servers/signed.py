"""What programs find that use `inrush`: it, by its name, and a server that wants signatures."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab import client, install
from lab.servers import origin


@contextmanager
def serving(program: Path, server: Path, temp: Path, keys: tuple[str, str],
            extra: Mapping[str, str] | None = None) -> Iterator[dict[str, str]]:
    """The in-repo origin with the folders of `temp`/buckets, for who has these keys; the
    environment with which its users find it and the program, plus `extra`."""
    access_key, secret_key = keys
    words = ["--root", temp / "buckets", "--access-key", access_key, "--secret-key", secret_key]
    with origin.serving(server.resolve(), words, temp) as url:
        programs = temp / "programs"
        programs.mkdir()
        (programs / "inrush").symlink_to(program.resolve())
        yield client.clean_environment(temp, {
            "PATH": os.pathsep.join([str(programs), install.SYSTEM_PATH]),
            "AWS_ENDPOINT_URL_S3": url, "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key,
            **(extra or {})})
