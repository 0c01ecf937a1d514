#!/usr/bin/env python3
"""`tools/check.py soak`, by the name that people know: `tools/soak.py --minutes N`."""

import runpy

runpy.run_module("lab.checks.soak", run_name="__main__", alter_sys=True)
