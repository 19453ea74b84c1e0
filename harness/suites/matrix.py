# SPDX-License-Identifier: GPL-2.0
"""Runs every suite on every kernel configuration, stores each result with its commit, and prints the table."""

import functools
import hashlib
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from .. import kernels, prepare, run, series, step
from ..result import Result, read_totals
from ..settings import CACHE, REPO, SERIES, Refused, linux, say, write
from ..table import print_table

RESULTS = CACHE / "matrix"
# Lines about failures in the output of a suite.
FAILURES = re.compile(r"^(?:.*: )?(?:FAIL\b.*|not ok\b.*|FAILED .*|\[(?:FAILED|TEST_CRASHED|ERROR)\].*)", re.M)
# Suites without a column: each has a row, with its checks in the first column. Their commands, and what they depend on
# beside KERNEL, or, of those in BOOT_NOTHING, at all.
BOOT_NOTHING = ("mutants",)
TOOLS = {
    "make-test": ("scripts/test", (".",)),
    "check": ("scripts/check", (".",)),
    "many-cpus": ("scripts/run vmalloc arm64 --allocator rust --cpus 16 --nodes 2 --mask 7 --loops 100", ()),
    "mutants": ("scripts/test mutants", ("rust", "harness/rust.py", "harness/root.py", "harness/mutants.py")),
    "faults-mapping": ("scripts/test faults --mapping",
                       ("harness/faults.py", "harness/scenarios/kunit.py", "kunit/faults")),
    "own-tree": ("scripts/test own-tree", ("harness/own_tree.py", "harness/install.py", "docs/testing.md")),
    "soak": ("scripts/run stress --minutes 30 --allocator rust x86_64-user", ()),
}
# What all results depend on: what is built, and what boots and judges it. A change of one of these files makes the
# result stale. Patches are not among them: what counts is what they make of the kernel's files, not how that is divided.
KERNEL = ("Kbuild", "Kconfig", "kunit/*.[ch]", "kunit/.kunitconfig", "bench/*.[ch]", "rust/*.rs", "rust/base", "rust/sys",
          "rust/state", "rust/policy", "rust/debug", "rust/check", "harness/build.py", "harness/guest.py",
          "harness/verdict.py", "harness/initramfs.py", "harness/console.py", "harness/root.py", "harness/debian.py",
          "harness/image.py", "harness/kernels.py", "harness/run.py", "harness/series.py", "harness/step.py",
          "qemu/functions.sh", "qemu/init.sh", "qemu/guest")
# What does not count for other scenarios than kunit: they boot with kunit.enable=0, or with the suites of others only.
NO_SUITES = ":!kunit/*_kunit.[ch]"


def git(*words):
    """Return what git prints about the repository."""
    return subprocess.run(["git", "-C", REPO, *words], capture_output=True, check=True).stdout


def digest_of(*folders):
    """Return a digest of all files in folders, or that match patterns of git, also of those that are not committed. Of a
    patch, only what it changes counts, not its mail."""
    digest = hashlib.sha256()
    files = git("--glob-pathspecs", "ls-files", "-co", "--exclude-standard", "-z", "--", *folders).decode().split("\0")
    for file in sorted(set(filter(None, files))):
        if (REPO / file).is_file():
            content = (REPO / file).read_bytes()
            if file.startswith("kernel-patches/") and file.endswith(".patch"):
                content = content.partition(b"\ndiff --git ")[2]
            digest.update(file.encode() + hashlib.sha256(content).digest())
    return digest.digest()


@functools.cache
def patched_files(_patches):
    """Return a digest of the kernel's files that the patches change, as they change them, without documents. _patches: a
    digest of all patches, so that each state of them is read once. Another clone may have patched the tree otherwise, so
    this applies them to the source."""
    paths, source = series.patches(linux(SERIES)), prepare.prepare("source")
    digest, names = hashlib.sha256(source.name.encode()), series.files_of(paths)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        changed = Path(folder) / "changed"
        series.apply_copy(paths, source, changed, names)
        for name in (name for name in names if not name.startswith(("Documentation/", "MAINTAINERS"))):
            digest.update(name.encode() + ((changed / name).read_bytes() if (changed / name).is_file() else b""))
    return digest.digest()


