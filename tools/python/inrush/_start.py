"""How the program is started."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from . import _native

# The current folder is no place to import from: it may have a folder of this name.
_START = "import sys; sys.path.append({!r}); from inrush._start import main; sys.exit(main())"


def start() -> list[str]:
    """What starts the program in a process of its own; its arguments are added."""
    here = Path(__file__).resolve().parent.parent
    return [sys.executable, "-I", "-c", _START.format(str(here))]


def main() -> int:
    """Runs the program with the arguments of this process; returns its exit code."""
    # The program handles signals itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    return _native.main(start(), ["inrush", *sys.argv[1:]])
