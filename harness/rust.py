# SPDX-License-Identifier: GPL-2.0
"""Tests of the allocator by itself, on the build host: what "scripts/test host" and others run in the cargo workspace
rust/."""

import hashlib
import random
import re
import shutil
import subprocess
from pathlib import Path

from . import prepare as toolchain, step
from .enter import in_root
from .lock import locked
from .options import Parser, whole
from .settings import CACHE, LOGS, REPO, TOOLCHAIN, TREE, Refused, say, write

RUST = REPO / "rust"
# Build folders of this clone: in a common one, cargo takes the files of one clone for those of another.
BUILDS = CACHE / "build" / f"cargo-{hashlib.sha256(f'{REPO}{chr(10)}'.encode()).hexdigest()[:8]}"


def output(*words):
    """Return what a command prints in the toolchain root."""
    return subprocess.run(in_root(*words), stdout=subprocess.PIPE, text=True, check=True).stdout


def cargo(what, log, folder, command, *words, **variables):
    """Run a command of cargo in a folder of the workspace without a network; returns the exit code. The caller gives it
    a --target-dir in the cache, so that the repository stays clean."""
    return step.run(what, log, in_root("cargo", command, "--offline", *words, cwd=folder,
                                       **{"VMAP_RUST_TREE": "", **variables}), cwd=folder)


def prepare():
    """Make the toolchain, and download the crates that rust/*/Cargo.toml names and that are missing; later runs are
    offline. cargo wants all of them, so the host tests need them too, although they use few."""
    toolchain.prepare("root")
    log, lock = LOGS / "crates.log", RUST / "Cargo.lock"

    def call(what, command):
        if step.run(what, log, in_root("sh", "-c", f"{command} --offline 2>/dev/null || {command}", cwd=RUST), cwd=RUST):
            raise Refused("the crates that rust/ needs cannot be downloaded; check that cargo can reach its registry and "
                          f"that rust/crates.lock has what Cargo.toml names, and see {log}")

    if not lock.is_file():
        call("versions of crates", "cargo generate-lockfile")
    # It names the registry, which no file of the repository does. Another version of a crate than in crates.lock goes.
    source = re.search(r"^source = .*\n", lock.read_text(encoding="utf-8"), re.M)
    if not source:
        raise Refused(f"{lock} is damaged; remove it and call this again")
    wanted = re.sub(r"^(?=checksum = )", source[0], (RUST / "crates.lock").read_text(encoding="utf-8"), flags=re.M)
    if lock.read_text(encoding="utf-8") != wanted:
        write(lock, wanted)
    call("crates for rust/", "cargo fetch --locked")


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
    result.failures += re.findall(r"^test (.*) \.\.\. FAILED$", text, re.M)
    result.passed += passed
    result.failed += failed or int(code != 0 or not passed)
    result.skipped += skipped
    return passed + failed


def run_tests(result, name, crate, *words, folder="", each="", **variables):
    """Run cargo test in a crate, and count; returns its exit code. name: of the log, and of the build folder if that has no
    other name; each: what each test runs with."""
    log = LOGS / f"{name}-test.log"
    code = cargo(f"{name} tests", log, RUST / crate, "test", "--target-dir", BUILDS / (folder or name), *words, **variables)
    say(f"{name}: {count_tests(result, log, code)} tests{each}; log: {log}")
    return code


def host(arguments, result):
    """Runs the tests of the policy modules on the build host: "cargo test" in rust/host, which compiles them without a
    kernel. If the kernel tree is in the cache, the unit tests run again on its maple tree.

    The first run downloads crates into the cache."""
    parser = Parser(host.__doc__, "test host")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="only tests whose name contains this (default: all)")
    tests = parser.parse_args(arguments).tests
    prepare()
    run_tests(result, "host", "host", "--", *tests)
    if (TREE / "tools/testing/shared/maple-shim.c").exists():
        run_tests(result, "host-maple", "host", "--lib", "--", *tests, VMAP_RUST_TREE=TREE)


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
    run_tests(result, "explore", "explore", "--lib", "--", "explore::", each=f", {2 * number} schedules each",
              VMAP_RUST_SCHEDULES=number)
    run_tests(result, "prop", "prop", "--lib", "--", "tests::", each=f", {number} traces each", folder="explore",
              VMAP_RUST_TRACES=number)


def policy_modules():
    """Return the modules without unsafe code that the build host has, as LAYER/NAME. The others bind the allocator to
    the kernel, or, on the build host, to the stand-in kernel crate."""
    found = [f"{layer}/{file.stem}" for layer in ("base", "policy") for file in (RUST / layer).rglob("*.rs")]
    for layer in ("debug", "state", "sys"):
        found += [f"{layer}/{name}" for name in re.findall(r"forbid\(unsafe_code\).*\n(?:pub\(crate\) )*mod (.*);",
                                                           (RUST / layer / "mod.rs").read_text(encoding="utf-8"))]
    return sorted(name for name in found if not name.endswith(("/mod", "tests")))


