# SPDX-License-Identifier: GPL-2.0
"""What reads the results of a guest: test_vmalloc, /proc/vmallocinfo, checks of a load, totals."""

import re

import pytest

from harness import console, suites
from harness.result import Result, read_totals
from harness.scenarios import same
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
INFO = """0xffff800080000000-0xffff8000803d0000 3997696 declare_kernel_vmas+0x34/0xb4 phys=0x0000000040200000 vmap
0xffff8000806d0000-0xffff8000806e1000   69632 __ioremap_prot+0x88/0x10c phys=0x0000000008000000 ioremap
0xffff8000806e8000-0xffff8000806ed000   20480 copy_process+0x1e8/0xd3c pages=4 vmalloc
0xffff8000806f0000-0xffff8000806f5000   20480 copy_process+0x1e8/0xd3c pages=4 vmalloc
0xffff8000806f8000-0xffff8000806fd000   20480 unpurged vm_area
0xffff800080700000-0xffff800080702000    8192 vm_map_ram
"""
MAP = """vmap_rust map 1 page 4096 home 0xffff800080000000-0xffff8000c0000000
0xffff800080000000-0xffff800080005000 area busy
0xffff800080200000-0xffff800080400000 block changing
"""
# An expression and what replaces it in the files of each moment, of those of "after" if the name begins with "after";
# the only failure.
INFOS = {
    "good": ("$^", "", ""),
    "overlap": ("0xffff8000806ed000   20480", "0xffff8000806f1000   36864", "overlap: 0xffff8000806e8000-"),
    "an area twice": ("(.*806f0000.*)", r"\1\n\1", "overlap: 0xffff8000806f0000-"),
    "freed while the file is read": ("((.*806f0000.* )copy_process.*)", r"\1\n\2unpurged vm_area", ""),
    "unpurged twice": ("(.*806f8000.*)", r"\1\n\1", "overlap: 0xffff8000806f8000-"),
    "wrong size": (" 69632 ", " 69633 ", "lines: vmallocinfo: line 2"),
    "half a page": ("0xffff8000806e1000   69632", "0xffff8000806e0800   67584", "lines: unknown shape"),
    "another order of words": (" pages=4 vmalloc", " vmalloc pages=4", "lines: unknown shape"),
    "a map that goes back": ("80200000-0xffff800080400000", "80000000-0xffff800080400000",
                             "lines: map: 0xffff800080000000 is not above"),
    "a map with another state": ("area busy", "area gone", "lines: map: line 2"),
    "after: a lost mapping": (".*ioremap.*\n", "", "fixed mappings: lost: 0xffff8000806d0000"),
    "a lost stack": (".*806f0000.*\n", "", "stacks: 1 stacks for 2 tasks"),
}
# The same for the log.
LOGS = {
    "a message at the end of a line": (r"(vmallocinfo.*ioremap \|)", r"\1[    1.762081] tsc: Refined TSC", ""),
    "a message in the middle of a line": ("(vmallocinfo.*69632)", r"\1[   12.762081] tsc: Refined TSC\n", ""),
    "cut off": ("(?s)806f0000.*file loaded vmallocinfo:", "file loaded vmallocinfo:",
                "before: lines: a line is missing"),
    "no second snapshot": ("file after vmallocinfo.*\n", "", "after: lines: a line is missing"),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_sweep(name):
    """Cases and workers of test_vmalloc are counted."""
    pattern, new, threads, mask, totals = SWEEPS[name]
    result = Result(quiet=True)
    judge(re.sub(pattern, new, SWEEP).split("\n") if pattern else SWEEP.split("\n"), threads, mask, result)
    assert result.totals() == totals


def info_log(path, pattern="$^", new="", after_only=False):
    """Write a log with the files of three moments, changed by an expression."""
    text = ""
    for when in ("before", "loaded", "after"):
        for name, content in (("vmallocinfo", INFO), ("tasks", "2 1\n"), ("map", MAP)):
            content = content if after_only and when != "after" else re.sub(pattern, new, content)
            lines = content.splitlines()
            text += f"file {when} {name}: {len(lines)} lines\n"
            text += "".join(f"file {when} {name}| {line} |\n" for line in lines)
    path.write_text(text.replace("\n", "\r\n"))
    return str(path)


def info_failures(*logs):
    """Return the failures of the judge of /proc/vmallocinfo."""
    result = Result(quiet=True)
    judge_info(result, logs, with_fixed=True)
    return result.lines if result.failed == len(result.lines) else ["another number of failures"]


@pytest.fixture(name="failures")
def printed_failures(monkeypatch):
    """Keep lines that contain FAIL."""
    monkeypatch.setattr(Result, "show", lambda self, text: self.lines.append(text) if "FAIL" in text else None)


@pytest.mark.parametrize("name", INFOS)
@pytest.mark.usefixtures("failures")
def test_vmallocinfo(tmp_path, name):
    """A change of a file is the only kind of failure."""
    pattern, new, wanted = INFOS[name]
    failures = info_failures(info_log(tmp_path / "info", pattern, new, name.startswith("after")))
    assert bool(failures) == bool(wanted) and all(wanted in line for line in failures), failures


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.usefixtures("failures")
def test_files_of_a_log(tmp_path, name):
    """Kernel messages are no part of a file; a file that is not whole is missing."""
    pattern, new, wanted = LOGS[name]
    path = info_log(tmp_path / "info")
    with open(path, encoding="utf-8", newline="") as log:
        text = log.read().replace("\r", "")
    (tmp_path / "info").write_text(re.sub(pattern, new, text))
    failures = info_failures(path)
    assert bool(failures) == bool(wanted) and wanted in "".join(failures), failures


@pytest.mark.usefixtures("failures")
def test_two_logs(tmp_path):
    """Equal shapes of both allocators pass; a shape that one lacks fails."""
    good = info_log(tmp_path / "a")
    assert not info_failures(good, info_log(tmp_path / "b"))
    assert "only in" in "".join(info_failures(good, info_log(tmp_path / "b", " phys=0x0000000008000000", "")))


def test_checks_of_a_guest(tmp_path):
    """Reported checks are counted; one without a report fails."""
    (tmp_path / "log").write_text("guest: ok areas 3 areas\r\nguest: FAIL forks 0 processes\r\n"
                                  "guest: skip hotplug one CPU\r\n")
    result = Result(quiet=True)
    console.count_checks(result, "rust", tmp_path / "log", ["areas", "forks", "hotplug", "modules", "area"])
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


@pytest.mark.parametrize("rbtree, rust, equal", [
    ("pass, ok 3", "pass, ok 3", True), ("pass, ok 3", "pass, ok 2", False), ("skip", "skip", None),
    ("skip", "pass", False), ("fail(1), ok 2", "fail(1), ok 2", True),
    ("timeout, ok 1", "pass", None), ("skip, not in this kernel", "skip, not in this kernel", None),
    ("fail, not reported", "fail, not reported", False), ("fail, no result: x", "fail, no result: x", False)])
def test_same_results(rbtree, rust, equal):
    """Equal results pass; what was skipped or is too slow cannot be compared; two results that are missing are no
    success."""
    assert same.same(rbtree, rust) is equal


def test_results_of_a_log(tmp_path):
    """Lines of the guest, cases of KUnit, and what ended the guest after its end."""
    (tmp_path / "log").write_text("result: gup_test-u pass, ok 1\r\n[    0.1]     1..3\r\n"
                                  "[    0.1]     not ok 1 vmalloc_oob\r\n[    0.1]     ok 2 a # SKIP no\r\n"
                                  "Oops: before the end\r\nguest: done\r\nresult: EXHAUST_STACK fail, not reported\r\n"
                                  "[  1.0] BUG: IRQ stack guard page was hit at 0x12\r\n[  1.0] Kernel panic: x\r\n")
    assert same.read_results(tmp_path / "log") == {"gup_test-u": "pass, ok 1", "vmalloc_oob": "fail", "a": "skip",
                                                   "KUnit": "fail, no result of 1 cases",
                                                   "EXHAUST_STACK": "BUG: IRQ stack guard page was hit;Kernel panic: x"}
