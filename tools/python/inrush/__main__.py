"""The program: `python -m inrush ARGS`, and the console script `inrush`."""

import sys

from ._start import main

if __name__ == "__main__":
    sys.exit(main())
