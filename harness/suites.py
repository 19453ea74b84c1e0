# SPDX-License-Identifier: GPL-2.0
"""Runs test suites and adds up what they passed: "scripts/test". With --full (harness/matrix.py) on every kernel
configuration.

This runs outside of the toolchain root, with its Python: suites are commands that enter it themselves, and some need
the build host.
"""

import datetime
import fnmatch
import os
import re
import shlex
import shutil
import sys
import time

from . import kernels, matrix, run
from .options import Parser, program
from .result import TOTALS, read_totals
from .settings import CACHE, REPO, Refused
from .step import Step

PYTEST = "scripts/in-root python3 -B -m pytest -q -p no:cacheprovider -p harness.totals"
# Suite: command. A suite's last line is "N passed, N failed" or "N passed, N failed, N skipped". These boot nothing,
# and most of them keep only one processor busy: kernels are built beside them.
BOOTLESS = {
    "selftest": "scripts/suites/selftest",
    "verdict": f"{PYTEST} harness/tests --ignore harness/tests/test_boot.py",
    "litmus": "scripts/suites/litmus",
    "host": "scripts/suites/rust host",
    "picture": f"{PYTEST} tools/test_vmap_map.py",
    "drgn": f"{PYTEST} tools/drgn",
    "report": f"{PYTEST} tools/test_vmap_report.py",
    "explore": "scripts/suites/rust explore",
    "faults": "scripts/suites/rust faults",
    "check": "scripts/check",
}
# Suite: seconds that it takes on 2 cores, and command. Further ones are in the files of the scenarios.
BOOTING = {"run": (15, f"{PYTEST} harness/tests/test_boot.py"), "bench": (231, f"{PYTEST} bench/host/tests")}
# Kernels that a suite builds without naming them.
ALSO_BUILDS = {"check": ["arm64", "arm64-off"], "bench": ["arm64-bench", "arm64-off"], "run": ["arm64"]}
# These run only if they are named.
ALONE = {**{name: f"scripts/suites/rust {name}" for name in ("fuzz", "mutants", "coverage")},
         "own-tree": "scripts/suites/own-tree"}


def table():
    """Return the command of each suite of "make test"; of those that boot, long ones come first, so that none is left
    to run alone."""
    booting = dict(BOOTING)
    for name in run.names():
        rows = getattr(run.get(name), "MAKE_TEST", {})
        booting |= {suite: (seconds, f"scripts/run {name} {words}") for suite, (seconds, words) in rows.items()}
    return BOOTLESS | {suite: command for suite, (_, command) in sorted(booting.items(), key=lambda row: -row[1][0])}


def counts(text, code):
    """Return (passed, failed, skipped) of a suite from its output and its exit code."""
    passed, failed, skipped = read_totals(text) or (0, 0, int(code == 4))
    # No count, no test, or an exit code that contradicts the count: something broke that was not counted.
    if code not in (0, 4) and not failed or not passed + failed + skipped:
        failed = 1
    return passed, failed, skipped


def why(name, text):
    """Return the lines of a suite's output that name what failed, or its last lines."""
    lines = re.findall(r"^(?:.*: )?(?:FAIL\b.*|not ok\b.*|FAILED .*|\[(?:FAILED|CRASHED|ERROR)\].*)", text, re.M)
    return [f"{name}: {line}"
            for line in (lines or [x for x in text.split("\n") if x.strip() and not TOTALS.fullmatch(x)][-5:])[:12]]


class Suite:
    """One suite of a run."""

    def __init__(self, name, command, logs, folder=None):
        """folder: of the logs of what it boots (default: one of its own in logs, as their names may be those of
        suites)."""
        self.name, self.command, self.log = name, shlex.split(command), f"{logs}/{name}.log"
        self.folder, self.step = folder or f"{logs}/{name}", None
        self.counts, self.lines, self.text = (0, 1, 0), [], ""
        self.kernels = [word for word in self.command if word in kernels.load()]
        self.seconds = 0

    def start(self, number, total):
        """Start it."""
        os.makedirs(self.folder, exist_ok=True)
        self.step = Step(f"{self.name} ({number} of {total})", self.log, [REPO / self.command[0], *self.command[1:]],
                         cwd=REPO,
                         env={**os.environ, "VMAP_RUST_LOGS": str(self.folder)})

    def finish(self):
        """Read what came of it."""
        code = self.step.finish()
        self.step.stop()
        with open(self.log, encoding="utf-8", errors="replace") as file:
            self.text = file.read()
        self.counts, self.seconds = counts(self.text, code), self.step.seconds
        self.lines = why(self.name, self.text) if self.counts[1] else []

    def clashes(self, other):
        """Tell whether both would write the same files of a build folder, or of the folder of a tool."""
        if self.command[0] == "scripts/run":
            return self.command[0] == other.command[0] and self.kernels == other.kernels
        return self.command[:2] == other.command[:2]


