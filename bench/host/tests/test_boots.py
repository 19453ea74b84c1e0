# SPDX-License-Identifier: GPL-2.0
"""What reads guests and plans boots."""

import re

import pytest

from bench.host import boot, build, counts, lines, plan as plans

START = "[    0.1] vmap_bench: start format=1 allocator=rust release=7.3.4 cpus=1 page_size=4096 scale=100 seed=1\n"
PAIR = ("[    0.2] vmap_bench: result case=area_pair threads=1 metric=cost unit=mns value=2003500 min=2001000 "
        "max=2010000 passes=5 ops=20000\n")
END = "[    0.3] vmap_bench: end failed=0\n"
SUMMARY = "Summary: {}_test passed: {} failed: {} xfailed: {} repeat: 1 loops: 100 avg: {} usec\n"
HIST = "vmap_bench: hist case=purge_latency threads=2 metric=alloc unit=ns buckets={}\n"
SETS = plans.quick(2) + plans.full(2) + plans.figures(2)


# What a guest prints.

def test_result():
    """Thousandths become nanoseconds. The kernel's command line, which names the benchmark too, is no result."""
    guest = lines.Guest(START + PAIR + END)
    assert guest.results == [{"case": "area_pair", "metric": "cost", "unit": "ns", "threads": 1, "value": 2003.5,
                              "min": 2001.0, "max": 2010.0, "passes": 5, "ops": 20000}]
    assert guest.ended and guest.last == "area_pair"
    assert lines.Guest("Kernel command line: vmap_bench.run=area_pair\n" + START + END).results == []
    # A guest that stopped in the middle has not ended.
    assert not lines.Guest(START + PAIR).ended


def test_skip_and_error():
    """Both keep their reasons; an error of all says that the guest refused."""
    guest = lines.Guest(START + "vmap_bench: skip case=cross_cpu threads=1 reason=needs 2 workers or more\n"
                        "vmap_bench: error: case=burst_order threads=2: -ENOMEM\n"
                        "vmap_bench: error: case=whole_api threads=2: vmap at 0xffff: found 0x0, expected 0x1\n" + END)
    assert guest.skips == [{"case": "cross_cpu", "threads": 1, "reason": "needs 2 workers or more"}]
    assert guest.errors == [
        {"case": "burst_order", "threads": 2, "reason": "failed: -ENOMEM"},
        {"case": "whole_api", "threads": 2, "reason": "failed: vmap at 0xffff: found 0x0, expected 0x1"}]
    assert guest.refused is None
    refused = lines.Guest('vmap_bench: error: unknown case "foo" in run=; run=list prints them\n')
    assert 'unknown case "foo"' in refused.refused


def test_lines_that_belong_together():
    """The parts of a histogram; a line that the kernel prints again, as another CPU took the console from it."""
    guest = lines.Guest(START + HIST.format("16:3,17:4") + HIST.format("32:1") + END)
    assert [hist["buckets"] for hist in guest.hists] == [[[16, 3], [17, 4], [32, 1]]]
    guest = lines.Guest(START + PAIR[:-30] + "\n** replaying previous printk message **\n" + PAIR + END)
    assert [result["value"] for result in guest.results] == [2003.5]


@pytest.mark.parametrize("text", [
    "vmap_bench: result case=x threads=1\n", "vmap_bench: start format=9 allocator=rust\n", HIST.format("1:2:3,x")])
def test_other_lines(text):
    """Lines of no known form are refused, not guessed at."""
    with pytest.raises(lines.Broken):
        lines.Guest(text)


def sweep(*workers, threads, end="vmap_bench: guest end\n"):
    """What a guest prints that ran the first two tests of test_vmalloc. workers: times, or one time and a failure."""
    return (f"vmap_bench: sweep threads={threads} mask=0x3 loops=100\n" + "".join(workers)
            + "".join(f"All test took worker{i}=123 cycles\n" for i in range(threads)) + end)


def both(usec):
    """What a worker prints that passed both tests."""
    return "".join(SUMMARY.format(case, 1, 0, 0, usec) for case in ("fix_size_alloc", "full_fit_alloc"))


def test_sweep():
    """The mean of the workers counts."""
    guest = lines.Guest(sweep(both(10), both(30), threads=2))
    assert [(r["case"], r["metric"], r["threads"], r["value"]) for r in guest.results] == [
        ("test:fix_size_alloc", "loops_100", 2, 20000), ("test:full_fit_alloc", "loops_100", 2, 20000)]
    assert guest.guest_ended


def test_sweep_that_failed():
    """A test that failed in one worker, or did not report, has no time."""
    guest = lines.Guest(sweep(both(10), SUMMARY.format("fix_size_alloc", 0, 1, 0, 10), threads=2))
    assert guest.results == []
    assert [error["case"] for error in guest.errors] == ["test:fix_size_alloc", "test:full_fit_alloc"]


def test_warm_up_does_not_count():
    """A run that comes before the one that is measured."""
    warm_up = f"vmap_bench: warm-up\n{SUMMARY.format('fix_size_alloc', 1, 0, 0, 999)}All test took worker0=9 cycles\n"
    guest = lines.Guest(warm_up + sweep(both(10), threads=1, end="") + warm_up + sweep(both(10), threads=1))
    assert [result["value"] for result in guest.results] == [10000] * 4 and guest.errors == []


# What the plugin of QEMU writes.

