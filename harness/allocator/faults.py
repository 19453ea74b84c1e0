# SPDX-License-Identifier: GPL-2.0
"""Adds known faults to the allocator, or to the mapping series, one at a time, and checks that a test fails:
"scripts/test faults"."""

import contextlib
import re
import shutil
import subprocess

from ..patches import prepare as tree
from ..machine import step
from ..toolchain.enter import in_root
from ..machine.lock import locked
from ..machine.options import Parser
from .rust import prepare
from ..patches.series import ALL, files_of
from ..machine.settings import CACHE, LOGS, REPO, ROOT_KERNEL, SERIES, TREE, Refused, linux

HELP = """Adds known faults to the allocator, or to the mapping series, one at a time, and checks that a test fails.

Applies each of kunit/faults/*.patch, or those whose name starts with FAULT, to a copy of the repository and runs the
host tests there. A patch with the line "Noticed-by: explore" runs under the schedules of "scripts/test explore"
instead. Prints the tests that noticed each fault; a fault that no test noticed is a failure. A test has noticed it if it
failed, or if it did not come to its end and printed what a line "Noticed-as: EXPRESSION" of the patch says."""
# Always the same folder, so that cargo compiles again only what a fault changes.
COPY = CACHE / "build/fault"
# The folder of the patches is named like the tree that has them.
LAST_PATCH = COPY / "kernel-patches" / TREE.name / ALL[-1] / "9999-fault.patch"
# The cases about page tables and TLBs.
KUNIT = [COPY / "scripts/run", "kunit", "arm64", "vmap_[pt][tla][eb]*", "--allocator", "rbtree", "--timeout", "120"]
# Seconds for the tests of one fault, and for the compiler.
SECONDS = 900
# Tests of cargo and cases of KUnit that failed.
FAILED = r"^test (.*) \.\.\. FAILED$|\[FAILED\] ([a-z_0-9]+)"


def tests_for(patch):
    """Return the command of the host tests as mutants have them, without those that fill whole spaces; or of the tests
    that need many schedules. Each ends with the first test that fails."""
    if re.search("^Noticed-by: explore$", patch.read_text(encoding="utf-8"), re.M):
        crate, words = "explore", ["--", "explore::", "-Zunstable-options", "--fail-fast"]
    else:
        crate, words = "host", ["--profile", "mutants", "--config", "target.'cfg(unix)'.runner = 'bash mutant-tests.sh'"]
    return in_root("cargo", "test", "--offline", "--lib", "--manifest-path",
                   COPY / "rust" / crate / "Cargo.toml", "--target-dir", CACHE / "build/faults", *words,
                   RUSTC_BOOTSTRAP=1, VMAP_RUST_SEED=1, VMAP_RUST_SCHEDULES=2000, SHUTTLE_RANDOM_SEED=1)


def run(name, command, seconds=SECONDS):
    """Run tests; returns the first 20 that failed, and the output. The last line of it says so if they took too long."""
    log = LOGS / "faults.log"
    code = step.Step(f"tests with {name}", log, command).wait(seconds)
    text = log.read_text(encoding="utf-8", errors="replace") + (f"not done in {seconds} s\n" if code is None else "")
    return sorted({"".join(names) for names in re.findall(FAILED, text, re.M)})[:20], text


def judge(name, noticed, text, wanted, result):
    """Count one fault, and say who noticed it. text: the output of the tests; wanted: expressions, one of which it has if
    the fault ended all tests before one of them had failed."""
    # A compiler that a signal ended has tested nothing.
    if "error: could not compile" not in text:
        noticed = noticed or [found[0] for one in wanted if (found := re.search(one, text, re.M))]
    errors = re.search(r"^error(?:\[|:)(?:.*\n){0,20}", text, re.M)
    if noticed:
        result.add(True, name, f"noticed by {' '.join(noticed)}")
    elif errors:
        result.add(False, name, f"does not compile, or tests ended early\n{errors[0]}")
    else:
        result.add(False, name, "\n".join(["no test noticed", *text.splitlines()[-5:]]))


def put(patch, mapping):
    """Add a fault to the copy. That of the mapping series comes after its patches."""
    if mapping:
        shutil.copy(patch, LAST_PATCH)
    elif subprocess.run(in_root("patch", "-s", "-p1", "-r", "-", "-d", COPY, "--no-backup-if-mismatch", "-i", patch),
                        check=False).returncode:
        raise Refused(f"{patch.relative_to(REPO)} does not apply; update it")


def take_out(patch, mapping):
    """Remove it again. The files get a new time, so that cargo compiles them."""
    LAST_PATCH.unlink(missing_ok=True)
    for name in () if mapping else files_of([patch]):
        shutil.copy(REPO / name, COPY / name)


def try_faults(faults, mapping, result):
    """Try each fault in a copy of the repository, in which all files have a new time: the last build in this folder may
    have been of a fault."""
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(REPO, COPY, symlinks=True, ignore=shutil.ignore_patterns("target", ".git"), copy_function=shutil.copy)
    commands = {patch: KUNIT if mapping else tests_for(patch) for patch in faults}
    # Tests that fail without a fault would seem to notice each of them.
    for command in dict.fromkeys(map(tuple, commands.values())):
        noticed, text = run("no fault", command)
        if noticed or not re.search(r"^(test result: ok\. )?[1-9]\d* passed[;,] 0 failed", text, re.M):
            raise Refused(f"without a fault: {' '.join(noticed) or (text.splitlines() or ['no output'])[-1]}")
    for patch, command in commands.items():
        try:
            put(patch, mapping)
            wanted = re.findall("^(?:# )?Noticed-as: (.*)$", patch.read_text(encoding="utf-8"), re.M)
            judge(patch.stem, *run(patch.stem, command), wanted, result)
        except Refused as why:
            result.add(False, patch.stem, str(why))
        finally:
            take_out(patch, mapping)


def main(arguments, result):
    """Try the wanted faults."""
    parser = Parser(HELP, "test faults")
    parser.add_argument("--mapping", action="store_true",
                        help="the faults of mapping/faults, which come after the series mapping, and KUnit's "
                        "cases about page tables, on arm64 with the rb-trees (a minute for each)")
    parser.add_argument("names", nargs="*", metavar="FAULT", help="only faults whose name starts with this")
    args = parser.parse_args(arguments)
    folder = REPO / ("mapping" if args.mapping else "kunit") / "faults"
    faults = []
    for name in args.names or [""]:
        found = sorted(folder.glob(f"{name}*.patch"))
        if not found:
            known = " ".join(sorted(patch.name for patch in folder.glob("*.patch")))
            raise Refused(f"no fault is called '{name}'; known: {known}")
        faults += found
    prepare()
    if args.mapping and SERIES != ROOT_KERNEL:
        raise Refused(f"the faults of mapping are for Linux {ROOT_KERNEL}; call it without KERNEL={SERIES}")
    with contextlib.ExitStack() as stack:
        if args.mapping:
            # The copy is one more clone, to which the tree is linked.
            stack.enter_context(locked(*tree.clone_lock(linux(SERIES))))
        # All runs share one build folder, in which cargo cannot tell the files of one copy from those of another.
        stack.enter_context(locked("faults", "faults.lock"))
        try:
            try_faults(faults, args.mapping, result)
        finally:
            shutil.rmtree(COPY, ignore_errors=True)
            if args.mapping:
                # The kernel tree links to the copy; link it to this repository again.
                tree.prepare()
