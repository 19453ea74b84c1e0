# SPDX-License-Identifier: GPL-2.0
"""The command line of scripts/check. This runs outside of the toolchain root, with its Python, and enters it for each
command."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from .. import kernels
from ..options import Parser, program
from ..result import Result
from ..settings import REPO, Refused
from . import CPUS, Fault, figures, links, rust, series, sparse_and_kernel_doc, texts

HELP = """Checks the sources: format, lints, style, words, links, licences, and that each patch of all series applies
and builds.

  shell       shellcheck on all shell scripts        spelling    codespell on all files
  words       no word of scripts/lib/banned-words    docs        short README, links, quoted figures
  licence     an SPDX line in each file              paths       no path of one machine, no registry's host name
  unsafe      layers of rust/, unsafe code           rustfmt     rustfmt --check with the kernel's rules
  checkpatch  checkpatch.pl --strict on the patches and the C files
  kernel-doc  no new warning of kernel-doc            sparse      no warning of sparse, in files that the patches touch
  clippy      no warning from clippy in mm/vmap_rust
  series      git am and patch give the same trees; each patch builds with the option off, and those of other
              series than fixes/ and mapping/ also with it on, and so does mapping/ without area/; with all patches,
              the whole kernel builds, and mm/vmalloc.c without the rb-trees

Without ITEM: all, in this order. A build that passed is not repeated while nothing it depends on has changed.
Last line: "N passed, N failed". Exit code: 0 all passed, 1 not."""
# Items that need the toolchain, but no kernel source.
TEXTS = {
    "shell": texts.shell,
    "spelling": texts.spelling,
    "words": lambda check: check("one word for each idea", texts.banned_words),
    "docs": lambda check: (check("README.md is short", texts.readme_length),
                           check("links between documents", links.follow),
                           check("figures that texts quote", figures.check)),
    "licence": lambda check: check("SPDX line in each file", texts.without_licence),
    "paths": lambda check: check("no path of one machine, no registry's host name", texts.machine_paths),
    "unsafe": rust.unsafe,
}
# Items whose tests run side by side.
TOGETHER = TEXTS | {"rustfmt": rust.rustfmt, "checkpatch": texts.checkpatch, "kernel-doc": sparse_and_kernel_doc.check_kernel_doc}
ITEMS = [*TOGETHER, "sparse", "clippy", "series"]


def outcome(name, test, *args):
    """Run a test; returns whether it passed, its name, and what to print: its last line, or up to 60 if it failed."""
    try:
        return True, name, ": ".join([f"ok   {name}", *(test(*args) or "").splitlines()[-1:]])
    except (Fault, OSError, ImportError) as fault:
        return False, name, "\n     ".join([f"FAIL {name}", *str(fault).splitlines()[:60]])


def options(arguments):
    """Return the options. Refuses wrong use."""
    parser = Parser(HELP, "check")
    parser.add_argument("items", nargs="*", metavar="ITEM", help="check only these")
    parser.add_argument("--fresh", action="store_true", help="repeat builds of the series that passed")
    parser.add_argument("--kernel", metavar="NAME", default="arm64",
                        help="build the series with this configuration of qemu/kernels.toml (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="print the items")
    args = parser.parse_args(arguments)
    for item in args.items:
        if item not in ITEMS:
            raise Refused(f'unknown item "{item}"; there are: {" ".join(ITEMS)}')
    if args.kernel != "arm64" and args.kernel not in kernels.load():
        raise Refused("--kernel needs a configuration of qemu/kernels.toml")
    if not shutil.which("git"):
        raise Refused("git is missing; install it (Debian package git)")
    if subprocess.run(["git", "-C", REPO, "rev-parse", "--git-dir"], capture_output=True, check=False).returncode:
        raise Refused(f"{REPO} is not a git repository; clone it to check it")
    return args


def main(arguments):
    """Check the wanted items; returns the exit code."""
    args, result, pool = options(arguments), Result(), ThreadPoolExecutor(CPUS)
    wanted = args.items or ITEMS
    if args.list or os.environ.get("VMAP_RUST_PARSE"):
        print("\n".join(ITEMS))
        return 0
    if not TEXTS.keys() >= set(wanted) and os.environ.get("VMAP_RUST_IN_ROOT") != "1":
        if subprocess.run([REPO / "scripts/prepare", "all"], check=False).returncode:
            # It has said why.
            return 1
    os.chdir(REPO)

    def check(*test):
        """Run a test at once; returns whether it passed."""
        result.add(*(row := outcome(*test)))
        return row[0]

    alone = {"sparse": sparse_and_kernel_doc.check_sparse, "clippy": rust.clippy,
             "series": lambda run: series.series(run, args.kernel, args.fresh)}
    started = [[] for _ in wanted]
    try:
        for item, tests in zip(wanted, started):
            if item in TOGETHER:
                TOGETHER[item](lambda *test, tests=tests: tests.append(pool.submit(outcome, *test)))
        for item, tests in zip(wanted, started):
            for test in tests:
                result.add(*test.result())
            if item in alone:
                alone[item](check)
    finally:
        pool.shutdown(cancel_futures=True)
    print(result.totals())
    return 1 if result.failed else 0


if __name__ == "__main__":
    program("check", main, sys.argv[1:])
