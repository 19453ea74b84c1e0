# SPDX-License-Identifier: GPL-2.0
"""The guest's part of the benchmark on both allocators and without one, and scripts/bench. Boots arm64 and arm64-off, which
other suites need, too, instead of arm64-bench."""

import json
import os
import re
import shutil

import pytest

from harness.boot import kernels
from harness.bench import boots, counts, plan as plans, stats
from harness.boot.guest import Boot
from harness.machine.settings import LOGS
from harness.boot.verdict import Expected

from conftest import bench

# Allocator, CPUs, MiB, kernel arguments after "vmap_bench.run="; patterns of lines that the benchmark must print, and of
# lines that it must not print.
BOOTS = {
    "unknown case": ("rbtree", 1, 2048, "area_pair,-foo",
                     ['error: unknown case "-foo" in run=; run=list prints them$'], "(start|result)"),
    "more workers than CPUs": ("rbtree", 2, 2048, "mixed vmap_bench.threads=1,3",
                               [r"error: threads=1,3: each must be a number from 1 to 2 \(CPUs\)$"], "(start|result)"),
    "too little memory": (
        "rust", 1, 96, "memory,area_pair vmap_bench.scale=1",
        ["skip case=memory threads=1 reason=needs [0-9]+ MiB of memory, twice that must be free$",
         "result case=area_pair "], "error")}


def boot(name, allocator, cpus, mem, arguments):
    """Boot, and return what the benchmark printed. The boot itself must be good."""
    log = LOGS / f"bench-test-{name}-{allocator}.log"
    reasons = Boot(kernels.get(name), Expected(allocator), cpus=cpus, mem=mem, accel="icount", log=log,
                   append=f"kunit.enable=0 test_vmalloc.run_test_mask=0 vmap_bench.run={arguments}").run()
    assert not reasons
    return "\n".join(re.findall(r"^.*vmap_bench: (.*)", log.read_text(errors="replace").replace("\r", ""), re.M))


@pytest.mark.parametrize("name", BOOTS)
def test_guest(name):
    """Wrong values are named, nothing is measured then, and what cannot be measured is skipped."""
    *words, expected, unexpected = BOOTS[name]
    text = boot("arm64", *words)
    for pattern in expected:
        assert re.search(f"^{pattern}", text, re.M), text
    assert not re.search(f"^{unexpected}", text, re.M), text


def test_list():
    """The kernel's list of cases is that of scripts/bench."""
    text = boot("arm64", "rust", 1, 2048, "list")
    assert dict(re.findall("^case (\\w+): (.*)", text, re.M)) == plans.guest_cases()


@pytest.mark.parametrize("name, allocator", [("arm64", "rbtree"), ("arm64", "rust"), ("arm64-off", "none")])
def test_all_cases(name, allocator):
    """Every case, with few operations, on one CPU and on two: each has a result, none fails or is skipped."""
    text = boot(name, allocator, 2, 2048, "all vmap_bench.threads=1,2 vmap_bench.scale=2")
    assert re.search("^end failed=0$", text, re.M) and not re.search("^(error|skip)", text, re.M), text
    assert set(plans.guest_cases()) <= set(re.findall("^result case=(\\S+) ", text, re.M))
    assert f"allocator={allocator.replace('none', 'rbtree')} " in re.search("^start .*", text, re.M)[0]


def stored(folder):
    """Return the only result in a folder."""
    path, = folder.glob("*.json")
    return json.loads(path.read_text())


def test_measure(tmp_path):
    """A result and its plot are there, and no half of one; two boots are too few to compare them."""
    env = {"VMAP_RUST_RESULTS": str(tmp_path)}
    code, text = bench("--instruments", "icount", "--cases", "area_4096,percpu", "--repetitions", "2", **env)
    assert code == 0 and "area_4096" in text and "percpu" in text, text
    result, plot = sorted(tmp_path.iterdir())
    assert (result.suffix, plot.suffix) == (".json", ".svg") and "<svg" in plot.read_text()
    code, text = bench("compare", "last", "last", **env)
    assert code == 0 and "0 slower, 0 faster, 0 as before, 8 of too few boots, 0 missing" in text, text


