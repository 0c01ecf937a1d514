"""What servers that keep objects answer beside plain downloads, and what inrush makes of it: levels
of a listing, a mount, stored sums, uploads in parts, versions, other accounts, and refusals.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import client, compare, process
from lab.driver import Lab
from lab.process import LabError, Outcome, say
from lab.servers.listing import Entry
from lab.servers.store import Keys, Store

SECONDS = 60.0
EXIT_DENIED, EXIT_NOT_FOUND = 3, 4
PART_BYTES = 8 << 20
SOME_BYTES = 3 << 10
NAMES = "data/names/"
ONE = "data/sizes/0001048577"


@dataclass(frozen=True)
class Cases:
    """A server with a bucket, and where its objects go."""

    lab: Lab
    store: Store
    bucket: str
    entries: Sequence[Entry]
    folder: Path
    can_mount: bool

    def run(self, name: str, *words: process.Word, keys: Keys | None = None) -> Outcome:
        """A run of the program."""
        env = client.clean_environment(self.folder, (keys or self.store.keys).environment())
        return process.run(self.lab.command(name, *words, url=self.store.url), env=env,
                           seconds=SECONDS)

    def source(self, key: str) -> str:
        """The address of a key or folder."""
        return f"s3://{self.bucket}/{key}"

    def below(self, prefix: str) -> list[Entry]:
        """The objects of a prefix."""
        return [entry for entry in self.entries if entry.key.startswith(prefix)]


def levels(cases: Cases) -> str | None:
    """Listings of one level name its objects and its folders, and nothing else."""
    for folder in ("data/", NAMES):
        outcome = cases.run("ls", cases.source(folder), "--json")
        if outcome.trouble:
            return outcome.trouble
        found = {json.loads(line)["key"] for line in outcome.stdout.splitlines()}
        rest = [entry.key[len(folder):] for entry in cases.below(folder)]
        wanted = {folder + name.partition("/")[0] + ("/" if "/" in name else "") for name in rest}
        if found != wanted:
            return f"{folder}: {sorted(found ^ wanted)[:5]} differ"
    return None


def buckets(cases: Cases) -> str | None:
    """The bucket is among those that are listed."""
    outcome = cases.run("ls", "--json")
    names = [json.loads(line).get("bucket") for line in outcome.stdout.splitlines()]
    return outcome.trouble or (None if cases.bucket in names else f"there are {names}")


def one_object(cases: Cases) -> str | None:
    """An object is verified by its ETag, which is the MD5 of what was put at once."""
    entry, = cases.below(ONE)
    outcome = cases.run("get", cases.source(ONE), cases.folder / "one", "--verify", "strict")
    return outcome.trouble or compare.complain(ONE, cases.folder / "one", entry)


def again(cases: Cases) -> str | None:
    """A second `sync` finds everything there, and `verify` finds nothing wrong."""
    folder, source = cases.folder / "again", cases.source("data/")
    first = cases.run("sync", source, folder)
    second = cases.run("sync", source, folder, "--json")
    complaint = first.trouble or second.trouble
    if complaint:
        return complaint
    if client.summary(second)["objects"]:
        return f"the second sync downloads {client.summary(second)['objects']} objects"
    return cases.run("verify", source, folder).trouble


def mount(cases: Cases) -> str | None:
    """A mount that lists folders when they are used has every byte."""
    point = cases.folder / "mount"
    line = cases.lab.command("mount", cases.source("data/"), point, "--lazy", "--foreground",
                             "--quiet", url=cases.store.url)
    env = client.clean_environment(cases.folder, cases.store.keys.environment())
    with client.mounted(line, point, env):
        complaints = compare.trees(point, cases.entries, "data/")
    return compare.summary(complaints) if complaints else None


def in_parts(cases: Cases) -> str | None:
    """An object that was uploaded in parts, by ranges of its parts' length and of others."""
    key, body = "parts/object", (cases.below("data/sizes/")[-1].path.read_bytes())[:20_000_003]
    cases.store.put_in_parts(cases.bucket, key, body, PART_BYTES)
    for name, options in {"ranges": [], "strict": ["--part-size", "5MiB"],
                          "whole": ["--part-size", "64MiB"]}.items():
        path = cases.folder / name
        outcome = cases.run("get", cases.source("parts/"), path, *options)
        if outcome.trouble:
            return f"{name}: {outcome.trouble}"
        if (path / "object").read_bytes() != body:
            return f"{name}: the bytes differ"
    return None


