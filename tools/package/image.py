"""The container image, from scratch: an OCI image layout in one tar archive, for both processors.

Written by the OCI Image Format Specification 1.1, without a daemon. `skopeo copy oci-archive:...`
copies it to a daemon or a registry.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import install

from . import archive, binary, licenses
from .archive import Entry
from .binary import Machine

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
USER = "65534:65534"
PASSWD = b"root:x:0:0:root:/:/sbin/nologin\n" \
         b"nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n"
GROUP = b"root:x:0:\nnogroup:x:65534:\n"


@dataclass
class Layout:
    """The blobs of an image, by their digests."""

    blobs: dict[str, bytes] = field(default_factory=dict)

    def add(self, media_type: str, content: bytes) -> dict[str, Any]:
        """Keeps a blob; its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, media_type: str, document: dict[str, Any]) -> dict[str, Any]:
        """Keeps a document; its descriptor."""
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return self.add(media_type, text.encode())


def root(machine: Machine) -> list[Entry]:
    """The files of the image. Folders come before what is in them."""
    folders = ["etc", "etc/ssl", "etc/ssl/certs", "usr", "usr/bin", "usr/share", "usr/share/doc",
               "usr/share/doc/inrush"]
    return [
        *(Entry(folder, mode=0o755) for folder in folders),
        Entry("tmp", mode=0o1777),
        Entry("data", mode=0o1777),
        Entry("etc/passwd", PASSWD),
        Entry("etc/group", GROUP),
        Entry("etc/ssl/certs/ca-certificates.crt", install.authorities().read_bytes()),
        Entry("usr/share/doc/inrush/LICENSE", (install.REPOSITORY / "LICENSE").read_bytes()),
        Entry("usr/share/doc/inrush/third-party-licenses.txt", licenses.document(machine)),
        Entry("usr/bin/inrush", binary.program(machine).read_bytes(), 0o755),
    ]


def config(machine: Machine, layer: bytes) -> dict[str, Any]:
    """How a container of the image starts."""
    return {
        "created": created(),
        "architecture": machine.debian,
        "os": "linux",
        "config": {
            "User": USER,
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/inrush"],
            "Cmd": ["--help"],
            "WorkingDir": "/data",
            "Labels": {
                "org.opencontainers.image.title": "inrush",
                "org.opencontainers.image.version": binary.version(),
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": created(), "created_by": "tools/package/make.py image"}],
    }


def created() -> str:
    """The time of the image (RFC 3339)."""
    time = datetime.datetime.fromtimestamp(binary.epoch(), datetime.timezone.utc)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def build(machines: list[Machine], output: Path) -> Path:
    """Makes the image for these processors; the path of the archive."""
    layout = Layout()
    manifests = []
    for machine in machines:
        layer = archive.tar(root(machine), binary.epoch())
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": layout.add_json(CONFIG, config(machine, layer)),
            "layers": [layout.add(LAYER, archive.compressed(layer))],
        }
        platform = {"architecture": machine.debian, "os": "linux"}
        manifests.append({**layout.add_json(MANIFEST, manifest), "platform": platform})
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    # One image under one name: what there is for each processor is in a second index.
    whole = layout.add_json(INDEX, index)
    name = {"org.opencontainers.image.ref.name": binary.version()}
    top = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**whole, "annotations": name}]}
    entries = [
        Entry("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
        Entry("index.json", json.dumps(top, sort_keys=True).encode()),
        Entry("blobs", mode=0o755),
        Entry("blobs/sha256", mode=0o755),
        *(Entry(f"blobs/sha256/{digest}", content)
          for digest, content in sorted(layout.blobs.items())),
    ]
    path = output / f"inrush-{binary.version()}-oci.tar"
    path.write_bytes(archive.tar(entries, binary.epoch()))
    return path
