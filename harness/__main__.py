# SPDX-License-Identifier: GPL-2.0
"""The commands of scripts/, each a module that has main(arguments), which returns the exit code."""

import importlib
import sys

from .options import program

MODULES = {"bench": "harness.bench.main", "build": "harness.build", "check": "harness.checks.main", "in-root": "harness.enter",
           "install-into": "harness.install", "prepare": "harness.prepare", "rebase": "harness.rebase",
           "run": "harness.run", "test": "harness.test"}


def main(arguments):
    """Run one command."""
    name, *words = arguments
    if name not in MODULES:
        sys.exit(f"{name}: error: call scripts/NAME, where NAME is one of {' '.join(MODULES)}")
    program(name, lambda words: importlib.import_module(MODULES[name]).main(words), words)


main(sys.argv[1:])
