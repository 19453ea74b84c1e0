# SPDX-License-Identifier: GPL-2.0
"""Changes the policy modules in one place at a time, and checks that a host test fails (cargo-mutants): "scripts/test
mutants"."""

import hashlib
import os
import re
import shutil
import subprocess

from . import step
from .options import Parser
from .rust import RUST, host_triple, in_root, lock, policy_modules, prepare
from .settings import CACHE, LOGS, REPO, Refused

VERSION = "27.1.0"
TOOL, OUT = CACHE / "cargo-mutants", CACHE / "build/mutants"
EXPLAINED, RUNNER = RUST / "host/mutants-explained.txt", RUST / "host/mutant-tests.sh"
KINDS = ("caught", "timeout", "unviable", "missed")
HELP = """Changes the policy modules in one place at a time, and checks that a host test fails.

Prints the number of mutants of each module, and the mutants that no test noticed. rust/host/mutants-explained.txt must
give the reason why no test can notice such a mutant, else it is a failure. A reason for a mutant that a test notices is
a failure, too. A mutant that was noticed is not tried again until its module changes, so an interrupted run can be
continued. Builds cargo-mutants in the cache if it is missing. VMAP_RUST_MUTANTS_JOBS: mutants at the same time (2);
VMAP_RUST_MUTANTS_TIMEOUT: seconds for the tests of each (300). A mutant that was noticed or is explained has passed.

Modules: """


def setting(name, default):
    """Return the value of a variable of the environment, a whole number."""
    value = os.environ.get(f"VMAP_RUST_MUTANTS_{name}", default)
    if not re.fullmatch("[1-9][0-9]{0,3}", value):
        raise Refused(f'VMAP_RUST_MUTANTS_{name} must be a whole number, not "{value}"')
    return value


def install():
    """Build cargo-mutants in the cache, unless it is there."""
    found = subprocess.run(in_root(TOOL / "bin/cargo-mutants", "mutants", "--version"), capture_output=True, text=True,
                           check=False)
    log = LOGS / "mutants-install.log"
    if found.stdout.strip() != f"cargo-mutants {VERSION}" and step.run(f"cargo-mutants {VERSION}", log, in_root(
            "cargo", "install", "--locked", "cargo-mutants", "--version", VERSION, "--root", TOOL, "--target-dir",
            CACHE / "build/cargo-mutants")):
        raise Refused(f"cargo-mutants cannot be built; check that cargo can reach its registry, and see {log}")


def way_to(module):
    """Return the folder before MODULE in cargo-mutants' names of files: the way from the file of rust/host that
    includes it."""
    return "host/src/sys/../../../" if module.startswith("sys/") else "host/src/../../"


class Outcomes:
    """The names of the mutants of each outcome, kept in one file per outcome. The names start with
    LAYER/MODULE.rs:LINE:COLUMN."""

    def of(self, kind, module=""):
        """Return the mutants of a module, or of all."""
        file = OUT / kind
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        return [line for line in lines if not module or line.startswith(f"{module}.rs:")]

    def write(self, kind, names):
        """Replace the mutants with that outcome."""
        (OUT / kind).write_text("".join(f"{name}\n" for name in sorted(set(names))), encoding="utf-8")

    def forget(self, module, *kinds):
        """Remove the mutants of a module."""
        for kind in kinds:
            gone = set(self.of(kind, module))
            self.write(kind, [name for name in self.of(kind) if name not in gone])

    def collect(self):
        """Add the outcomes of a run to those of earlier runs."""
        for kind in KINDS:
            new = OUT / f"mutants.out/{kind}.txt"
            lines = new.read_text(encoding="utf-8").splitlines() if new.is_file() else []
            self.write(kind, self.of(kind) + [re.sub(r"^host/src/(sys/\.\./)?\.\./\.\./", "", line) for line in lines])
        shutil.rmtree(OUT / "mutants.out", ignore_errors=True)


def try_module(outcomes, module, baseline):
    """Try the mutants of a module, except those that were caught since it last changed. baseline "run": run the tests
    without a mutant first; "skip": do not."""
    (OUT / "mutants.out").mkdir()
    # With --iterate, cargo-mutants omits the mutants of this file.
    known = [way_to(module) + name for kind in ("caught", "timeout", "unviable") for name in outcomes.of(kind, module)]
    (OUT / "mutants.out/caught.txt").write_text("".join(f"{name}\n" for name in known), encoding="utf-8")
    runner = f"CARGO_TARGET_{host_triple().upper().replace('-', '_')}_RUNNER"
    # Without optimization a build takes one second instead of seven, and most mutants need more time for the build than
    # for the tests. cargo-mutants knows no other attribute than cfg(test): test modules in the same file have more, and
    # the functions that tell debuggers offsets ("describe") are compiled for the kernel only, where scripts/run tools
    # reads by these offsets.
    code = step.run(f"mutants of {module}", LOGS / "mutants-run.log", in_root(
        TOOL / "bin/cargo-mutants", "mutants", "--no-config", "--package", "vmap-rust-host", "--file",
        f"{way_to(module)}{module}.rs",
        "--exclude-re", " in tests::", "--exclude-re", "::describe\\b", "--output", OUT, "--iterate", "--baseline",
        baseline, "--timeout", setting("TIMEOUT", "300"),
        "--build-timeout", "300", "--jobs", setting("JOBS", "2"), "--colors", "never", "--no-times", "--", "--lib",
        CARGO_PROFILE_DEV_OPT_LEVEL=0, CARGO_PROFILE_DEV_DEBUG=0, VMAP_RUST_SEED=1, CARGO_NET_OFFLINE="true",
        # The stand-in for the maple tree: with that of the kernel, the tests which let it fail are left out.
        VMAP_RUST_TREE="",
        **{runner: f"bash {RUNNER}"}), cwd=RUST)
    # 2: some mutants were missed; 3: some tests did not end.
    if code not in (0, 2, 3):
        raise Refused(f"cargo-mutants failed; see {LOGS}/mutants-run.log")


