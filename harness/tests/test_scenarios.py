# SPDX-License-Identifier: GPL-2.0
"""What scenarios count, with guests that are replaced by what they would print. No kernel is needed."""

import argparse
import os
import re
from pathlib import Path

import pytest

from harness.boot import guest, kernels, run
from harness.machine.result import Result
from harness.boot.scenarios import demo, kunit, stress, tools

from test_readers import SWEEP


@pytest.fixture(name="start")
def start_with_stub(tmp_path, monkeypatch):
    """Return a function that runs a scenario whose guests print what the function text says."""
    def start(command, yes, module, text):
        scenario, args = run.parse(command.split())
        monkeypatch.setattr(kernels, "BUILDS", tmp_path / "build")
        args.logs = tmp_path
        args.kernel.folder.mkdir(parents=True)
        options = [f"CONFIG_{name}={value}\n" for value, names in (("y", yes), ("m", module)) for name in names.split()]
        (args.kernel.folder / ".config").write_text("".join(options))
        for name in ("make_busybox", "make_guest_image"):
            monkeypatch.setattr(scenario, name, lambda *words: "initramfs", raising=False)

        def boot(one, counted=None):
            Path(one.log).write_text(text(one))
            (counted or Result()).add(True, "boot")

        monkeypatch.setattr(guest.Boot, "run", boot)
        result = Result()
        scenario.run(args, result)
        return result
    return start


def failures(capsys):
    """Return the names of what was printed as failed."""
    return re.findall("^FAIL ([^:\n]+)", capsys.readouterr().out, re.M)


def test_kasan(start, capsys):
    """The best of three boots counts with tags; a difference fails, and so does a case without a result."""
    def text(boot):
        bad = boot.expected.allocator == "rust" or boot.log.endswith("-1.log")
        return f"    1..4\n    {'not ' if bad else ''}ok 1 vmalloc_oob\n    ok 2 kmalloc # SKIP no\n    ok 3 vmap_tags\n"
    result = start("same arm64-tags", "KASAN_HW_TAGS", "KASAN_KUNIT_TEST", text)
    # The verdicts of six boots, and a case.
    assert result.totals() == "7 passed, 2 failed, 1 skipped" and failures(capsys) == ["vmalloc_oob", "KUnit"]


def test_same(start, capsys):
    """Tests of two boots each are compared, and checks are counted. What was skipped in both cannot be compared; two results
    that are missing are no success."""
    def text(boot):
        if os.path.basename(boot.log).startswith("modules"):
            good = "pass, ok 2" if boot.expected.allocator == "rbtree" else "fail(1), ok 2"
            return (f"result: test_bpf {good}\r\nresult: test_maple_tree pass, ok 1\r\nguest: ok validate ok: 3 busy\r\n"
                    "guest: ok checker 2000 compared\r\nguest: done\r\n")
        return ("result: EXEC_STACK lkdtm: bad\r\nresult: EXEC_VMALLOC skip, not in this kernel\r\n"
                f"result: HUNG fail, no result: x\r\nresult: WX {'skip' if boot.expected.allocator == 'rust' else 'pass'}\r\n"
                "guest: ok validate ok: 3 busy\r\nguest: FAIL checker 90 compared\r\nguest: done\r\n")
    result = start("same x86_64-user --append vmap_rust.check=1", "VMAP_RUST_DEBUG", "TEST_BPF LKDTM", text)
    # Four logs, test_maple_tree, EXEC_STACK, two validate and one checker pass.
    assert result.totals() == "9 passed, 4 failed, 1 skipped"
    assert failures(capsys) == ["rust lkdtm checker", "test_bpf", "HUNG", "WX"]


@pytest.mark.parametrize("broken, own, totals", [
    ("root", "", "12 passed, 0 failed"), ("user", "", "10 passed, 1 failed"), ("", "BUG: of Rust", "11 passed, 1 failed"),
    ("", "vmap_rust: refused: a gap", "11 passed, 2 failed")])
def test_fuzz(start, capsys, broken, own, totals):
    """A guest that root breaks is booted again for the rest of the time; no other one may break. Reports are compared without
    numbers; what the allocator itself reports always fails."""
    boots = []

    def text(boot):
        part, seconds = re.search(r" FUZZ=(\w+) FUZZ_SECONDS=(\d+)", boot.append).groups()
        is_rust = boot.expected.allocator == "rust"
        answer = "WARNING: The mand mount option has been deprecated and" * is_rust
        lines = f"guest: 0 s\r\n{answer}\r\nWARNING: CPU: {len(boots)} at 0xffff8000{len(boots)}\r\nguest: 100 s\r\n"
        is_broken = part == broken and is_rust and not os.path.basename(boot.log).endswith("-2.log")
        if not is_broken:
            lines += f"guest: ok {part}-calls 9\r\nguest: ok validate ok\r\nguest: done\r\n"
        boots.append((part, int(seconds)))
        return lines + own * (is_rust and part == "stress")
    result = start("fuzz x86_64-user --minutes 10", "VMAP_RUST_DEBUG", "", text)
    assert result.totals() == totals, capsys.readouterr().out
    assert boots[:3] == [("user", 150), ("root", 150), ("stress", 300)] and (("root", 50) in boots) == (broken == "root")


