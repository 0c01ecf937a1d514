"""OpenStack Swift and its middleware for the S3 API: one replica on one folder.

The folder's file system needs extended attributes. The four servers run in one process each, on
loopback, and write what they log into the folder.
"""

from __future__ import annotations

import getpass
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab import install
from lab.process import Server, free_port, must
from lab.servers.store import SECRET_KEY, Keys, Store, until_left

# What S3 knows as the access key is the account and the user.
ACCOUNT = "inrush"
KEYS = Keys(f"{ACCOUNT}:lab", SECRET_KEY)
OTHER_KEYS = Keys("other:lab", SECRET_KEY)
"""Of another account, which has buckets of its own."""
SHARED = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {temp}
devices = {temp}/devices
mount_check = false
log_level = WARNING
log_address = {temp}/no-syslog

"""
STORAGE = """\
[pipeline:main]
pipeline = {kind}-server

[app:{kind}-server]
use = egg:swift#{kind}
fallocate_reserve = 0
"""
PROXY = """\
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck listing_formats bulk s3api tempauth copy slo dlo \
versioned_writes symlink proxy-server

[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true

[filter:s3api]
use = egg:swift#s3api
location = us-east-1
storage_domain = {domain}

[filter:tempauth]
use = egg:swift#tempauth
user_{account}_lab = {secret} .admin
user_other_lab = {secret} .admin

[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
"""
PLAIN_FILTERS = ("catch_errors", "gatekeeper", "healthcheck", "listing_formats", "bulk", "copy",
                 "slo", "dlo", "symlink")
KINDS = ("account", "container", "object")


def write_rings(programs: Path, temp: Path, ports: dict[str, int]) -> None:
    """Where each kind of thing is kept: on the one device."""
    for kind in KINDS:
        ring = temp / f"{kind}.builder"
        builder = programs / "swift-ring-builder"
        must([builder, ring, "create", "1", "1", "0"])
        must([builder, ring, "add", f"r1z1-127.0.0.1:{ports[kind]}/d", "1"])
        must([builder, ring, "rebalance"])


def write_settings(temp: Path, ports: dict[str, int]) -> None:
    """The configuration of all servers."""
    (temp / "swift.conf").write_text(textwrap.dedent("""\
        [swift-hash]
        swift_hash_path_suffix = lab
        [storage-policy:0]
        name = lab
        default = yes
        """))
    for kind, port in ports.items():
        shared = SHARED.format(port=port, user=getpass.getuser(), temp=temp)
        own = STORAGE.format(kind=kind) if kind in KINDS else PROXY.format(
            domain=Store.VIRTUAL_DOMAIN, account=ACCOUNT, secret=SECRET_KEY) + "".join(
                f"\n[filter:{name}]\nuse = egg:swift#{name}\n" for name in PLAIN_FILTERS)
        (temp / f"{kind}.conf").write_text(shared + own)


@contextmanager
def serve(temp: Path) -> Iterator[Store]:
    """An empty Swift on free ports."""
    programs = install.program("swift").parent
    (temp / "devices/d").mkdir(parents=True)
    ports = {kind: free_port() for kind in (*KINDS, "proxy")}
    write_rings(programs, temp, ports)
    write_settings(temp, ports)
    with ExitStack() as running:
        for kind, port in ports.items():
            server = Server([programs / f"swift-{kind}-server", temp / f"{kind}.conf", "--verbose"],
                            temp / f"{kind}.log")
            running.enter_context(until_left(server, f"swift-{kind}-server", port))
        yield Store(ports["proxy"], "swift", KEYS, OTHER_KEYS)
