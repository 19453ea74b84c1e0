# SPDX-License-Identifier: GPL-2.0
"""What reads the results of a guest: test_vmalloc, /proc/vmallocinfo, checks of a load."""

import re

import pytest

from harness.boot import console
from harness.machine.result import Result
from harness.boot.scenarios.vmalloc import CASES, judge, show
from harness.boot.vmallocinfo import judge as judge_info

# All cases of test_vmalloc pass; align_shift_alloc is expected to fail.
SWEEP = "".join(f"[    0.726538] Summary: {name}_test passed: {int(name != 'align_shift_alloc')} failed: 0 "
                f"xfailed: {int(name == 'align_shift_alloc')} repeat: 1 loops: 1000 avg: 4914 usec\r\n"
                for name in CASES) + "[    0.726696] All test took worker0=29182096 cycles\r\n"
# An expression and what replaces it in SWEEP; workers and mask that are expected; the counts.
SWEEPS = {
    "good": ("$^", "", 1, 0x1fff, "13 passed, 0 failed"),
    "a failed case": ("(vrealloc.*)passed: 1 failed: 0", r"\1passed: 0 failed: 1", 1, 0x1fff, "12 passed, 1 failed"),
    "no_block must pass, although it may fail": ("(no_block.*)passed: 1 failed: 0 xfailed: 0",
                                                 r"\1passed: 0 failed: 0 xfailed: 1", 1, 0x1fff, "12 passed, 1 failed"),
    "align_shift must fail": ("(align_shift.*)passed: 0 failed: 0 xfailed: 1", r"\1passed: 1 failed: 0 xfailed: 0", 1,
                              0x1fff, "12 passed, 1 failed"),
    "a case is missing": (".*vm_map_ram.*\n", "", 1, 0x1fff, "12 passed, 1 failed"),
    "the worker did not end": (".*All test.*\n", "", 1, 0x1fff, "13 passed, 1 failed"),
    "a worker is missing": ("$^", "", 2, 0x1fff, "0 passed, 14 failed"),
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
# Where an expression is replaced, in the files from a moment on or in the log; it and its replacement; the only failure.
INFOS = {
    "good": ("before", "$^", "", ""),
    "overlap": ("before", "0xffff8000806ed000   20480", "0xffff8000806f1000   36864", "before: 0xffff8000806e8000 .* overlaps"),
    "freed while the file is read": ("before", "((.*806f0000.* )copy_process.*)", r"\1\n\2unpurged vm_area", ""),
    "wrong size": ("before", " 69632 ", " 69633 ", "vmallocinfo: line 2"),
    "another order of words": ("before", " pages=4 vmalloc", " vmalloc pages=4", "unknown shape"),
    "a map with another state": ("before", "area busy", "area gone", "map: line 2"),
    "a message in the middle of a line": ("log", "(vmallocinfo.*69632)", r"\1[   12.762081] tsc: Refined TSC\n", ""),
    "cut off": ("log", "(?s)806f0000.*file loaded vmallocinfo:", "file loaded vmallocinfo:",
                "before: a line is missing"),
    "no second snapshot": ("log", "file after vmallocinfo.*\n", "", "after: a line is missing"),
}


@pytest.mark.parametrize("pattern, new, threads, mask, totals", SWEEPS.values(), ids=SWEEPS)
def test_sweep(capsys, pattern, new, threads, mask, totals):
    """Cases and workers of test_vmalloc are counted, and are in the table, for one allocator or both."""
    result = Result()
    cases = judge(re.sub(pattern, new, SWEEP).split("\n"), threads, mask, result, "rust")
    assert result.totals() == totals
    for found in ({"rust": cases}, {"rbtree": {**cases, "full_fit_alloc": (2457, "pass", True)}, "rust": cases}):
        show("test_vmalloc", found)
        text = capsys.readouterr().out
        assert ("ratio" in text) == (len(found) == 2) and all(name in text for name in cases)
        assert ("rust FAIL" in text) == any(not good for _, _, good in cases.values())
        assert "2.00" in text or len(found) == 1 or not cases["full_fit_alloc"][0]


def info_log(pattern="$^", new="", first="before"):
    """Return a log with the files of three moments, changed by an expression from the first one on."""
    text, moments = "", ("before", "loaded", "after")
    for when in moments:
        for name, content in (("vmallocinfo", INFO), ("map", MAP)):
            changed = re.sub(pattern, new, content) if moments.index(when) >= moments.index(first) else content
            lines = changed.splitlines()
            text += "".join(f"{line}\n" for line in (f"file {when} {name}: {len(lines)} lines",
                                                     *(f"file {when} {name}| {line} |" for line in lines)))
    return text


@pytest.fixture(name="failures")
def failures_of_logs(tmp_path, capsys):
    """Return a function that judges /proc/vmallocinfo in logs and returns the lines that it prints about failures."""
    def failures(*texts):
        result = Result()
        for number, text in enumerate(texts):
            (tmp_path / f"log{number}").write_text(text.replace("\n", "\r\n"))
        judge_info(result, {number: tmp_path / f"log{number}" for number in range(len(texts))})
        found = [line for line in capsys.readouterr().out.splitlines() if "FAIL" in line]
        assert len(found) == result.failed
        return found
    return failures


@pytest.mark.parametrize("where, pattern, new, wanted", INFOS.values(), ids=INFOS)
def test_vmallocinfo(failures, where, pattern, new, wanted):
    """A change is the only kind of failure. Kernel messages are no part of a file; a file that is not whole is missing."""
    found = failures(re.sub(pattern, new, info_log()) if where == "log" else info_log(pattern, new, where))
    assert bool(found) == bool(wanted) and all(re.search(wanted, line) for line in found), found


def test_two_logs(failures):
    """Equal shapes of both allocators pass; a shape that one lacks fails."""
    assert not failures(info_log(), info_log())
    assert "same shapes" in "".join(failures(info_log(), info_log(" phys=0x0000000008000000")))


def test_checks_of_a_guest(tmp_path, capsys):
    """Reported checks are counted; one without a report fails."""
    (tmp_path / "log").write_text("guest: ok areas 3 areas\r\nguest: FAIL forks 0 processes\r\n"
                                  "guest: skip hotplug one CPU\r\n")
    result = Result()
    console.count_checks(result, "rust", tmp_path / "log", ["areas", "forks", "hotplug", "modules", "area"])
    assert result.totals() == "1 passed, 3 failed, 1 skipped"
    assert capsys.readouterr().out.split("\n") == [
        "ok rust areas: 3 areas", "FAIL rust forks: 0 processes", "skip rust hotplug: one CPU",
        "FAIL rust modules: not reported", "FAIL rust area: not reported", ""]
