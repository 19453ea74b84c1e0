# SPDX-License-Identifier: GPL-2.0
"""Judges a kernel's console log: the reasons to fail, or none."""

import dataclasses
import re

from .console import read_text

# Lines that no healthy boot prints. What lockdep and RCU report begins with "WARNING: ", and so does the line behind "cut
# here"; of a lock without a class lockdep says "INFO: ".
RULES = [r"Kernel panic", r"KASAN:", r"KFENCE", r"UBSAN:", r"soft lockup", r"INFO: (task .* blocked|trying to register)",
         r"rcu.*\bstall", r"^BUG at ", r"\bBUG \S+ \(", r"\bBUG:|kernel BUG at", r"\bWARNING:", r"\bOops\b", r"Unable to handle",
         r"refcount_t", r"list_(add|del) corruption", r"kmemleak: .*new suspected|kmemleak: .*disabled",
         r"invalid for parameter", r"vmap_rust: refused", r"guest: FAIL"]

# The last message of a boot without a root file system.
END_OF_BOOT = r"Kernel panic - not syncing: (VFS: Unable to mount root fs|No working init)"
ALLOCATOR_LINE = {"rust": "vmap allocator: rust (mm/vmap_rust)", "rbtree": "vmap allocator: rbtree"}
STAMP = re.compile(r"^(\[\s*\d+\.\d+\](\[[^]]*\])? )?")
RESULT = re.compile(r"^\s*(?:not )?ok \d+ (\S+)")
SUBTEST = re.compile(r"^\s*# Subtest: (\S+)")


def read_lines(path):
    """Return the lines of the log without carriage returns, time stamps and terminal escapes."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", read_text(path))
    return [STAMP.sub("", line) for line in text.split("\n")]


def kunit_test_of(lines):
    """Return, for each line, the "suite.test" of the KUnit case that printed it, or None.

    KTAP names a case only in the result line that follows its output.
    """
    owner, suites, start = [None] * len(lines), [], 0
    for number, line in enumerate(lines):
        subtest, result = SUBTEST.match(line), RESULT.match(line)
        if subtest:
            # A case with parameters is a suite in its suite.
            suites.append(subtest[1])
        elif result and suites and result[1] == suites[-1]:
            suites.pop()
        elif result and suites:
            owner[start:number] = [f"{suites[-1]}.{result[1]}"] * (number - start)
        if subtest or result:
            start = number + 1
    return owner


@dataclasses.dataclass
class Expected:
    """What a console log must have, and may have. The lists are regular expressions."""

    allocator: str  # that must have been active: rbtree, rust, or none, a kernel without the option
    end_marker: str = END_OF_BOOT  # a line that shows that the boot has done its work
    allow: list = ()  # lines that a test is meant to provoke
    allow_in: list = ()  # (SUITE.TEST, expression): lines that one KUnit case is meant to provoke
    require: list = ()  # lines that must be there, and are allowed
    until: str = ""  # the first line that is not judged, nor those behind it, or "": an expression


def judge(log, expected):
    """Return the reasons to fail, empty when the log is good."""
    try:
        lines = read_lines(log)
    except OSError as error:
        return [f"cannot read the log {log}: {error.strerror}"]
    if not any(line.strip() for line in lines):
        return ["the log is empty: the kernel never printed a line"]
    wanted, exact, reasons = ALLOCATOR_LINE.get(expected.allocator), 0, []
    rules = re.compile("|".join(RULES))
    for number, (line, owner) in enumerate(zip(lines, kunit_test_of(lines)), 1):
        if expected.until and re.search(expected.until, line):
            break
        hit, text = rules.search(line), f"line {number}: {line}"
        if line.startswith("vmap allocator:"):
            exact += line == wanted
            hit, text = line != wanted, f"allocator line: expected {expected.allocator}, {text}"
        if hit and not any(re.search(x, line) for x in (END_OF_BOOT, *expected.allow, *expected.require, *(
                x for test, x in expected.allow_in if test == owner))):
            reasons.append(text)
    if wanted and exact != 1:
        reasons.append(f'allocator line: "{wanted}" printed {exact} times, expected once')
    reasons += [f"required line: nothing matches {x}" for x in expected.require if not any(re.search(x, y) for y in lines)]
    if not any(re.search(expected.end_marker, line) for line in lines):
        last = next(line for line in reversed(lines) if line.strip())
        reasons.append(f"end marker: nothing matches {expected.end_marker}; last line: {last}")
    return reasons
