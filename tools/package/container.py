"""A container of the image: unpacked here, and run by crun without a daemon."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import install
from lab.process import LabError, Outcome, run

RUN_SECONDS = 120.0
DELETE_SECONDS = 20.0
# crun looks at the cgroups even where it shall make none, and refuses a mixture of both versions:
# in a mount name space of its own it finds version 2 alone.
UNIFIED = ("unshare", "--mount", "sh", "-c",
           "umount --recursive /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec \"$@\"",
           "sh")


def blob(archive: tarfile.TarFile, descriptor: dict[str, Any]) -> bytes:
    """The blob of a descriptor; fails unless size and digest are right."""
    algorithm, _, digest = descriptor["digest"].partition(":")
    member = archive.extractfile(f"blobs/{algorithm}/{digest}")
    content = member.read() if member else b""
    if hashlib.new(algorithm, content).hexdigest() != digest or len(content) != descriptor["size"]:
        raise LabError(f"the blob {digest} is not what its descriptor says")
    return content


def manifests(archive: tarfile.TarFile) -> dict[str, dict[str, Any]]:
    """The descriptors of the image's manifests, by architecture."""
    index = archive.extractfile("index.json")
    entry = json.loads(index.read() if index else b"{}")["manifests"][0]
    return {found["platform"]["architecture"]: found
            for found in json.loads(blob(archive, entry))["manifests"]}


def architectures(image: Path) -> list[str]:
    """What the image can run on."""
    with tarfile.open(image) as archive:
        return list(manifests(archive))


def unpack(image: Path, architecture: str, folder: Path) -> dict[str, Any]:
    """Unpacks the image of this architecture into `folder`, as its specification says; its
    configuration."""
    with tarfile.open(image) as archive:
        document = json.loads(blob(archive, manifests(archive)[architecture]))
        config = json.loads(blob(archive, document["config"]))
        folder.mkdir(parents=True)
        for layer, diff_id in zip(document["layers"], config["rootfs"]["diff_ids"], strict=True):
            plain = gzip.decompress(blob(archive, layer))
            if f"sha256:{hashlib.sha256(plain).hexdigest()}" != diff_id:
                raise LabError("a layer is not the one of the configuration")
            with tarfile.open(fileobj=io.BytesIO(plain)) as files:
                files.extractall(folder)
    return dict(config)


@dataclass
class Container:
    """How a container is started."""

    bundle: Path
    config: dict[str, Any]
    seccomp: dict[str, Any] | None = None
    read_only: bool = False
    locked_memory_bytes: int | None = None
    mounts: dict[str, Path] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def specification(self, words: Sequence[str]) -> dict[str, Any]:
        """The runtime's config.json: no capabilities, the host's network, no cgroup."""
        asked = self.config["config"]
        user, group = map(int, asked["User"].split(":"))
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            *({"destination": there, "type": "bind", "source": str(here),
               "options": ["rbind", "rw"]} for there, here in self.mounts.items()),
        ]
        process: dict[str, Any] = {
            "user": {"uid": user, "gid": group}, "cwd": asked["WorkingDir"],
            "args": [*asked["Entrypoint"], *words], "env": [*asked["Env"], *variables],
            "noNewPrivileges": True, "capabilities": {},
        }
        if self.locked_memory_bytes is not None:
            limit = self.locked_memory_bytes
            process["rlimits"] = [{"type": "RLIMIT_MEMLOCK", "soft": limit, "hard": limit}]
        linux: dict[str, Any] = {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc")]}
        if self.seccomp is not None:
            linux["seccomp"] = self.seccomp
        return {"ociVersion": "1.0.2", "root": {"path": "root", "readonly": self.read_only},
                "process": process, "mounts": mounts, "linux": linux}

    def run(self, words: Sequence[str]) -> Outcome:
        """Runs the entry point with these words."""
        crun = install.system_program("crun")
        text = json.dumps(self.specification(words))
        (self.bundle / "config.json").write_text(text)
        runtime = [*UNIFIED, crun, "--root", self.bundle / "state", "--cgroup-manager=disabled"]
        name = f"inrush-check-{os.getpid()}"
        try:
            return run([*runtime, "run", "--bundle", self.bundle, name], seconds=RUN_SECONDS)
        finally:
            # One that has ended is gone; one that was cut short is not.
            run([*runtime, "delete", "--force", name], seconds=DELETE_SECONDS)
