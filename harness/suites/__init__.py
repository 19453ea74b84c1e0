# SPDX-License-Identifier: GPL-2.0
"""The test suites: "scripts/test". pytest runs them, in processes side by side:

- "root": in the toolchain root, what boots, or needs debuggers: harness/tests, harness/bench/tests, tools, and scenarios of
  harness/suites/test_suites.py;
- "debug": there, too, the scenarios on kernels with all debugging, so that one is built while guests of another run;
- "host": on the build host, what boots nothing: the other tests of harness/suites/test_suites.py;
- "set-up": on the build host, with the environment of a user: scripts/tests.

Beside them, another process builds the kernels that suites need: in each process, the suites that need none come first.
A test that boots counts as many checks as its guest reports. Each process writes a JUnit file, from which the table and
the last line come."""

import fnmatch
import os
import time
import xml.etree.ElementTree

from .. import faults, kernels, litmus, mutants, own_tree, prepare, rust, step
from ..enter import in_root, root_python
from ..options import Parser
from ..result import Result
from ..settings import REPO, TOOLCHAIN, Refused, say
from . import matrix
from .rows import ALONE, PLACES, commands, kernels_of

# Suites that take arguments when they are the only word: "scripts/test host NAME".
TOOLS = {"host": rust.host, "explore": rust.explore, "faults": faults.main, "mutants": mutants.main, "litmus": litmus.main, "own-tree": own_tree.main}
WHERE = {"root": "in the toolchain root", "debug": "in the toolchain root, kernels with all debugging",
         "host": "on the build host", "set-up": "on the build host, as a user"}
HELP = """Runs test suites and adds up what they passed.

Without names: those of "make test". Last line: "N passed, N failed" (", N skipped" if any), added up over the suites; a
suite that crashes or runs no test counts as a failure.

With one name of {}: only that, with its output and the arguments that it takes (scripts/test NAME --help).

Exit code: 0 nothing failed, 1 something did.

Suites: {}

Only if they are named: {}"""


def options():
    """Return the parser of the command line."""
    parser = Parser(HELP.format(" ".join(TOOLS), " ".join(commands()), " ".join(ALONE)), "test")
    parser.add_argument("names", nargs="*", metavar="SUITE",
                        help="a suite, or a glob such as 'kunit-*'; with --full a kernel, or a suite that needs none")
    parser.add_argument("-k", metavar="TESTS", default="", help="only tests whose names match, as for pytest")
    parser.add_argument("--list", action="store_true", help="print the suites, and where they run")
    parser.add_argument("--full", action="store_true",
                        help="run the suites of every kernel configuration, and tools, or of those named. It takes "
                        "hours, but can be stopped and started again: what passed is not run again until a file that "
                        "it depends on changes")
    parser.add_argument("--table", action="store_true", help="run nothing, print the stored results of --full")
    return parser


class Process:
    """One of the processes."""

    def __init__(self, where, names, logs, tests, building):
        """where: a key of WHERE; names: suites; logs: a folder; tests: which of them, an expression, or ""; building: names
        of kernels, in the order in which they are built meanwhile."""
        self.names, self.log, self.junit, self.tests = names, logs / f"{where}.log", logs / f"{where}.xml", tests
        every = dict.fromkeys(PLACES.get(name, "harness/suites/test_suites.py") for name in names)
        # Of a folder and a file in it, pytest would collect only the file.
        folders = [path for path in every if not any(path.startswith(f"{other}/") for other in every)]
        words = ["-m", "pytest", "-v", "-k", tests, "-p", "no:cacheprovider", "-p", "harness.suites.plugin", "-o",
                 "tmp_path_retention_policy=failed", "-o", "junit_family=xunit1", f"--junitxml={self.junit}",
                 f"--suites={','.join(names)}", *folders]
        reported = logs / f"{where}.progress"
        more = {"VMAP_RUST_LOGS": str(logs), "VMAP_RUST_PROGRESS": str(reported), "VMAP_RUST_BUILDING": " ".join(building)}
        if where in ("root", "debug"):
            command, environment = in_root("python3", "-P", *words, cwd=REPO, PYTHONPATH=f"{REPO}", **more), os.environ
        else:
            command, environment = root_python(*words)
        self.step = step.Step(f"suites {WHERE[where]}", self.log, command, reported=reported, cwd=REPO,
                              env={**environment, **more})

    def finish(self):
        """Return {suite: [passed, failed, skipped, seconds, lines about failures]}."""
        code = self.step.finish()
        found = {name: [0, 0, 0, 0.0, []] for name in self.names}
        for case in xml.etree.ElementTree.parse(self.junit).iter("testcase") if self.junit.is_file() else ():
            values = {one.get("name"): one.get("value") for one in case.iter("property")}
            bad, skipped = [*case.iter("failure"), *case.iter("error")][:1], case.find("skipped") is not None
            counts = [int(values.get(name, default)) for name, default in (
                ("passed", not bad and not skipped), ("failed", bool(bad)), ("skipped", skipped and not bad))]
            row = found.setdefault(values.get("suite", "unknown"), [0, 0, 0, 0.0, []])
            row[:3] = [row[0] + counts[0], row[1] + max(counts[1], len(bad)), row[2] + counts[2]]
            row[3] += float(case.get("time"))
            # Of a suite that is one test, the name says it all.
            name = "" if case.get("name").startswith(("test_guest[", "test_program[")) else f"{case.get('name')}: "
            row[4] += [name + one.get("message", "").partition("\n")[0].removeprefix("Failed: ") for one in bad]
        for name, row in [*found.items()]:
            if not sum(row[:3]) and self.tests:
                # None of its tests has such a name, then pytest exits with 5.
                del found[name]
            elif not sum(row[:3]):
                row[1], row[4] = 1, [f"no test ran; see {self.log}"]
        if code and (found or code != 5) and not any(row[1] for row in found.values()):
            found["pytest"] = [0, 1, 0, 0.0, [f"exit code {code}; see {self.log}"]]
        return found


