"""Builds the Python package as a wheel, installs it into a venv, and checks it there: what its tag
promises with auditwheel, its types with mypy, its behaviour with pytest against the project's own
origin.

The native module is built with the profile of the tests, so that it shares their library. Of the
packages that inrush works with, this venv has those that are small: the tests of fsspec, with
fsspec's own, and of WebDataset must run. What the other tests need is left out, loudly.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from lab import install, wheel
from lab.process import LabError, note

HERE = install.TOOLS / "python"
REQUIREMENTS = ("mypy==2.4.1", "numpy==2.2.6", "pytest==9.2.0",
                "fsspec==2026.9.0", "webdataset==1.0.2", "boto3==1.44.5",
                # Its server, without what it needs for other services than S3.
                "moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")
MUST_RUN = "fsspec,webdataset,boto3,moto"


def step(*words: str | Path, folder: Path, env: Mapping[str, str]) -> None:
    """Runs what has to succeed, in this folder; the first failure ends it all."""
    ended = subprocess.run([str(word) for word in words], cwd=folder, env=env, check=False)
    if ended.returncode != 0:
        sys.exit(f"{words[0]} ended with exit code {ended.returncode}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    arguments.add_argument("--profile", default="dev", help="cargo profile of the native module")
    arguments.add_argument("--python", default=sys.executable, help="interpreter of the venv")
    arguments.add_argument("--origin", type=Path, help="inrush-origin, if it need not be built")
    arguments.add_argument("pytest", nargs="*", help="arguments of pytest")
    words = arguments.parse_args()

    venv = install.venv("python", *REQUIREMENTS, interpreter=words.python)
    target = install.build_folder()
    python = venv / "bin" / "python"
    env = {"INRUSH_TESTS_MUST_RUN_PYTHON": MUST_RUN, **os.environ, "CARGO_TARGET_DIR": str(target)}
    env["PATH"] = os.pathsep.join([str(venv / "bin"), env.get("PATH", "")])

    if words.origin:
        env["INRUSH_ORIGIN"] = str(words.origin.resolve())
    else:
        step("cargo", "build", "--locked", "--quiet", "--bin", "inrush-origin",
             folder=HERE.parent.parent, env=env)
    try:
        made = wheel.build(words.profile, python, target / "wheels")
    except LabError as error:
        sys.exit(str(error))
    step(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--force-reinstall", made, folder=target, env=env)

    note("mypy and pytest")
    step(python, "-m", "mypy", "--strict", "--python-version", "3.10", "inrush",
         folder=HERE, env=env)
    with tempfile.TemporaryDirectory() as folder:
        # What people copy has the types that they see.
        readme = (HERE / "README.md").read_text()
        Path(folder, "readme.py").write_text(readme.split("```python\n")[1].split("```")[0])
        step(python, "-m", "mypy", "--strict", "--python-version", "3.10", "readme.py",
             folder=Path(folder), env=env)
    # Not from this folder: what is tested is what is installed.
    step(venv / "bin" / "pytest", "-q", "--rootdir", HERE, HERE / "tests", *words.pytest,
         folder=target, env=env)


if __name__ == "__main__":
    main()
