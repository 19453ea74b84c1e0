# SPDX-License-Identifier: GPL-2.0
"""Changes the policy modules in one place at a time, and checks that a host test fails (cargo-mutants): "scripts/test
mutants"."""

import hashlib
import re
import shutil
import subprocess
import tomllib

from ..machine import step
from ..toolchain.enter import in_root
from ..machine.lock import locked
from ..machine.options import Parser
from ..patches.series import read
from .rust import RUST, policy_modules, prepare
from ..machine.settings import CACHE, LOGS, Refused, write

VERSION = "27.1.0"
TOOL, OUT = CACHE / "cargo-mutants", CACHE / "build/mutants"
CONFIG = RUST / ".cargo/mutants.toml"
HELP = """Changes the policy modules in one place at a time, and checks that a host test fails (cargo-mutants).

Prints the mutants that no test noticed. A mutant has passed if it does not compile, or if a test notices it, and is then
not tried again until a file of rust/ changes, so an interrupted run can be continued; all of them take about an hour on
2 cores. rust/.cargo/mutants.toml has those that no test can notice, with reasons. Builds cargo-mutants in the cache if it
is missing. The folder build/mutants of the cache has the outcomes.

Modules: """


def cargo_mutants(*words):
    """Return the command that runs cargo-mutants on the host tests, with a fixed seed. Test modules have attributes that
    cargo-mutants does not know."""
    return in_root(TOOL / "bin/cargo-mutants", "mutants", "--package", "vmap-rust-host", "--colors", "never",
                   "--exclude-re", " in tests::", *words,
                   cwd=RUST, CARGO_NET_OFFLINE="true", VMAP_RUST_SEED=1)


def files_of(modules):
    """Return the options that choose these modules."""
    return [word for module in modules for word in ("--file", f"**/{module}.rs")]


def module_of(mutant):
    """Return the module of a mutant, whose name starts with host/src/../../LAYER/MODULE.rs:LINE:COLUMN."""
    return re.search(r"(\w+/\w+)\.rs:", mutant)[1]


def outcomes(*kinds):
    """Return the mutants with these outcomes, as cargo-mutants lists them in its folder."""
    files = [OUT / f"mutants.out/{kind}.txt" for kind in kinds]
    return [line for file in files if file.is_file() for line in file.read_text(encoding="utf-8").splitlines()]


def forget_changed():
    """Let cargo-mutants try everything again, if a file has changed since it tried something."""
    known, digest = OUT / "hash", hashlib.sha256()
    for file in sorted([*RUST.glob("*/**/*.rs"), *RUST.glob("crates.lock"), *RUST.glob("host/*.sh"), *RUST.glob("Cargo.toml")]):
        digest.update(file.read_bytes())
    if read(known) != digest.hexdigest():
        shutil.rmtree(OUT / "mutants.out", ignore_errors=True)
    (OUT / "mutants.out").mkdir(parents=True, exist_ok=True)
    write(known, digest.hexdigest())


def wrong_exclusions(patterns, mutants):
    """Return a line for each pattern that excludes another number of mutants than it is listed times."""
    found = {pattern: sum(bool(re.search(pattern, mutant)) for mutant in mutants) for pattern in patterns}
    return [f"{pattern} excludes {number} mutants, not {patterns.count(pattern)}; see {CONFIG}"
            for pattern, number in found.items() if number != patterns.count(pattern)]


def main(arguments, result):
    """Try the wanted modules, and print the mutants that no test noticed."""
    modules = policy_modules()
    parser = Parser(HELP + " ".join(modules), "test mutants")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="only this module (default: all)")
    args = parser.parse_args(arguments)
    for name in args.modules:
        if name not in modules:
            raise Refused(f'unknown module "{name}"; there are: {" ".join(modules)}')
    prepare()
    wanted, log = args.modules or modules, LOGS / "mutants-run.log"
    # All clones of the repository share the outcomes.
    with locked("mutants", "mutants.lock"):
        # It is not built again.
        if step.Step(f"cargo-mutants {VERSION}", LOGS / "mutants-install.log", in_root(
                "cargo", "install", "--locked", "cargo-mutants", "--version", VERSION, "--root", TOOL, "--target-dir",
                CACHE / "build/cargo-mutants")).wait():
            raise Refused("cargo-mutants cannot be built; check that cargo can reach its registry, and see "
                          f"{LOGS}/mutants-install.log")
        forget_changed()
        every = subprocess.run(cargo_mutants("--no-config", "--list", *files_of(modules)), cwd=RUST, check=True,
                               capture_output=True, text=True).stdout.splitlines()
        code = step.Step("mutants", log, cargo_mutants(
            "--iterate", "--output", OUT, "--timeout", "4000", "--build-timeout", "4000", "--jobs", "2",
            *files_of(wanted)), cwd=RUST).wait()
        # 2: some mutants were missed; 3: some tests did not end.
        if code not in (0, 2, 3):
            raise Refused(f"cargo-mutants failed; see {log}")
        result.passed += sum(module_of(mutant) in wanted
                             for mutant in outcomes("caught", "previously_caught", "unviable"))
        excluded = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["exclude_re"]
        # A test that took too long has found nothing.
        for line in outcomes("missed", "timeout") + wrong_exclusions(excluded, every):
            result.add(False, line)
