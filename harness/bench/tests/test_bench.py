# SPDX-License-Identifier: GPL-2.0
"""The guest's part of the benchmark on both allocators and without one, and scripts/bench with everything that can go
wrong. Boots arm64 and arm64-off, which other suites need, too, instead of arm64-bench. Takes no figure that means anything."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from harness.bench import plan as plans, results, stats
from harness.guest import Boot
from harness.settings import LOGS, REPO
from harness.suites.plugin import built
from harness.verdict import Expected

# Kernel and allocator, CPUs, MiB, kernel arguments after "vmap_bench.run="; patterns of lines that the benchmark must
# print, and of lines that it must not print.
BOOTS = {
    "unknown case": ("arm64 rbtree", 1, 2048, "area_pair,-foo",
                     ['error: unknown case "-foo" in run=; run=list prints them$'], "(start|result)"),
    "what is left of the cases": ("arm64 rbtree", 1, 2048, "area_*,mixed,-area_* vmap_bench.scale=1",
                                  ["result case=mixed "], "(error|result case=area)"),
    "more workers than CPUs": ("arm64 rbtree", 2, 2048, "mixed vmap_bench.threads=1,3",
                               [r"error: threads=1,3: each must be a number from 1 to 2 \(CPUs\)$"], "(start|result)"),
    "scale 0": ("arm64 rbtree", 1, 2048, "mixed vmap_bench.scale=0",
                ["error: scale=0 is not from 1 to 10000$"], "(start|result)"),
    "too little memory": (
        "arm64 rust", 1, 96, "memory,area_pair vmap_bench.scale=1",
        ["skip case=memory threads=1 reason=needs [0-9]+ MiB of memory, twice that must be free$",
         "result case=area_pair "], "error"),
    "too many workers": (
        "arm64 rust", 2, 2048, "growth,area_pair vmap_bench.scale=1 vmap_bench.threads=2",
        ["skip case=growth threads=2 reason=works with 1 workers at most$", "result case=area_pair threads=2 "],
        "error")}


# Of scripts/bench.
ENVIRONMENT = {**os.environ, "VMAP_RUST_BENCH_KERNEL": "arm64"}


def boot(where, cpus, mem, arguments):
    """Boot, and return what the benchmark printed. The boot itself must be good."""
    name, allocator = where.split()
    log = LOGS / f"bench-test-{name}-{allocator}.log"
    reasons = Boot(built(name), Expected(allocator), cpus=cpus, mem=mem, accel="icount", log=log,
                   append=f"kunit.enable=0 test_vmalloc.run_test_mask=0 vmap_bench.run={arguments}").run()
    assert not reasons
    text = "\n".join(line for line in log.read_text(errors="replace").replace("\r", "").split("\n")
                     if "Kernel command line" not in line)
    return "\n".join(re.findall(r"^.*vmap_bench: (.*)", text, re.M))


@pytest.mark.parametrize("name", BOOTS)
def test_guest(name):
    """Wrong values are named, nothing is measured then, and what cannot be measured is skipped."""
    *words, expected, unexpected = BOOTS[name]
    text = boot(*words)
    for pattern in expected:
        assert re.search(f"^{pattern}", text, re.M), text
    assert not re.search(f"^{unexpected}", text, re.M), text


def test_list():
    """The kernel's list of cases is that of scripts/bench."""
    text = boot("arm64 rust", 1, 2048, "list")
    assert dict(re.findall("^case (\\w+): (.*)", text, re.M)) == plans.guest_cases()


@pytest.mark.parametrize("where", ["arm64 rbtree", "arm64 rust", "arm64-off none"])
def test_all_cases(where):
    """Every case, with few operations, on one CPU and on two: each has a result, none fails or is skipped."""
    text = boot(where, 2, 2048, "all vmap_bench.threads=1,2 vmap_bench.scale=2")
    assert re.search("^end failed=0$", text, re.M) and not re.search("^(error|skip)", text, re.M), text
    assert set(plans.guest_cases()) <= set(re.findall("^result case=(\\S+) ", text, re.M))
    assert f"allocator={where.split()[1].replace('none', 'rbtree')} " in re.search("^start .*", text, re.M)[0]


