# SPDX-License-Identifier: GPL-2.0
"""The rows of "scripts/bench programs": those that bench/programs.sh has, and what a guest prints of them."""

import fnmatch
import re

from harness.settings import REPO, Refused

# A row that ends with this belongs to the guest with 8 CPUs.
EIGHT = "-8cpu"
ROW = re.compile(r'^\t(program|latency) (?:\d+ )?(\S+) "([^"]+)"', re.M)
LINE = re.compile(r"^program: (\S+) (?:ops=(\d+) areas=(\d+)|FAIL ?(.*))$")
LATENCY = re.compile(r"^latency: (\S+) mean=(\d+) max=(\d+)$")


def texts(kind="program"):
    """Return what one operation of each row is, by name, in the order of the rows. kind: "program" or "latency"."""
    found = ROW.findall((REPO / "bench/programs.sh").read_text(encoding="utf-8"))
    return {name: text for of, name, text in found if of == kind}


def chosen(patterns):
    """Return the names of the rows that one of the patterns, separated by commas, matches. Refuses a pattern without
    a row."""
    known = [*texts(), *texts("latency")]
    for pattern in patterns.split(","):
        if not fnmatch.filter(known, pattern):
            raise Refused(f'unknown program "{pattern}"; there are: {" ".join(known)}')
    return [name for name in known if any(fnmatch.fnmatch(name, pattern) for pattern in patterns.split(","))]


def one(name):
    """Return the name of a row that has an operation."""
    if name not in texts():
        raise Refused(f'unknown program "{name}"; there are: {" ".join(texts())}')
    return name


def read(lines):
    """Return what a console log has: (name, operations, areas) of the rows in their order, why rows failed, by name,
    and (mean, maximum) of each latency by name, in instructions."""
    found = [match.groups() for match in map(LINE.match, lines) if match]
    latencies = [match.groups() for match in map(LATENCY.match, lines) if match]
    return ([(name, int(ops), int(areas)) for name, ops, areas, _ in found if ops],
            {name: error or "failed" for name, ops, _, error in found if not ops},
            {name: (int(mean), int(most)) for name, mean, most in latencies})