def versions(cases: Cases) -> str | None:
    """What was replaced and what was deleted is there by its version, and not otherwise."""
    bucket, (old, new) = f"{cases.bucket}-versions", (b"old" * SOME_BYTES, b"new!" * SOME_BYTES)
    store = cases.store
    store.make_versioned(bucket)
    known = {}
    for key in ("replaced", "deleted"):
        known[key] = store.ask("PUT", f"/{bucket}/{key}", body=old).headers["x-amz-version-id"]
    store.ask("PUT", f"/{bucket}/replaced", body=new)
    store.ask("DELETE", f"/{bucket}/deleted")
    path = cases.folder / "versions"
    outcome = cases.run("get", f"s3://{bucket}/", path)
    found = {file.name: file.read_bytes() for file in path.iterdir()} if path.is_dir() else {}
    if outcome.trouble or found != {"replaced": new}:
        return outcome.trouble or f"the newest are {sorted(found)}"
    for key, version in known.items():
        file = cases.folder / f"old-{key}"
        outcome = cases.run("get", f"s3://{bucket}/{key}", file, "--version-id", version)
        if outcome.trouble or file.read_bytes() != old:
            return f"{key}: {outcome.trouble or 'the bytes differ'}"
    return None


def accounts(cases: Cases) -> str | None:
    """A bucket of the same name in another account has that account's objects, and is readable for
    others by its account's name where the server has such addresses."""
    other, public = cases.store.of_other(), {"x-amz-acl": "public-read"}
    other.ask("PUT", f"/{cases.bucket}")
    other.ask("PUT", f"/{cases.bucket}/theirs", body=b"theirs", headers=public)
    addresses = [(cases.source(""), other.keys)]
    if other.tenant:
        other.ask("PUT", f"/{cases.bucket}", {"acl": ""}, headers=public)
        addresses.append((f"s3://{other.tenant}:{cases.bucket}/", cases.store.keys))
    for number, (address, keys) in enumerate(addresses):
        path = cases.folder / f"theirs-{number}"
        outcome = cases.run("get", address, path, keys=keys)
        found = sorted(file.name for file in path.iterdir()) if path.is_dir() else []
        if outcome.trouble or found != ["theirs"]:
            return outcome.trouble or f"{address} has {found}"
    return None


def refusals(cases: Cases) -> str | None:
    """A bucket or key that is not there, and a wrong key, each end with their own exit code."""
    wrong = Keys(cases.store.keys.access, "wrong")
    missing = cases.folder / "missing"
    runs: dict[str, tuple[Outcome, int]] = {
        "no such bucket": (cases.run("ls", "s3://no-such-bucket/"), EXIT_NOT_FOUND),
        "no such key": (cases.run("get", cases.source("missing"), missing), EXIT_NOT_FOUND)}
    if cases.store.checks_signatures:
        runs["wrong key, listing"] = cases.run("ls", cases.source(""), keys=wrong), EXIT_DENIED
        runs["wrong key, object"] = (cases.run("get", cases.source(ONE), missing, keys=wrong),
                                     EXIT_DENIED)
    for name, (outcome, code) in runs.items():
        if outcome.code != code:
            return f"{name}: exit {outcome.code}: {outcome.last_words()}"
    return "something was written" if missing.exists() else None


def doctor(cases: Cases) -> str | None:
    """The doctor finds the service well."""
    outcome = cases.run("doctor", cases.source(ONE))
    return outcome.trouble or (None if "can be read" in outcome.stdout else outcome.stdout[-300:])


ALL: dict[str, Callable[[Cases], str | None]] = {
    "levels": levels, "buckets": buckets, "one object": one_object, "sync again": again,
    "mount": mount, "in parts": in_parts, "versions": versions, "accounts": accounts,
    "refusals": refusals, "doctor": doctor}


def run(cases: Cases) -> None:
    """All of them that the server has a use for."""
    store = cases.store
    lacking = {"versions": not store.keeps_versions, "accounts": store.other is None}
    for name, case in ALL.items():
        line = f"{store.name:9}  {'store':12}  {name:16}"
        if lacking.get(name):
            say(f"note  {line}  it has none")
            continue
        if name == "mount" and not cases.can_mount:
            cases.lab.skip(line, "no mounts here")
            continue
        try:
            complaint = case(cases)
        except (LabError, OSError) as error:
            complaint = str(error)
        cases.lab.report(line, complaint)
    shutil.rmtree(cases.folder, ignore_errors=True)
