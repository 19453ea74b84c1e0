# SPDX-License-Identifier: GPL-2.0
"""Command lines of the Python programs in this folder: wrong use prints one line and exits with 1."""

import argparse
import sys


class Parser(argparse.ArgumentParser):
    """An argument parser that takes its description from the first line of a docstring."""

    def __init__(self, doc):
        super().__init__(description=doc.split("\n", maxsplit=1)[0])

    def error(self, message):
        """Print one line and exit."""
        print(f"{self.prog}: error: {message}; see --help", file=sys.stderr)
        sys.exit(1)
