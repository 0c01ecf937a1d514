"""The Debian package of the static program."""

from __future__ import annotations

import email.utils
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from lab import install
from lab.process import must

from . import archive, binary, licenses
from .binary import Machine

COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/inrush",
    "zsh": "usr/share/zsh/vendor-completions/_inrush",
    "fish": "usr/share/fish/vendor_completions.d/inrush.fish",
}
DESCRIPTION = """Description: download objects from S3 to local disks at line rate
 inrush downloads objects from S3, or from an S3-compatible server, to local
 disks as fast as the network and the disks allow, and with little CPU time. It
 can also stream them through named pipes to a training program, and it verifies
 every file against the checksum that S3 stores.
"""
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: inrush
Comment: The program is linked with libraries under the licenses that
 third-party-licenses.txt lists, with their texts.

Files: *
Copyright: the authors of inrush
License: Apache-2.0

License: Apache-2.0
 On Debian systems, the full text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
"""
# A static program is the purpose of this package: it runs on every distribution.
OVERRIDES = "inrush: statically-linked-binary [usr/bin/inrush]\n"


def maintainer() -> str:
    """Who is named in the package: DEBFULLNAME and DEBEMAIL, as for Debian's own tools."""
    name = os.environ.get("DEBFULLNAME") or "inrush maintainers"
    return f"{name} <{os.environ.get('DEBEMAIL') or 'maintainers@inrush.example.org'}>"


def files(machine: Machine) -> dict[str, tuple[bytes, int]]:
    """Path in the package: content and mode."""
    runnable = binary.runnable()
    say = {shell: must([runnable, "completions", shell]) for shell in COMPLETIONS}
    date = email.utils.formatdate(binary.epoch())
    changelog = f"inrush ({binary.version()}) unstable; urgency=medium\n\n" \
                f"  * See CHANGELOG.md.\n\n -- {maintainer()}  {date}\n"
    documents = "usr/share/doc/inrush"
    found = {
        "usr/bin/inrush": (binary.program(machine).read_bytes(), 0o755),
        "usr/share/man/man1/inrush.1.gz":
            (archive.compressed(must([runnable, "man"]).encode()), 0o644),
        f"{documents}/copyright": (COPYRIGHT.encode(), 0o644),
        f"{documents}/third-party-licenses.txt": (licenses.document(machine), 0o644),
        f"{documents}/changelog.gz": (archive.compressed(changelog.encode()), 0o644),
        "usr/share/lintian/overrides/inrush": (OVERRIDES.encode(), 0o644),
    }
    for shell, path in COMPLETIONS.items():
        found[path] = (say[shell].encode(), 0o644)
    for name, content in reading().items():
        found[f"{documents}/{name}"] = content
    return found


def reading() -> dict[str, tuple[bytes, int]]:
    """The documents, and the files that the guide's page on containers and services names: content
    and mode."""
    readme = (install.REPOSITORY / "README.md").read_bytes()
    found = {"README.md": (readme.replace(b"(src/guide/", b"(guide/"), 0o644),
             "CHANGELOG.md": ((install.REPOSITORY / "CHANGELOG.md").read_bytes(), 0o644)}
    for page in sorted((install.REPOSITORY / "src" / "guide").glob("*.md")):
        found[f"guide/{page.name}"] = (page.read_bytes(), 0o644)
    folder = install.REPOSITORY / "tools" / "package"
    for path in sorted((folder / "examples").iterdir()):
        found[f"examples/{path.name}"] = (path.read_bytes(), 0o644)
    found["examples/seccomp.py"] = ((folder / "seccomp.py").read_bytes(), 0o755)
    return found


def control(machine: Machine, found: dict[str, tuple[bytes, int]]) -> str:
    """The package's control file (deb-control(5))."""
    kibibytes = sum((len(content) + 1023) // 1024 for content, _ in found.values())
    return f"Package: inrush\nVersion: {binary.version()}\nArchitecture: {machine.debian}\n" \
           f"Maintainer: {maintainer()}\nInstalled-Size: {kibibytes}\n" \
           f"Recommends: ca-certificates\nSection: net\nPriority: optional\n{DESCRIPTION}"


def build(machine: Machine, output: Path) -> Path:
    """Makes the package; its path."""
    dpkg_deb = install.system_program("dpkg-deb")
    package = output / f"inrush_{binary.version()}_{machine.debian}.deb"
    found = files(machine)
    tree = Path(tempfile.mkdtemp(prefix="inrush-deb-"))
    try:
        for path, (content, mode) in found.items():
            place = tree / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            place.chmod(mode)
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN" / "control").write_text(control(machine, found))
        sums = "".join(f"{hashlib.md5(content).hexdigest()}  {path}\n"
                       for path, (content, _) in sorted(found.items()))
        (tree / "DEBIAN" / "md5sums").write_text(sums)
        for path in (tree, *tree.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
            os.utime(path, (binary.epoch(), binary.epoch()))
        must([dpkg_deb, "--root-owner-group", "-Zxz", "--build", tree, package], seconds=300,
             env={**os.environ, "SOURCE_DATE_EPOCH": str(binary.epoch())})
    finally:
        shutil.rmtree(tree)
    return package
