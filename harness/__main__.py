# SPDX-License-Identifier: GPL-2.0
"""The commands of scripts/, each a module that has main(arguments), which returns the exit code."""

import importlib
import sys

from .machine.options import program

MODULES = {"bench": "harness.bench.main", "build": "harness.boot.build", "check": "harness.checks.main",
           "in-root": "harness.toolchain.enter", "install-into": "harness.patches.install",
           "prepare": "harness.patches.prepare", "rebase": "harness.patches.rebase", "run": "harness.boot.run",
           "test": "harness.test"}


def main(arguments):
    """Run one command."""
    name, *words = arguments
    if name not in MODULES:
        sys.exit(f"{name}: error: call scripts/NAME, where NAME is one of {' '.join(MODULES)}")
    program(name, lambda words: importlib.import_module(MODULES[name]).main(words), words)


main(sys.argv[1:])
