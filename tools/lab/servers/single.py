"""Servers of objects that are one program each: moto, SeaweedFS, rclone, and JuiceFS.

Each listens on loopback only, reports nothing to its makers, and keeps all that it writes in one
folder. moto looks whether there is a signature, not whether it is right.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab import install
from lab.process import Server, Word, free_port, must
from lab.servers.store import Keys, Store, until_left

DOMAIN = Store.VIRTUAL_DOMAIN


@dataclass(frozen=True)
class Call:
    """How a program is called."""

    line: list[Word]
    env: Mapping[str, str] = field(default_factory=dict)


def moto(_temp: Path, port: int, _keys: Keys) -> Call:
    """Another project's reading of the API, in memory."""
    return Call([install.program("moto"), "-H", "127.0.0.1", "-p", str(port)])


def seaweedfs(temp: Path, port: int, keys: Keys) -> Call:
    """A master, a volume server, a filer and the S3 API in one process."""
    users = temp / "users.json"
    users.write_text(json.dumps({"identities": [{
        "name": "lab", "credentials": [{"accessKey": keys.access, "secretKey": keys.secret}],
        "actions": ["Admin", "Read", "List", "Tagging", "Write"]}]}))
    ports = [f"-{part}.{kind}={free_port()}" for part in ("master", "volume", "filer")
             for kind in ("port", "port.grpc")]
    # These would be in the system's folder for temporary files.
    sockets = [f"-{part}.localSocket={temp}/{part}.socket" for part in ("filer", "s3")]
    return Call([install.program("seaweedfs"), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                 f"-dir={temp}", *ports, *sockets, "-master.telemetry=false",
                 "-master.volumeSizeLimitMB=64", "-volume.max=64", "-volume.minFreeSpace=1",
                 "-s3", f"-s3.port={port}", f"-s3.port.grpc={free_port()}", "-s3.port.iceberg=0",
                 "-s3.port.lance=0", f"-s3.config={users}", f"-s3.domainName={DOMAIN}"])


def rclone(temp: Path, port: int, keys: Keys) -> Call:
    """What it serves is a folder."""
    return Call([install.program("rclone"), "serve", "s3", temp / "data", "--addr",
                 f"127.0.0.1:{port}", "--auth-key", f"{keys.access},{keys.secret}", "--config",
                 temp / "none.conf", "--cache-dir", temp / "cache"])


def juicefs(temp: Path, port: int, keys: Keys) -> Call:
    """MinIO's gateway over a volume of JuiceFS, which is a folder and a database."""
    program, volume, home = install.program("juicefs"), f"sqlite3://{temp}/meta.db", str(temp)
    must([program, "format", volume, "lab", "--storage", "file", "--bucket", f"{temp}/data/"],
         env={**os.environ, "HOME": home})
    return Call([program, "gateway", volume, f"127.0.0.1:{port}", "--multi-buckets", "--keep-etag",
                 "--no-banner", "--no-usage-report", "--metrics", f"127.0.0.1:{free_port()}",
                 "--domain", DOMAIN, "--cache-dir", temp / "cache", "--log",
                 temp / "gateway.log"],
                {"MINIO_ROOT_USER": keys.access, "MINIO_ROOT_PASSWORD": keys.secret, "HOME": home})


CALLS: dict[str, Callable[[Path, int, Keys], Call]] = {
    "moto": moto, "seaweedfs": seaweedfs, "rclone": rclone, "juicefs": juicefs}
KEEP_VERSIONS = ("moto", "seaweedfs")


@contextmanager
def serve(temp: Path, name: str) -> Iterator[Store]:
    """An empty server of this name on a free port."""
    (temp / "data").mkdir(parents=True)
    store = Store(free_port(), name, checks_signatures=name != "moto",
                  keeps_versions=name in KEEP_VERSIONS,
                  # An option makes it the other style alone.
                  has_virtual_style=name != "rclone",
                  # Behind it are files: it takes a backslash for a slash.
                  misread="\\" if name == "seaweedfs" else "")
    call = CALLS[name](temp, store.port, store.keys)
    server = Server(call.line, temp / "output.log", {**os.environ, **call.env})
    with until_left(server, name, store.port):
        yield store
