"""The libraries inside the program, and the texts of their licenses, which have to go with it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from lab import install
from lab.process import must

from .binary import Machine

#: How the names of files begin that have the terms of a library.
BEGINNINGS = ("license", "licence", "copying", "copyright", "notice", "unlicense")


def lines(machine: Machine) -> list[str]:
    """Name, version and license of each library, sorted; the program itself is one of them."""
    tree = must(["cargo", "tree", "--manifest-path", install.REPOSITORY / "Cargo.toml", "--locked",
                 "--package", "inrush", "--edges", "normal", "--target", machine.target,
                 "--prefix", "none", "--format", "{p} {l}", "--no-dedupe"], seconds=120)
    found = set()
    for line in tree.splitlines():
        name, version, *rest = line.split(" ")
        words = [word for word in rest if not word.startswith("(/") and word != "(proc-macro)"]
        found.add(" ".join([name, version.lstrip("v"), *words]))
    return sorted(found)


def folders() -> dict[tuple[str, str], Path]:
    """Where the source of each library is, by name and version. Our own packages are left out."""
    printed = must(["cargo", "metadata", "--manifest-path", install.REPOSITORY / "Cargo.toml",
                    "--locked", "--format-version", "1"], seconds=120)
    return {(package["name"], package["version"]): Path(package["manifest_path"]).parent
            for package in json.loads(printed)["packages"] if package["source"] is not None}


def texts(libraries: list[tuple[str, str]]) -> dict[str, list[str]]:
    """The texts in the sources of these libraries, each once, with who has it."""
    places, found = folders(), defaultdict(list)
    for library in libraries:
        place = places.get(library)
        for file in sorted(place.iterdir()) if place else ():
            if file.is_file() and file.name.lower().startswith(BEGINNINGS):
                text = file.read_text(encoding="utf-8", errors="replace")
                named = " ".join(library)
                if named not in found[text.strip()]:
                    found[text.strip()].append(named)
    return found


def document(machine: Machine) -> bytes:
    """A line for each library, then each text behind the libraries that it is from."""
    listed = lines(machine)
    parts = ["\n".join(listed)]
    libraries = [(name, version) for name, version, *_ in (line.split(" ") for line in listed)]
    for text, named in texts(libraries).items():
        parts.append(f"{'-' * 80}\n{', '.join(named)}:\n\n{text}")
    return ("\n\n".join(parts) + "\n").encode()
