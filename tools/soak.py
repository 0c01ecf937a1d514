#!/usr/bin/env python3
"""`tools/check.py soak`, by the name that people know: `tools/soak.py --minutes N`."""

import sys

import check
from lab import driver
from lab.checks import soak

if __name__ == "__main__":
    sys.exit(driver.main(check.__doc__ or "", check.PARTS, more=[soak.faults],
                         argv=["soak", *sys.argv[1:]]))
