# SPDX-License-Identifier: GPL-2.0
"""The names of the suites, and where each is."""

import functools
import shlex

from .. import kernels, run
from ..settings import Refused

# Suites that are folders or files of tests.
PLACES = {"selftest": "scripts/tests", "harness": "harness/tests", "boots": "harness/tests/test_boot.py",
          "bench": "harness/bench/tests", "native": "harness/bench/tests/test_native.py",
          "picture": "tools/test_vmap_map.py", "drgn": "tools/drgn",
          "report": "tools/test_vmap_report.py"}
# What the line of progress calls suites of many tests.
WORDS = {"selftest": "tests of the set-up", "harness": "tests of the harness", "boots": "tests of boots",
         "bench": "tests of the bench", "picture": "tests of vmap-map", "drgn": "tests of tools/vmap",
         "report": "tests of vmap-report", "check": "checks of the sources"}
# The kernels that they boot or build.
BUILD = {"boots": ["arm64"], "bench": ["arm64", "arm64-off"], "check": ["arm64", "arm64-off"]}
# Where pytest runs them: see __init__.py.
FIXED = {"check": "host", "host": "host", "explore": "host", "faults": "host", "litmus": "host", "selftest": "set-up",
         "harness": "root", "picture": "root", "drgn": "root", "report": "root", "boots": "root", "bench": "root",
         "native": "root"}
# Only if they are named.
ALONE = dict.fromkeys(("mutants", "own-tree"), "host")


def guests():
    """Return the suites of "make test" that boot, by name: the scenario and its words."""
    found = {}
    for scenario in run.names():
        for name, words in getattr(run.get(scenario), "MAKE_TEST", {}).items():
            if name in {*found, *FIXED, *ALONE}:
                raise Refused(f'harness/scenarios/{scenario}.py: there is another suite "{name}"; rename this one')
            found[name] = f"{scenario} {words}"
    return found


@functools.cache
def commands():
    """Return the suites of "make test", and where pytest runs them."""
    # Guests with all debugging take as long as all other guests together.
    return {**FIXED, **{name: "debug" if "debug" in kernels.get(*kernels_of(name)).fragments else "root"
                        for name in guests()}}


@functools.cache
def kernels_of(suite):
    """Return the names of the kernels that a suite needs."""
    words = guests().get(suite)
    return [run.parse(shlex.split(words))[1].kernel.name] if words else BUILD.get(suite, [])


def suite_of(path):
    """Return the suite of a file of tests, relative to the repository, or None if its tests are suites themselves."""
    found = [name for name, place in PLACES.items() if path == place or path.startswith(f"{place}/")]
    return max(found, key=lambda name: len(PLACES[name]), default=None)
