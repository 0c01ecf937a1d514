"""Tables, a plot and complaints from the figures of `tools/bench.py python`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab import chart

COLUMNS = {"files_per_s": "samples/s", "gb_per_s": "GB/s", "cpu_s_per_tb": "CPU-s/TB",
           "peak_rss_mib": "peak MiB", "seconds": "seconds", "cpu_seconds": "CPU seconds"}
SHOWN = {"images": ("files_per_s", "gb_per_s", "cpu_s_per_tb", "peak_rss_mib"),
         "tars": ("files_per_s", "gb_per_s", "cpu_s_per_tb", "peak_rss_mib"),
         "tensors": ("seconds", "cpu_seconds", "gb_per_s", "peak_rss_mib"),
         "checkpoint": ("seconds", "cpu_seconds", "gb_per_s", "peak_rss_mib"),
         "array": ("seconds", "cpu_seconds", "gb_per_s", "peak_rss_mib")}
TITLES = {"images": "Images of 39 KB, an object each", "tars": "Images of 39 KB in tars of 64 MiB",
          "tensors": "A model of 2 GiB in 4 safetensors files",
          "checkpoint": "A checkpoint of 1 GiB in 96 tensors",
          "array": "An object of 4 GiB into memory"}
OURS = {"images": "inrush read_many", "tars": "inrush open", "tensors": "inrush.safetensors.open",
        "checkpoint": "inrush.checkpoint", "array": "inrush read_into"}
"""The way that is compared with the peers."""
PROGRAM = "inrush get --discard"
OF_PROGRAM = 0.8
"""The least part of the program's samples/s, with the latency of `LATE`."""
ARRAY_SPEED, ARRAY_CPU = 0.9, 1.2
"""Of an array: the least part of the program's GB/s, and how many times its processor time."""
LATE = "20"
TIMES_CPU = {"obstore get_async": 3.0, "s3dlio get_many": 3.0}
"""How many times the processor time they should need."""

Report = Mapping[str, Any]
Cell = tuple[str, str, Mapping[str, Any]]


def merged(reports: Sequence[Report]) -> dict[str, Any]:
    """The figures of several runs as one; later ones replace earlier ones."""
    found: dict[str, Any] = {**reports[-1], "workloads": {}}
    for report in reports:
        for workload, latencies in report["workloads"].items():
            found["workloads"].setdefault(workload, {}).update(latencies)
    return found


def cells(report: Report) -> Iterator[Cell]:
    """Workload, latency and figures."""
    for workload, latencies in report["workloads"].items():
        for latency, cell in latencies.items():
            yield workload, latency, cell


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def markdown(report: Report) -> str:
    """One table for each workload and latency."""
    parts: list[str] = []
    for workload, latency, cell in cells(report):
        columns = SHOWN[workload]
        rows = [[name, *(number(figures["medians"][column]) for column in columns)]
                for name, figures in cell["ways"].items()]
        rows += [[name, f"absent: {why[:60]}", *("" for _ in columns[1:])]
                 for name, why in cell["absent"].items()]
        parts += [f"{TITLES[workload]}, {latency} ms to the first byte:\n",
                  chart.markdown(["", *(COLUMNS[column] for column in columns)], rows)]
    return "\n".join(parts)


def medians(cell: Mapping[str, Any], name: str) -> Mapping[str, float]:
    """What was found of one way."""
    found: Mapping[str, float] = cell["ways"][name]["medians"]
    return found


def complaints(report: Report) -> list[str]:
    """Where inrush is not ahead, and by how much."""
    found = []
    for workload, latency, cell in cells(report):
        ours = OURS[workload]
        if ours not in cell["ways"]:
            continue
        here, mine = f"{workload}, {latency} ms", medians(cell, ours)
        for name in cell["ways"]:
            if name.startswith("inrush"):
                continue
            theirs = medians(cell, name)
            speed = mine["files_per_s"] / theirs["files_per_s"]
            price = theirs["cpu_s_per_tb"] / mine["cpu_s_per_tb"]
            least = TIMES_CPU.get(name, 1.0) if latency == LATE else 1.0
            if speed <= 1:
                found.append(f"{here}: {ours} has {speed:.2f} of the samples/s of {name}")
            if price <= least:
                found.append(f"{here}: {name} needs {price:.2f} times the processor time of "
                             f"{ours}; wanted: more than {least:g}")
        if PROGRAM in cell["ways"] and latency == LATE:
            part = with_listing(cell, ours) / medians(cell, PROGRAM)["files_per_s"]
            if part < OF_PROGRAM:
                found.append(f"{here}: {ours} has {part:.2f} of the samples/s of the program; "
                             f"wanted: {OF_PROGRAM}")
        if PROGRAM in cell["ways"] and workload == "array":
            program = medians(cell, PROGRAM)
            speed = mine["gb_per_s"] / program["gb_per_s"]
            price = mine["cpu_s_per_tb"] / program["cpu_s_per_tb"]
            if speed < ARRAY_SPEED or price > ARRAY_CPU:
                found.append(f"{here}: {ours} has {speed:.2f} of the GB/s of the program and "
                             f"{price:.2f} times its processor time; wanted: {ARRAY_SPEED} and "
                             f"{ARRAY_CPU}")
    return found


def with_listing(cell: Mapping[str, Any], name: str) -> float:
    """Samples a second of imports, listing and loop together, as the program has them."""
    way = cell["ways"][name]
    seconds: float = way["prepare_seconds"] + way["medians"]["seconds"]
    return float(way["samples"]) / seconds


PLOTTED = ("files_per_s", "cpu_s_per_tb")


def plot(report: Report) -> str:
    """Bars of images and tars in SVG."""
    groups = []
    for workload, latency, cell in cells(report):
        if workload in ("images", "tars"):
            rows = [chart.Row(name, [chart.Bar(value, number(value)) for value in
                                     map(medians(cell, name).__getitem__, PLOTTED)],
                              is_ours=name.startswith("inrush")) for name in cell["ways"]]
            groups.append(chart.Group(f"{TITLES[workload]}, {latency} ms to the first byte",
                                      [COLUMNS[column] for column in PLOTTED], rows))
    return chart.picture("Reading S3 from Python", groups)
