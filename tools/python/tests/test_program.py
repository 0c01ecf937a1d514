"""The program: `python -m inrush`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inrush
from common import pattern, threads, until

Serve = Callable[..., Any]
OBJECTS = {f"data/n/{at}": pattern(at * 1000, at) for at in range(20)}


def program(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "inrush", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_the_whole_program_is_there(serve: Serve, tmp_path: Path) -> None:
    assert program("--version").stdout == f"inrush {inrush.__version__}\n"
    assert program().returncode == 2 and program("get").returncode == 2
    assert "download objects" in program("--help").stdout
    origin = serve(OBJECTS)
    server = ["--endpoint-url", origin.endpoint, "--no-sign-request"]
    got = program("get", *server, "--json", "s3://data/n/", str(tmp_path))
    assert got.returncode == 0 and json.loads(got.stdout)["objects"] == 20
    assert (tmp_path / "19").read_bytes() == OBJECTS["data/n/19"]
    missing = program("get", *server, "s3://data/none", str(tmp_path))
    assert missing.returncode == 4 and "none" in missing.stderr


def test_it_starts_without_a_warning() -> None:
    for words in (["-m", "inrush"], ["-c", "from inrush.__main__ import main; main()"]):
        ended = subprocess.run([sys.executable, "-W", "error", *words, "--version"],
                               capture_output=True, text=True, check=True)
        assert ended.stdout.startswith("inrush ") and ended.stderr == ""


def test_demo_runs() -> None:
    assert program("demo").returncode == 0


def test_ctrl_c_is_130(serve: Serve, tmp_path: Path) -> None:
    origin = serve({"data/slow": pattern(5_000_000)}, "--connection-rate", "10KB")
    words = ["--endpoint-url", origin.endpoint, "--no-sign-request", "s3://data/slow"]
    command = [sys.executable, "-m", "inrush", "get", *words, str(tmp_path)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE)
    until(lambda: "inrush-0" in threads(child.pid))
    child.send_signal(signal.SIGINT)
    assert child.wait() == 130