def try_modules(outcomes, modules):
    """Try the modules that have not been tried with these sources, one after the other, so that an interrupted run can
    be continued."""
    digest = hashlib.sha256(VERSION.encode())
    for file in sorted(path for path in RUST.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(REPO)} ".encode() + file.read_bytes())
    baseline = "run"
    outcomes.collect()
    for module in modules:
        done, known = OUT / f"done.{module.replace('/', '-')}", OUT / f"hash.{module.replace('/', '-')}"
        if done.is_file() and done.read_text(encoding="ascii") == digest.hexdigest():
            continue
        # As sha256sum prints it.
        now = hashlib.sha256((RUST / f"{module}.rs").read_bytes()).hexdigest() + "  -\n"
        if not known.is_file() or known.read_text(encoding="ascii") != now:
            outcomes.forget(module, "caught", "timeout", "unviable")
        known.write_text(now, encoding="ascii")
        outcomes.forget(module, "missed")
        try_module(outcomes, module, baseline)
        # Without a mutant to try, no test ran, and this log is missing.
        if (OUT / "mutants.out/log/baseline.log").is_file():
            baseline = "skip"
        outcomes.collect()
        done.write_text(digest.hexdigest(), encoding="ascii")


def explanations():
    """Map each explained mutant, by its change and its function, not by its line, to the number of mutants with that
    name."""
    found = {}
    for number, name in re.findall(r"^(\d+) (.*?)(?: # .*)?$", EXPLAINED.read_text(encoding="utf-8"), re.M):
        found[name] = found.get(name, 0) + int(number)
    return found


def survivors(outcomes, module):
    """Return the lines about mutants that no test noticed, "explained" or "MISSED", and, as "STALE", explanations of
    mutants that a test noticed."""
    allowed, lines = explanations(), []
    for mutant in sorted(outcomes.of("missed", module), key=lambda line: [int(x) for x in line.split(":")[1:3]]):
        name = re.sub(r":\d+:\d+: ", ": ", mutant, count=1)
        allowed[name] = allowed.get(name, 0) - 1
        lines.append(f"{'explained' if allowed[name] >= 0 else 'MISSED   '} {mutant}")
    return lines + [f"STALE     {name}" for name, number in allowed.items() if name.startswith(f"{module}.rs: ")
                    and number > 0]


def main(arguments, result):
    """Try the wanted modules, and print the table."""
    modules = policy_modules()
    parser = Parser(HELP + " ".join(modules), "test mutants")
    parser.add_argument("--fresh", action="store_true",
                        help="try all of them again, which takes about an hour on 2 cores")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="only this module (default: all)")
    args = parser.parse_args(arguments)
    for name in args.modules:
        if name not in modules:
            raise Refused(f'unknown module "{name}"; there are: {" ".join(modules)}')
    setting("TIMEOUT", "300")
    setting("JOBS", "2")
    prepare()
    OUT.mkdir(parents=True, exist_ok=True)
    # All clones of the repository share the outcomes.
    lock("mutants")
    install()
    if args.fresh:
        shutil.rmtree(OUT)
        OUT.mkdir()
    outcomes, wanted, lines = Outcomes(), args.modules or modules, []
    try_modules(outcomes, wanted)
    print(f"{'module':<16} {'mutants':>7} {'caught':>7} {'timeout':>7} {'unviable':>9} {'explained':>9} {'missed':>7}")
    for module in wanted:
        caught, timeout, unviable = (len(outcomes.of(kind, module)) for kind in KINDS[:3])
        survived = survivors(outcomes, module)
        explained, missed, stale = (sum(line.startswith(word) for line in survived)
                                    for word in ("explained", "MISSED", "STALE"))
        total = caught + timeout + unviable + explained + missed
        print(f"{module:<16} {total:>7} {caught:>7} {timeout:>7} {unviable:>9} {explained:>9} {missed:>7}")
        lines += survived
        result.passed += caught + timeout + explained
        result.failed += missed + stale
    print(*lines, sep="\n", end="\n" * bool(lines))
