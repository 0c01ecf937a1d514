#!/usr/bin/env python3
"""Checks: `tools/check.py NAME [OPTION...]` runs tools/lab/checks/NAME.py."""

import runpy
import sys

name = sys.argv.pop(1).replace("-", "_")
runpy.run_module(f"lab.checks.{name}", run_name="__main__", alter_sys=True)
