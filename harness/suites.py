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

from .boot import kernels, run
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
FAILURES = re.compile(r"^(?:FAIL\b|FAILED |ERROR |\[(?:FAILED|TEST_CRASHED|ERROR)\]).*", re.M)


@dataclasses.dataclass
class Suite:
    """A command, or a kernel that is built for some."""

    name: str
    command: str
    kernels: tuple = ()  # those that it boots, or the one that it builds
    kind: str = "other"  # a key of MOST
    result: Result = dataclasses.field(default_factory=Result)
    failures: tuple = ()  # lines
    seconds: int = 0
    process: step.Step = None

    @property
    def is_pytest(self):
        """Tell whether pytest runs it."""
        return self.command.startswith("pytest")

    def scenario(self):
        """Return the scenario and its options, or None if it is none."""
        first, *words = shlex.split(self.command)
        return run.parse(words) if first == "scripts/run" else None

    def words(self, logs, more):
        """Return the command that runs it with further words, and its environment. It runs in the toolchain root if it is a
        scenario (for which run.prepare_host() was called) or "pytest". logs: its folder."""
        first, *words = [*shlex.split(self.command), *more]
        logs.mkdir(parents=True, exist_ok=True)
        logs, user, command = {"VMAP_RUST_LOGS": str(logs)}, os.environ, [REPO / first, *words]
        if first == "pytest-host":
            command, user = root_python(*PYTHON[first], *words)
        elif first in PYTHON:
            command = in_root("python3", "-P", *PYTHON[first], *words, cwd=REPO, PYTHONPATH=REPO, PYTHONDONTWRITEBYTECODE=1,
                              **logs)
        return command, {**user, **logs}

    def finish(self):
        """Read its counts when it has ended. That nothing passed is a failure, and so is an exit code that no count
        explains."""
        log = self.process.log
        code, text = self.process.finish(), log.read_text(encoding="utf-8", errors="replace")
        self.seconds, self.result = self.process.display.seconds, read_totals(text)
        if self.is_pytest:
            last = "".join(re.findall(r"^=+ .* in [\d.]+s.*$", text, re.M)[-1:])
            self.result = Result(*(sum(map(int, re.findall(rf"(\d+) (?:{words})", last)))
                                   for words in ("passed", "failed|error", "skipped")))
        if code == 4 and not self.is_pytest and not self.result.passed + self.result.failed:
            # This machine cannot run it.
            self.result.skipped = 1
        elif self.result.failed:
            self.failures = FAILURES.findall(text)[-12:]
        elif code or not self.result.passed + self.result.skipped:
            self.result.failed = 1
            self.failures = [f"exit code {code}, {self.result.passed} passed: {step.last_line(log)}; see {log}"]


@functools.cache
def tables():
    """Return the tables of harness/suites.toml. Raises Refused if it cannot be read."""
    try:
        return tomllib.loads((REPO / "harness/suites.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"harness/suites.toml: {error}") from None


def prepare(name, command):
    """Return a suite that is ready to start. Raises Refused if something is missing for it."""
    one = Suite(name, command, tuple(tables()["kernels"].get(name, ())))
    if scenario := one.scenario():
        run.prepare_host(*scenario)
        one.kernels = (scenario[1].kernel.name,)
    one.kind = "boots" if one.kernels else "other"
    return one


def run_all(suites, logs, *more, ended=None):
    """Build the kernels that suites boot, run the suites, and count what they find. logs: a folder; more: words for those
    that pytest runs; ended: is called with each suite that has ended. A scenario whose kernel does not build tries it again,
    and fails."""
    builds = {name: Suite(f"building {name}", f"scripts/build {name}", (name,), "build")
              for name in kernels.load() if any(name in one.kernels for one in suites)}
    waiting, running, display = [*builds.values(), *suites], [], step.Display()
    try:
        while waiting or running:
            unbuilt = {name for name, one in builds.items() if one in waiting + running}
            for one in [*waiting]:
                if sum(other.kind == one.kind for other in running) < MOST[one.kind] and (
                        one.kind == "build" or not unbuilt & {*one.kernels}):
                    built = one.scenario() and all(builds[name].process.child.returncode == 0 for name in one.kernels)
                    log = logs / f"{one.name.replace(' ', '-')}.log"
                    command, environment = one.words(
                        log.with_suffix(""), more if one.is_pytest else ["--no-build"] if built else [])
                    one.process = step.Step(one.name, log, command, cwd=REPO, env=environment,
                                            good=(0,) if one.is_pytest else (0, 4))
                    waiting.remove(one)
                    running.append(one)
            for one in [one for one in running if one.process.child.poll() is not None]:
                running.remove(one)
                one.finish()
                if ended and one in suites:
                    ended(one)
            display.show(*(one.process.text for one in running))
            time.sleep(0.2)
    finally:
        for one in running:
            one.process.stop()


def show(suites, start, logs):
    """Print the table of suites and the totals; returns the exit code."""
    print(f"\n{'suite':<22} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    total = Result()
    for one in suites:
        print(f"{one.name:<22} {one.result.passed:>7} {one.result.failed:>7} {one.result.skipped:>8} {one.seconds:>8}")
        total.include(one.result)
    # Last, where it is read first.
    for name, line in ((one.name, line) for one in suites for line in one.failures):
        print(f"{name}: {line}")
    print(f"{time.monotonic() - start:.0f} seconds in total; logs: {logs}\n{total.totals()}")
    return 1 if total.failed else 0
