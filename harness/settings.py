# SPDX-License-Identifier: GPL-2.0
"""Folders, messages, and what is wrong use. scripts/lib.sh sets the variables."""

import os
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("VMAP_RUST_CACHE") or Path.home() / ".cache/vmap-rust")
TREE = Path(os.environ.get("VMAP_RUST_TREE") or CACHE / "tree/v7.3")
# The folder of builds of this kernel.
BUILDS = Path(os.environ.get("VMAP_RUST_BUILDS") or CACHE / "build")
# Logs go to the folder of a whole test run, or to the cache's.
LOGS = Path(os.environ.get("VMAP_RUST_LOGS") or CACHE / "log")

# It is for this Python only, not for those of the commands that this one starts.
os.environ.pop("PYTHONHOME", None)


class Refused(Exception):
    """Wrong use, or something is missing; the message is one line that says what to do. Exit code 1."""


class Skipped(Exception):
    """This machine cannot run it; the message says why. Exit code 4."""


def say(text):
    """Print one line for the user to stderr."""
    print(text, file=sys.stderr, flush=True)
