# SPDX-License-Identifier: GPL-2.0
"""The guest's part of the benchmark on both allocators and without one, and scripts/bench with everything that can go
wrong. Builds the kernels arm64 and arm64-off. Takes no figure that means anything."""

import functools
import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from bench.host import plan as plans, stats, store
from harness import kernels
from harness.guest import Boot
from harness.settings import LOGS, REPO
from harness.verdict import Expected

KINDS = "vmalloc vrealloc vmap vm_map_ram ioremap percpu stack vmalloc_huge".split()
FEW = "arm64 rbtree"
# Kernel and allocator, CPUs, MiB, kernel arguments after "vmap_bench.run="; patterns of lines that the benchmark must
# print, and of lines that it must not print.
BOOTS = {
    "unknown case": (FEW, 1, 2048, "area_pair,foo", ['error: unknown case "foo" in run=; run=list prints them$'],
                     "(start|result)"),
    "unknown case to leave out": (FEW, 1, 2048, "area_pair,-foo",
                                  ['error: unknown case "-foo" in run=; run=list prints them$'], None),
    "what is left of the cases": (FEW, 1, 2048, "area_*,kmalloc_pair,-area_* vmap_bench.scale=1",
                                  ["result case=kmalloc_pair "], "(error|result case=area)"),
    "no worker": (FEW, 2, 2048, "kmalloc_pair vmap_bench.threads=0",
                  [r"error: threads=0: each must be a number from 1 to 2 \(CPUs\)$"], None),
    "more workers than CPUs": (FEW, 2, 2048, "kmalloc_pair vmap_bench.threads=1,3",
                               ["error: threads=1,3: each must be a number from 1 to 2"], "(start|result)"),
    "workers that are no number": (FEW, 1, 2048, "kmalloc_pair vmap_bench.threads=x",
                                   ["error: threads=x: each must"], None),
    "scale 0": (FEW, 1, 2048, "kmalloc_pair vmap_bench.scale=0", ["error: scale=0 is not from 1 to 10000$"], None),
    "too little memory, too few workers": (
        "arm64 rust", 1, 96, "memory,lookup_inner_100k,cross_cpu,kmalloc_pair vmap_bench.scale=1",
        ["skip case=memory threads=1 reason=needs [0-9]+ MiB of memory, twice that must be free$",
         "result case=kmalloc_pair ", "skip case=cross_cpu threads=1 reason=needs 2 workers or more$"], "error"),
    # whole_api notices a changed word in each kind of object, and names it.
    **{f"changed word, {kind}": (
        "arm64 rust", 2, 2048, f"whole_api vmap_bench.threads=2 vmap_bench.pass_ms=500 vmap_bench.corrupt={kind}",
        [f"error: case=whole_api threads=2: {kind} at 0x[0-9a-f]+: found 0x0, expected 0x[0-9a-f]+$",
         "error: case=whole_api threads=2: -EIO$"], "result case=whole_api ") for kind in KINDS},
    "changed word, unknown kind": ("arm64 rust", 1, 2048, "whole_api vmap_bench.corrupt=nosuch",
                                   ["error: case=whole_api threads=1: corrupt=nosuch is no kind of object$"], None),
    "pass of 0 ms": ("arm64 rust", 1, 2048, "whole_api vmap_bench.pass_ms=0",
                     ["error: pass_ms=0 is not from 1 to 60000$"], None)}


@functools.cache
def built(name):
    """A kernel, built."""
    kernels.get(name).build()
    return kernels.get(name)


def boot(where, cpus, mem, arguments):
    """Boot, and return what the benchmark printed. The boot itself must be good."""
    name, allocator = where.split()
    log = LOGS / f"bench-test-{name}-{allocator}.log"
    reasons = Boot(built(name), Expected(allocator), cpus=cpus, mem=mem, accel="icount", log=log,
                   append="kunit.enable=0 test_vmalloc.run_test_mask=0 vmap_bench.pass_ms=20 "
                          f"vmap_bench.run={arguments}").run()
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
    assert unexpected is None or not re.search(f"^{unexpected}", text, re.M), text


def test_list():
    """The kernel's list of cases is that of scripts/bench."""
    text = boot("arm64 rust", 1, 2048, "list")
    assert sorted(re.findall("^case (.*)", text, re.M)) == sorted(plans.guest_cases())


