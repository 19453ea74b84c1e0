# SPDX-License-Identifier: GPL-2.0
"""How many checks a scenario counts, with guests that are replaced by what they would print. No kernel is needed."""

import argparse
import importlib
import os
import re

import pytest

from harness import guest, kernels, matrix, run, soak
from harness.result import Result
from harness.scenarios import inject, kasan, load, peers, stress

CHECK = "--append vmap_rust.check=1"
INJECT = "FAILSLAB FAIL_PAGE_ALLOC FAULT_INJECTION_DEBUG_FS VMAP_RUST_DEBUG "
LOAD = "PROC_KCORE HOTPLUG_CPU VMAP_RUST_DEBUG "
# The command, the options of the kernel that are "y" or "m", and what passes when the guest reports that each check is
# well.
COUNTS = {
    "inject, no module": ("inject arm64-16k " + CHECK, INJECT + "DEBUG_KMEMLEAK", "", "34 passed, 0 failed"),
    "inject, test_vmalloc is a module": ("inject x86_64-user " + CHECK, INJECT, "TEST_VMALLOC", "42 passed, 0 failed"),
    "inject, rb-trees": ("inject x86_64-user --allocator rbtree", INJECT, "TEST_VMALLOC", "16 passed, 0 failed"),
    "stress": ("stress --allocator rust " + CHECK, "", "", "23 passed, 0 failed"),
    "stress, both": ("stress", "", "", "43 passed, 0 failed"),
    "load": ("load arm64 --allocator rust " + CHECK, LOAD + "PTDUMP_DEBUGFS", "", "20 passed, 0 failed"),
    "load, one CPU": ("load x86_64-up --allocator rust --cpus 1", "PROC_KCORE", "", "15 passed, 0 failed"),
    "load, leaks": ("load arm64-16k --allocator rbtree", LOAD + "DEBUG_KMEMLEAK", "VMAP_RUST_LEAK_TEST",
                    "16 passed, 0 failed"),
}


@pytest.fixture(name="start")
def start_with_stub(tmp_path, monkeypatch):
    """Return a function that runs a scenario whose guests print what the function says gives; every check, if it is
    None."""
    def start(command, yes="", module="", text=None):
        words = command.split()
        scenario, args = run.parse(words)
        monkeypatch.setattr(kernels, "CACHE", tmp_path)
        monkeypatch.setattr(guest, "LOGS", tmp_path)
        monkeypatch.setattr(importlib.import_module(scenario.__name__), "LOGS", tmp_path, raising=False)
        args.kernel.folder.mkdir(parents=True)
        (args.kernel.folder / ".config").write_text("".join(f"CONFIG_{x}=y\n"
                                                            for x in yes.split()) + "".join(f"CONFIG_{x}=m\n" for x in module.split()))
        (args.kernel.folder / "mm/kasan").mkdir(parents=True)
        (args.kernel.folder / "mm/kasan/kasan_test.ko").touch()
        for name in ("make_busybox", "make_guest_image", "build_selftests"):
            monkeypatch.setattr(scenario, name, lambda *words: "initramfs", raising=False)
        monkeypatch.setattr(load, "judge", lambda *words, **more: None)

        def boot(one):
            with open(one.log, "w", encoding="utf-8") as log:
                log.write(text(one) if text else "")
            return []

        def checks(result, allocator, prefix, log, names):
            assert len(set(names)) == len(names)
            with open(log, "w", encoding="utf-8") as file:
                file.write("".join(f"{prefix}: ok {name} well\r\n" for name in names))
            counted(result, allocator, prefix, log, names)

        counted = guest.count_checks
        monkeypatch.setattr(guest.Boot, "run", boot)
        if not text:
            monkeypatch.setattr(scenario, "count_checks", checks)
        result = Result(quiet=True)
        scenario.run(args, result)
        return result
    return start


@pytest.mark.parametrize("name", COUNTS)
def test_count(start, name):
    """Each check that the options of the kernel call for is counted once."""
    command, yes, module, totals = COUNTS[name]
    assert start(command, yes, module).totals() == totals


@pytest.mark.parametrize("command, yes",
                         [("inject x86_64-user", INJECT), ("stress --allocator rust", ""),
                          ("load arm64 --allocator rust", LOAD)])
