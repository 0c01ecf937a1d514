"""The Python package: its wheel's tag, its types, and its behaviour.

It is built as a wheel and installed into a venv. What its tag promises is compared by auditwheel,
its types by mypy, its behaviour by pytest against the project's own origin.

The native module is built with the profile of the tests, so that it shares their library. Of the
packages that inrush works with, this venv has those that are small: the tests of fsspec, with
fsspec's own, and of WebDataset must run. What the other tests need is left out, loudly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from lab import install, wheel
from lab.driver import Add, Lab
from lab.process import Word, expect, note

HERE = install.TOOLS / "python"
REQUIREMENTS = ("mypy==2.4.1", "numpy==2.2.6", "pytest==9.2.0",
                "fsspec==2026.9.0", "webdataset==1.0.2", "boto3==1.44.5",
                # Its server, without what it needs for other services than S3.
                "moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")
MUST_RUN = "fsspec,webdataset,boto3,moto"


def step(*words: Word, folder: Path, env: Mapping[str, str]) -> None:
    """Runs what has to succeed, in this folder; the first failure ends it all."""
    ended = subprocess.run([str(word) for word in words], cwd=folder, env=env, check=False)
    expect(ended.returncode == 0, f"{words[0]} ended with exit code {ended.returncode}")


def options(add: Add) -> None:
    """Of this check alone."""
    add("--profile", default="dev", help="cargo profile of the native module (%(default)s)")
    add("--python", default=sys.executable, help="interpreter of the venv")
    add("--pytest", action="append", default=[], metavar="WORD",
        help="an argument of pytest, as in --pytest=-x; repeatable")


def run(lab: Lab) -> None:
    """Builds, installs and checks."""
    venv = install.venv("python", *REQUIREMENTS, interpreter=lab.args.python)
    target, python = install.build_folder(), venv / "bin" / "python"
    env = {"INRUSH_TESTS_MUST_RUN_PYTHON": MUST_RUN, **os.environ, "CARGO_TARGET_DIR": str(target),
           "INRUSH_ORIGIN": str(lab.origin)}
    env["PATH"] = os.pathsep.join([str(venv / "bin"), env.get("PATH", "")])
    if not lab.args.origin:
        step("cargo", "build", "--locked", "--quiet", "--bin", "inrush-origin",
             folder=install.REPOSITORY, env=env)
        env["INRUSH_ORIGIN"] = str(target / "debug/inrush-origin")
    made = wheel.build(lab.args.profile, python, target / "wheels")
    step(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--force-reinstall", made, folder=target, env=env)
    note("mypy and pytest")
    # What people copy has the types that they see.
    readme = (HERE / "README.md").read_text()
    (lab.temp / "readme.py").write_text(readme.split("```python\n")[1].split("```")[0])
    for what, folder in (("inrush", HERE), ("readme.py", lab.temp)):
        step(python, "-m", "mypy", "--strict", "--python-version", "3.10", what,
             folder=folder, env=env)
    # Not from this folder: what is tested is what is installed.
    step(venv / "bin" / "pytest", "-q", "--rootdir", HERE, HERE / "tests", *lab.args.pytest,
         folder=target, env=env)
    lab.report("python", None)
