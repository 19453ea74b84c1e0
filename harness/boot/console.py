# SPDX-License-Identifier: GPL-2.0
"""Reads what a guest prints to its console for the build host: files (send in qemu/functions.sh), and checks."""

import re

HEAD = re.compile(r"file (\w+) (\w+): (\d+) lines")
LINE = re.compile(r"file (\w+) (\w+)\| (.*)")
# A kernel message, which may be in the middle of a line. The rest of the line follows it.
MESSAGE = re.compile(r"\[ *\d+\.\d{6}\] .*$")


def read_text(path):
    """Return a console log without carriage returns."""
    with open(path, encoding="utf-8", errors="replace") as log:
        return log.read().replace("\r", "")


def read_files(path):
    """Return the lines of the files in a log, by moment and name: ["before"]["vmallocinfo"]. A file of which a line is
    missing is left out."""
    found, sizes, broken = {}, {}, None
    for line in read_text(path).split("\n"):
        if head := HEAD.search(line):
            found.setdefault(head[1], {})[head[2]] = []
            sizes[head[1], head[2]] = int(head[3])
        elif line.startswith("file ") or broken is not None:
            text = MESSAGE.sub("", line)
            broken = text if text.startswith("file ") else (broken or "") + text
            match = LINE.fullmatch(broken)
            if match and broken.endswith(" |"):
                found.get(match[1], {}).get(match[2], []).append(match[3][:-2])
                broken = None
    return {when: {name: lines for name, lines in files.items() if len(lines) == sizes[when, name]}
            for when, files in found.items()}


def count_checks(result, allocator, log, checks):
    """Count the line "guest: ok|FAIL|skip CHECK DETAIL" of each check in the log of a guest. A check without a line is
    a failure."""
    lines = read_text(log).split("\n")
    for check in checks:
        pattern = re.compile(rf"guest: (ok|FAIL|skip) {re.escape(check)} (.*)")
        found = next(filter(None, map(pattern.match, lines)), ("", "FAIL", "not reported"))
        result.add({"ok": True, "FAIL": False, "skip": None}[found[1]], f"{allocator} {check}", found[2])
