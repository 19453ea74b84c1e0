# SPDX-License-Identifier: GPL-2.0
"""Tests of the allocator by itself, on the build host: what "scripts/test host" and others run in the cargo workspace
rust/.

This runs outside of the toolchain root, with its Python, and enters it for each command.
"""

import fcntl
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import step
from .options import Parser, program, whole
from .result import Result
from .settings import CACHE, LOGS, REPO, TREE, Refused, say

RUST, IN_ROOT = REPO / "rust", REPO / "scripts/in-root"
# Build folders of this clone: in a common one, cargo takes the files of one clone for those of another.
BUILDS = CACHE / "build" / f"cargo-{hashlib.sha256(f'{REPO}{chr(10)}'.encode()).hexdigest()[:8]}"


def in_root(*words, **variables):
    """Return the command that runs words in the toolchain root, with these variables."""
    return [IN_ROOT, "env", *(f"{name}={value}" for name, value in variables.items()), *map(str, words)]


def output(*words):
    """Return what a command prints in the toolchain root."""
    return subprocess.run(in_root(*words), stdout=subprocess.PIPE, text=True, check=True).stdout


def host_triple():
    """Return the name that rustc has for the build host."""
    return re.search(r"^host: (.*)$", output("rustc", "-vV"), re.M)[1]


def cargo(what, log, folder, command, *words, timeout=None, **variables):
    """Run a command of cargo in a folder of the workspace without a network; returns the exit code. The caller gives it
    a --target-dir in the cache, so that the repository stays clean."""
    limit = ["timeout", timeout] if timeout else []
    variables.setdefault("VMAP_RUST_TREE", "")
    return step.run(what, log, in_root(*limit, "cargo", command, "--offline", *words, **variables), cwd=folder)


def prepare():
    """Download the crates that rust/*/Cargo.toml names and that are missing; later runs are offline. cargo wants all of
    them, so the host tests need them too, although they use few. Ends the program if only wrong use was to be found.

    rust/Cargo.lock is not in the repository: it names the registry. What the crates themselves need may change."""
    if os.environ.get("VMAP_RUST_PARSE"):
        sys.exit(0)
    log = LOGS / "crates.log"
    if step.run("crates for rust/", log, in_root("sh", "-c", "cargo fetch --offline 2>/dev/null || cargo fetch"),
                cwd=RUST):
        raise Refused("the crates that rust/ needs cannot be downloaded; check that cargo can reach its registry, "
                      f"and see {log}")


def lock(name):
    """Wait for other runs that use the same folder; the lock is held until this program ends."""
    file = CACHE / "build" / f"{name}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"waiting for another run with the lock {file}")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def count_tests(result, log, code):
    """Count the tests in the log of a cargo test, and print the failed ones; returns their number. An exit code that no
    failed test explains is a failure; so is a log without a test."""
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    # The message of a panic is in the lines after its place.
    shown = (r"^(?:test .* FAILED|.*panicked at.*(?:\n(?!note: |test |$).+){0,3}|error.*(?:\n +--> .*)?"
             r"|.*minimal failing input.*)$")
    for line in re.findall(shown, text, re.M):
        print(line)
    found = re.findall(r"^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored", text, re.M)
    passed, failed, skipped = (sum(map(int, column)) for column in zip(*found)) if found else (0, 0, 0)
    if not passed + failed:
        say(f"no test ran; see {log}")
    if not failed and (code != 0 or not passed):
        failed = 1
    result.passed += passed
    result.failed += failed
    result.skipped += skipped
    return passed + failed


def host(arguments, result):
    """Runs the tests of the policy modules on the build host: "cargo test" in rust/host, which compiles them without a
    kernel. If the kernel tree is in the cache, the unit tests run again on its maple tree.

    The first run downloads crates into the cache."""
    parser = Parser(host.__doc__, "test host")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="only tests whose name contains this (default: all)")
    args = parser.parse_args(arguments)
    prepare()
    runs = [("host", (), "")]
    if (TREE / "tools/testing/shared/maple-shim.c").exists():
        runs.append(("host-maple", ("--lib",), TREE))
    for name, words, tree in runs:
        log = LOGS / f"{name}-test.log"
        code = cargo(f"{name} tests", log, RUST / "host", "test", *words, "--target-dir", BUILDS / name, "--",
                     *args.tests, VMAP_RUST_TREE=tree)
        say(f"{name}: {count_tests(result, log, code)} tests; log: {log}")