def run(names, tests):
    """Run suites; returns the exit code. tests: as in Process."""
    prepare.prepare()
    start, logs = time.monotonic(), step.new_logs("test", 8)
    places = {**commands(), **ALONE}
    # Some tests of a suite need none.
    needed = {kernel for name in names for kernel in kernels_of(name) if not tests}
    building = [name for name in kernels.load() if name in needed]
    # A kernel that does not build fails again where a suite needs it, and is counted there.
    builder = [step.Step("building kernels", logs / "kernels.log", [REPO / "scripts/build", *building],
                         reported=logs / "kernels.progress")] * bool(building)
    processes = [Process(where, some, logs, tests, building) for where in WHERE
                 if (some := [name for name in names if places[name] == where])]
    found, display, steps = {}, step.Display(), [*builder, *(process.step for process in processes)]
    try:
        while any(process.step.child.poll() is None for process in processes):
            display.show(*(one.text for one in steps if one.child.poll() is None))
            time.sleep(0.3)
        for process in processes:
            found |= process.finish()
    finally:
        for one in steps:
            one.stop()
    if not found:
        raise Refused(f"no test's name matches -k {tests}")
    print(f"\n{'suite':<22} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for name, (passed, failed, skipped, seconds, _) in found.items():
        print(f"{name:<22} {passed:>7} {failed:>7} {skipped:>8} {seconds:>8.0f}")
    # Last, where it is read first.
    for name, line in ((name, line) for name, row in found.items() for line in row[4]):
        print(f"{name}: {line}")
    result = Result()
    result.passed, result.failed, result.skipped = (sum(row[column] for row in found.values()) for column in range(3))
    print(f"{time.monotonic() - start:.0f} seconds in total; logs: {logs}\n{result.totals()}")
    return 1 if result.failed else 0


def main(arguments):
    """Run the wanted suites, or all configurations; returns the exit code."""
    every = {**commands(), **ALONE}
    # Other suites or options of pytest's behind the first word: that is no argument of a tool.
    is_tool = arguments and arguments[0] in TOOLS and not {"--list", "-k"} & set(arguments)
    if is_tool and not any(fnmatch.filter(every, word) for word in arguments[1:]):
        result = Result()
        TOOLS[arguments[0]](arguments[1:], result)
        print(result.totals())
        return 0 if result.good else 1
    args = options().parse_args(arguments)
    if args.full or args.table:
        return matrix.main(args)
    for glob in args.names:
        if not fnmatch.filter(every, glob):
            raise Refused(f'unknown suite "{glob}"; scripts/test --list prints them')
    names = [name for name in every if any(fnmatch.fnmatchcase(name, glob) for glob in args.names)] or list(commands())
    if args.list:
        print("\n".join(f"{name:<22}{WHERE[every[name]]}" for name in (names if args.names else every)))
        return 0
    if TOOLCHAIN == "host" and not args.names:
        say("note: with TOOLCHAIN=host, the suites check and selftest are left out, which need the toolchain root")
        names = [name for name in names if name not in ("check", "selftest")]
    return run(names, args.k)
