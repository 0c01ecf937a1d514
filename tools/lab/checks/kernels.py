"""The static program under other kernels, which boot in qemu.

Each has nothing but the program, and runs `demo`.

The kernels are those of Debian's releases, the oldest that its archive still has to the newest:
`apt-get download` of linux-image-cloud-amd64, from package lists of its own, so that nothing of
this machine is changed. The machine has two processors, emulated without KVM (a minute or more for
each kernel), 2 GiB of memory, no network but loopback, and an ext4 disk of 1 GiB.

One line for each kernel and ring: how the ring was set up, what it used, whether every byte was
right. For people, and for a job at night; not for CI. `--only` names releases, `--inrush` another
program. Installs qemu and busybox when they are missing, as root.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from lab import install, process
from lab.driver import Lab
from lab.process import LabError, must, note
from package import binary
from package.binary import MACHINES

ARCHIVE = "http://deb.debian.org/debian"
RELEASES = ("bullseye", "bookworm", "trixie", "sid")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGE = "linux-image-cloud-amd64"
MODULES = ("virtio_blk", "virtio_pci", "ext4", "crc32c_generic")
BOOT_SECONDS = 900.0
DISK_BYTES = 1 << 30
BEGIN, END = "== document", "== end"
RINGS = ("io_uring", "epoll")

INIT = """#!/bin/sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmpfs /tmp
for module in /modules/*; do
    /bin/busybox insmod "$module" || echo "== no module $module"
done
/bin/busybox ifconfig lo 127.0.0.1 up
/bin/busybox mount -t ext4 /dev/vda /disk || echo "== no disk"
cd /disk
export TMPDIR=/disk HOME=/
ulimit -l 65536
for words in {words}; do
    /inrush demo --size 64MiB --json $(echo "$words" | /bin/busybox tr + ' ') \\
        > /tmp/document 2> /tmp/words
    echo "{begin} $words $?"
    /bin/busybox cat /tmp/document
    /bin/busybox tail -n 3 /tmp/words | /bin/busybox sed 's/^/== said /'
    echo "{end}"
done
/bin/busybox poweroff -f
"""


def apt(folder: Path, release: str) -> dict[str, str]:
    """apt's environment for this release alone; its package lists are in `folder`."""
    for name in ("lists/partial", "cache/archives/partial", "parts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    source = f"deb [signed-by={KEYRING} arch=amd64] {ARCHIVE} {release} main\n"
    (folder / "sources.list").write_text(source)
    (folder / "apt.conf").write_text(
        f'Dir::State "{folder}";\nDir::State::status "{folder}/status";\n'
        f'Dir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\n'
        f'Dir::Etc::sourcelist "{folder}/sources.list";\nDir::Etc::sourceparts "{folder}/parts";\n'
        'APT::Architecture "amd64";\nAcquire::Languages "none";\nAPT::Sandbox::User "root";\n')
    return {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}


def download(release: str, folder: Path) -> Path:
    """Downloads the kernel of this release; the folder that it is unpacked in."""
    env = apt(folder, release)
    must(["apt-get", "-qq", "update"], seconds=300, env=env)
    listed = must(["apt-cache", "depends", PACKAGE], env=env)
    names = [line.split()[-1] for line in listed.splitlines() if "Depends: linux-image-" in line]
    if not names:
        raise LabError(f"{release} has no {PACKAGE}")
    tree = folder / "tree"
    # From 7.0 on, the modules are in a package of their own.
    more = must(["apt-cache", "depends", names[0]], env=env)
    modules = [line.split()[-1] for line in more.splitlines()
               if "Depends: linux-" in line and ("-modules" in line or "linux-base-" in line
                                                 or "-binary" in line)]
    for name in [names[0], *modules]:
        note(f"{release}: {name}")
        archives = folder / "debs"
        archives.mkdir(exist_ok=True)
        child = subprocess.run(["apt-get", "-qq", "download", name], cwd=archives, env=env,
                               check=False, timeout=600, capture_output=True, text=True)
        if child.returncode != 0:
            raise LabError(f"apt-get download {name}: {child.stderr.strip()[-300:]}")
    for package in sorted((folder / "debs").glob("*.deb")):
        must(["dpkg-deb", "--extract", package, tree], seconds=120)
    return tree


def kernel_of(tree: Path) -> tuple[Path, str]:
    """The kernel in an unpacked package, and its version."""
    for path in sorted(tree.glob("boot/vmlinuz-*")):
        return path, path.name.removeprefix("vmlinuz-")
    for path in sorted(tree.glob("usr/lib/modules/*/vmlinuz")):
        return path, path.parent.name
    raise LabError("the package has no kernel")


def module(tree: Path, name: str) -> tuple[Path, bytes] | None:
    """The module of this name: its file and its bytes, not compressed."""
    for path in sorted(tree.rglob("*.ko*")):
        if path.name.split(".")[0].replace("-", "_") == name:
            content = path.read_bytes()
            if path.suffix == ".xz":
                content = lzma.decompress(content)
            elif path.suffix == ".gz":
                content = gzip.decompress(content)
            return path, content
    return None


def modules(tree: Path) -> list[tuple[str, bytes]]:
    """The modules that the machine needs, each behind those it depends on. One that is not there
    is a part of the kernel."""
    ordered: list[tuple[str, bytes]] = []

    def add(name: str) -> None:
        found = module(tree, name)
        if found is None or name in [known for known, _ in ordered]:
            return
        _, content = found
        at = content.find(b"\0depends=")
        depends = content[at + 9:content.find(b"\0", at + 9)].decode() if at >= 0 else ""
        for needed in filter(None, depends.split(",")):
            add(needed.replace("-", "_"))
        ordered.append((name, content))

    for name in MODULES:
        add(name)
    return ordered


