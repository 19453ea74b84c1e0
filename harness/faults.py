# SPDX-License-Identifier: GPL-2.0
"""Adds known faults to the allocator, or to the mapping series, one at a time, and checks that a test fails:
"scripts/test faults"."""

import re
import shutil
import subprocess

from .options import Parser
from .rust import in_root, lock, prepare
from .settings import CACHE, REPO, TREE, Refused

HELP = """Adds known faults to the allocator, or to the mapping series, one at a time, and checks that a test fails.

Applies each of kunit/faults/*.patch, or those whose name starts with FAULT, to a copy of the repository and runs the
host tests there. A patch with the line "Noticed-by: explore" runs under the schedules of "scripts/test explore"
instead. Prints the tests that noticed each fault; a fault that no test noticed is a failure."""
# Always the same folder, so that cargo compiles again only what a fault changes.
COPY = CACHE / "build/fault"
LOG = COPY / "log"
# The folder of the patches is named like the tree that has them.
LAST_PATCH = COPY / "kernel-patches" / TREE.name / "mapping/9999-fault.patch"


def make_copy():
    """Copy the repository. All files get a new time: the last build in this folder may have been of a fault."""
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    subprocess.run(["bash", "-o", "pipefail", "-c", 'tar -c --exclude=target --exclude=.git . | tar -x -m -C "$0"',
                    COPY], cwd=REPO, check=True)


def logged(command, pattern, **more):
    """Run a command with its output in LOG; returns what matches the pattern there, sorted, at most 20."""
    with open(LOG, "wb") as out:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False, **more)
    return sorted(set(re.findall(pattern, log_text(), re.M)))[:20]


def log_text():
    """Return what is in LOG."""
    return LOG.read_text(encoding="utf-8", errors="replace")


# Tests that failed; or, if a fault ended their whole process, the signal. What a fault does to memory need not stay
# within what the tests compare, and then none of them has a result.
FAILED_TESTS = r"^test (.*) \.\.\. FAILED$"
ENDED_TESTS = r"^error: test failed, to rerun .*\n\nCaused by:\n.*\(signal: \d+, (SIG[A-Z]+):.*\)$"


def try_crate(crate, *words):
    """Run the tests of a crate of the copy; returns the names of those that failed, or what ended all of them."""
    failed = logged(in_root("timeout", "300", "cargo", "test", "--offline", "--lib", "--target-dir",
                            CACHE / "build/faults", "--", *words), FAILED_TESTS, cwd=COPY / "rust" / crate)
    return failed or [f"{signal} in {crate}" for signal in re.findall(ENDED_TESTS, log_text(), re.M)]


def tests_for(patch):
    """Return the host tests except those that fill whole spaces, which take long; or the tests that need many
    schedules."""
    if re.search("^Noticed-by: explore$", patch.read_text(encoding="utf-8"), re.M):
        return "explore", "explore::"
    return "host", "--skip", "capacity::"


def try_host(patch):
    """Run the tests for a patch on the copy."""
    return try_crate(*tests_for(patch))


def refuse_failing(noticed, passed):
    """Refuse to go on if tests fail without a fault: they would seem to notice each of them."""
    if noticed or not re.search(passed, log_text(), re.M):
        raise Refused(f"without a fault: {' '.join(noticed) or (log_text().splitlines() or ['no output'])[-1]}")


def try_mapping(_patch):
    """Run the cases about page tables and TLBs; returns the cases that failed."""
    return logged([COPY / "scripts/run", "kunit", "arm64", "vmap_[pt][tl][eb]*", "--allocator", "rbtree", "--timeout",
                   "120"],
                  r"(?:(?<=\[FAILED\] )[a-z_0-9]+|^FAIL .*)")


def patched(patch, *words):
    """Apply a patch to the copy; tells whether that worked."""
    return subprocess.run(["patch", "-s", "-p1", "-d", COPY, "--no-backup-if-mismatch", *words, "-i", patch],
                          check=False).returncode == 0


def judge(name, noticed, result):
    """Count one fault, and say who noticed it."""
    errors = re.search(r"^error(?:\[|:)(?:.*\n){0,20}", log_text(), re.M)
    if noticed:
        result.add(True, name, f"ok - {name}: noticed by {' '.join(noticed)}")
    elif errors:
        result.add(False, name, f"not ok - {name}: does not compile\n{errors[0]}")
    else:
        result.add(False, name, "\n".join([f"not ok - {name}: no test noticed", *log_text().splitlines()[-5:]]))


def main(arguments, result):
    """Try the wanted faults."""
    parser = Parser(HELP, "test faults")
    parser.add_argument("--mapping", action="store_true",
                        help="the faults of kunit/faults/mapping, which come after all patches of the kernel, and "
                        "KUnit's cases about page tables, on arm64 with the rb-trees (a minute for each)")
    parser.add_argument("names", nargs="*", metavar="FAULT", help="only faults whose name starts with this")
    args = parser.parse_args(arguments)
    folder = REPO / "kunit/faults" / ("mapping" if args.mapping else "")
    faults = []
    for name in args.names or [""]:
        found = sorted(folder.glob(f"{name}*.patch"))
        if not found:
            known = " ".join(sorted(patch.name for patch in folder.glob("*.patch")))
            raise Refused(f"no fault is called '{name}'; known: {known}")
        faults += found
    attempt = try_mapping if args.mapping else try_host
    prepare()
    # All runs share one build folder, in which cargo cannot tell the files of one copy from those of another.
    lock("faults")
    make_copy()
    try:
        if args.mapping:
            refuse_failing(try_mapping(None), r"^[1-9]\d* passed, 0 failed")
        else:
            for tests in sorted({tests_for(patch) for patch in faults}):
                refuse_failing(try_crate(*tests), r"^test result: ok\. [1-9]\d* passed; 0 failed")
        for patch in faults:
            if args.mapping:
                shutil.copy(patch, LAST_PATCH)
            elif not patched(patch, "--dry-run") or not patched(patch):
                result.add(False, patch.stem,
                           f"not ok - {patch.stem}: {patch.relative_to(REPO)} does not apply; update it")
                continue
            judge(patch.stem, attempt(patch), result)
            if args.mapping:
                LAST_PATCH.unlink()
            elif not patched(patch, "-R"):
                raise Refused(f"{patch.relative_to(REPO)} cannot be taken out again")
    finally:
        shutil.rmtree(COPY, ignore_errors=True)
    if args.mapping:
        # The kernel tree links to the copy; link it to this repository again.
        subprocess.run([REPO / "scripts/prepare", "all"], check=True)
