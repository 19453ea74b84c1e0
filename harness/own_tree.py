# SPDX-License-Identifier: GPL-2.0
"""Runs the kunit.py commands of README.md, as they stand there, in a fresh kernel tree that scripts/install-into made:
"scripts/test own-tree"; and suites on the kernel of another series of Linux: "scripts/test other-kernel"."""

import re
import subprocess

from . import prepare, step
from .enter import in_root
from .lock import locked
from .options import Parser
from .result import read_totals
from .settings import CACHE, REPO, Refused, remove, say

LOG = CACHE / "log"


def commands():
    """Return the indented lines of README.md from "make mrproper" on: that one, what they share, and the others."""
    text = re.search(r"^    make mrproper.*\n(?:    .*\n)*", (REPO / "README.md").read_text(encoding="utf-8"), re.M)
    lines = [line[4:].split("#")[0].rstrip() for line in text[0].splitlines()]
    if sum(bool(re.match(".K vmap_allocator=", line)) for line in lines) < 4:
        raise Refused("README.md lacks commands of kunit.py")
    return lines


@locked("own tree", "own-tree.lock")
def main(arguments, result):
    """Run them: kunit.py must say that tests passed, with the allocator of the command, on two CPUs."""
    Parser(__doc__, "test own-tree").parse_args(arguments)
    source, tree = prepare.prepare("source"), CACHE / "own-tree"
    remove(tree)
    step.must("own tree: copy", LOG / "own-tree-copy.log", ["cp", "-a", "--reflink=auto", source, tree],
              f"cannot copy {source} to {tree}")
    if subprocess.run([REPO / "scripts/install-into", tree], check=False).returncode:
        raise Refused("install-into refuses a fresh tree")
    first, shared, *others = commands()

    def run(number, line):
        return step.run(f"own tree: {line}", LOG / f"own-tree-{number}.log",
                        in_root("bash", "-euo", "pipefail", "-c", line, cwd=tree), cwd=tree) == 0
    if not run(0, first):
        raise Refused(f"it failed; see {LOG}/own-tree-0.log")
    for number, line in enumerate(others, 1):
        allocator = re.search(r"vmap_allocator=(\w+)", line)[1]
        # kunit.py fails if a case fails, and keeps the console of the guest in a file.
        good = run(number, f"{shared}; {line}")
        text = (LOG / f"own-tree-{number}.log").read_text(encoding="utf-8", errors="replace")
        console = (tree / ".kunit/test.log").read_text(encoding="utf-8", errors="replace") if good else ""
        good = good and re.search("Ran [0-9]* tests: passed: [1-9]", text) and f"vmap allocator: {allocator}" in console \
            and re.search("Brought up 1 node, 2 CPUs|SMP: Total of 2 processors", console)
        result.add(bool(good), line)
        say(re.search("Ran [0-9]* tests: .*", text)[0] if good else f"FAIL {line}; see {LOG}/own-tree-{number}.log")
    if not result.failed:
        remove(tree)


def other_kernel(arguments, result):
    """Runs KUnit and test_vmalloc with both allocators on another series of Linux, in UML and on arm64."""
    parser = Parser(other_kernel.__doc__, "test other-kernel")
    parser.add_argument("series", metavar="SERIES")
    args = parser.parse_args(arguments)
    for words in (f"{scenario} {name} {more}" for name in ("uml", "arm64") for scenario, more in (
            ("kunit", "--allocator both"), ("vmalloc", "--allocator rbtree --cpus 2"),
            ("vmalloc", "--allocator rust --cpus 2"))):
        log = LOG / f"linux-{args.series}-{words.replace(' ', '-')}.log"
        step.run(f"Linux {args.series}: {words}", log, ["env", f"KERNEL={args.series}", REPO / "scripts/run", *words.split()])
        counts = read_totals(log.read_text(encoding="utf-8", errors="replace")) or (0, 1, 0)
        result.passed, result.failed, result.skipped = (
            old + new for old, new in zip((result.passed, result.failed, result.skipped), counts))
        if counts[1]:
            result.failures.append(words)
