# SPDX-License-Identifier: GPL-2.0
"""Ends the output of pytest with the line that each suite has."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Print "N passed, N failed"; an error outside of a test counts as a failure."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    count = {name: len(reporter.stats.get(name, [])) for name in ("passed", "failed", "error", "skipped")}
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    print(f"\n{count['passed']} passed, {count['failed'] + count['error']} failed{skipped}")