def cpio(entries: list[tuple[str, int, bytes]]) -> bytes:
    """An initramfs (cpio, "newc"): path, mode and content of each."""
    out = io.BytesIO()
    for number, (path, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        out.write(b"070701" + b"".join(b"%08X" % value for value in fields) + name)
        out.write(b"\0" * (-out.tell() % 4))
        out.write(content)
        out.write(b"\0" * (-out.tell() % 4))
    return out.getvalue()


def initramfs(program: Path, tree: Path, rings: list[str]) -> bytes:
    """What the machine boots: busybox, the modules, the program."""
    busybox = Path(install.system_program("busybox")).read_bytes()
    words = " ".join(f"--ring+{ring}" for ring in rings) or "''"
    init = INIT.format(words=words, begin=BEGIN, end=END)
    folder, file = 0o040755, 0o100755
    entries = [(name, folder, b"") for name in
               ("bin", "dev", "disk", "modules", "proc", "sys", "tmp", "root")]
    entries += [("bin/busybox", file, busybox), ("bin/sh", file, busybox),
                ("inrush", file, program.read_bytes()), ("init", file, init.encode())]
    entries += [(f"modules/{number:02}-{name}.ko", file, content)
                for number, (name, content) in enumerate(modules(tree))]
    return gzip.compress(cpio(entries), compresslevel=1)


def boot(kernel: Path, initrd: Path, disk: Path) -> str:
    """Boots a machine and waits for its end; its console."""
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    must([install.system_program("mkfs.ext4"), "-q", "-F", disk])
    qemu = install.system_program("qemu-system-x86_64")
    outcome = process.run([qemu, "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max,la57=off",
                   "-smp", "2", "-m", "2048", "-nographic", "-no-reboot", "-nic", "none",
                   "-kernel", kernel, "-initrd", initrd,
                   "-append", "console=ttyS0 quiet panic=-1",
                   "-drive", f"file={disk},if=virtio,format=raw,cache=unsafe"],
                  seconds=BOOT_SECONDS)
    if outcome.timed_out or outcome.code != 0:
        raise LabError(f"qemu: exit {outcome.code} after {outcome.seconds:.0f} s: "
                       f"{outcome.stdout[-500:]!r} {outcome.stderr[-300:]!r}")
    return outcome.stdout.replace("\r", "")


def documents(console: str) -> list[tuple[str, int, dict[str, Any], str]]:
    """What `demo` reported in each run: words, exit code, document, what it said."""
    found = []
    for part in console.split(f"{BEGIN} ")[1:]:
        head, _, rest = part.partition("\n")
        body = rest.partition(f"\n{END}")[0]
        words, _, code = head.rpartition(" ")
        lines = [line for line in body.splitlines() if line.startswith("{")]
        said = " ".join(line.removeprefix("== said ") for line in body.splitlines()
                        if line.startswith("== said "))
        try:
            document = json.loads(lines[0]) if lines else {}
        except ValueError as error:
            raise LabError(f"demo's document: {error}: {lines[0][:200]}") from error
        found.append((words.replace("+", " ").strip("' "), int(code), document, said))
    return found


def used(document: dict[str, Any]) -> str:
    """What the rings of a run of `demo` used, and how its large files were written."""
    sets = document.get("sets") or []
    rings = {" ".join(str(value) for name, value in sorted(found["ring"].items())
                      if isinstance(value, str)) +
             (", registered buffers" if found["ring"].get("registered_slots") else "")
             for found in sets if found.get("ring")}
    files = [found["direct_io"] for found in sets if found.get("direct_io")]
    direct, buffered = (sum(file[name] for file in files)
                        for name in ("files_direct", "files_buffered"))
    return f"{'; '.join(sorted(rings)) or 'no ring'}; O_DIRECT: {direct} files, {buffered} refused"


def rings_of(program: Path) -> list[str]:
    """The rings that can be asked of the program; none where it has no such option."""
    return list(RINGS) if "--ring" in must([program, "demo", "--help"]) else []


def try_release(release: str, program: Path, temp: Path) -> list[dict[str, Any]]:
    """Boots the kernel of this release; one row for each run of `demo`."""
    folder = temp / release
    folder.mkdir()
    tree = download(release, folder)
    kernel, version = kernel_of(tree)
    initrd = folder / "initrd"
    initrd.write_bytes(initramfs(program, tree, rings_of(program)))
    console = boot(kernel, initrd, folder / "disk")
    rows = []
    for words, code, document, said in documents(console):
        rows.append({"release": release, "kernel": version,
                     "asked": words, "exit_code": code, "verified": document.get("verified"),
                     "document": document, "said": said})
    if not rows:
        raise LabError(f"{release}: nothing was run: {console[-600:]!r}")
    shutil.rmtree(folder)
    return rows


def run(lab: Lab) -> None:
    """Boots all kernels asked for."""
    program = lab.args.inrush or binary.program(MACHINES["x86_64"])
    rows = []
    for release in lab.among(RELEASES):
        try:
            found = try_release(release, program, lab.temp)
        except OSError as error:
            raise LabError(f"{release}: {error}") from error
        for row in found:
            rows.append(row)
            how = used(row["document"]) if row["verified"] else row["said"]
            shown = f"{row['kernel']}: demo {row['asked']}"
            is_right = row["exit_code"] == 0
            lab.report(shown, None if is_right else f"exit {row['exit_code']}: {how}",
                       f"every byte right: {row['verified']}; {how}")
    lab.keep("kernels", rows)