def test_silent_guest(start, command, yes):
    """A guest that reports nothing passes the verdict of its log only."""
    result = start(command, yes, text=lambda boot: "nothing\n")
    assert result.passed == 1 and result.failed > 9


def test_kasan(start):
    """The best of three boots counts with tags, and a difference fails."""
    def text(boot):
        bad = boot.expected.allocator == "rust" or boot.log.endswith("-1.log")
        return f"    {'not ' * bad}ok 1 vmalloc_oob\n    ok 2 kmalloc # SKIP no\n    ok 3 vmap_tags\n"
    result = start("kasan arm64-tags", "KASAN_HW_TAGS", text=text)
    assert result.totals() == "1 passed, 1 failed, 1 skipped" and result.failures == ["vmalloc_oob"] and len(result.logs) == 6


def test_peers(start):
    """Tests of two boots each are compared; the last case of lkdtm counts with what ended the guest; the checker is
    judged."""
    def text(boot):
        if os.path.basename(boot.log).startswith("peers"):
            good = "pass, ok 2" if boot.expected.allocator == "rbtree" else "fail(1), ok 2"
            return (f"peers: mremap_test {good}\r\npeers: gup_test-u pass, ok 1\r\nvalidate| ok: 3 busy\r\n"
                    "checker| compared 2000\r\nchecker| wrong    0  \r\npeers: done\r\n")
        return ("lkdtm: EXEC_STACK| lkdtm: bad\r\nlkdtm: EXEC_STACK| end\r\nlkdtm: EXEC_VMALLOC| not in this kernel\r\nvalidate| ok: 3 busy\r\n"
                "checker| compared 90\r\nchecker| wrong    0  \r\nlkdtm: done\r\n[  1.0] BUG: IRQ stack guard page was hit at 0x12\r\n")
    result = start("peers " + CHECK, "VMAP_RUST_DEBUG", text=text)
    # Four logs, gup_test, EXEC_STACK, EXHAUST_STACK and one checker pass; lkdtm compared too few answers.
    assert result.totals() == "8 passed, 2 failed, 1 skipped" and result.failures == ["mremap_test", "checker lkdtm"]


def samples(growth):
    """Return the lines of a soak of 4 minutes in which the areas grow."""
    return "vmap allocator: rust (mm/vmap_rust)\r\n" + "".join(f"soak: t={10 * i} MemFree=500000 Slab=1000 areas={100 + growth * i}\r\n" for i in range(24))


@pytest.mark.parametrize("growth, totals", [(0, "3 passed, 0 failed"), (5, "2 passed, 1 failed")])
def test_soak(tmp_path, growth, totals):
    """What stays flat passes, what grows fails."""
    (tmp_path / "log").write_text(samples(growth))
    result = Result(quiet=True)
    soak.judge_logs(result, [str(tmp_path / "log")], str(tmp_path / "soak.svg"))
    assert result.totals() == totals and re.search("<svg", (tmp_path / "soak.svg").read_text())


def test_soak_without_samples(tmp_path):
    """Too few samples fail."""
    (tmp_path / "log").write_text("vmap allocator: rust (mm/vmap_rust)\n")
    result = Result(quiet=True)
    soak.judge_logs(result, [str(tmp_path / "log")], str(tmp_path / "soak.svg"))
    assert result.totals() == "0 passed, 1 failed"


def test_scenarios_have_an_interface():
    """Each scenario has what harness/run.py calls."""
    found = {run.get(name) for name in run.names()}
    assert all(scenario.DEFAULTS and scenario.run and scenario.__doc__ for scenario in found)
    for name in run.names():
        with pytest.raises(SystemExit) as end:
            run.parse([name, "--help"])
        assert end.value.code == 0, name
    assert {inject, kasan, load, peers, stress} <= found


def test_row_of_a_tool(capsys):
    """A row of --full without columns of its own can be printed alone, and then is the only one."""
    args = argparse.Namespace(names=["soak"], table=True, again=False, list=False)
    matrix.main(args, None, False)
    rows = re.findall(r"^\W*([\w-]+) .* (?:\?|stale|\d+) ", capsys.readouterr().out, re.M)
    assert "soak" in rows and "arm64" not in rows
