"""What listings, dry runs and totals print, as keys and sizes: of `inrush` and of its peers.

Sizes are bytes, `None` where none is printed, as of a folder. A line that no pattern of its program
knows is an error, so that nothing is passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from lab.process import LabError

Listed = dict[str, int | None]
SIZE = r"(?P<size>[0-9.]+ ?[A-Za-z]*)"
DAY = r"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+Z?)?"
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
ROUNDED = 0.06
"""How far a size for people may be from the size: `1.0 KiB` has two digits."""
LINES = {
    "aws": (rf"{DAY} +{SIZE} (?P<name>.+)", r" +PRE (?P<name>.+)", rf"{DAY} (?P<name>[^ ]+)",
            r"\(dryrun\) download: (?P<name>s3://.+) to (?P<to>.+)"),
    "s5cmd": (rf"{DAY} +{SIZE}  ?(?P<name>.+)", r" +DIR  ?(?P<name>.+)",
              r"cp (?P<name>s3://.+) (?P<to>\S+)"),
    "rclone": (r" *(?P<size>\d+) (?P<name>.+)", r"(?P<name>[^ ]+)",
               r".*NOTICE: (?P<name>.+): Skipped copy as --dry-run is set \(size \S+\)"),
    "inrush": (rf"{DAY} +{SIZE} (?P<name>s3://.+)", r" +PRE (?P<name>s3://.+)",
               rf"{DAY} (?P<name>[^ ]+)",
               r"\(dry run\) get: (?P<name>s3://.+) -> (?P<to>.+) \(.+\)"),
}
PASSED_OVER = {
    "aws": r"|\s*Total (Objects|Size): .*",
    "inrush": r"|\s*Total (Objects|Size): .*",
    "rclone": r"|.*NOTICE: *|Transferred: .*|Elapsed time: .*",
    "s5cmd": "",
}
TOTALS = {
    "aws": r"Total Objects: (?P<objects>\d+)\s+Total Size: (?P<size>.+)",
    "inrush": r"Total Objects: (?P<objects>\d+)\s+Total Size: (?P<size>.+)",
    "s5cmd": r"(?P<size>\d+) bytes in (?P<objects>\d+) objects: .+",
    "rclone": r'\{"count":(?P<objects>\d+),"bytes":(?P<size>\d+)[^}]*\}',
}


def size_of(text: str) -> int:
    """Bytes, from a number with or without a unit of 1024."""
    found = re.fullmatch(r"([0-9.]+) ?([KMG]?)(?:i?B|Bytes?)?", text.strip(), re.IGNORECASE)
    if not found:
        raise LabError(f"{text!r} is no size")
    return round(float(found[1]) * UNITS[found[2].lower()])


def listed(program: str, text: str, bucket: str, base: str) -> Listed:
    """The keys of `bucket` that a program lists; it leaves `base` out of them."""
    found: Listed = {}
    for line in text.splitlines():
        if re.fullmatch(PASSED_OVER[program], line.strip()):
            continue
        match = next(filter(None, (re.fullmatch(form, line) for form in LINES[program])), None)
        if not match:
            raise LabError(f"{program} prints {line!r}")
        fields = match.groupdict()
        whole = f"s3://{bucket}/"
        name = fields["name"]
        key = name.removeprefix(whole) if name.startswith(whole) else base + name
        if key in found:
            raise LabError(f"{program} lists {key!r} twice")
        found[key] = size_of(fields["size"]) if fields.get("size") else None
    return found


def totals(program: str, text: str) -> tuple[int, int]:
    """How many objects and bytes a program counts."""
    found = re.search(TOTALS[program], text)
    if not found:
        raise LabError(f"{program} prints no total: {text[-200:]!r}")
    return int(found["objects"]), size_of(found["size"])


def near(found: int | None, wanted: int | None, rounded: bool) -> bool:
    """True when the sizes are the same, or as near as a size for people can be."""
    if found is None or wanted is None or not rounded:
        return found == wanted
    return abs(found - wanted) <= wanted * ROUNDED


def complaint(found: Mapping[str, int | None], wanted: Mapping[str, int | None], *,
              sizes: bool, rounded: bool) -> str | None:
    """What is wrong with a listing, if anything."""
    if missing := [key for key in wanted if key not in found]:
        return f"{missing[0]!r} is not listed ({len(missing)} are not)"
    if more := [key for key in found if key not in wanted]:
        return f"{more[0]!r} is listed ({len(more)} too many)"
    wrong = [key for key in wanted if sizes and not near(found[key], wanted[key], rounded)]
    return f"{wrong[0]!r} has {found[wrong[0]]} bytes, not {wanted[wrong[0]]}" if wrong else None


def head(program: str, text: str) -> tuple[int, str]:
    """The size and the entity tag of one object, from the head of an answer or a line of JSON."""
    if program == "inrush":
        fields = json.loads(text)
        return int(fields["bytes"]), str(fields["etag"]).strip('"')
    size = re.search(r"^content-length: *(\d+)", text, re.IGNORECASE | re.MULTILINE)
    etag = re.search(r'^etag: *"([^"]+)"', text, re.IGNORECASE | re.MULTILINE)
    if not size or not etag:
        raise LabError(f"{program} prints no size and no entity tag: {text[:200]!r}")
    return int(size[1]), etag[1]
