# SPDX-License-Identifier: GPL-2.0
"""The command line of scripts/check. This runs outside of the toolchain root, with its Python, and enters it for each
command."""

import os
import subprocess
import sys

from .. import kernels
from ..options import Parser, program
from ..result import Result
from ..settings import REPO, Refused
from . import Fault, docs, rust, series, sparse_and_kernel_doc, texts

HELP = """Checks the sources: format, lints, style, words, links, licences, and that each patch of all series applies
and builds.

  shell       shellcheck on all shell scripts        spelling    codespell on all files
  words       no word of scripts/lib/banned-words    docs        short README, links, quoted figures
  licence     an SPDX line in each file              paths       no path of one machine, no registry's host name
  unsafe      layers of rust/, unsafe code           rustfmt     rustfmt --check with the kernel's rules
  checkpatch  checkpatch.pl --strict on the patches and the C files
  kernel-doc  no new warning of kernel-doc           sparse      no warning of sparse, in files that the patches touch
  clippy      no warning from clippy in mm/vmap_rust
  series      git am and patch give the same trees; each patch builds with the option off, and those of other
              series than fixes/ and mapping/ also with it on, and so does mapping/ without area/; with all patches,
              the whole kernel builds, and mm/vmalloc.c without the rb-trees

Without ITEM: all, in this order. A build that passed is not repeated while nothing it depends on has changed.
Last line: "N passed, N failed". Exit code: 0 all passed, 1 not."""
# The tests of each item but series: what they find, and a function that returns what it has looked at, or raises Fault.
TESTS = {
    "shell": {"shellcheck": texts.shell},
    "spelling": {"codespell": texts.spelling},
    "words": {"one word for each idea": texts.banned_words},
    "docs": {"README.md is short": docs.readme_length, "links between documents": docs.links,
             "figures that texts quote": docs.figures},
    "licence": {"SPDX line in each file": texts.without_licence},
    "paths": {"no path of one machine, no registry's host name": texts.machine_paths},
    "unsafe": {"no unsafe code but in sys, state, debug and ffi": rust.unsafe_code,
               "each layer of rust/ uses only itself and lower ones": rust.upward},
    "rustfmt": {"rustfmt": rust.rustfmt},
    "checkpatch": {"checkpatch, patches": texts.checkpatch_patches, "checkpatch, C": texts.checkpatch_sources,
                   "patches for other series of Linux are of today's": texts.made_from},
    "kernel-doc": {"kernel-doc": sparse_and_kernel_doc.kernel_doc},
    "sparse": {"sparse, arm64": sparse_and_kernel_doc.sparse},
    "clippy": {"clippy, arm64": rust.clippy},
}
ITEMS = [*TESTS, "series"]
# What needs no kernel source.
WITHOUT_SOURCE = {"shell", "spelling", "words", "docs", "licence", "paths", "unsafe"}


def options(arguments):
    """Return the options. Refuses wrong use."""
    parser = Parser(HELP, "check")
    parser.add_argument("items", nargs="*", metavar="ITEM", help="check only these")
    parser.add_argument("--fresh", action="store_true", help="repeat builds of the series that passed")
    parser.add_argument("--kernel", metavar="NAME", default="arm64",
                        help="build the series with this configuration of qemu/kernels.toml (default: %(default)s)")
    args = parser.parse_args(arguments)
    for item in args.items:
        if item not in ITEMS:
            raise Refused(f'unknown item "{item}"; there are: {" ".join(ITEMS)}')
    if args.kernel != "arm64":
        kernels.get(args.kernel)
    return args


def main(arguments):
    """Check the wanted items; returns the exit code."""
    args, result = options(arguments), Result()
    wanted = args.items or ITEMS
    if os.environ.get("VMAP_RUST_PARSE"):
        return 0
    if not WITHOUT_SOURCE >= set(wanted) and os.environ.get("VMAP_RUST_IN_ROOT") != "1":
        if subprocess.run([REPO / "scripts/prepare", "all"], check=False).returncode:
            # It has said why.
            return 1
    os.chdir(REPO)

    def check(name, test, *args):
        """Run a test, print its last line, or up to 60 if it failed, and return whether it passed."""
        try:
            text, good = ": ".join([f"ok   {name}", *(test(*args) or "").splitlines()[-1:]]), True
        except (Fault, OSError, ImportError) as fault:
            text, good = "\n     ".join([f"FAIL {name}", *str(fault).splitlines()[:60]]), False
        result.add(good, name, text)
        return good

    for item in (item for item in ITEMS if item in wanted):
        for name, test in TESTS.get(item, {}).items():
            check(name, test)
    if "series" in wanted:
        series.series(check, args.kernel, args.fresh)
    print(result.totals())
    return 1 if result.failed else 0


if __name__ == "__main__":
    program("check", main, sys.argv[1:])
