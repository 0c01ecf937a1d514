"""The program: `python -m inrush`, `get` and `sync`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inrush
import pytest
from common import pattern, until

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


def is_fetching(process: int) -> bool:
    names = [comm.read_text() for comm in Path(f"/proc/{process}/task").glob("*/comm")]
    return "inrush-0\n" in names


def test_ctrl_c_is_130(serve: Serve, tmp_path: Path) -> None:
    origin = serve({"data/slow": pattern(5_000_000)}, "--connection-rate", "10KB")
    words = ["--endpoint-url", origin.endpoint, "--no-sign-request", "s3://data/slow"]
    command = [sys.executable, "-m", "inrush", "get", *words, str(tmp_path)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE)
    until(lambda: is_fetching(child.pid))
    child.send_signal(signal.SIGINT)
    assert child.wait() == 130


def test_get_and_sync(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inrush").mkdir()
    monkeypatch.chdir(tmp_path)
    with serve(OBJECTS).client() as client:
        reported: list[dict[str, Any]] = []
        report = client.get("s3://data/n/", "to", progress=reported.append, verify="off")
        assert (report["objects"], report["failed_objects"]) == (20, 0)
        assert reported[-1]["objects"] == 20
        assert reported[-1]["bytes"] == sum(map(len, OBJECTS.values()))
        assert {entry["object"]["key"] for entry in reported} == {f"n/{at}" for at in range(20)}
        assert Path("to/7").read_bytes() == OBJECTS["data/n/7"]
        Path("to/extra").write_bytes(b"")
        report = client.sync("s3://data/n/", Path("to"), delete=True, exclude=["1*"])
        assert report["kept_objects"] == 9 and not Path("to/extra").exists()
        several = client.get(["s3://data/n/1", "s3://data/n/2"], "two/")
        assert several["objects"] == 2


def test_failures_are_those_of_the_command(serve: Serve, tmp_path: Path) -> None:
    with serve(OBJECTS).client() as client:
        with pytest.raises(inrush.NotFound, match="s3://data/none") as caught:
            client.get("s3://data/none", tmp_path)
        assert caught.value.report is not None and caught.value.report["exit_code"] == 4
        with pytest.raises(inrush.Usage, match="no_such_option"):
            client.get("s3://data/n/", tmp_path, no_such_option=3)


def test_what_a_callback_raises_stops_the_run(serve: Serve, tmp_path: Path) -> None:
    def progress(_: dict[str, Any]) -> None:
        raise LookupError("mine")

    # The program writes a report in pieces, of some hundred lines.
    objects = {f"data/n/{at:04}": b"x" for at in range(1500)}
    objects["data/n/slow"] = pattern(100_000_000)
    with serve(objects, "--connection-rate", "10KB").client() as client:
        with pytest.raises(LookupError, match="mine"):
            client.get("s3://data/n/", tmp_path, progress=progress)
    assert not (tmp_path / "slow").exists()