def coverage(arguments, result):
    """Prints how many lines of each policy module the host tests run, and writes pages that show which (llvm-cov).

    Tests that need a kernel do not count."""
    Parser(coverage.__doc__, "test coverage").parse_args(arguments)
    prepare()
    folder, log = BUILDS / "coverage", LOGS / "coverage-test.log"
    for name in ("profiles", "pages"):
        shutil.rmtree(folder / name, ignore_errors=True)
    if run_tests(result, "coverage", "host", "--lib", RUSTFLAGS="-Cinstrument-coverage",
                 LLVM_PROFILE_FILE=f"{folder}/profiles/%p-%m"):
        raise Refused(f"cannot measure; see {log}")
    tests = re.search(r"Running unittests .* \((.*)\)$", log.read_text(encoding="utf-8"), re.M)[1]
    output("llvm-profdata-22", "merge", "-sparse", *(folder / "profiles").iterdir(), "-o", folder / "all")
    others = {str(file.relative_to(RUST).with_suffix("")) for file in RUST.rglob("*.rs")} - set(policy_modules())
    words = (tests, f"--instr-profile={folder}/all", f"--ignore-filename-regex=/rustc|/({'|'.join(sorted(others))})[.]rs$")
    print(output("llvm-cov-22", "report", "--show-region-summary=false", "--show-branch-summary=false", *words))
    output("llvm-cov-22", "show", "--format=html", f"--output-dir={folder}/pages", *words)
    say(f"pages: {folder}/pages/index.html")


# Bytes of the longest trace of libFuzzer: the number of blocks, and 100 steps of 20 bytes. The time of a longer trace
# grows faster than its length, because the invariants of the whole space are checked in it.
MAX_LEN = 2001
# Compiler flags for the counters in which libFuzzer sees which edges of the code ran, and how often.
COUNTERS = ("-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
            "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table")
FUZZ = CACHE / "fuzz"
CORPUS, CRASHES = FUZZ / "corpus", FUZZ / "crashes"


def build_fuzz(name, flags=""):
    """Compile a program of rust/fuzz with further flags of the compiler; returns its path. Only crates that are linked
    into it get the flags, not build scripts and macros, as the command names the target."""
    triple, target, log = output("rustc", "--print", "host-tuple").strip(), BUILDS / "fuzz" / name, LOGS / "fuzz-build.log"
    # libFuzzer's own code is C++.
    compiler = "clang++-22" if TOOLCHAIN == "root" else "c++"
    if cargo(f"building rust/fuzz, {name}", log, RUST / "fuzz", "build", "--release", "--bin", name, "--target", triple,
             "--target-dir", target, CXX=compiler, RUSTFLAGS=flags):
        raise Refused(f"{name} does not build; see {log}")
    return target / triple / "release" / name


def run_trace(path):
    """Run one trace; tells whether it passed. If it fails, prints the reason and the smallest trace that still
    fails."""
    program = build_fuzz("shrink")
    (FUZZ / "trace").write_bytes(path.read_bytes())
    with open(LOGS / "fuzz-shrink.log", "wb") as errors:
        done = subprocess.run(in_root("timeout", "120", program, FUZZ / "trace"), stderr=errors, check=False)
    return done.returncode == 0


def search(seconds):
    """Fuzz, from the traces of the corpus; tells whether all passed."""
    program, log = build_fuzz("traces", COUNTERS), LOGS / "fuzz-run.log"
    if not any(CORPUS.iterdir()):
        # Pseudo-random traces of several lengths: without blocks, and with few or many of them.
        numbers = random.Random(1)
        for seed in range(18):
            (CORPUS / f"seed-{seed}").write_bytes(bytes([seed * 13]) + numbers.randbytes(20 * (3 << seed % 6)))
    # Traces that failed in the last run are part of this one.
    for crash in CRASHES.iterdir():
        crash.replace(CORPUS / crash.name)
    code = step.run(f"fuzzing for {seconds} s", log, in_root(
        program, f"-max_total_time={seconds}", f"-max_len={MAX_LEN}", "-timeout=60", f"-artifact_prefix={CRASHES}/",
        CORPUS))
    # With 70 to 77, a trace did not end in time, needed too much memory, or failed: it is a file in CRASHES.
    if code not in (0, 70, 71, 77):
        raise Refused(f"libFuzzer failed; see {log}")
    text = log.read_text(encoding="utf-8", errors="replace")
    say("\n".join([*re.findall(r"^(?:#\d+\s.* cov: .*|Done .*)", text, re.M)[-2:], f"log: {log}"]))
    for crash in sorted(CRASHES.iterdir()):
        run_trace(crash)
        say(f"run it again with: scripts/test fuzz {crash}; add its steps to small_traces in rust/check/tests/traces.rs")
    return code == 0


def seconds_or_file(text):
    """The type of the option of fuzz()."""
    return Path(text).absolute() if Path(text).is_file() else whole(1, 86400)(text)


def fuzz(arguments, result):
    """Fuzzes the allocator with traces of requests (libFuzzer): searches for those on which it and a plain record of
    all areas disagree.

    Keeps traces that reach new code in the folder fuzz/corpus of the cache, from which the next run starts. Makes a
    trace that fails smaller for up to 30 s and prints it."""
    parser = Parser(fuzz.__doc__, "test fuzz")
    parser.add_argument("what", nargs="?", default=60, metavar="SECONDS | FILE", type=seconds_or_file,
                        help="seconds, at most 86400 (default: %(default)s), or a file with a trace to run")
    what = parser.parse_args(arguments).what
    prepare()
    for folder in (CORPUS, CRASHES, LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    # All clones of the repository share the corpus.
    with locked("fuzz", "fuzz.lock"):
        result.add(search(what) if isinstance(what, int) else run_trace(what), f"fuzz {what}")