class Functions:
    """Symbols of a kernel that nobody has built."""

    def name(self, addr):
        """One function for each 256 bytes."""
        return ("space", "pool", "other", "flush_tlb_kernel_range", "asm_sysvec_call_function")[addr // 256]

    def part(self, name):
        """The part of the kernel."""
        return {"space": "allocator", "pool": "allocator"}.get(name, counts.REST)


COUNTS = ("window 0 area_pair cost 100 5\ncpu 0 0 1500 1500\nflush 0 3\nblock 0 10 5 1 0 2 0 200\n"
          "block 0 20 2 0 1 0 0 100\nblock 0 210 3 0 0 0 1 100\nhold 0 ff00 24 10 900 400 0\n"
          "hold 0 ff00 148 1 500 500 1\nhold 0 aa00 148 1 70 70 0\nhold 0 bb00 224 1 9000 9000 0\nend\n")


def read(folder, text):
    """The windows of a file with that text."""
    (folder / "counts").write_text(text)
    return counts.read(folder / "counts", Functions())


def test_sums(tmp_path):
    """Blocks are summed up by function."""
    window, = read(tmp_path, COUNTS)
    space = window.functions["space"]
    assert (window.case, window.part, window.ops, window.passes) == ("area_pair", "cost", 100, 5)
    assert [space[name] for name in counts.COSTS] == [1200, 200, 100, 400, 0]
    assert (window.total["insns"], window.total["tlbi"]) == (1500, 100)


@pytest.mark.parametrize("instrument, text, figures", [
    # A lock under which the maple tree was worked on is its lock, in all functions that take it; locks of others do
    # not count.
    ("holds", COUNTS, {"longest_hold": 500, "tree_hold": 500, "other_hold": 70}),
    # On arm64 runs of TLBI instructions, on x86_64 calls and interrupts, for 1,000 operations.
    ("flushes", COUNTS, {"flushes": 30, "tlbi": 1000}),
    ("interrupts", COUNTS.replace("flush 0 3\n", "flush 0 0\ncall 0 300 2\ncall 0 400 6\n"),
     {"flushes": 20, "interrupts": 60})])
def test_figures(tmp_path, instrument, text, figures):
    """What an instrument reports of the counts."""
    found = counts.results(read(tmp_path, text), instrument, Functions(), 1)
    assert {result["metric"]: result["value"] for result in found} == figures


@pytest.mark.parametrize("text", ["", COUNTS[:-4], COUNTS.replace("block 0 10 5", "block 0 10 x"),
                                  COUNTS.replace("cpu 0", "cpu 1"), COUNTS.replace("hold", "held")])
def test_broken_counts(tmp_path, text):
    """A file that is cut off or has another form is refused, not guessed at."""
    with pytest.raises(counts.Bad):
        read(tmp_path, text)


# How boots are made and judged.

@pytest.mark.parametrize("code, output, text, expected", [
    (0, "PASS\n", START + PAIR + END, "ok"),
    (0, "PASS\n", START + PAIR, "died: the benchmark did not come to its end after area_pair"),
    (1, "FAIL the emulator ended with exit code 137\n", START + PAIR,
     "died: the emulator ended with exit code 137 after area_pair"),
    (1, "FAIL timeout: the guest was still running after 9 s and was ended\n", START,
     "timeout: the guest was still running after 9 s and was ended"),
    (1, "FAIL kasan: line 3: BUG: KASAN: x\n", START + PAIR + END, "failed: kasan: line 3: BUG: KASAN: x"),
    (1, "FAIL x\n", "vmap_bench: error: threads=0: each must\n", "refused: threads=0: each must")])
def test_status(code, output, text, expected):
    """Why a boot does not count, in one line."""
    assert boot.status_of(plans.Plan("p", "icount", 1, 1, "area_pair"), code, output, lines.Guest(text)) == expected


def test_command_has_no_folder():
    """What is stored names no folder of this machine."""
    for one in SETS:
        shown = boot.shown(boot.arguments(one, "rust", 1, plans.INSTRUMENTS[one.instrument].kernel,
                                          "/cache/x/initramfs.cpio", "/cache/log/a.log",
                                          lambda _, out: f"{build.PLUGIN},out={out}"))
        assert not re.search(r"(^|[\s\"=])/", shown) and shown.startswith("scripts/run boot ")


def test_seed_is_handed_on():
    """To the guest's random numbers and to the benchmark's."""
    command = boot.arguments(plans.Plan("p", "icount", 1, 1, "area_pair"), "rust", 77, "arm64-bench", None, "x.log")
    assert "vmap_bench.seed=77" in " ".join(command) and command[command.index("--seed") + 1] == "77"


# The sets.

def test_rows_do_not_mix():
    """No two plans of an instrument have the same case, CPUs and threads."""
    for made in (plans.quick(2), plans.full(2), plans.figures(2)):
        seen = set()
        for one in made:
            keys = {(one.instrument, one.cpus, case, threads)
                    for case in one.run.split(",") if case for threads in one.threads}
            if not one.page_tables:
                keys |= {(one.instrument, one.cpus, "test", point) for point in one.sweep}
            assert not seen & keys, one
            seen |= keys


def test_enough_boots_and_cpus():
    """Each plan has the boots that a verdict needs, and a CPU for each worker, but in test_vmalloc."""
    for one in SETS:
        assert one.repetitions >= (15 if one.instrument in ("wall", "uml", "kvm") else 5), one
    for cpus in (1, 2, 8):
        for one in plans.quick(cpus) + plans.full(cpus) + plans.figures(cpus):
            assert max(one.threads) <= one.cpus, one


def test_selected():
    """Cases replace those of the plans; memory runs by itself."""
    some = plans.selected(plans.quick(2), ["icount"], ["area_pair"])
    assert {p.run for p in some} == {"area_pair"} and not any(p.sweep for p in some)
    assert [p.name for p in plans.selected(plans.quick(2), None, ["memory"])] == ["memory"]
