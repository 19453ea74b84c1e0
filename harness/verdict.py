# SPDX-License-Identifier: GPL-2.0
"""Judges a kernel's console log: the reasons to fail, or none."""

import dataclasses
import re

from .console import read_text

# Lines that no healthy boot prints. If several rules match a line, the report names the first.
RULES = [
    ("panic", r"Kernel panic"),
    ("kasan", r"KASAN:"),
    ("kfence", r"KFENCE"),
    ("ubsan", r"UBSAN:"),
    ("soft lockup", r"soft lockup"),
    ("hung task", r"INFO: task .* blocked"),
    ("lockdep recursion", r"possible recursive locking"),
    ("lockdep circle", r"possible circular locking"),
    ("lockdep irq", r"possible irq lock inversion|inconsistent lock state|possible interrupt unsafe locking"),
    ("rcu usage", r"suspicious RCU usage"),
    ("rcu stall", r"rcu.*\bstall"),
    ("maple tree", r"^BUG at "),
    ("slab", r"\bBUG \S+ \("),
    ("bug", r"\bBUG:|kernel BUG at"),
    ("warning", r"\bWARNING:"),
    ("oops", r"\bOops\b"),
    ("bad access", r"Unable to handle"),
    ("refcount", r"refcount_t"),
    ("list", r"list_(add|del) corruption"),
    ("kmemleak", r"kmemleak: .*new suspected|kmemleak: .*disabled"),
    ("refused", r"vmap_rust: refused"),
    ("guest", r"guest: FAIL"),
    ("splat", r"-\[ cut here \]-"),
]

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
    owner, suite, start = [None] * len(lines), None, 0
    for number, line in enumerate(lines):
        subtest, result = SUBTEST.match(line), RESULT.match(line)
        if subtest:
            suite, start = subtest.group(1), number + 1
        elif result and suite:
            if result.group(1) == suite:
                suite = None
                continue
            for i in range(start, number):
                owner[i] = f"{suite}.{result.group(1)}"
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


def judge(log, expected):
    """Return the reasons to fail, empty when the log is good."""
    try:
        lines = read_lines(log)
    except OSError as error:
        return [f"cannot read the log {log}: {error.strerror}"]
    if not any(line.strip() for line in lines):
        return ["the log is empty: the kernel never printed a line"]
    owner = kunit_test_of(lines)
    allowed = [re.compile(x) for x in [END_OF_BOOT, *expected.allow, *expected.require]]
    allowed_in = [(test, re.compile(x)) for test, x in expected.allow_in]
    rules = [(name, re.compile(x)) for name, x in RULES]

    def is_allowed(number, line):
        return any(x.search(line) for x in allowed) or any(owner[number] == test and x.search(line) for test,
                                                           x in allowed_in)

    reasons, exact, wanted = [], 0, ALLOCATOR_LINE.get(expected.allocator)
    for number, line in enumerate(lines):
        if line.startswith("vmap allocator:"):
            exact += line == wanted
            if line != wanted and not is_allowed(number, line):
                reasons.append(f"allocator line: expected {expected.allocator}, line {number + 1}: {line}")
            continue
        hit = next((name for name, x in rules if x.search(line)), None)
        if hit and not is_allowed(number, line):
            reasons.append(f"{hit}: line {number + 1}: {line}")
    if wanted and exact != 1:
        reasons.append(f'allocator line: "{wanted}" printed {exact} times, expected once')
    for pattern in expected.require:
        if not any(re.search(pattern, line) for line in lines):
            reasons.append(f"required line: nothing matches {pattern}")
    if not any(re.search(expected.end_marker, line) for line in lines):
        last = next(line for line in reversed(lines) if line.strip())
        reasons.append(f"end marker: nothing matches {expected.end_marker}; last line: {last}")
    return reasons
