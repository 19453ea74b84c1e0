# SPDX-License-Identifier: GPL-2.0
"""Runs cases once, for boot.py. Words: a kernel that was built, an allocator, cases with commas between, CPUs, a seed.
Prints a line of JSON, the results as they are stored."""

import json
import sys

from harness.options import program

from .show import UNITS, Lines


def main(words):
    """Run the cases and print the results; returns the exit code."""
    kernel, allocator, cases, cpus, seed = words
    lines, found = Lines(kernel), []
    for case in cases.split(","):
        _, figures, _ = lines.measure(case, int(cpus), allocator, int(seed))
        found += [{"case": case, "metric": metric, "unit": unit, "threads": int(cpus), "value": figures[metric]}
                  for metric, unit in UNITS.items()]
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    program("lines", main, sys.argv[1:])