@pytest.mark.parametrize("where", ["arm64 rbtree", "arm64 rust", "arm64-off none"])
def test_all_cases(where):
    """Every case, with few operations, on one CPU and on two: each has a result, none fails or is skipped."""
    text = boot(where, 2, 2048, "all vmap_bench.threads=1,2 vmap_bench.scale=2")
    assert re.search("^end failed=0$", text, re.M) and not re.search("^(error|skip)", text, re.M), text
    assert set(plans.guest_cases()) <= set(re.findall("^result case=(\\S+) ", text, re.M))
    assert f"allocator={where.split()[1].replace('none', 'rbtree')} " in re.search("^start .*", text, re.M)[0]


def bench(*words, outside=False):
    """Run scripts/bench; returns the exit code and the output. outside: as outside of the toolchain root, where wrong
    use must be found before anything is prepared."""
    env = {**os.environ, "TOOLCHAIN": "host", "VMAP_RUST_IN_ROOT": "0"} if outside else None
    done = subprocess.run([REPO / "scripts/bench", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, env=env)
    return done.returncode, done.stdout


@pytest.fixture(name="folder", scope="module")
def folder_of_results(tmp_path_factory):
    """A folder with a result of two cases, which the cache holds as those of a user."""
    folder = tmp_path_factory.mktemp("results")
    code, text = bench("--kernel", "arm64", "--instruments", "icount", "--cases", "kmalloc_pair,area_pair",
                       "--repetitions", "2", "-o", folder / "r.json")
    assert code == 0 and "area_pair" in text and "kmalloc_pair" in text, text
    return folder


def test_measure(folder):
    """The page is there, and no half of a result; compared with itself nothing is slower; a table for documents."""
    assert sorted(os.listdir(folder)) == ["r.html", "r.json"] and "<html" in (folder / "r.html").read_text()
    code, text = bench("compare", folder / "r.json", folder / "r.json")
    assert code == 0, text
    assert re.search(r"^\| .*area_pair", bench("markdown", folder / "r.json")[1], re.M)


REFUSED = {
    "unknown command": ("nosuch", "unknown command nosuch; see --help"),
    "one result to compare": ("compare FOLDER/r.json", "compare needs two results"),
    "no result": ("table", "table needs one result"),
    "unknown option": ("table --what FOLDER/r.json", "unrecognized arguments: --what"),
    "no page": ("html FOLDER/r.json", "arguments are required: -o"),
    "unknown instrument": ("--instruments foo", 'unknown instrument "foo"'),
    "no repetition": ("--repetitions 0", "--repetitions: must be a whole number from 1 to 1000"),
    "no worker": ("--threads 0", "--threads: each must be from 1 to 64"),
    "too many workers": ("--threads 65", "--threads: each must be from 1 to 64"),
    "a case that the emulator does not have": ("--instruments lines --cases area_pair", "no plan of this set fits"),
    "lines: unknown case": ("lines --cases area_pair", 'unknown case "area_pair"; there are: pair '),
    "lines: one CPU": ("lines --cpus 1", '--cpus: each must be from 2 to 256, not "1"'),
    "lines: too many CPUs": ("lines --cpus 8,257", '--cpus: each must be from 2 to 256, not "257"'),
    "lines: no such kernel": ("lines --vmlinux FOLDER/vmlinux", "there is no FOLDER/vmlinux"),
    "folder that is not there": ("--cases area_pair -o FOLDER/none/r.json", "there is no folder"),
    "unknown case": ("--cases area_pair,nosuch",
                     '^bench: error: unknown case "nosuch"; scripts/bench list prints them$'),
    "case of the emulator to leave out": ("--cases all,-purge", 'unknown case "purge"'),
    "unknown beginning of a case": ("--cases area_x*", r'unknown case "area_x\*"'),
    "a side of --sides": ("--sides --b rust", "--sides has sides of its own; leave --b out"),
    "two sets": ("--full --figures", "not allowed with"),
    "a result before the first": ("table last~9999", "there is no result last~9999"),
    "profile: unknown case": ("profile nosuch", 'unknown case "nosuch"'),
    "profile: no CPU": ("profile area_pair --cpus 0", "--cpus: must be a whole number from 1 to 64"),
    "profile: too many workers": ("profile area_pair --threads 65", "--threads: must be a whole number from 1 to 64"),
    "profile: unknown configuration": ("profile area_pair --kernel none", 'unknown configuration "none"')}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    """Exit code 1 and one line that says what to do, before anything is prepared or built."""
    words, pattern = (text.replace("FOLDER", str(tmp_path)) for text in REFUSED[name])
    (tmp_path / "r.json").touch()
    code, text = bench(*words.split(), outside=True)
    assert code == 1 and text.count("\n") == 1 and re.search(pattern, text), text


def descendants(pid):
    """The processes that a process has started, and those that they have."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return [one for child in children for one in (child, *descendants(child))]


def guest_of(pid, pattern):
    """An emulator that a process or a descendant has started and whose command line matches, or None."""
    for one in descendants(pid):
        try:
            if re.search(pattern, Path(f"/proc/{one}/cmdline").read_text("utf-8", "replace").replace("\0", " ")):
                return int(one)
        except OSError:
            pass
    return None


def test_dying_emulator(tmp_path):
    """An emulator that ends in the middle takes only its own boot with it. A guest of somebody else goes on."""
    argument = "vmap_bench.run=area_pair,mixed "
    with subprocess.Popen([f"qemu-system-aarch64 {argument}vmap_bench.seed=3 ", "600"],
                          executable="/usr/bin/sleep") as other, \
            subprocess.Popen([REPO / "scripts/bench", "--kernel", "arm64", "--instruments", "icount", "--cases",
                              "area_pair,mixed", "--repetitions", "3", "-o", tmp_path / "d.json"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        for _ in range(600):
            guest = guest_of(run.pid, f"^qemu-system-aarch64.*{argument}.*vmap_bench.seed=3[^0-9]")
            if guest:
                os.kill(guest, 9)
                break
            time.sleep(0.1)
        text = run.communicate()[0]
        assert other.poll() is None, "a process of the same name that is not ours was ended"
        other.kill()
    assert run.returncode == 1, text
    assert re.search("boot does not count: .* repetition 1: died: the emulator ended", text), text
    result = json.loads((tmp_path / "d.json").read_text())
    whole = [one["status"] == "ok" for one in result["boots"]]
    assert whole.count(False) == 1 and len(whole) >= 12


@pytest.mark.parametrize("model", ["cortex-a72", "neoverse-n1"])
def test_profile(model):
    """Agrees with the benchmark, and with the known counts of known_pair() in bench/pair.c."""
    code, text = bench("profile", "known", "--kernel", "arm64", "--allocator", "rust", "--cpu", model, "--locks")
    assert code == 0, text
    # Three atomic operations of its own and one in a function that takes a lock; where that is inline, four.
    assert re.search(r"known_pair_phase +│ benchmark +│ +5[0-9]+ │ +(3 │ +2 │ +3|4 │ +2 │ +4) │", text), text
    # Instructions under a lock.
    assert re.search(r"│ known_pair_phase +│ benchmark +│ +1\.0000 │ +5[0-4][0-9] │", text), text


def test_profile_of_skipped_case():
    """A case that the guest skips is no profile."""
    code, text = bench("profile", "purge_latency", "--kernel", "arm64")
    assert code == 1 and "needs 2 workers or more" in text


def test_flushes(tmp_path):
    """The allocator in Rust needs no more TLB flushes than the rb-trees, in any case."""
    code, text = bench("--kernel", "arm64", "--instruments", "flushes", "-o", tmp_path / "f.json")
    assert code == 0, text
    rows = [row for row in stats.rows(store.load(str(tmp_path / "f.json"))) if row.metric == "flushes"]
    assert len({row.case for row in rows}) > 5
    # With 1 CPU a purge is asked for with 8,192 lazy pages. Who asks later is not better: when the worker gets the only CPU is
    # the scheduler's choice, a few ticks in a case, so vm_map_ram_16 has 5 or 6 purges of 64,000 pages.
    most = {row.case: 1000 * (16 if row.case == "vm_map_ram_16" else 2) / 8192 for row in rows}
    assert not [row for row in rows if row.verdict == "slower" and row.median_b > most[row.case]]
