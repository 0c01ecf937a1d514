"""Fixtures: an origin of the project with buckets that a test fills, and what tests need.

The origin is `inrush-origin` as cargo built it; `INRUSH_ORIGIN` names another program. A test of a
package that is missing is left out and says so at the end; where `INRUSH_TESTS_MUST_RUN_PYTHON`
names it (``torch,ray`` or ``all``) the test fails instead.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
MUST_RUN = "INRUSH_TESTS_MUST_RUN_PYTHON"
#: Only against tests that hang: nothing is measured.
START_SECONDS = 60.0

# A shell without job control ignores SIGINT for what it starts in the background, and programs
# inherit that: tests of Ctrl-C would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def missing(name: str, why: str) -> None:
    """Leaves the test out, loudly; or fails it, where it must run."""
    wanted = os.environ.get(MUST_RUN, "").replace(",", " ").split()
    if name in wanted or "all" in wanted:
        pytest.fail(f"{MUST_RUN} names {name}: {why}")
    pytest.skip(f"!! SKIPPED: {name}: {why}", allow_module_level=True)


def require(name: str) -> Any:
    """The module of this name, for the tests of a file."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        return missing(name.partition(".")[0], str(error))


def program(name: str) -> Path:
    """A program of this project, the one built last."""
    given = os.environ.get(name.upper().replace("-", "_"))
    if given:
        return Path(given)
    target = Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target"))
    built = [target / kind / name for kind in ("release", "debug")]
    there = [path for path in built if path.is_file()]
    if not there:
        found = shutil.which(name)
        if found is None:
            missing(name, "it is not built: run cargo build --workspace")
        return Path(str(found))
    return max(there, key=lambda path: path.stat().st_mtime)


@dataclass
class Origin:
    """A running origin."""

    endpoint: str

    def client(self, **options: Any) -> Any:
        """A client of it."""
        import inrush

        return inrush.Client(endpoint_url=self.endpoint, no_sign_request=True,
                             region="us-east-1", **options)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials, files or launcher of this machine."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "SLURM_", "OMPI_", "PMI_", "PET_", "SM_", "INRUSH_HOST")) \
                or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture
def serve(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
          ) -> Iterator[Callable[..., Origin]]:
    """Starts origins: ``serve({"bucket/key": b"..."})``. The last is that of the environment. A
    path instead of bytes is a file that is linked."""
    running: list[subprocess.Popen[bytes]] = []

    def start(objects: Mapping[str, bytes | Path], *words: str) -> Origin:
        folder = tmp_path_factory.mktemp("origin")
        for path, data in objects.items():
            place = folder / "root" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(data, Path):
                place.hardlink_to(data)
            else:
                place.write_bytes(data)
        ready = folder / "address"
        with open(folder / "log", "wb") as log:
            child = subprocess.Popen(
                [program("inrush-origin"), "--root", folder / "root", "--ready-file", ready,
                 *words], stdout=log, stderr=log)
        running.append(child)
        deadline = time.monotonic() + START_SECONDS
        while not (ready.is_file() and ready.read_text().endswith("\n")):
            if child.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the origin does not answer: {(folder / 'log').read_text()}")
            time.sleep(0.01)
        origin = Origin(f"http://{ready.read_text().split()[0]}")
        monkeypatch.setenv("AWS_ENDPOINT_URL", origin.endpoint)
        # Of nobody: the origin takes any.
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        # The default client of a process is that of its first environment.
        import inrush

        client = inrush.Client()
        monkeypatch.setattr(inrush, "default_client", lambda: client)
        return origin

    yield start
    # fsspec keeps file systems by their options: those of this test ask its origin.
    if (ours := sys.modules.get("inrush.fsspec")) is not None:
        for kind in (ours.InrushFileSystem, *ours.InrushFileSystem.__subclasses__()):
            kind.clear_instance_cache()
    for child in running:
        child.send_signal(signal.SIGTERM)
    for child in running:
        child.wait()


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """A tar of files with these names."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def tars(count: int, samples: int, prefix: str = "data/tars/") -> dict[str, bytes]:
    """Tars of samples whose keys are all different, of two members each."""
    return {f"{prefix}{at:03}.tar": tar_of({
        name: data for sample in range(samples) for name, data in {
            f"{at:03}-{sample:03}.txt": f"text {at} {sample}".encode() * (sample + 1),
            f"{at:03}-{sample:03}.cls": str(sample).encode()}.items()})
        for at in range(count)}


def small_objects(count: int, prefix: str = "data/train/") -> dict[str, bytes]:
    """Objects whose contents are all different."""
    return {f"{prefix}{at:04}.bin": f"object {at} ".encode() * (at % 7 + 1) for at in range(count)}


@pytest.fixture
def alone() -> None:
    """Ends the clients that earlier tests left in cycles (a traceback's frames hold them): this
    process may take minutes until it collects these by itself, and their threads run on."""
    gc.collect()


def forget(*protocols: str) -> None:
    """Takes protocols of fsspec back that were registered."""
    for protocol in protocols:
        importlib.import_module("fsspec.registry")._registry.pop(protocol, None)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says what was left out, behind everything else."""
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        terminalreporter.write_line(f"{report.nodeid}: {reason}")


sys.path.insert(0, str(Path(__file__).parent))
