#!/usr/bin/env python3
"""Measurements: `tools/bench.py [NAME...] [OPTION...]`."""

import runpy
import sys

MODULES = {"compare": "programs", "mounts": "mounts", "loaders": "loaders", "python": "experiment"}
module = MODULES.get(sys.argv[1], "sections") if sys.argv[1:] else "sections"
if module != "sections":
    sys.argv.pop(1)
runpy.run_module(f"lab.benches.{module}", run_name="__main__", alter_sys=True)
