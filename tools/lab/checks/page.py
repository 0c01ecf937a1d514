"""What headless Chromium draws of `inrush bench --html`, beside the JSON of the same run.

It runs a short bench of the machine alone, with two sweeps, and one of a few seconds, and looks at
their pages as a person's browser lays them out:

* the console is silent, nothing else is loaded, and the page is not in quirks mode;
* the sentence and the rows of the table are those of the document;
* there is a picture for each sweep and measure, each histogram and each course of time, whose
  points carry the numbers of the document, all of them, in order;
* a larger number is drawn higher, and everything lies within its picture, and has a size and a
  color.

Chromium and its driver come from Debian, by apt-get as root, selenium from PyPI into the build
folder. Where they cannot be had that is a failure, or with `--may-skip page` a line that says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab import install
from lab.driver import Add, Lab
from lab.process import LabError, Word, must, say

BROWSER = install.CONSUMERS / "browser.py"
BENCH = ("--size", "256MiB", "--runs", "2", "--warm-up", "0", "--stages",
         "network,tls,disk-buffered,get,stream", "--sweep", "connections=1,4,16", "--sweep",
         "part-size=1MiB,8MiB")
# Long enough for a course of several moments.
LONG = ("--size", "12GiB", "--runs", "1", "--warm-up", "0", "--stages", "network")
MOMENTS_LEAST = 3
BENCH_SECONDS = 120.0
BROWSER_SECONDS = 120.0
SAME = 1e-9
CURVES = {"throughput": lambda step: step["bytes_per_second"]["median"],
          "cost": lambda step: step["cpu_seconds_per_terabyte"]}
HISTOGRAMS = ("first_byte", "range")

Numbers = list[tuple[str | None, float]]


def setting(step: dict[str, Any]) -> str:
    """What the page calls a step's setting."""
    found = step.get("setting")
    return f"{found['name']}={found['value']}" if found else "-"


def expected(document: dict[str, Any]) -> Iterator[tuple[tuple[str, str], Numbers]]:
    """Each picture by its kind and name, and what it has to show."""
    steps = document["steps"]
    for name in dict.fromkeys(step["setting"]["name"] for step in steps if step.get("setting")):
        swept = [step for step in steps if (step.get("setting") or {}).get("name") == name]
        for kind, number in CURVES.items():
            yield (kind, name), [(step["setting"]["value"], number(step)) for step in swept]
    for step in steps:
        named = f"{step['stage']} {setting(step)}"
        if step.get("latencies"):
            for kind in HISTOGRAMS:
                buckets = step["latencies"][kind]
                yield ("histogram", f"{named} {kind}"), [
                    (bucket["below_seconds"], bucket["count"]) for bucket in buckets]
        if step.get("course") is not None:
            course = step["course"]
            yield ("timeline", named), [
                (later["seconds"], (later["bytes"] - sooner["bytes"])
                 / max(later["seconds"] - sooner["seconds"], 1e-9))
                for sooner, later in zip(course, course[1:])]


def is_same(drawn: str, wanted: float | str) -> bool:
    """True when a text is equal, or a number is equal but for rounding."""
    if isinstance(wanted, str):
        return drawn == wanted
    return abs(float(drawn) - wanted) <= max(abs(wanted), 1.0) * SAME


def wrong_picture(picture: dict[str, Any], numbers: Numbers) -> str | None:
    """What is wrong with a picture, if anything."""
    points = [point for point in picture["points"] if point["kind"] != "retry"]
    if len(points) != len(numbers):
        return f"{len(points)} points, not {len(numbers)}"
    for point, (x, y) in zip(points, numbers):
        if not is_same(point["x"], x) or not is_same(point["y"], y):
            return f"({point['x']}, {point['y']}) is drawn, ({x}, {y}) was measured"
        width, height = picture["box"]
        inside = -1 <= point["left"] <= width and -1 <= point["top"] <= height
        if not inside or not point["width"] or point["fill"] in ("none", "rgba(0, 0, 0, 0)"):
            return f"({x}, {y}) cannot be seen: {point}"
    # Bars stand on the axis: their tops are what counts.
    side = "top" if picture["kind"] == "histogram" else "middle"
    ordered = sorted(points, key=lambda point: float(point["y"]))
    for low, high in zip(ordered, ordered[1:]):
        if high[side] > low[side] + 0.5:
            return f"{high['y']} is drawn below {low['y']}"
    return None


def wrong_page(found: dict[str, Any], document: dict[str, Any]) -> str | None:
    """What is wrong with the page besides its pictures, if anything."""
    if found["console"]:
        return f"the console: {found['console'][:3]}"
    if found["resources"]:
        return f"it loads {found['resources'][:3]}"
    if found["mode"] != "CSS1Compat":
        return f"it is in {found['mode']}"
    if found["sentence"] != document["sentence"]:
        return f"the sentence is {found['sentence']!r}"
    rows = [[step["stage"], setting(step), f"{step['bytes_per_second']['median'] / 1e6:.1f}"]
            for step in document["steps"]]
    if [row[:3] for row in found["rows"]] != rows:
        return f"the table has {found['rows']}, not {rows}"
    return None


def compare_all(lab: Lab, found: dict[str, Any], document: dict[str, Any]) -> None:
    """The page and all of its pictures."""
    lab.report("page", wrong_page(found, document), f"{len(found['rows'])} rows")
    pictures = {(picture["kind"], picture["name"]): picture for picture in found["pictures"]}
    wanted = dict(expected(document))
    lab.report("pictures", None if set(pictures) == set(wanted) else
               f"{sorted(set(pictures) ^ set(wanted))} are in one of both",
               f"{len(pictures)} of them")
    for (kind, name), numbers in wanted.items():
        picture = pictures.get((kind, name))
        complaint = wrong_picture(picture, numbers) if picture else "it is missing"
        lab.report(f"{kind} of {name}", complaint, f"{len(numbers)} numbers")


def options(add: Add) -> None:
    """Of this check alone."""
    add("--keep", type=Path, metavar="FOLDER", help="keep the pages and the documents there")


def tools() -> Sequence[Word]:
    """The Python, the browser and its driver."""
    return (install.program("selenium"), install.system_program("chromium"),
            install.system_program("chromedriver"))


def run(lab: Lab) -> None:
    """The benches, the browser and the comparison."""
    try:
        tools()
    except LabError as error:
        lab.miss("page", f"there is no browser here: {error}")
        return
    look(lab, "bench", [*BENCH, lab.folder("files")])
    document = look(lab, "long", LONG)
    moments = len(document["steps"][0]["course"])
    lab.report("course", None if moments >= MOMENTS_LEAST else f"{moments} moments",
               f"{moments} moments")


def look(lab: Lab, name: str, words: Sequence[Word]) -> dict[str, Any]:
    """Runs one bench and looks at its page; returns its document."""
    python, chromium, driver = tools()
    folder = lab.args.keep or lab.temp
    folder.mkdir(parents=True, exist_ok=True)
    page, report = folder / f"{name}.html", folder / f"{name}.json"
    must([lab.inrush, "bench", *words, "--html", page, "--report", report],
         seconds=BENCH_SECONDS, env=lab.env())
    found = json.loads(must([python, BROWSER, page, chromium, driver], seconds=BROWSER_SECONDS,
                            env=lab.env()))
    document: dict[str, Any] = json.loads(report.read_text())
    say(f"Chromium {found['browser']}")
    compare_all(lab, found, document)
    return document