def explore(arguments, result):
    """Runs the allocator under thousands of schedules of its threads (shuttle), and through thousands of random traces
    (proptest).

    Each test of rust/explore/src/explore.rs runs under NUMBER random schedules and under NUMBER schedules with three
    changes of priority, and each test of rust/prop with NUMBER traces. Prints a schedule that fails, so that it can be
    run again, and the smallest trace found that fails."""
    parser = Parser(explore.__doc__, "test explore")
    parser.add_argument("number", nargs="?", type=whole(1, 1000000), default=1000, metavar="NUMBER",
                        help="1 to 1000000 (default: %(default)s)")
    number = parser.parse_args(arguments).number
    prepare()
    for crate, tests, what in (("explore", "explore::", f"{2 * number} schedules"),
                               ("prop", "tests::", f"{number} traces")):
        log = LOGS / f"{crate}-test.log"
        code = cargo(crate, log, RUST / crate, "test", "--lib", "--target-dir", BUILDS / "explore", "--", tests,
                     VMAP_RUST_SCHEDULES=number, VMAP_RUST_TRACES=number)
        say(f"{crate}: {count_tests(result, log, code)} tests, {what} each; log: {log}")


def policy_modules():
    """Return the modules without unsafe code that the build host has, as LAYER/NAME. The others bind the allocator to
    the kernel, or, on the build host, to the stand-in kernel crate."""
    found = [f"{layer}/{file.stem}" for layer in ("base", "policy") for file in (RUST / layer).rglob("*.rs")
             if file.name != "mod.rs" and not file.name.endswith("tests.rs")]
    for layer in ("debug", "state", "sys"):
        safe = re.findall(r"forbid\(unsafe_code\).*\n(?:pub\(crate\) )*mod (.*);",
                          (RUST / layer / "mod.rs").read_text(encoding="utf-8"))
        found += [f"{layer}/{name}" for name in safe if "tests" not in name]
    return sorted(found)


def coverage(arguments, result):
    """Prints how many lines of each policy module the host tests run, and writes pages that show which (llvm-cov).

    Tests that need a kernel do not count. Last line of the table: all policy modules."""
    Parser(coverage.__doc__, "test coverage").parse_args(arguments)
    prepare()
    folder, log = BUILDS / "coverage", LOGS / "coverage-test.log"
    for name in ("profiles", "pages"):
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    code = cargo("host tests with counters", log, RUST / "host", "test", "--lib", "--target-dir", folder / "target",
                 RUSTFLAGS="-Cinstrument-coverage", LLVM_PROFILE_FILE=f"{folder}/profiles/%p-%m")
    count_tests(result, log, code)
    binaries = [file for file in (folder / "target/debug/deps").glob("vmap_rust_host-*") if file.suffix != ".d"]
    if code or not binaries:
        raise Refused(f"cannot measure; see {log}")
    output("llvm-profdata-22", "merge", "-sparse", *sorted((folder / "profiles").iterdir()), "-o", folder / "all")
    words = (max(binaries, key=os.path.getmtime), f"--instr-profile={folder}/all")
    print_coverage(json.loads(output("llvm-cov-22", "export", "--summary-only", *words)))
    output("llvm-cov-22", "show", "--format=html", f"--output-dir={folder}/pages", *words)
    say(f"pages: {folder}/pages/index.html")


def print_coverage(export):
    """Print the table of the policy modules in what llvm-cov exports."""
    rows = [(name, *(file["summary"]["lines"][key] for key in ("count", "covered")))
            for name in policy_modules() for file in export["data"][0]["files"]
            if file["filename"].endswith(f"/{name}.rs") and not file["filename"].endswith(f"/host/src/{name}.rs")]
    rows.append(("policy modules", *(sum(row[column] for row in rows) for column in (1, 2))))
    print(f"{'module':<16} {'lines':>6} {'ran':>6} {'share':>7}")
    for name, lines, ran in rows:
        print(f"{name:<16} {lines:>6} {ran:>6} {100 * ran / max(1, lines):>6.1f}%")


# Bytes of the longest trace of libFuzzer: the number of blocks, and 100 steps of 20 bytes. The time of a longer trace
# grows faster than its length, because the invariants of the whole space are checked in it.
MAX_LEN = 2001
# Compiler flags for the counters in which libFuzzer sees which edges of the code ran, and how often.
COUNTERS = ("-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
            "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table")
FUZZ = CACHE / "fuzz"


def build_fuzz(name, flags):
    """Compile a program of rust/fuzz with further flags of the compiler. Only crates that are linked into it get the
    flags, not build scripts and macros."""
    host_name, target, log = host_triple(), BUILDS / "fuzz" / name, LOGS / "fuzz-build.log"
    # libFuzzer's own code is C++.
    compiler = "clang++-22" if os.environ.get("TOOLCHAIN") == "root" else "c++"
    if cargo(f"building rust/fuzz, {name}", log, RUST / "fuzz", "build", "--release", "--bin", name, "--target",
             host_name,
             "--target-dir", target, CXX=compiler, RUSTFLAGS=flags):
        raise Refused(f"{name} does not build; see {log}")
    shutil.copy(target / host_name / "release" / name, FUZZ)


