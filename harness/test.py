# SPDX-License-Identifier: GPL-2.0
"""Runs suites of harness/suites.toml: "scripts/test"."""

import fnmatch
import time

from .allocator import faults, litmus, mutants, rust
from . import matrix, suites
from .patches import own_tree, prepare
from .machine import step
from .machine.options import Parser
from .machine.result import Result
from .machine.settings import TOOLCHAIN, Refused, say

# Suites that are functions of this program, and take arguments when they are the only word: "scripts/test host NAME".
TOOLS = {"host": rust.host, "explore": rust.explore, "faults": faults.main, "mutants": mutants.main, "litmus": litmus.main,
         "own-tree": own_tree.main}
HELP = """Runs test suites and adds up what they passed.

Without names: those of "make test". Last line: "N passed, N failed" (", N skipped" if any), added up over the suites; a
suite that crashes or runs no test counts as a failure.

With one name of {}: only that, with its output and the arguments that it takes (scripts/test NAME --help).

Exit code: 0 nothing failed, 1 something did.

Suites: {}

Only if they are named: {}"""


def options():
    """Return the parser of the command line."""
    parser = Parser(HELP.format(*map(" ".join, (TOOLS, suites.tables()["make-test"], suites.tables()["alone"]))), "test")
    parser.add_argument("names", nargs="*", metavar="SUITE",
                        help="a suite, or a glob such as 'kunit-*'; with --full a kernel, or a suite that needs none")
    parser.add_argument("-k", metavar="TESTS", default="", help="only tests of pytest whose names match")
    parser.add_argument("--list", action="store_true", help="print the suites, and their commands")
    parser.add_argument("--full", action="store_true",
                        help="run the suites of every kernel configuration, and tools, or of those named. It takes "
                        "hours, but can be stopped and started again: what passed is not run again until a file "
                        "changes that is no document")
    parser.add_argument("--table", action="store_true", help="run nothing, print the stored results of --full")
    return parser


def main(arguments):
    """Run the wanted suites, or all configurations; returns the exit code."""
    tables = suites.tables()
    every = tables["make-test"] | tables["alone"]
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
    names = [name for name in every if any(fnmatch.fnmatchcase(name, glob) for glob in args.names)]
    if args.list:
        print("\n".join(f"{name:<22}{every[name]}" for name in names or every))
        return 0
    names = names or [*tables["make-test"]]
    if TOOLCHAIN == "host" and not args.names:
        say("note: with TOOLCHAIN=host, the suites check and selftest are left out, which need the toolchain root")
        names = [name for name in names if name not in ("check", "selftest")]
    prepare.prepare()
    start, logs = time.monotonic(), step.new_logs("test", 8)
    chosen = [one for one in (suites.prepare(name, every[name]) for name in names) if one.is_pytest or not args.k]
    suites.run_all(chosen, logs, *(["-k", args.k] if args.k else []))
    # pytest exits with 5 where no test has such a name.
    chosen = [one for one in chosen if not args.k or one.process.child.returncode != 5]
    if not chosen:
        raise Refused(f"no test's name matches -k {args.k}")
    return suites.show(chosen, start, logs)