class Runner:
    """Runs suites, some of them side by side, and builds kernels beside the first ones."""

    def __init__(self, wanted, jobs, logs):
        """wanted: suites; jobs: how many run at a time."""
        self.wanted, self.jobs, self.logs, self.running, self.builder = wanted, jobs, logs, [], None

    def build(self):
        """If the first suite boots nothing, build the kernels of all suites beside it, one after the other. A build
        that fails is repeated, and reported, by the suite that needs it."""
        names = dict.fromkeys(k for suite in self.wanted for k in ALSO_BUILDS.get(suite.name, []) + suite.kernels)
        if names and self.wanted[0].name in BOOTLESS:
            self.builder = Step("kernels", f"{self.logs}/kernels.log",
                                ["bash", "-c", 'for kernel; do "$0" "$kernel"; done', REPO / "scripts/build", *names])

    def may_start(self, suite):
        """Tell whether a suite can run beside those that run."""
        if any(suite.clashes(other) for other in self.running):
            return False
        if self.builder and self.builder.child.poll() is None:
            # The build is one of them, and would slow a guest down.
            return len(self.running) < max(1, self.jobs - 1) and suite.name in BOOTLESS
        return len(self.running) < self.jobs

    def run(self):
        """Run all suites."""
        pending, number = list(self.wanted), 0
        self.build()
        try:
            while pending or self.running:
                ready = next((suite for suite in pending if self.may_start(suite)), None)
                if ready:
                    number += 1
                    pending.remove(ready)
                    ready.start(number, len(self.wanted))
                    self.running.append(ready)
                    continue
                for suite in [x for x in self.running if not x.step.running()]:
                    suite.finish()
                    self.running.remove(suite)
                if not self.running and self.builder and pending:
                    self.builder.running()
                time.sleep(0.3)
        finally:
            for step in [suite.step for suite in self.running] + [self.builder] * bool(self.builder):
                step.stop()


def new_logs():
    """Make the folder of the logs of a run, and keep those of the last runs."""
    for old in sorted((CACHE / "log").glob("test-*"))[:-8]:
        shutil.rmtree(old)
    logs = CACHE / f"log/test-{datetime.datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    logs.mkdir(parents=True)
    return logs


def report(suites, seconds):
    """Print the table and the totals; returns the exit code."""
    print(f"\n{'suite':<22} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}  log")
    for suite in suites:
        passed, failed, skipped = suite.counts
        print(f"{suite.name:<22} {passed:>7} {failed:>7} {skipped:>8} {suite.seconds:>8}  {suite.log}")
    # Last, where it is read first.
    for line in (line for suite in suites for line in suite.lines):
        print(line)
    passed, failed, skipped = (sum(column) for column in zip(*(suite.counts for suite in suites)))
    print(f"{seconds} seconds in total\n{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


HELP = """Runs test suites and adds up what they passed.

Without names: those of "make test". Two suites run at a time; kernels are built beside the first suites, which boot
nothing. Last line: "N passed, N failed" (", N skipped" if any), added up over the suites; a suite that crashes or runs
no test counts as a failure.

With one name: only that suite, with its output, and with the arguments that it takes
(scripts/test SUITE --help). Exit code: 0 nothing failed, 1 something did.

Suites: {}
Only if they are named: {}"""


def options(suites):
    """Return the parser of the command line."""
    parser = Parser(HELP.format(" ".join(suites), " ".join(ALONE)), "test")
    parser.add_argument("names", nargs="*", metavar="SUITE",
                        help="a suite, or a glob such as 'kunit-*'; with --full a kernel, or a suite that needs none")
    parser.add_argument("--list", action="store_true", help="print the suites and their commands")
    parser.add_argument("--one-by-one", action="store_true", help="run one suite at a time")
    matrix.options(parser)
    return parser


def one_suite(suites, arguments):
    """Return the command if the arguments are one suite and what it gets, else None: options before it, a glob, or more
    suites."""
    more = arguments[1:]
    if not arguments or arguments[0] not in suites or more and all(word in suites or "*" in word for word in more):
        return None
    if set(more) & {"--list", "--full", "--table", "--again", "--one-by-one"}:
        return None
    return [*shlex.split(suites[arguments[0]]), *more]


def main(arguments):
    """Run the wanted suites, or all configurations; returns the exit code."""
    suites = table()
    every, parse_only = suites | ALONE, os.environ.get("VMAP_RUST_PARSE")
    alone = one_suite(every, arguments)
    if alone:
        if not parse_only:
            if alone[0] == "scripts/in-root":
                # Their arguments are names in the repository; those of other suites may be files of the user.
                os.chdir(REPO)
            os.execv(REPO / alone[0], [str(REPO / alone[0]), *alone[1:]])
        return 0
    args = options(suites).parse_args(arguments)
    full = args.full or args.table or args.again
    for glob in args.names:
        if not full and not fnmatch.filter(every, glob):
            raise Refused(f'unknown suite "{glob}"; scripts/test --list prints them')
    if full:
        return matrix.main(args, Suite, parse_only)
    if not args.list and parse_only:
        return 0
    names = [name for name in every
             if any(fnmatch.fnmatchcase(name, glob) for glob in args.names)] if args.names else list(suites)
    if args.list:
        print("\n".join(f"{name:<22}{every[name]}" for name in (names if args.names else every)))
        return 0
    start, logs = time.monotonic(), new_logs()
    wanted = [Suite(name, every[name], logs) for name in names]
    Runner(wanted, 1 if args.one_by_one or os.cpu_count() < 2 else 2, logs).run()
    return report(wanted, int(time.monotonic() - start))


if __name__ == "__main__":
    program("test", main, sys.argv[1:])