def test_dying_emulator(tmp_path):
    """An emulator that ends in the middle, here after a second of CPU time, takes only its own boot with it."""
    results, emulator = tmp_path / "results", tmp_path / "qemu-system-aarch64"
    emulator.write_text('#!/bin/sh\ncase "$*" in *vmap_bench.threads=8*vmap_bench.seed=3*) ulimit -t 1;; esac\n'
                        f'exec {shutil.which(emulator.name)} "$@"\n')
    emulator.chmod(0o755)
    code, text = bench("--instruments", "icount", "--cases", "area_pair", "--repetitions", "3",
                       VMAP_RUST_RESULTS=str(results), PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert code == 1, text
    assert re.search("boot does not count: icount workers-8 a .* repetition 1: the emulator ended", text), text
    assert [one["status"] == "ok" for one in stored(results)["boots"]].count(False) == 1


def test_profile():
    """Agrees with the benchmark, and with the known counts of known_pair() in bench/pair.c."""
    code, text = bench("profile", "known")
    assert code == 0, text
    # Three atomic operations of its own and one in a function that takes a lock; where that is inline, four.
    assert re.search(r"known_pair_phase +│ benchmark +│ +5[0-9]+ │ +(3 │ +2 │ +3|4 │ +2 │ +4) │", text), text
    # Instructions under a lock.
    assert re.search(r"│ known_pair_phase +│ benchmark +│ +1\.0000 │ +5[0-4][0-9] │", text), text
    # A case that the guest skips is no profile.
    code, text = bench("profile", "growth", "--threads", "2")
    assert code == 1 and "works with 1 workers at most" in text


def test_flushes(tmp_path):
    """The allocator in Rust needs no more TLB flushes than the rb-trees, in any case."""
    code, text = bench("--instruments", "flushes", VMAP_RUST_RESULTS=str(tmp_path))
    assert code == 0, text
    rows = [row for row in stats.rows(stored(tmp_path)) if row.metric == "flushes"]
    assert len({row.case for row in rows}) == 5
    # Both ask for a purge at the same number of lazy pages. When its worker gets a CPU is the scheduler's choice: some
    # areas more or less than that. An eighth more is what vm_map_ram_16 has; with few flushes, two in all say nothing.
    more = [(row.case, row.median_a, row.median_b) for row in rows if row.median_b > 1.25 * row.median_a + 0.1]
    assert not more


def test_lines():
    """With 8 workers, fewer cache lines move than with the rb-trees. In area_remote, workers exchange areas in one line:
    without turns another CPU has hardly ever written it last, with turns in a fixed order always."""
    plan, misses = plans.Plan("lines-8", "lines", 8, 1, "area_pair,area_remote", (8,)), {}
    for seed, allocator in enumerate(("rbtree", "rust"), 1):
        log = LOGS / f"bench-test-lines-{allocator}.log"
        record = boots.boot((plan, "a", allocator, 0, seed, "arm64", log))
        assert record["status"] == "ok", record
        misses[allocator] = {one["case"]: one["value"] for one in record["results"] if one["metric"] == "misses"}
        symbols = counts.symbols_of("arm64")
        window, = [one for one in counts.read(log, symbols) if one.name == "area_remote"]
        moved = sum(times for (pc, _, is_write), times in window.fair_misses.items()
                    if is_write and symbols.part(symbols.name(pc)) == "benchmark")
        # There are two turns for each exchange. On a busy host CPUs come late, and fewer choices are fair.
        exchanges = window.fair_turns / 2
        assert exchanges > 1000 and 0.94 < moved / exchanges < 0.975, (allocator, moved, exchanges, window.ops)
    rbtree, rust = misses["rbtree"], misses["rust"]
    assert rust["area_pair"] < min(2, rbtree["area_pair"] / 2) and rust["area_remote"] < rbtree["area_remote"] / 3, misses
