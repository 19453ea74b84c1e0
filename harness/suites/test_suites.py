# SPDX-License-Identifier: GPL-2.0
"""Suites that are programs: of the build host, scripts/check, and the scenarios of harness/scenarios, which boot a
kernel."""

import shlex

import pytest

from harness import run
from harness.checks import main
from harness.settings import REPO

from . import TOOLS
from .plugin import built
from .rows import ALONE, commands, guests


@pytest.mark.parametrize("suite", [name for name in TOOLS if name in commands() or name in ALONE])
def test_program(suite, counted):
    """No test of a program fails."""
    counted(TOOLS[suite], [])


@pytest.mark.parametrize("check", main.CHECKS.values(), ids=main.name_of)
def test_check(check, counted, monkeypatch):
    """No check of the sources finds anything. Of the series, only "make check" builds other states than the last one: on an
    empty cache that takes as long as all else."""
    monkeypatch.chdir(REPO)
    counted(lambda result: main.run_check(check, main.checker(result), each=False))


@pytest.mark.parametrize("suite", guests())
def test_guest(suite, counted):
    """No check of a scenario fails."""
    scenario, args = run.parse(shlex.split(guests()[suite]))
    # Two suites may boot one kernel and allocator, and scenarios name their logs after these.
    args.logs = args.logs / suite
    args.logs.mkdir(parents=True, exist_ok=True)

    def boot(result):
        built(args.kernel.name)
        scenario.run(args, result)
    counted(boot)
