#!/usr/bin/env python3
"""Docker's default seccomp profile with io_uring allowed.

    seccomp.py DEFAULT.json > inrush-seccomp.json

DEFAULT.json is the profile of the container engine in use, so that everything else stays as its
authors decided: for Docker it is seccomp/default.json of https://github.com/moby/profiles
(Apache-2.0), for Podman /usr/share/containers/seccomp.json. The profile that comes out is under
the license of the one that went in. It names architectures and conditions as that one does.
Exit code 2: the file is no such profile.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

CALLS = ("io_uring_enter", "io_uring_register", "io_uring_setup")
COMMENT = "inrush: io_uring moves the bytes"
ALLOW = "SCMP_ACT_ALLOW"


class NoProfile(Exception):
    """The document is no seccomp profile of a container engine."""


def allowing(profile: dict[str, Any]) -> dict[str, Any]:
    """The profile with one rule in front, which allows the calls of io_uring. Rules that name them
    lose the names: one call with two actions is refused by libseccomp."""
    is_profile = isinstance(profile, dict) and isinstance(profile.get("syscalls"), list)
    if not is_profile or not str(profile.get("defaultAction")).startswith("SCMP_ACT_"):
        raise NoProfile("it has no syscalls and defaultAction")
    kept = []
    for rule in profile["syscalls"]:
        # Profiles of Docker before 1.13 have a rule for each call.
        found = isinstance(rule, dict) and (rule.get("names") or [rule.get("name")])
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise NoProfile("it has a rule that names no system call")
        names = [name for name in found if name not in CALLS]
        if names:
            rest = {key: value for key, value in rule.items() if key != "name"}
            kept.append({**rest, "names": names})
    ours = {"names": list(CALLS), "action": ALLOW, "comment": COMMENT}
    return {**profile, "syscalls": [ours, *kept]}


def for_runtime(profile: dict[str, Any], architecture: str) -> dict[str, Any]:
    """The profile as an OCI runtime takes it (config.json, `linux.seccomp`), for a container
    without capabilities: as Docker resolves it. `architecture`: by Go's name."""
    rules = []
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes", {}), rule.get("excludes", {})
        arches = includes.get("arches", [architecture])
        if includes.get("caps") or architecture not in arches:
            continue
        if architecture in excludes.get("arches", []):
            continue
        kept = {"names": rule["names"], "action": rule["action"]}
        if rule.get("args"):
            kept["args"] = rule["args"]
        if "errnoRet" in rule:
            kept["errnoRet"] = rule["errnoRet"]
        rules.append(kept)
    resolved = {"defaultAction": profile["defaultAction"], "syscalls": rules}
    if "defaultErrnoRet" in profile:
        resolved["defaultErrnoRet"] = profile["defaultErrnoRet"]
    return resolved


def main() -> int:
    """Reads one profile and prints the other."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    try:
        profile = allowing(json.loads(Path(sys.argv[1]).read_text()))
    except (OSError, ValueError, NoProfile) as error:
        print(f"error: {sys.argv[1]}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(profile, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