def run_trace(path):
    """Run one trace; tells whether it passed. If it fails, prints the reason and the smallest trace that still
    fails."""
    build_fuzz("shrink", "")
    (FUZZ / "trace").write_bytes(Path(path).read_bytes())
    with open(LOGS / "fuzz-shrink.log", "wb") as errors:
        return subprocess.run(in_root("timeout", "120", "./shrink", "trace"), cwd=FUZZ, stderr=errors,
                              check=False).returncode == 0


def fuzz(arguments, result):
    """Fuzzes the allocator with traces of requests (libFuzzer): searches for those on which it and a plain record of
    all areas disagree.

    Keeps traces that reach new code in the folder fuzz/corpus of the cache, from which the next run starts. Makes a
    trace that fails smaller for up to 30 s and prints it."""
    parser = Parser(fuzz.__doc__, "test fuzz")
    parser.add_argument("what", nargs="?", default="60", metavar="SECONDS | FILE",
                        help="seconds, at most 86400 (default: %(default)s), or a file with a trace to run")
    what = parser.parse_args(arguments).what
    path = Path(what).absolute()
    if not re.fullmatch(r"[0-9]+", what) and not path.is_file():
        raise Refused(f"{what} is neither a number of seconds nor a file")
    if what.isdigit() and not 1 <= int(what) <= 86400:
        raise Refused(f'SECONDS must be a whole number from 1 to 86400, not "{what}"')
    prepare()
    corpus, crashes, log = FUZZ / "corpus", FUZZ / "crashes", LOGS / "fuzz-run.log"
    for folder in (corpus, crashes, LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    # All clones of the repository share the corpus.
    lock("fuzz")
    if not what.isdigit():
        result.add(run_trace(path), what)
        return
    build_fuzz("traces", COUNTERS)
    if not any(corpus.iterdir()):
        # Pseudo-random traces of several lengths: without blocks, and with few or many of them.
        numbers = random.Random(1)
        for seed in range(18):
            (corpus / f"seed-{seed}").write_bytes(bytes([seed * 13]) + numbers.randbytes(20 * (3 << seed % 6)))
    # Traces that failed in the last run are part of this one.
    for crash in crashes.iterdir():
        crash.replace(corpus / crash.name)
    start = time.monotonic()
    code = step.run(f"fuzzing for {what} s", log, in_root(
        "./traces", f"-max_total_time={what}", f"-max_len={MAX_LEN}", "-timeout=60", "-print_final_stats=1",
        "-error_exitcode=77",
        "-timeout_exitcode=77", f"-artifact_prefix={crashes}/", "corpus"), cwd=FUZZ)
    # 71 is an end for lack of memory, and 77 that of a trace that failed, which is a file in crashes.
    if code not in (0, 71, 77):
        raise Refused(f"libFuzzer failed; see {log}")
    # Lines of libFuzzer: "#4096 pulse cov: 1200 ft: 5000 corp: 200/40Kb ...".
    text = log.read_text(encoding="utf-8", errors="replace")
    edges, kept, every, runs = ((re.findall(pattern, text, re.M) or ["0"])[-1] for pattern in (
        r"^#\d.* cov: (\d+)", r"^#\d.* corp: (\d+)", r"INFO: Loaded 1 PC tables \((\d+)",
        r"^stat::number_of_executed_units: *(\d+)"))
    seconds = int(time.monotonic() - start)
    say(f"{runs} executions in {seconds} s, {edges} of {every} edges, {kept} traces kept; log: {log}")
    failed = sorted(crashes.iterdir())
    for crash in failed:
        run_trace(crash)
        say(f"run it again with: scripts/test fuzz {crash}; "
            "add its steps to small_traces in rust/check/tests/traces.rs")
    result.add(not failed and int(runs) > 0, "fuzz")


def main(arguments):
    """Run one of them; returns the exit code."""
    # They use the functions of this module, of which there is a second copy if it is the program.
    from . import faults, mutants, rust  # pylint: disable=import-outside-toplevel,import-self
    tools = {"host": rust.host, "explore": rust.explore, "coverage": rust.coverage, "fuzz": rust.fuzz,
             "faults": faults.main,
             "mutants": mutants.main}
    if not arguments or arguments[0] not in tools:
        raise Refused(f"which of them? {' '.join(tools)}")
    result = Result()
    tools[arguments[0]](arguments[1:], result)
    print(result.totals())
    return 0 if result.good else 1


if __name__ == "__main__":
    program("test", main, sys.argv[1:])
