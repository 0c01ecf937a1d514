"""Ceph's gateway for S3 over one monitor and one OSD that keeps its objects in memory.

There is no authentication among the three, which listen on loopback alone, and no manager: nobody
asks for statistics. All that they write is in one folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab import install
from lab.process import LabError, Server, free_port, must, run
from lab.servers.store import Keys, Store, until_left

START_SECONDS = 60.0
TENANT = "inrushtenant"
TENANT_KEYS = Keys("inrushtenantkey", "inrush-tenant-secret")
"""Of a user of the tenant, which has buckets of its own."""
SETTINGS = """\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{monitor_port}]
mon initial members = lab
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
# The gateway would ask for encryption, for which there are no keys.
ms mon client mode = crc
run dir = {temp}
crash dir = {temp}
log file = {temp}/$name.log
admin socket =
osd objectstore = memstore
memstore device bytes = {memory_bytes}
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
# Of a disk that is nearly full the monitor stops.
mon data avail crit = 1
[mon.lab]
mon data = {temp}/monitor
[osd.0]
osd data = {temp}/osd
[client.rgw.lab]
rgw data = {temp}
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw dns name = {domain}
"""
MEMORY_BYTES = 2 << 30


def add_users(settings: Path, keys: Keys) -> None:
    """The lab's user, and one of a tenant."""
    for words, of_whom in ((["--uid", "lab"], keys),
                           (["--uid", "lab", "--tenant", TENANT], TENANT_KEYS)):
        must(["radosgw-admin", "-c", settings, "user", "create", "--display-name", "lab", *words,
              "--access-key", of_whom.access, "--secret-key", of_whom.secret])


def is_up(settings: Path) -> bool:
    """Whether the monitor knows the OSD as one that serves."""
    found = run(["ceph", "-c", settings, "--connect-timeout", "5", "osd", "stat"], seconds=10)
    return "1 up" in found.stdout


@contextmanager
def serve(temp: Path) -> Iterator[Store]:
    """An empty cluster on free ports."""
    install.ceph()
    (temp / "monitor").mkdir(parents=True)
    (temp / "osd").mkdir()
    settings, map_of_monitors = temp / "ceph.conf", temp / "monmap"
    store = Store(free_port(), "radosgw", other=TENANT_KEYS, tenant=TENANT)
    fsid, osd, monitor_port = str(uuid.uuid4()), str(uuid.uuid4()), free_port()
    settings.write_text(SETTINGS.format(
        fsid=fsid, monitor_port=monitor_port, port=store.port, temp=temp,
        memory_bytes=MEMORY_BYTES, domain=Store.VIRTUAL_DOMAIN))
    must(["monmaptool", "--create", "--fsid", fsid, "--addv", "lab",
          f"[v2:127.0.0.1:{monitor_port}]", map_of_monitors])
    must(["ceph-mon", "-c", settings, "-i", "lab", "--mkfs", "--monmap", map_of_monitors])
    with ExitStack() as running:
        monitor = Server(["ceph-mon", "-c", settings, "-i", "lab", "-f"], temp / "monitor.log")
        running.callback(monitor.stop)
        must(["ceph", "-c", settings, "--connect-timeout", "30", "osd", "new", osd])
        must(["ceph-osd", "-c", settings, "-i", "0", "--mkfs", "--osd-uuid", osd])
        disk = Server(["ceph-osd", "-c", settings, "-i", "0", "-f"], temp / "osd.log")
        running.callback(disk.stop)
        if not disk.wait_ready(lambda: is_up(settings), START_SECONDS):
            raise LabError(f"ceph-osd does not start: {disk.last_words()}")
        gateway = Server(["radosgw", "-c", settings, "-n", "client.rgw.lab", "-f"],
                         temp / "radosgw.log")
        running.enter_context(until_left(gateway, "radosgw", store.port, START_SECONDS))
        add_users(settings, store.keys)
        yield store
