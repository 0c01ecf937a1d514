"""The loops of `tools/bench.py python`: each has every sample, and what cheats is seen."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Origin, require, tar_of

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parents[1]
Serve = Callable[..., Origin]

IMAGES = {f"data/all/{at:03}.bin": bytes([at]) * (at + 1) for at in range(40)}
TARS = {f"data/all/{at}.tar": tar_of({f"{at}-{sample:02}.jpg": bytes([at, sample]) * 700
                                      for sample in range(20)}) for at in range(3)}
ARRAY = {"data/all/0.bin": bytes(range(256)) * 80_000}


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tool as a module."""
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location("experiment", TOOLS / "lab/benches/experiment.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "experiment", module)
    spec.loader.exec_module(module)
    return module


def figures_of(
    workload: str, loop: str, origin: Origin, objects: dict[str, bytes], folder: Path
) -> Any:
    """The figures that a loop prints of itself."""
    task = folder / "task.json"
    task.write_text(json.dumps({
        "endpoint": origin.endpoint, "bucket": "data", "prefix": "all/", "temp": str(folder),
        "keys": [key.removeprefix("data/") for key in sorted(objects)],
        "programs": {"inrush": str(Path(sys.executable).with_name("inrush"))}}))
    ended = subprocess.run([sys.executable, TOOLS / "lab/run_loop.py", workload, loop, "1", task],
                           check=True, stdout=subprocess.PIPE)
    return json.loads(ended.stdout)


@pytest.mark.parametrize("workload, loop", [
    ("images", "inrush read_many"), ("images", "inrush read_many of addresses"),
    ("images", "boto3, 16 threads"), ("tars", "inrush open"), ("tars", "inrush read_many"),
    ("tars", "inrush cat (pipe:)"), ("tars", "inrush pipe (FIFO)"), ("tars", "boto3 get_object"),
    ("array", "inrush read"), ("array", "inrush read_into"), ("array", "boto3 download_fileobj")])
def test_a_loop_has_every_sample(serve: Serve, experiment: Any, tmp_path: Path, workload: str,
                                 loop: str) -> None:
    if "boto3" in loop:
        require("boto3")
    objects = {"images": IMAGES, "tars": TARS, "array": ARRAY}[workload]
    samples = list(objects.values()) if workload != "tars" else \
        [bytes([at, sample]) * 700 for at in range(3) for sample in range(20)]
    found = figures_of(workload, loop, serve(objects), objects, tmp_path)
    wanted = experiment.Set("data", "all/", [], len(samples), sum(map(len, samples)), None)
    digest = sum(map(zlib.crc32, samples))
    experiment.compare(loop, found, wanted, digest)
    with pytest.raises(experiment.Wrong, match="samples"):
        experiment.compare(loop, {**found, "samples": found["samples"] - 1}, wanted, digest)
    assert found["seconds"] > 0 and found["user_seconds"] + found["system_seconds"] > 0


def test_the_comparison_sees_loops_that_cheat(experiment: Any, monkeypatch: pytest.MonkeyPatch
                                              ) -> None:
    experiment.self_test()
    monkeypatch.setattr(experiment, "compare", lambda *_: None)
    with pytest.raises(experiment.LabError, match="does not see"):
        experiment.self_test()
