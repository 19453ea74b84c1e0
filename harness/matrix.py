# SPDX-License-Identifier: GPL-2.0
"""Runs every suite on every kernel configuration, stores each result with its commit, and prints the table."""

import functools
import hashlib
import json
import re
import subprocess
import sys
import time

from . import kernels, run
from .settings import CACHE, REPO, TREE, Refused, say
from .table import print_table

RESULTS = CACHE / "matrix"
# Suites without a column: each prints one line below the table.
TOOLS = {
    "make-test": "scripts/test",
    "many-cpus": "scripts/run vmalloc arm64 --allocator rust --cpus 16 --nodes 2 --mask 7 --loops 100",
    "fuzz": "scripts/suites/rust fuzz 300",
    "mutants": "scripts/suites/rust mutants",
    "faults-mapping": "scripts/suites/rust faults --mapping",
    "own-tree": "scripts/suites/own-tree",
    "linux-7.2": "scripts/suites/other-kernel 7.2",
    "soak": "scripts/run stress --minutes 30 --allocator rust x86_64-user",
}
# What a result depends on: the folders that are built, and what runs it. A change of one of these files makes the
# result stale. Patches are not among them: what counts is what they make of the kernel's files, not how that is divided.
LIB = ("scripts/lib", ":!scripts/lib/*words")
KERNEL = ("Kbuild", "Kconfig", "kunit/*.[ch]", "kunit/.kunitconfig", "bench/*.[ch]", "rust/*.rs",
          "rust/base", "rust/sys", "rust/state", "rust/policy", "rust/debug", "rust/check", "scripts/build", *LIB)
HARNESS = ("harness/*.py", ":!harness/suites.py", ":!harness/matrix.py", ":!harness/rust.py", ":!harness/mutants.py",
           "qemu/functions.sh", "qemu/init.sh", "qemu/guest", "qemu/kunit-allow", "tools/vmap_map/snapshot.py")
# A change of what applies the patches makes no result stale: the patched files are compared.
NOT_SERIES = ":!scripts/lib/series.sh"
# Only these scenarios run KUnit's suites; all others boot with kunit.enable=0, or with the suites of others only.
RUNS_KUNIT, NO_SUITES = ("kunit", "inject"), ":!kunit/*_kunit.[ch]"
CARGO = ("rust", "harness/rust.py", *LIB)
FOLDERS = {"run": (*KERNEL, *HARNESS, NOT_SERIES), "test": (".", ":!docs", ":!**/*.md"), "fuzz": CARGO,
           "mutants": (*CARGO, "harness/mutants.py"), "suites/own-tree": (*KERNEL, "scripts/install-into", "README.md"),
           "suites/other-kernel": (*KERNEL, *HARNESS, "harness/scenarios", "qemu", "kernel-patches",
                                   "scripts/suites/other-kernel", NOT_SERIES),
           "faults": (*KERNEL, *HARNESS, "harness/scenarios/kunit.py", "kunit/faults", NOT_SERIES)}


def options(parser):
    """Add the options of the full run."""
    parser.add_argument("--full", action="store_true",
                        help="run the suites of every kernel configuration, and tools, or of those named. It takes "
                        "hours, but can be stopped and started again: what passed is not run again until a file that "
                        "it depends on changes")
    parser.add_argument("--table", action="store_true", help="run nothing, print the stored results of --full")
    parser.add_argument("--again", action="store_true", help="--full, also what has passed")


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
    """Return a digest of the kernel's files that the patches change, as they are in the prepared tree, without
    documents. _patches: a digest of all patches, so that each state of them is read once."""
    if subprocess.run([REPO / "scripts/prepare", "tree"], check=False).returncode:
        raise Refused("without the kernel tree it is not known which results are stale")
    digest = hashlib.sha256()
    names = (TREE.parent / f"{TREE.name}.files").read_text(encoding="utf-8").split()
    for name in (name for name in names if not name.startswith(("Documentation/", "MAINTAINERS"))):
        digest.update(name.encode() + ((TREE / name).read_bytes() if (TREE / name).is_file() else b""))
    return digest.digest()


