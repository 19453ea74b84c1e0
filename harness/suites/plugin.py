# SPDX-License-Identifier: GPL-2.0
"""What pytest needs to know of suites: which are wanted, and how much a test counts; and what tests that boot share."""

import functools

import pytest

from .. import build, kernels
from ..result import Result
from ..settings import REPO, Refused, Skipped
from .rows import suite_of


def pytest_addoption(parser):
    """Add the option that chooses suites."""
    parser.addoption("--suites", default="", help="only these, separated by commas")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Name the suite of each test, and leave out those of other suites."""
    wanted, left = config.getoption("--suites").split(","), []
    for item in items:
        name = suite_of(str(item.path.relative_to(REPO))) or item.callspec.params.get("suite", "check")
        item.user_properties.append(("suite", name))
        left += [] if name in wanted or wanted == [""] else [item]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@functools.cache
def built(name):
    """Return a kernel, built once: that nothing has changed would take some seconds each time."""
    build.build(kernels.get(name))
    return kernels.get(name)


@pytest.fixture(name="counted")
def count(record_property):
    """A function that calls another one with a Result, records what that counts, and fails if something failed."""
    def run(function, *words):
        result = Result()
        try:
            function(*words, result)
        except Skipped as why:
            pytest.skip(str(why))
        except Refused as why:
            pytest.fail(str(why))
        for name in ("passed", "failed", "skipped"):
            record_property(name, getattr(result, name))
        if not result.good:
            pytest.fail("; ".join(result.failures[:12]) or "nothing passed", pytrace=False)
    return run