def bench(*words, folder=None, outside=False):
    """Run scripts/bench; returns the exit code and the output. folder: of results; outside: as outside of the toolchain
    root, where wrong use must be found before anything is prepared."""
    env = {**ENVIRONMENT, **({"VMAP_RUST_RESULTS": str(folder)} if folder else {}),
           **({"TOOLCHAIN": "host", "VMAP_RUST_IN_ROOT": "0"} if outside else {})}
    done = subprocess.run([REPO / "scripts/bench", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, env=env)
    return done.returncode, done.stdout


def test_measure(tmp_path):
    """A result and its page are there, and no half of one; compared with itself nothing is slower."""
    code, text = bench("--instruments", "icount", "--cases", "mixed,area_pair", "--repetitions", "2", folder=tmp_path)
    assert code == 0 and "area_pair" in text and "mixed" in text, text
    page, result = sorted(tmp_path.iterdir())
    assert (page.suffix, result.suffix) == (".html", ".json") and "<html" in page.read_text()
    code, text = bench("compare", "last", "last", folder=tmp_path)
    assert code == 0, text


REFUSED = {
    "unknown command": ("nosuch", "unknown command nosuch; see --help"),
    "no result": ("show", "the following arguments are required: RESULT"),
    "a result that is not there": ("show last~9999", "there is no result last~9999"),
    "unknown instrument": ("--instruments foo", 'unknown instrument "foo"'),
    "no repetition": ("--repetitions 0", "--repetitions: must be a whole number from 1 to 1000"),
    "nothing to measure": ("--instruments lines --cases memory", "no plan of this set fits"),
    "unknown case": ("--cases area_pair,nosuch",
                     '^bench: error: unknown case "nosuch"; scripts/bench list prints them$'),
    "unknown case to leave out": ("--cases all,-purge", 'unknown case "purge"'),
    "unknown beginning of a case": ("--cases area_x*", r'unknown case "area_x\*"'),
    "a side of --sides": ("--sides --b rust", "--sides has sides of its own; leave --a and --b out"),
    "two sets": ("--sides --figures", "not allowed with"),
    "profile: unknown case": ("profile nosuch", 'unknown case "nosuch"'),
    "profile: too many workers": ("profile area_pair --threads 65", "--threads: must be a whole number from 1 to 64"),
    "unknown program": ("programs --programs nothing", 'unknown program "nothing"; there are: ')}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    """Exit code 1 and one line that says what to do, before anything is prepared or built."""
    words, pattern = REFUSED[name]
    code, text = bench(*words.split(), outside=True)
    assert code == 1 and text.count("\n") == 1 and re.search(pattern, text), text


def guest_of(pid, pattern):
    """Return an emulator that a process or a descendant has started and whose command line matches, or None."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    for child in children:
        try:
            line = Path(f"/proc/{child}/cmdline").read_text("utf-8", "replace").replace("\0", " ")
        except OSError:
            continue
        if found := int(child) if re.search(pattern, line) else guest_of(child, pattern):
            return found
    return None


def test_dying_emulator(tmp_path):
    """An emulator that ends in the middle takes only its own boot with it. A guest of somebody else goes on."""
    argument = "vmap_bench.run=area_pair,mixed "
    with subprocess.Popen([f"qemu-system-aarch64 {argument}vmap_bench.seed=3 ", "infinity"],
                          executable="/usr/bin/sleep") as other, \
            subprocess.Popen([REPO / "scripts/bench", "--instruments", "icount", "--cases", "area_pair,mixed",
                              "--repetitions", "3"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**ENVIRONMENT, "VMAP_RUST_RESULTS": str(tmp_path)}) as run:
        # As long as it takes: with many CPUs, the boots before can take minutes on a busy build host.
        while run.poll() is None:
            guest = guest_of(run.pid, f"^qemu-system-aarch64.*{argument}.*vmap_bench.seed=3[^0-9]")
            if guest:
                os.kill(guest, 9)
                break
            time.sleep(0.1)
        text = run.communicate()[0]
        ended = other.poll()
        other.kill()
    assert ended is None, "a process of the same name that is not ours was ended"
    assert run.returncode == 1, text
    assert re.search("boot does not count: .* repetition 1: died: the emulator ended", text), text
    whole = [one["status"] == "ok" for one in results.load(next(tmp_path.glob("*.json")))["boots"]]
    assert whole.count(False) == 1 and len(whole) >= 12


def test_profile():
    """Agrees with the benchmark, and with the known counts of known_pair() in bench/pair.c."""
    code, text = bench("profile", "known")
    assert code == 0, text
    # Three atomic operations of its own and one in a function that takes a lock; where that is inline, four.
    assert re.search(r"known_pair_phase +│ benchmark +│ +5[0-9]+ │ +(3 │ +2 │ +3|4 │ +2 │ +4) │", text), text
    # A case that the guest skips is no profile.
    code, skipped = bench("profile", "growth", "--threads", "2")
    assert code == 1 and "works with 1 workers at most" in skipped
    # Instructions under a lock.
    assert re.search(r"│ known_pair_phase +│ benchmark +│ +1\.0000 │ +5[0-4][0-9] │", text), text


def test_flushes(tmp_path):
    """The allocator in Rust needs no more TLB flushes than the rb-trees, in any case."""
    code, text = bench("--instruments", "flushes", folder=tmp_path)
    assert code == 0, text
    rows = [row for row in stats.rows(results.load(next(tmp_path.glob("*.json")))) if row.metric == "flushes"]
    assert len({row.case for row in rows}) == 5
    # With 2 CPUs a purge is asked for with 16,384 lazy pages. Asking later is not better: when the worker gets a CPU is
    # the scheduler's choice. Twice as many purges would be a fault.
    most = {row.case: 1000 * (16 if row.case == "vm_map_ram_16" else 2) / 8192 for row in rows}
    assert not [row for row in rows if row.verdict == "slower" and row.median_b > most[row.case]]


def test_lines(tmp_path):
    """Misses are counted, and CPUs take turns in random order: in area_remote, workers exchange areas in one cache line,
    which 7 of 8 times another CPU has written last."""
    code, text = bench("--instruments", "lines", "--cases", "area_pair,area_remote", "--repetitions", "1", folder=tmp_path)
    assert code == 0, text
    kept = results.load(next(tmp_path.glob("*.json")))
    value = {(boot["cpus"], boot["allocator"], one["case"], one["metric"]): one["value"]
             for boot in kept["boots"] for one in boot["results"]}
    print(value)