class Entry:
    """One suite on one configuration, or one tool: its command and its stored result."""

    def __init__(self, name, column, command):
        self.name, self.column, self.command = name, column, command
        self.file = RESULTS / f"{name}-{column}.json"
        self.stored = json.loads(self.file.read_text(encoding="utf-8")) if self.file.is_file() else None
        # A state is read once, since a run takes hours and the table reads all.
        self.state = self.state_now()
        self.fresh = bool(self.stored) and self.stored["state"] == self.state

    def state_now(self):
        """Return a hash of the command and of all files that its result depends on, also of those that are not
        committed."""
        words = self.command.split()
        folders = [words[0],
                   *FOLDERS[words[1] if words[0] == "scripts/suites/rust" else words[0].removeprefix("scripts/")]]
        if words[0] == "scripts/run":
            folders += [f"harness/scenarios/{words[1]}.py", f"qemu/{words[1]}.sh", *getattr(run.get(words[1]), "USES", ())]
            folders += [] if words[1] in RUNS_KUNIT else [NO_SUITES]
        used = [kernel for name, kernel in kernels.load().items() if name in words]
        folders += [file for kernel in used for file in kernel.files]
        digest = hashlib.sha256(f"{self.command} {used}".encode() + digest_of(*folders))
        if KERNEL[0] in folders:
            digest.update(patched_files(digest_of("kernel-patches")))
        return digest.hexdigest()[:16]

    def wanted(self):
        """Tell whether it has not passed yet."""
        return not self.fresh or self.stored["failed"] > 0

    def run(self, suite, number, total):
        """Run it as a suite, the one with that number of a total, and store the result."""
        state = self.state_now()
        self.file.unlink(missing_ok=True)
        try:
            suite.start(number, total)
            while suite.step.running():
                time.sleep(0.3)
            suite.finish()
        finally:
            suite.step.stop()
        passed, failed, skipped = suite.counts
        # Here, nothing passed is a failure too.
        failed = failed or int(not passed)
        for line in suite.lines[:8]:
            say(line)
        commit = git("rev-parse", "--short=10", "HEAD").decode().strip()
        commit += "+" * bool(git("status", "--porcelain", "-uno", "--", ".", ":!docs", ":!README.md"))
        self.state = self.state_now()
        # If files changed during the run, the result belongs to no state.
        self.stored = {"state": state if state == self.state else "changed", "commit": commit, "passed": passed,
                       "failed": failed,
                       "skipped": skipped, "seconds": suite.seconds, **sums(suite.text)}
        self.fresh = self.stored["state"] == self.state
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.stored), encoding="utf-8")
        new.replace(self.file)

    def cell(self):
        """Return its cell of the table."""
        if not self.stored:
            return "?"
        if not self.fresh:
            return "stale"
        return f"{self.stored['passed']}" + (f", {self.stored['failed']} FAILED" if self.stored["failed"] else "")


def sums(text):
    """Return what the checker compared and how many faults were injected, from the output of a suite. A boot may print
    the checker's counters more than once; they only grow, so the last ones count."""
    last = {name: ([0] + [int(x) for x in re.findall(rf"(\d+) {name}\b", text)])[-1]
            for name in ("compared", "unsettled")}
    return {**last, "faults": sum(int(x) for x in re.findall(r"(\d+) faults\b", text))}


def entries():
    """Return all suites of all configurations, and the tools."""
    found = []
    for kernel in kernels.load().values():
        for scenario, _, more in (text.partition(" ") for text in kernel.suites):
            full = getattr(run.get(scenario), "FULL", None)
            if not full:
                raise Refused(f"qemu/kernels.toml: {kernel.name}: harness/scenarios/{scenario}.py has no FULL")
            found.append(Entry(kernel.name, full[0],
                               " ".join(x for x in ("scripts/run", scenario, full[1], kernel.name, more) if x)))
    return found + [Entry(name, "alone", command) for name, command in TOOLS.items()]


def print_matrix(found, columns):
    """Print the table of entries and what the checker compared; returns the results that count."""
    rows = []
    for name in dict.fromkeys(entry.name for entry in found):
        mine = {entry.column: entry for entry in found if entry.name == name}
        fresh = [entry.stored for entry in mine.values() if entry.fresh]
        cells = [mine[column].cell() if column in mine else "-" for column in columns]
        if "alone" in mine:
            cells[0] = mine["alone"].cell()
        rows.append([name, *cells, str(sum(x["seconds"] for x in fresh)),
                     " ".join(dict.fromkeys(x["commit"] for x in fresh))])
    print_table("passed checks of each suite", ["configuration", *(f">{x}" for x in columns), ">seconds", "commit"],
                rows)
    fresh = [entry.stored for entry in found if entry.fresh]
    compared, unsettled, faults = (sum(x[name] for x in fresh) for name in ("compared", "unsettled", "faults"))
    print(f"checker: {compared} answers compared, {unsettled} more came while others changed areas; injected faults: "
          f"{faults}")
    print('"-": not part of that configuration; "?": not run yet; "stale": files have changed since, not counted. '
          f"Logs: {RESULTS}")
    return fresh


def main(args, suite_type, parse_only):
    """Run what has not passed yet, and print the table; returns the exit code. parse_only: only find wrong use."""
    found = entries()
    names = list(dict.fromkeys(entry.name for entry in found))
    for name in args.names:
        if name in kernels.load() and name not in names:
            raise Refused(f'"{name}" has no suites in qemu/kernels.toml, so it has no row')
        if name not in names:
            raise Refused(f'"{name}" is not in the matrix; there are: {" ".join(names)}')
    if parse_only and not args.list:
        return 0
    RESULTS.mkdir(parents=True, exist_ok=True)
    chosen = [entry for entry in found if not args.names or entry.name in args.names]
    if args.list:
        print("\n".join(f"{entry.name:<15}{entry.command}" for entry in chosen))
        return 0
    todo = [] if args.table else [entry for entry in chosen if args.again or entry.wanted()]
    if not args.table:
        say(f"{len(todo)} {'suite' if len(todo) == 1 else 'suites'} to run")
    for number, entry in enumerate(todo, 1):
        suite = suite_type(f"{entry.name}-{entry.column}", entry.command, RESULTS,
                           RESULTS / "logs" / f"{entry.name}-{entry.column}")
        entry.run(suite, number, len(todo))
    fresh = print_matrix(chosen, list(dict.fromkeys(entry.column for entry in found if entry.column != "alone")))
    missing = len(chosen) - len(fresh)
    if missing:
        print(f"{missing} results are missing or stale; run scripts/test --full to get them")
    passed, failed, skipped = (sum(x[name] for x in fresh) for name in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.stdout.flush()
    return 1 if failed or not all(entry.fresh for entry in chosen) else 0
