# SPDX-License-Identifier: GPL-2.0
"""The suites of harness/suites.toml, and how they run.

A suite is a command, with a log and a folder for logs of its own. Two that boot and two that do not run side by side; a
suite that boots begins when its kernels are built, one after the other, meanwhile."""

import dataclasses
import functools
import os
import re
import shlex
import time
import tomllib
from pathlib import Path

from .boot import run
from .machine import step
from .toolchain.enter import in_root, root_python
from .machine.result import Result, read_totals
from .machine.settings import REPO, Refused

# How many of each kind run at a time.
MOST = {"build": 1, "boots": 2, "other": 2}
# What Python gets for the first word of a command.
PYTEST = "-m pytest -v -p no:cacheprovider -o tmp_path_retention_policy=failed".split()
PYTHON = {"scripts/run": ["-m", "harness", "run"], "pytest": PYTEST, "pytest-host": PYTEST}
# Lines about failures in the log of a suite.
FAILURES = re.compile(r"^(?:FAIL\b.*|\[(?:FAILED|TEST_CRASHED|ERROR)\].*)", re.M)
PYTEST_FAILURES = re.compile(r"^(?:FAILED|ERROR) .*", re.M)


@dataclasses.dataclass
class Suite:
    """A row of the table, or a kernel that is built for some."""

    name: str
    command: str
    kernels: tuple = ()  # those that it boots, or the one that it builds
    kind: str = "other"  # a key of MOST
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: tuple = ()  # lines
    seconds: int = 0
    process: step.Step = None
    log: Path = None

    @property
    def is_pytest(self):
        """Tell whether pytest runs it."""
        return self.command.startswith("pytest")

    def scenario(self):
        """Return the scenario and its options, or None if it is none."""
        first, *words = shlex.split(self.command)
        return run.parse(words) if first == "scripts/run" else None

    def start(self, log, more=()):
        """Start it, in the toolchain root if it is a scenario (for which run.prepare_host() was called) or "pytest". log: its
        path; more: further words."""
        first, *words = [*shlex.split(self.command), *more]
        self.log, logs = log, log.with_suffix("")
        logs.mkdir(parents=True, exist_ok=True)
        environment, user = {"VMAP_RUST_LOGS": str(logs)}, os.environ
        if first == "pytest-host":
            command, user = root_python(*PYTHON[first], *words)
        elif first in PYTHON:
            command = in_root("python3", "-P", *PYTHON[first], *words, cwd=REPO, PYTHONPATH=REPO, PYTHONDONTWRITEBYTECODE=1,
                              **environment)
        else:
            command = [REPO / first, *words]
        self.process = step.Step(self.name, log, command, cwd=REPO, env={**user, **environment},
                                 good=(0,) if self.is_pytest else (0, 4))

    def finish(self):
        """Read its counts when it has ended. That nothing passed is a failure, and so is an exit code that no count
        explains."""
        code, text = self.process.finish(), self.log.read_text(encoding="utf-8", errors="replace")
        self.seconds = self.process.display.seconds
        if self.is_pytest:
            last = re.findall(r"^=+ .* in [\d.]+s.*$", text, re.M)[-1:]
            counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", "".join(last))}
            self.passed, self.failed, self.skipped = (
                counts.get("passed", 0), sum(counts.get(word, 0) for word in ("failed", "error", "errors")),
                counts.get("skipped", 0))
        else:
            self.passed, self.failed, self.skipped = read_totals(text) or (0, 0, 0)
        if code == 4 and not self.is_pytest and not self.passed + self.failed:
            # This machine cannot run it.
            self.skipped = 1
        elif self.failed:
            self.failures = (PYTEST_FAILURES if self.is_pytest else FAILURES).findall(text)[:12]
        elif code or not self.passed + self.skipped:
            self.failed = 1
            self.failures = [f"exit code {code}, {self.passed} passed: {step.last_line(self.log)}; see {self.log}"]


@functools.cache
def tables():
    """Return the tables of harness/suites.toml. Raises Refused if it cannot be read."""
    try:
        found = tomllib.loads((REPO / "harness/suites.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"harness/suites.toml: {error}") from None
    if both := found["make-test"].keys() & found["alone"].keys():
        raise Refused(f"harness/suites.toml: two suites are called {both.pop()}; rename one")
    return found


def suite(name):
    """Return a suite by its name, ready to start. Raises Refused if something is missing for it."""
    command = {**tables()["make-test"], **tables()["alone"]}[name]
    one = Suite(name, command, tuple(tables()["kernels"].get(name, ())))
    if scenario := one.scenario():
        run.prepare_host(*scenario)
        one.kernels = (scenario[1].kernel.name,)
    one.kind = "boots" if one.kernels else "other"
    return one


def run_all(suites, logs, *more):
    """Run suites, and count what they find. logs: a folder; more: words for those that pytest runs. Scenarios boot the
    kernels that are built before, unless these do not build: then they try it again, and fail."""
    waiting, running, display = [*suites], [], step.Display()
    try:
        while waiting or running:
            unbuilt = {name for one in waiting + running if one.kind == "build" for name in one.kernels}
            for one in [*waiting]:
                if sum(other.kind == one.kind for other in running) < MOST[one.kind] and (
                        one.kind == "build" or not unbuilt & {*one.kernels}):
                    built = one.kind == "boots" and all(other.process.child.returncode == 0 for other in suites
                                                        if other.kind == "build" and other.kernels[0] in one.kernels)
                    one.start(logs / f"{one.name.replace(' ', '-')}.log",
                              more if one.is_pytest else ["--no-build"] if built and one.scenario() else [])
                    waiting.remove(one)
                    running.append(one)
            for one in [one for one in running if one.process.child.poll() is not None]:
                running.remove(one)
                one.finish()
            display.show(*(one.process.text for one in running))
            time.sleep(0.2)
    finally:
        for one in running:
            one.process.stop()


def show(suites, start, logs):
    """Print the table of suites and the totals; returns the exit code."""
    print(f"\n{'suite':<22} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for one in suites:
        print(f"{one.name:<22} {one.passed:>7} {one.failed:>7} {one.skipped:>8} {one.seconds:>8}")
    # Last, where it is read first.
    for name, line in ((one.name, line) for one in suites for line in one.failures):
        print(f"{name}: {line}")
    result = Result(*(sum(getattr(one, name) for one in suites) for name in ("passed", "failed", "skipped")))
    print(f"{time.monotonic() - start:.0f} seconds in total; logs: {logs}\n{result.totals()}")
    return 1 if result.failed else 0
