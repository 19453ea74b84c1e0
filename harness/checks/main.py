# SPDX-License-Identifier: GPL-2.0
"""The command line of scripts/check. This runs outside of the toolchain root, with its Python, and enters it for each
command."""

import os

from ..patches import prepare
from ..toolchain.enter import become_root_python
from ..machine.options import Parser
from ..machine.result import Result
from ..machine.settings import REPO, Refused
from . import kernel, series, texts

CHECKS = {
    "shell": texts.shell, "spelling": texts.spelling, "docs": texts.links, "figures": texts.figures,
    "paths": texts.machine_paths, "layers": texts.layers, "rustfmt": kernel.rustfmt, "checkpatch": kernel.checkpatch,
    "rebase": kernel.made_from, "kernel-doc": kernel.kernel_doc, "sparse": kernel.sparse, "clippy": kernel.clippy,
    "panics": kernel.panics, "series": series.series,
}
# What needs no kernel source.
WITHOUT_SOURCE = {"shell", "spelling", "docs", "figures", "paths", "layers", "rebase"}


def name_of(check):
    """Return what a check checks: the first line of its docstring."""
    return check.__doc__.partition("\n")[0].rstrip(".")


HELP = "\n".join(["Checks the sources. Items:", "", *(f"  {item:<12}{name_of(check)}" for item, check in CHECKS.items())]) + """

Without ITEM: all, in this order. A build of the series that passed is not repeated while nothing that it depends on has
changed. Last line: "N passed, N failed". Exit code: 0 all passed, 1 not."""


def checker(result):
    """Return a function that runs a check, counts it, and prints its name and last line, or up to 60 lines if it failed;
    returns whether it passed."""
    def run(name, check, *args):
        try:
            text, good = "".join(str(check(*args) or "").splitlines()[-1:]), True
        except (Refused, OSError, ImportError) as fault:
            text, good = "\n".join(str(fault).splitlines()[:60]), False
        result.add(good, name, text)
        return good
    return run


def main(arguments):
    """Check the wanted items; returns the exit code."""
    parser, result = Parser(HELP, "check"), Result()
    parser.add_argument("items", nargs="*", metavar="ITEM", help="check only these")
    parser.add_argument("--last", action="store_true", help="of the series, build only the last state")
    args = parser.parse_args(arguments)
    wanted = args.items or [*CHECKS]
    for item in set(wanted) - set(CHECKS):
        raise Refused(f'unknown item "{item}"; there are: {" ".join(CHECKS)}')
    prepare.prepare("root" if WITHOUT_SOURCE >= set(wanted) else "all")
    become_root_python("check", *arguments)
    os.chdir(REPO)
    run = checker(result)
    for item in filter(wanted.__contains__, CHECKS):
        # The series are many checks, which they run themselves.
        if item == "series":
            series.series(run, not args.last)
        else:
            run(name_of(CHECKS[item]), CHECKS[item])
    print(result.totals())
    return 1 if result.failed else 0
