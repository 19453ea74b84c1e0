# SPDX-License-Identifier: GPL-2.0
"""Runs every suite on every kernel configuration, stores each result with its commit, and prints the table."""

import functools
import hashlib
import itertools
import json

from . import suites
from .machine.result import Result
from .machine.settings import CACHE, REPO, TREE, Refused, commit, git, kernel_version, say, write
from .machine.table import print_table

RESULTS = CACHE / "matrix"


def files_hash():
    """Return a hash of the version of the kernel, and of all files but documents and cover letters, also of those that are not
    committed."""
    digest = hashlib.sha256(kernel_version(TREE).encode())
    for name in sorted(git(REPO, "ls-files", "-coz", "--exclude-standard", "--", ":!docs", ":!*.md",
                           ":!*/0000-cover-letter.patch").split("\0")):
        if (REPO / name).is_file():
            digest.update(name.encode() + hashlib.sha256((REPO / name).read_bytes()).digest())
    return digest.hexdigest()[:16]


# The table reads all rows at once.
files_hash_once = functools.cache(files_hash)


class Row:
    """One suite on one configuration, or one without a configuration: its command and its stored result."""

    def __init__(self, name, column, command):
        self.name, self.column, self.command = name, column, command
        self.file = RESULTS / f"{name}-{column}.json"
        self.stored = json.loads(self.file.read_text(encoding="utf-8")) if self.file.is_file() else None
        self.fresh = bool(self.stored) and self.stored["state"] == self.state(files_hash_once())

    def state(self, files):
        """Return all that the result depends on. files: of files_hash()."""
        return f"{self.command} {files}"

    def store(self, one, files):
        """Store the result of its suite. files: of files_hash() when it began."""
        # If files changed during the run, the result belongs to no state.
        self.fresh = files_hash() == files
        self.stored = {"state": self.state(files) if self.fresh else "changed", "commit": commit(), "passed": one.result.passed,
                       "failed": one.result.failed, "skipped": one.result.skipped}
        write(self.file, json.dumps(self.stored))

    def cell(self):
        """Return its cell of the table."""
        if not self.fresh:
            return "stale" if self.stored else "?"
        return f"{self.stored['passed']}" + (f", {self.stored['failed']} FAILED" if self.stored["failed"] else "")


def run(rows):
    """Run rows and store their results: those that boot as in "make test", two at a time while kernels are built, and then the
    others one by one, since these use the whole machine."""
    ready = {f"{row.name}-{row.column}": row for row in rows}
    every, files, count = [suites.prepare(name, row.command) for name, row in ready.items()], files_hash(), itertools.count(1)

    def ended(one):
        row = ready[one.name]
        row.store(one, files)
        say("\n".join([f"{next(count)} of {len(rows)}, {one.seconds} s, {row.cell()}: {row.command}", *one.failures]))
        if not row.fresh:
            raise Refused("a file has changed since the rows began, so none of them would count; start them again")

    boots = [one for one in every if one.kind == "boots"]
    for group in [boots] + [[one] for one in every if one not in boots]:
        suites.run_all(group, RESULTS / "logs", ended=ended)


def every_row():
    """Return all rows."""
    tables, found = suites.tables(), []
    for kernel, wanted in tables["full"].items():
        for scenario, _, more in (text.partition(" ") for text in wanted):
            command = f"scripts/run {scenario} {kernel} {tables['words'][scenario]} {more}"
            found.append(Row(kernel, scenario, " ".join(command.split())))
    return found + [Row(name, "alone", command) for name, command in tables["alone"].items()]


def print_matrix(found, columns):
    """Print the table of rows."""
    lines = []
    for name in dict.fromkeys(row.name for row in found):
        mine = {row.column: row for row in found if row.name == name}
        fresh = [row.stored for row in mine.values() if row.fresh]
        # What has no configuration has its checks in the first column.
        cells = [mine["alone"].cell()] if "alone" in mine else []
        cells += [mine[column].cell() if column in mine else "-" for column in columns[len(cells):]]
        lines.append([name, *cells, " ".join(dict.fromkeys(x["commit"] for x in fresh))])
    print_table("passed checks of each suite", ["configuration", *(f">{x}" for x in columns), "commit"], lines)
    print('"-": not part of that configuration; "?": not run yet; "stale": files have changed since, not counted. '
          f"Logs: {RESULTS}")


def main(args):
    """Run what has not passed yet, and print the table; returns the exit code."""
    found = every_row()
    names = list(dict.fromkeys(row.name for row in found))
    for name in args.names:
        if name not in names:
            raise Refused(f'"{name}" has no row; there are: {" ".join(names)} (harness/suites.toml)')
    RESULTS.mkdir(parents=True, exist_ok=True)
    chosen = [row for row in found if not args.names or row.name in args.names]
    if args.list:
        print("\n".join(f"{row.name:<15}{row.command}" for row in chosen))
        return 0
    todo = [] if args.table else [row for row in chosen if not row.fresh or row.stored["failed"]]
    run(todo)
    print_matrix(chosen, list(dict.fromkeys(row.column for row in found if row.column != "alone")))
    if missing := sum(not row.fresh for row in chosen):
        print(f"{missing} results are missing or stale; run scripts/test --full to get them")
    total = Result()
    for row in chosen:
        if row.fresh:
            total.include(Result(*(row.stored[name] for name in ("passed", "failed", "skipped"))))
    print(total.totals(), flush=True)
    return 1 if total.failed or missing else 0
