# SPDX-License-Identifier: GPL-2.0
"""How many checks a scenario counts, with guests that are replaced by what they would print. No kernel is needed."""

import argparse
import os
import re
from pathlib import Path

import pytest

from harness import console, guest, kernels, run, samples
from harness.result import Result
from harness.scenarios import load, tools
from harness.settings import Refused
from harness.suites import matrix, rows

CHECK = "--append vmap_rust.check=1"
INJECT = "FAILSLAB FAIL_PAGE_ALLOC FAULT_INJECTION_DEBUG_FS VMAP_RUST_DEBUG "
LOAD = "PROC_KCORE HOTPLUG_CPU VMAP_RUST_DEBUG "
# The command, the options of the kernel that are "y" or "m", and what passes when the guest reports that each check is
# well.
COUNTS = {
    "inject, no module": ("inject arm64-16k " + CHECK, INJECT + "DEBUG_KMEMLEAK", "", "34 passed, 0 failed"),
    "inject, test_vmalloc is a module": ("inject x86_64-user " + CHECK, INJECT, "TEST_VMALLOC", "42 passed, 0 failed"),
    "inject, rb-trees": ("inject x86_64-user --allocator rbtree", INJECT, "TEST_VMALLOC", "16 passed, 0 failed"),
    "stress": ("stress --allocator rust " + CHECK, "VMAP_RUST_DEBUG", "", "21 passed, 0 failed"),
    "stress, both": ("stress", "VMAP_RUST_DEBUG", "", "39 passed, 0 failed"),
    "load": ("load arm64 --allocator rust " + CHECK, LOAD + "PTDUMP_DEBUGFS", "", "12 passed, 0 failed"),
    "load, one CPU": ("load x86_64-up --allocator rust --cpus 1", "PROC_KCORE", "", "7 passed, 0 failed"),
    "load, leaks": ("load arm64-16k --allocator rust", LOAD + "DEBUG_KMEMLEAK", "VMAP_RUST_LEAK_TEST",
                    "13 passed, 0 failed"),
    "load, leaks with the rb-trees": ("load arm64-16k --allocator rbtree", LOAD + "DEBUG_KMEMLEAK", "VMAP_RUST_LEAK_TEST",
                                      "10 passed, 0 failed"),
}


@pytest.fixture(name="start")
def start_with_stub(tmp_path, monkeypatch):
    """Return a function that runs a scenario whose guests print what the function says gives; every check, if it is
    None."""
    def start(command, yes="", module="", text=None):
        scenario, args = run.parse(command.split())
        monkeypatch.setattr(kernels, "BUILDS", tmp_path / "build")
        monkeypatch.setattr(guest, "LOGS", tmp_path)
        monkeypatch.setattr(scenario, "LOGS", tmp_path, raising=False)
        args.kernel.folder.mkdir(parents=True)
        options = [f"CONFIG_{name}={value}\n" for value, names in (("y", yes), ("m", module)) for name in names.split()]
        (args.kernel.folder / ".config").write_text("".join(options))
        for name in ("make_busybox", "make_guest_image", "build_selftests"):
            monkeypatch.setattr(scenario, name, lambda *words: "initramfs", raising=False)
        monkeypatch.setattr(load, "judge", lambda *words, **more: None)

        def boot(one):
            Path(one.log).write_text(text(one) if text else "")
            return []

        def checks(result, allocator, log, names):
            assert len(set(names)) == len(names)
            Path(log).write_text("".join(f"guest: ok {name} well\r\n" for name in names))
            console.count_checks(result, allocator, log, names)

        monkeypatch.setattr(guest.Boot, "run", boot)
        if not text:
            monkeypatch.setattr(guest, "count_checks", checks)
        result = Result()
        scenario.run(args, result)
        return result
    return start


@pytest.mark.parametrize("command, yes, module, totals", COUNTS.values(), ids=COUNTS)
def test_count(start, command, yes, module, totals):
    """Each check that the options of the kernel call for is counted once."""
    assert start(command, yes, module).totals() == totals


def test_kasan(start):
    """The best of three boots counts with tags; a difference fails, and so does a case without a result."""
    def text(boot):
        bad = boot.expected.allocator == "rust" or boot.log.endswith("-1.log")
        return f"    1..4\n    {'not ' * bad}ok 1 vmalloc_oob\n    ok 2 kmalloc # SKIP no\n    ok 3 vmap_tags\n"
    result = start("same arm64-tags", "KASAN_HW_TAGS", "KASAN_KUNIT_TEST", text=text)
    # The verdicts of six boots, and a case.
    assert result.totals() == "7 passed, 2 failed, 1 skipped" and result.failures == ["vmalloc_oob", "KUnit"]


@pytest.mark.parametrize("panics, passed, failures", [
    (("rbtree", "rust"), 10, ["rust lkdtm checker", "mremap_test"]),
    (("rust",), 9, ["rust lkdtm checker", "mremap_test", "EXHAUST_STACK"])])