@pytest.mark.parametrize("skipped, failed", [("", 0), ("area_4", 0), ("", 1)])
def test_demo(start, monkeypatch, capsys, skipped, failed):
    """It prints medians of two boots of each allocator, and which tests passed; a case without a figure is a failure."""
    def boot_all(jobs, _most):
        for _, side, allocator, repetition, *_ in jobs:
            yield {"allocator": allocator, "status": "ok", "skips": [], "results": [
                {"case": case, "metric": "cost", "value": {"a": 100, "b": 50}[side] + 10 * repetition}
                for case in demo.CASES if case != skipped]}
    monkeypatch.setattr(demo, "boot_all", boot_all)
    result = start("demo arm64", "", "", lambda one: SWEEP.replace("kvfree_rcu_1_arg_vmalloc_test passed: 1 failed: 0", (
        f"kvfree_rcu_1_arg_vmalloc_test passed: {1 - failed} failed: {failed}")))
    text = capsys.readouterr().out
    assert re.search(r"area_pair\W+115\W+65\W+0.57\W", text) and re.search(r"align_shift_alloc\W+expected failure", text)
    assert result.failed == 2 * failed + bool(skipped) and ("1 of 1 runs did not end" in text) == bool(failed)


@pytest.mark.parametrize("failed", [0, 1])
def test_demo_of_user_mode_linux(start, monkeypatch, capsys, failed):
    """Without instructions to count, it runs KUnit."""
    def read(log):
        bad = failed and log.endswith("-rust.log")
        case = argparse.Namespace(name="x", subtests=[], log=["why"], ok_status=lambda: not bad,
                                  status=argparse.Namespace(name="FAILURE" if bad else "SUCCESS"))
        suites = [argparse.Namespace(**{**vars(case), "name": name, "subtests": [case]}) for name in demo.kunit.SUITES]
        return argparse.Namespace(**{**vars(case), "subtests": suites, "counts": argparse.Namespace(
            passed=1000 - bad, failed=bad, crashed=0, errors=0, skipped=0)})
    monkeypatch.setattr(demo.kunit, "read", read)
    result, text = start("demo uml", "", "", lambda one: SWEEP), capsys.readouterr().out
    assert text.count("1000 cases passed") == 2 - failed and result.failed == failed
    assert ("[FAILED] x (rust)\n    why" in text) == bool(failed)


@pytest.mark.parametrize("growth, number, totals", [
    (0, 24, "9 passed, 0 failed"), (5, 24, "7 passed, 2 failed"), (0, 5, "0 passed, 1 failed")])
def test_soak(tmp_path, capsys, growth, number, totals):
    """What stays flat passes, what grows fails, and so do too few samples, and samples without one of the values."""
    values = "MemFree=500000 SUnreclaim=1000 PageTables=900 VmallocUsed=9000 lazy_pages=7 blocks=3"
    rounds = "".join(f"guest: round {i}: 9 programs, the slowest took {i}000 us\r\n" for i in range(1, 9))
    (tmp_path / "log").write_text(f"vmap allocator: rust (mm/vmap_rust)\r\n{rounds}" + "".join(
        f"sample: areas={100 + 10 * growth * i} stuck={growth * i} {values}\r\n"
        for i in range(number)))
    result = Result()
    stress.judge(result, "rust", tmp_path / "log")
    assert result.totals() == totals
    (tmp_path / "log").write_text((tmp_path / "log").read_text().replace(" blocks=3", "", 1))
    stress.judge(result, "rust", tmp_path / "log")
    assert number < 24 or failures(capsys)[-1] == "rust blocks"


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


@pytest.mark.parametrize("kernel, cpus, wrong", [
    ("arm64", 2, ["vmap_node.cpus"]), ("arm64", 1, []), ("uml", 2, []), ("arm64-debug", 2, ["vmap_fail_each.vmap_tables"])])
def test_skipped_cases(kernel, cpus, wrong):
    """What arm64 skips, arm64-debug runs, and the reverse; suites of others may skip what they want."""
    def node(name, status, *subtests):
        return argparse.Namespace(name=name, status=argparse.Namespace(name=status), subtests=subtests)
    tests = node("", "SUCCESS", node("list", "SUCCESS", node("sort", "SKIPPED")),
                 node("vmap_fault", "SUCCESS", node("vmap_fail_each", "SUCCESS", node("vmap_tables", "SKIPPED"))),
                 node("vmap_node", "SUCCESS", node("cpus", "SKIPPED"), node("areas", "SUCCESS")))
    assert kunit.wrongly_skipped(tests, kernel, cpus) == wrong
