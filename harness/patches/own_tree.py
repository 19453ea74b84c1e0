# SPDX-License-Identifier: GPL-2.0
"""Runs the kunit.py commands of docs/testing.md, as they stand there, in a fresh git tree into which scripts/install-into put
the patches: "scripts/test own-tree". R is the folder of this repository."""

import re

from . import prepare
from ..machine import step
from ..toolchain.enter import in_root
from ..machine.lock import locked
from ..machine.options import Parser
from ..machine.settings import CACHE, REPO, remove

LOG = CACHE / "log"


@locked("own tree", "own-tree.lock")
def main(arguments, result):
    """Run them: kunit.py must say that tests passed, with the allocator of the command, on two CPUs."""
    Parser(__doc__, "test own-tree").parse_args(arguments)
    source, folder = prepare.prepare("source"), CACHE / "own-tree"
    tree, log = folder / "linux", LOG / "own-tree.log"
    remove(folder)
    folder.mkdir()
    git = "git -c user.name=t -c user.email=t@localhost -c gc.auto=0"
    for what, command in (("copy", ["cp", "-a", "--reflink=auto", source, tree]),
                          ("commit", ["sh", "-ec", f"cd {tree}; {git} init -q; {git} add -Af; {git} commit -q -m base"]),
                          ("install", [REPO / "scripts/install-into", tree])):
        step.must(f"own tree: {what}", log, command, f"own tree: {what} failed; see {log}")
    # The indented lines around kunit.py: what comes before the first run, of which "cd" counts for all; what they share; and
    # one for each.
    text = re.search(r"(?:^    .*\n)*^    K=.*\n(?:    .*\n)*", (REPO / "docs/testing.md").read_text(encoding="utf-8"), re.M)[0]
    lines = [line.split(" #")[0].strip() for line in text.splitlines()]
    at = next(number for number, line in enumerate(lines) if line.startswith("K="))
    for number, line in enumerate(lines[at + 1:]):
        allocator, log = re.search(r"vmap_allocator=(\w+)", line)[1], LOG / f"own-tree-{number}.log"
        before = [one for one in lines[:at] if not number or one.startswith("cd ")]
        code = step.Step(f"own tree: {line}", log, in_root(
            "bash", "-euo", "pipefail", "-c", "; ".join([*before, lines[at], line]), cwd=tree, R=REPO), cwd=tree).wait()
        # kunit.py fails if a case fails, and keeps the console of the guest in a file.
        consoles = sorted(folder.glob("*/.kunit/test.log"))
        printed = consoles[0].read_text(encoding="utf-8", errors="replace") if consoles else ""
        wanted = (r"Ran [0-9]* tests: passed: [1-9]", log.read_text(encoding="utf-8", errors="replace")), \
            (f"vmap allocator: {allocator}", printed), ("Brought up 1 node, 2 CPUs|SMP: Total of 2 processors", printed)
        good = code == 0 and all(re.search(*row) for row in wanted)
        result.add(good, line, f"log: {log}")
        for console in consoles:
            console.unlink()
    if not result.failed:
        remove(folder)