class Entry:
    """One suite on one configuration, or one tool: its command and its stored result."""

    def __init__(self, name, column, command, more=()):
        """more: files and folders on which the result depends beside KERNEL and those of the scenario."""
        self.name, self.column, self.command, self.more = name, column, command, more
        self.file, self.log = RESULTS / f"{name}-{column}.json", RESULTS / "logs" / f"{name}-{column}.log"
        self.stored = json.loads(self.file.read_text(encoding="utf-8")) if self.file.is_file() else None
        # The state is read once, since a run takes hours and the table reads all.
        self.fresh = bool(self.stored) and self.stored["state"] == self.state()

    def state(self):
        """Return a hash of the command and of all files that its result depends on, also of those that are not
        committed."""
        words, folders = self.command.split(), [*KERNEL * (self.name not in BOOT_NOTHING), *self.more]
        if words[0] == "scripts/run":
            folders += [f"harness/scenarios/{words[1]}.py", f"qemu/{words[1]}.sh", *getattr(run.get(words[1]), "USES", ())]
            folders += [] if words[1] == "kunit" else [NO_SUITES]
        used = [kernel for name, kernel in kernels.load().items() if name in words]
        folders += [file for kernel in used for file in kernel.files]
        digest = hashlib.sha256(f"{self.command} {used}".encode() + digest_of(*folders))
        if self.name not in BOOT_NOTHING:
            digest.update(patched_files(digest_of("kernel-patches")))
        return digest.hexdigest()[:16]

    def run(self, number, total):
        """Run it, the one with that number of a total, and store the result."""
        state = self.state()
        self.file.unlink(missing_ok=True)
        script, *words = self.command.split()
        step.run(f"{self.name} {self.column} ({number} of {total})", self.log, [REPO / script, *words], cwd=REPO,
                 env={**os.environ, "VMAP_RUST_LOGS": str(self.log.with_suffix(""))})
        text = self.log.read_text(encoding="utf-8", errors="replace")
        passed, failed, skipped = read_totals(text) or (0, 1, 0)
        for line in FAILURES.findall(text)[:8]:
            say(line)
        commit = git("rev-parse", "--short=10", "HEAD").decode().strip()
        commit += "+" * bool(git("status", "--porcelain", "-uno", "--", ".", ":!docs", ":!README.md"))
        # If files changed during the run, the result belongs to no state. Here, nothing passed is a failure too.
        self.fresh = self.state() == state
        self.stored = {"state": state if self.fresh else "changed", "commit": commit, "passed": passed,
                       "failed": failed or int(not passed), "skipped": skipped}
        write(self.file, json.dumps(self.stored))

    def cell(self):
        """Return its cell of the table."""
        if not self.fresh:
            return "stale" if self.stored else "?"
        return f"{self.stored['passed']}" + (f", {self.stored['failed']} FAILED" if self.stored["failed"] else "")


def entries():
    """Return all suites of all configurations, and the tools."""
    found = []
    for kernel in kernels.load().values():
        for scenario, _, more in (text.partition(" ") for text in kernel.suites):
            full = getattr(run.get(scenario), "FULL", None)
            if not full:
                raise Refused(f"qemu/kernels.toml: {kernel.name}: harness/scenarios/{scenario}.py has no FULL")
            command = f"scripts/run {scenario} {full[1]} {kernel.name} {more}"
            found.append(Entry(kernel.name, full[0], " ".join(command.split())))
    return found + [Entry(name, "alone", command, more) for name, (command, more) in TOOLS.items()]


def print_matrix(found, columns):
    """Print the table of entries."""
    rows = []
    for name in dict.fromkeys(entry.name for entry in found):
        mine = {entry.column: entry for entry in found if entry.name == name}
        fresh = [entry.stored for entry in mine.values() if entry.fresh]
        cells = [mine["alone"].cell()] if "alone" in mine else []
        cells += [mine[column].cell() if column in mine else "-" for column in columns[len(cells):]]
        rows.append([name, *cells, " ".join(dict.fromkeys(x["commit"] for x in fresh))])
    print_table("passed checks of each suite", ["configuration", *(f">{x}" for x in columns), "commit"], rows)
    print('"-": not part of that configuration; "?": not run yet; "stale": files have changed since, not counted. '
          f"Logs: {RESULTS}")


def main(args):
    """Run what has not passed yet, and print the table; returns the exit code."""
    found = entries()
    names = list(dict.fromkeys(entry.name for entry in found))
    for name in args.names:
        if name not in names:
            raise Refused(f'"{name}" has no row; there are: {" ".join(names)}. A configuration has one if it has suites in '
                          "qemu/kernels.toml")
    RESULTS.mkdir(parents=True, exist_ok=True)
    chosen = [entry for entry in found if not args.names or entry.name in args.names]
    if args.list:
        print("\n".join(f"{entry.name:<15}{entry.command}" for entry in chosen))
        return 0
    if not args.table:
        todo = [entry for entry in chosen if not entry.fresh or entry.stored["failed"]]
        say(f"{len(todo)} {'suite' if len(todo) == 1 else 'suites'} to run")
        for number, entry in enumerate(todo, 1):
            entry.run(number, len(todo))
    print_matrix(chosen, list(dict.fromkeys(entry.column for entry in found if entry.column != "alone")))
    if missing := sum(not entry.fresh for entry in chosen):
        print(f"{missing} results are missing or stale; run scripts/test --full to get them")
    result = Result()
    result.passed, result.failed, result.skipped = (sum(entry.stored[name] for entry in chosen if entry.fresh)
                                                    for name in ("passed", "failed", "skipped"))
    print(result.totals(), flush=True)
    return 1 if result.failed or missing else 0