def test_same(start, panics, passed, failures):
    """Tests of two boots each are compared; the last case of lkdtm counts with what ended the guest, but not with what
    came before that; checks are counted."""
    def text(boot):
        if os.path.basename(boot.log).startswith("selftests"):
            good = "pass, ok 2" if boot.expected.allocator == "rbtree" else "fail(1), ok 2"
            return (f"result: mremap_test {good}\r\nresult: gup_test-u pass, ok 1\r\nguest: ok validate ok: 3 busy\r\n"
                    "guest: ok checker 2000 compared\r\nguest: done\r\n")
        return ("result: EXEC_STACK lkdtm: bad\r\nresult: EXEC_VMALLOC skip, not in this kernel\r\n"
                f"Oops: before the end of {boot.expected.allocator}\r\nguest: ok validate ok: 3 busy\r\n"
                "guest: FAIL checker 90 compared\r\nguest: done\r\nresult: EXHAUST_STACK fail, not reported\r\n"
                "[  1.0] BUG: IRQ stack guard page was hit at 0x12\r\n"
                + "[  1.0] Kernel panic: x\r\n" * (boot.expected.allocator in panics))
    result = start("same x86_64-user " + CHECK, "VMAP_RUST_DEBUG", "TEST_BPF LKDTM", text=text)
    # Four logs, gup_test, EXEC_STACK, EXHAUST_STACK, two validate and one checker pass.
    assert result.totals() == f"{passed} passed, {len(failures)} failed, 1 skipped" and result.failures == failures


def test_same_without_tests(start):
    """A kernel without the modules is refused."""
    with pytest.raises(Refused, match="arm64 has none of these modules"):
        start("same arm64")


@pytest.mark.parametrize("growth, number, totals", [
    (0, 24, "4 passed, 0 failed"), (5, 24, "2 passed, 2 failed"), (0, 5, "0 passed, 1 failed")])
def test_samples(tmp_path, growth, number, totals):
    """What stays flat passes, what grows fails, and so do too few samples."""
    (tmp_path / "log").write_text("vmap allocator: rust (mm/vmap_rust)\r\n" + "".join(
        f"sample: t={10 * i} areas={100 + 10 * growth * i} stuck={growth * i} MemFree=500000 Slab=1000\r\n" for i in range(number)))
    found, result = samples.read_samples(tmp_path / "log"), Result()
    samples.judge(result, "rust", found)
    assert len(found) == number and result.totals() == totals
    samples.plot({"rust": found}, tmp_path / "soak.svg")
    assert re.search("<svg", (tmp_path / "soak.svg").read_text())


LIST = [f"0x{start:016x}-0x{start + 0x5000:016x}   20480 copy_process+0x1e8/0xd20 pages=4 vmalloc"
        for start in range(0xffffc90000000000, 0xffffc90000000000 + 310 * 0x8000, 0x8000)]
FIXED = "0xffffc90001000000-0xffffc90001002000    8192 ioremap_prot+0x88/0x10c phys=0x00000000fed00000 ioremap"
ALL = [*LIST, FIXED]
MORE = [*ALL, FIXED.replace("1002000", "1003000")]


@pytest.mark.parametrize("listed, moments, good", [
    (ALL, "early before", True), (LIST, "early before", False), (ALL[9:], "early", False), (ALL[8:], "early", True),
    (MORE, "early before", True), (MORE, "early", False), (ALL, "early missing", False)])
def test_areas_of_tools(listed, moments, good):
    """A list lacks no area but a few stacks, and has no others than those of one moment."""
    files = {"early": {"vmallocinfo": ALL}, "before": {"vmallocinfo": ALL}}
    assert (not tools.compare(listed, files, moments.split())) is good


@pytest.mark.parametrize("name", run.names())
def test_interface(name):
    """Each scenario has what harness/run.py calls."""
    scenario = run.get(name)
    assert scenario.DEFAULTS and scenario.run and scenario.__doc__
    with pytest.raises(SystemExit, match="0"):
        run.parse([name, "--help"])


def test_refused(start, tmp_path, monkeypatch):
    """Two boots with one log, a suite with the name of another one, and a scenario that lacks something are refused."""
    monkeypatch.setattr(run, "kept", str)
    for command, why in (("stress --log", "--log is for one boot"), ("same x86_64-user --log", "--log is for one boot")):
        with pytest.raises(Refused, match=why):
            start(f"{command} {tmp_path}/log")
    result, one = Result(), guest.Boot(kernels.get("arm64"), guest.Expected("rust"), log=tmp_path / "log")
    monkeypatch.setattr(guest, "boot_of", lambda *words: one)
    monkeypatch.setattr(guest.Boot, "run", lambda self: [])
    guest.boot(result, None)
    with pytest.raises(Refused, match="is the log of another boot of this run"):
        guest.boot(result, None)
    monkeypatch.setattr(load, "MAKE_TEST", {"host": (1, "arm64")})
    with pytest.raises(Refused, match='harness/scenarios/load.py: there is another suite "host"'):
        rows.guests()
    monkeypatch.delattr(load, "DEFAULTS")
    with pytest.raises(Refused, match="harness/scenarios/load.py has no DEFAULTS"):
        run.get("load")


def test_row_of_a_tool(capsys, monkeypatch):
    """A row of --full without columns of its own can be printed alone, and then is the only one."""
    # That needs the kernel tree.
    monkeypatch.setattr(matrix, "patched_files", lambda patches: b"")
    args = argparse.Namespace(names=["soak"], table=True, list=False)
    matrix.main(args)
    rows = re.findall(r"^\W*([\w-]+) .* (?:\?|stale|\d+) ", capsys.readouterr().out, re.M)
    assert "soak" in rows and "arm64" not in rows
