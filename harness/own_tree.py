# SPDX-License-Identifier: GPL-2.0
"""Runs the kunit.py commands of README.md, as they stand there, in a fresh kernel tree that scripts/install-into made:
"scripts/test own-tree"."""

import re

from . import prepare, step
from .enter import in_root
from .lock import locked
from .options import Parser
from .settings import CACHE, REPO, remove, say

LOG = CACHE / "log"


@locked("own tree", "own-tree.lock")
def main(arguments, result):
    """Run them: kunit.py must say that tests passed, with the allocator of the command, on two CPUs."""
    Parser(__doc__, "test own-tree").parse_args(arguments)
    source, tree = prepare.prepare("source"), CACHE / "own-tree"
    remove(tree)
    step.must("own tree: copy", LOG / "own-tree-copy.log", ["cp", "-a", "--reflink=auto", source, tree],
              f"cannot copy {source} to {tree}")
    step.must("own tree: install", LOG / "own-tree-install.log", [REPO / "scripts/install-into", tree],
              "install-into refuses a fresh tree")
    # The indented lines from "make mrproper" on: that one, what they share, and one for each run.
    text = re.search(r"^    make mrproper.*\n(?:    .*\n)*", (REPO / "README.md").read_text(encoding="utf-8"), re.M)
    first, shared, *others = (line.split("#")[0].strip() for line in text[0].splitlines())
    for line in others:
        allocator, log = re.search(r"vmap_allocator=(\w+)", line)[1], LOG / f"own-tree-{others.index(line)}.log"
        # kunit.py fails if a case fails, and keeps the console of the guest in a file.
        (tree / ".kunit/test.log").unlink(missing_ok=True)
        words = f"{first if line == others[0] else ':'}; {shared}; {line}"
        code = step.run(f"own tree: {line}", log, in_root("bash", "-euo", "pipefail", "-c", words, cwd=tree), cwd=tree)
        console = tree / ".kunit/test.log"
        printed = console.read_text(encoding="utf-8", errors="replace") if console.exists() else ""
        wanted = (r"Ran [0-9]* tests: passed: [1-9]", log.read_text(encoding="utf-8", errors="replace")), \
            (f"vmap allocator: {allocator}", printed), ("Brought up 1 node, 2 CPUs|SMP: Total of 2 processors", printed)
        good = code == 0 and all(re.search(*row) for row in wanted)
        result.add(good, line)
        say(f"{'ok  ' if good else 'FAIL'} {line}; log: {log}")
    if not result.failed:
        remove(tree)
