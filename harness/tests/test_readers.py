# SPDX-License-Identifier: GPL-2.0
"""What reads the results of a guest: test_vmalloc, /proc/vmallocinfo, checks of a load, totals."""

import re

import pytest

from harness import guest, suites
from harness.result import Result, read_totals
from harness.scenarios import kasan, peers
from harness.scenarios.vmalloc import judge
from harness.sweep_log import CASES
from harness.vmallocinfo import judge as judge_info

SWEEP = "".join(f"[    0.726538] Summary: {name}_test passed: {int(name != 'align_shift_alloc')} failed: 0 "
                f"xfailed: {int(name == 'align_shift_alloc')} repeat: 1 loops: 1000 avg: 4914 usec\r\n"
                for name in CASES
                ) + "[    0.726696] All test took worker0=29182096 cycles\r\n"
NAMES = "|".join(CASES)
SWEEPS = {
    "good": ("", "", 1, 0x1fff, "13 passed, 0 failed"),
    "a failed case": ("(vrealloc.*)passed: 1 failed: 0", r"\1passed: 0 failed: 1", 1, 0x1fff, "12 passed, 1 failed"),
    "no_block must pass, although it may fail": ("(no_block.*)passed: 1 failed: 0 xfailed: 0",
                                                 r"\1passed: 0 failed: 0 xfailed: 1", 1, 0x1fff,
                                                 "12 passed, 1 failed"),
    "align_shift must fail": ("(align_shift.*)passed: 0 failed: 0 xfailed: 1", r"\1passed: 1 failed: 0 xfailed: 0", 1,
                              0x1fff,
                              "12 passed, 1 failed"),
    "a case is missing": (".*vm_map_ram.*\n", "", 1, 0x1fff, "12 passed, 1 failed"),
    "the worker did not end": (".*All test.*\n", "", 1, 0x1fff, "13 passed, 1 failed"),
    "a worker is missing": ("", "", 2, 0x1fff, "0 passed, 14 failed"),
    "cases outside of the mask": ("", "", 1, 7, "3 passed, 10 failed"),
    "empty log": ("(?s).*", "", 1, 0x1fff, "0 passed, 14 failed"),
}
SNAPSHOT = """vmallocinfo: begin WHEN tasks 2 cpus 1
vmi| 0xffff800080000000-0xffff8000803d0000 3997696 declare_kernel_vmas+0x34/0xb4 phys=0x0000000040200000 vmap |
vmi| 0xffff8000806d0000-0xffff8000806e1000   69632 __ioremap_prot+0x88/0x10c phys=0x0000000008000000 ioremap |
vmi| 0xffff8000806e8000-0xffff8000806ed000   20480 copy_process+0x1e8/0xd3c pages=4 vmalloc |
vmi| 0xffff8000806f0000-0xffff8000806f5000   20480 copy_process+0x1e8/0xd3c pages=4 vmalloc |
vmi| 0xffff8000806f8000-0xffff8000806fd000   20480 unpurged vm_area |
vmi| 0xffff800080700000-0xffff800080702000    8192 vm_map_ram |
vmallocinfo: end WHEN
"""
# An expression and what replaces it in each line, in lines after "begin after" if the name begins with "after"; the
# only failure.
INFOS = {
    "good": ("$^", "", ""),
    "overlap": ("0xffff8000806ed000   20480", "0xffff8000806f1000   36864", "overlap: 1 pairs"),
    "an area twice": ("(.*806f0000.*)", r"\1\n\1", "overlap: 1 pairs"),
    "freed while the file is read": ("((.*806f0000.*)copy_process.*)", r"\1\n\2unpurged vm_area |", ""),
    "unpurged twice": ("(.*806f8000.*)", r"\1\n\1", "overlap: 1 pairs"),
    "a message at the end of a line": ("(vmi.*ioremap)", r"\1[    1.762081] tsc: Refined TSC", ""),
    "a message in the middle of a line": ("(vmi.*69632)", r"\1[   12.762081] tsc: Refined TSC\n", ""),
    "wrong size": (" 69632 ", " 69633 ", "sizes: 1 areas"),
    "another order of words": (" pages=4 vmalloc", " vmalloc pages=4", "shape: 2 lines"),
    "after: a lost mapping": (".*ioremap.*\n", "", "fixed mappings: 1 lost"),
    "a lost stack": (".*806f0000.*\n", "", "stacks: 1 stacks for 2 tasks"),
    "after: cut off": ("vmallocinfo: end after\n", "", "after: complete"),
    "after: no second snapshot": ("(?s).*", "", "after: snapshot"),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_sweep(name):
    """Cases and workers of test_vmalloc are counted."""
    pattern, new, threads, mask, totals = SWEEPS[name]
    result = Result(quiet=True)
    judge(re.sub(pattern, new, SWEEP).split("\n") if pattern else SWEEP.split("\n"), threads, mask, result)
    assert result.totals() == totals


def info_log(path, name):
    """Write the two snapshots, changed as that entry of INFOS says."""
    pattern, new, _ = INFOS[name]
    before, after = SNAPSHOT.replace("WHEN", "before"), SNAPSHOT.replace("WHEN", "after")
    if not name.startswith("after"):
        before = re.sub(pattern, new, before)
    path.write_text((before + re.sub(pattern, new, after)).replace("\n", "\r\n"))
    return str(path)


def info_failures(*logs):
    """Return the failures of the judge of /proc/vmallocinfo."""
    result = Result(quiet=True)
    lines = []
    result.show = lines.append
    judge_info(result, logs, with_fixed=True)
    return [line for line in lines if "FAIL" in line]


@pytest.mark.parametrize("name", INFOS)
def test_vmallocinfo(tmp_path, name):
    """A change of the snapshots is the only failure."""
    wanted = INFOS[name][2]
    failures = info_failures(info_log(tmp_path / "info", name))
    assert bool(failures) == bool(wanted) and wanted in "".join(failures)


def test_two_good_logs(tmp_path):
    """Equal shapes of both allocators pass."""
    assert not info_failures(info_log(tmp_path / "a", "good"), info_log(tmp_path / "b", "good"))


def test_another_shape(tmp_path):
    """A shape that one allocator lacks fails."""
    (tmp_path / "b").write_text((SNAPSHOT.replace("WHEN",
                                                  "before") + SNAPSHOT.replace("WHEN", "after")).replace(" phys=0x0000000008000000", ""))
    assert "only in" in "".join(info_failures(info_log(tmp_path / "a", "good"), str(tmp_path / "b")))


def test_checks_of_a_guest(tmp_path):
    """Reported checks are counted; one without a report fails."""
    (tmp_path / "log").write_text("user load: ok areas 3 areas\r\nuser load: FAIL forks 0 processes\r\nuser load: skip hotplug one CPU\r\n")
    result = Result(quiet=True)
    guest.count_checks(result, "rust", "user load", tmp_path / "log", ["areas", "forks", "hotplug", "modules", "area"])
    assert result.totals() == "1 passed, 3 failed, 1 skipped" and result.failures == ["rust forks", "rust modules", "rust area"]


@pytest.mark.parametrize("text, totals", [
    ("a\n3 passed, 0 failed\n", (3, 0, 0)), ("1 passed, 0 failed\n2 passed, 1 failed, 4 skipped\nlog", (2, 1, 4)),
    ("13 passed, 0 failed of 14", None), ("", None)])
def test_totals(text, totals):
    """The last line of that shape counts, and no other."""
    assert read_totals(text) == totals


@pytest.mark.parametrize("text, code, counts", [
    ("3 passed, 0 failed", 0, (3, 0, 0)), ("3 passed, 1 failed", 1, (3, 1, 0)), ("3 passed, 0 failed", 1, (3, 1, 0)),
    ("crashed", 1, (0, 1, 0)), ("crashed", 0, (0, 1, 0)), ("0 passed, 0 failed", 0, (0, 1, 0)),
    ("no herd7", 4, (0, 0, 1)),
    ("0 passed, 0 failed, 3 skipped", 0, (0, 0, 3))])
def test_counts_of_a_suite(text, code, counts):
    """An exit code that contradicts the counts, and a suite without a test, are failures."""
    assert suites.counts(text, code) == counts


@pytest.mark.parametrize("rbtree, rust, same", [
    ("pass, ok 3", "pass, ok 3", True), ("pass, ok 3", "pass, ok 2", False), ("skip", "skip", None),
    ("skip", "pass", False),
    ("timeout, ok 1", "pass", None), ("not in this kernel", "not in this kernel", None),
    ("not reported", "not reported", False)])
def test_same_results_of_peers(rbtree, rust, same):
    """Equal results pass; what was skipped or is too slow cannot be compared; two results that are missing are no
    success."""
    assert peers.same(rbtree, rust) is same


def test_best_of_the_boots_of_kasan(tmp_path):
    """A case counts with the best of its boots."""
    for number, text in enumerate(("    not ok 1 vmalloc_oob\n    ok 2 a # SKIP no\n    not ok 3 b",
                                   "    ok 1 vmalloc_oob\n    ok 2 a # SKIP no\n    not ok 3 b")):
        (tmp_path / str(number)).write_text(f"[    0.1] {text}\n".replace("\n    ", "\n[    0.1]     "))
    assert kasan.read_cases([tmp_path / "0", tmp_path / "1"]) == {"vmalloc_oob": "ok", "a": "skipped", "b": "not_ok"}
