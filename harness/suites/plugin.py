# SPDX-License-Identifier: GPL-2.0
"""What pytest needs to know of suites: which are wanted, and how much a test counts; and what tests that boot share."""

import collections
import functools
import os

import pytest

from .. import build, kernels
from ..result import Result
from ..settings import REPO, Refused, Skipped
from ..step import tell
from .rows import WORDS, kernels_of, suite_of


def pytest_addoption(parser):
    """Add the option that chooses suites."""
    parser.addoption("--suites", default="", help="only these, separated by commas")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Name the suite of each test, and leave out those of other suites. The first tests are those that need no kernel, then
    those of the kernel that is built first."""
    wanted, left = config.getoption("--suites").split(","), []
    for item in items:
        name = suite_of(str(item.path.relative_to(REPO))) or item.callspec.params.get("suite", "check")
        item.user_properties.append(("suite", name))
        left += [] if name in wanted or wanted == [""] else [item]
    config.hook.pytest_deselected(items=left)
    order = {name: number for number, name in enumerate(building(), 1)}
    items[:] = sorted((item for item in items if item not in left), key=lambda item: max(
        [0, *(order.get(kernel, 0) for kernel in kernels_of(suite_name(item)))]))


def suite_name(item):
    """Return the suite of a test that was collected."""
    return dict(item.user_properties)["suite"]


def building():
    """Return the names of the kernels that "make test" builds, in order."""
    return os.environ.get("VMAP_RUST_BUILDING", "").split()


def pytest_runtestloop(session):
    """Count the tests of each suite."""
    session.totals = collections.Counter(map(suite_name, session.items))
    session.begun = collections.Counter()


def pytest_runtest_setup(item):
    """Tell which test runs. What it starts itself tells more."""
    suite = suite_name(item)
    item.session.begun[suite] += 1
    tell(f"{WORDS.get(suite, suite)}: {item.session.begun[suite]} of {item.session.totals[suite]}")


@functools.cache
def built(name):
    """Return a kernel, built once: that nothing has changed would take some seconds each time. If the one that it starts
    from is being built, too, that one comes first."""
    kernel = kernels.get(name)
    if kernel.start in building():
        built(kernel.start)
    build.build(kernel)
    return kernel


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
