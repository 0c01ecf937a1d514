#!/usr/bin/env python3
"""Builds the wheel of the Python package, for every Linux of its tag, and prints its path.

    tools/python/wheel.py [--profile NAME] [--out FOLDER]

The first run installs maturin, auditwheel and Zig, which links the module, into the build folder.
Exit code 1: it cannot be built, or needs more than its tag says.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab import install, process, wheel  # noqa: E402


def main() -> None:
    """Prints the path of the wheel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profile", default="release", help="cargo profile of the module")
    parser.add_argument("--out", type=Path, default=install.build_folder() / "wheels" / "release")
    args = parser.parse_args()
    process.unwind_on_signals()
    try:
        process.say(str(wheel.build(args.profile, Path(sys.executable), args.out)))
    except process.LabError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
