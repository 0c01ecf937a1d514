"""A venv with what reads S3 from Python, and the package of this project.

Each is installed by itself. One that cannot be installed is reported, and the others go on.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.process import LabError, must, note, run

INSTALL_SECONDS = 1800.0
PRINT_VERSIONS = """
from importlib import metadata
for found in metadata.distributions():
    print(found.metadata["Name"], found.version)
"""
# Without the libraries of CUDA, which have 3 GB, where that index can be reached.
TORCH = "torch==2.15.0"
TORCH_OF_CPU = ("--index-url", "https://download.pytorch.org/whl/cpu", "--retries", "0",
                "--timeout", "10")
BOTO3 = "boto3==1.43.117"
"""The last one whose botocore the aiobotocore of s3fs can live with."""
NUMPY = "numpy==2.1.3"
"""The last one that mosaicml-streaming takes."""


@dataclass(frozen=True)
class Package:
    """Arguments of pip, call by call, and which packages must be there before."""

    calls: Sequence[Sequence[str]]
    needs: Sequence[str] = ()
    versions: Sequence[str] = ()
    """The distributions whose versions are reported."""


PACKAGES: dict[str, Package] = {
    "numpy": Package([[NUMPY]]),
    "torch": Package([[TORCH]], versions=["torch"]),
    "boto3": Package([[BOTO3, NUMPY]], versions=["boto3"]),
    "s3fs": Package([["s3fs==2026.9.0", BOTO3]], versions=["s3fs"]),
    "smart_open": Package([["smart_open[s3]==9.0.2", BOTO3]], versions=["smart_open"]),
    "obstore": Package([["obstore==0.12.1"]], versions=["obstore"]),
    "s3dlio": Package([["s3dlio==0.10.0", NUMPY]], versions=["s3dlio"]),
    "s3torchconnector": Package([["s3torchconnector[dcp]==1.5.0", NUMPY]], ["torch"],
                                ["s3torchconnector"]),
    "torchdata": Package([["torchdata==0.11.0", NUMPY]], ["torch", "boto3"], ["torchdata"]),
    # The clients of other clouds, which it also asks for, have 400 MB.
    "streaming": Package(
        [["--no-deps", "mosaicml-streaming==0.13.0", "torchvision==0.29.2", "pillow==13.0.0"],
         ["Brotli==1.2.1", "python-snappy==0.7.3", "zstd==1.5.7.2", "xxhash==3.8.2",
          "catalogue==2.0.10", "tqdm==4.70.1", "transformers==4.57.6", NUMPY]],
        ["torch", "boto3"], ["mosaicml-streaming"]),
    "runai_model_streamer": Package([["runai-model-streamer[s3]==0.17.0", NUMPY, BOTO3]],
                                    ["torch"], ["runai-model-streamer"]),
    "safetensors": Package([["safetensors==0.8.0"]], ["torch", "boto3"], ["safetensors"]),
}


@dataclass(frozen=True)
class Venv:
    """What is installed."""

    folder: Path
    missing: Mapping[str, str]
    """Why something is not there, by name."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def versions(self) -> dict[str, str]:
        """By the names of distributions; also of what other folders lend."""
        printed = must([self.python, "-c", PRINT_VERSIONS], seconds=60)
        found = dict(line.split() for line in printed.splitlines())
        names = [name for package in PACKAGES.values() for name in (*package.versions, "inrush")]
        return {name: found[name] for name in names if name in found}


def pip(python: Path, words: Iterable[str | Path]) -> str | None:
    """Installs; what went wrong, if anything did."""
    outcome = run([python, "-m", "pip", "install", "--quiet", "--no-input",
                   "--disable-pip-version-check", *words], seconds=INSTALL_SECONDS)
    return None if outcome.code == 0 else outcome.last_words(200)


def venv(folder: Path, ours: Path, lent: Sequence[Path], wanted: Iterable[str],
         interpreter: str = sys.executable) -> Venv:
    """The venv with our wheel and what is wanted of `PACKAGES`; made once, then kept.

    :param lent: folders of packages that are there already, such as the site-packages of a venv.
    """
    python = folder / "bin" / "python"
    if not python.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        must([interpreter, "-m", "venv", folder], seconds=120)
    place, = folder.glob("lib/python*/site-packages")
    (place / "lent.pth").write_text("".join(f"{path.resolve()}\n" for path in lent))
    missing: dict[str, str] = {}
    for name in in_order(wanted):
        absent = [need for need in PACKAGES[name].needs if need in missing]
        why = f"needs {absent[0]}: {missing[absent[0]]}" if absent else one(folder, name)
        if why:
            missing[name] = why
            note(f"!! MISSING: {name}: {why}")
    if failed := pip(python, ["--no-deps", "--force-reinstall", ours]):
        raise LabError(f"{ours.name} cannot be installed: {failed}")
    return Venv(folder, missing)


def in_order(wanted: Iterable[str]) -> list[str]:
    """These packages and what they need, as `PACKAGES` has them."""
    all_of_them = set(wanted)
    all_of_them |= {need for name in all_of_them for need in PACKAGES[name].needs}
    return [name for name in PACKAGES if name in all_of_them]


def one(folder: Path, name: str) -> str | None:
    """Installs one package, if it is not there; what went wrong, if anything did."""
    package, done = PACKAGES[name], folder / f"installed-{name}"
    wanted = repr(package.calls)
    if done.is_file() and done.read_text() == wanted:
        return None
    python, started = folder / "bin" / "python", time.monotonic()
    note(f"installing {name}")
    calls = [list(call) for call in package.calls]
    if name == "torch" and "\ntorch " not in must([python, "-c", PRINT_VERSIONS]) and \
            pip(python, [TORCH, *TORCH_OF_CPU]) is None:
        calls = []
    for call in calls:
        if failed := pip(python, call):
            return failed
    outcome = run([python, "-c", f"import {name}"], seconds=120)
    if outcome.code != 0:
        return outcome.last_words(200)
    done.write_text(wanted)
    note(f"installed {name} in {time.monotonic() - started:.0f} s")
    return None
