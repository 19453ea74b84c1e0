# SPDX-License-Identifier: GPL-2.0
"""What reads guests and plans boots."""

import pytest

from bench.host import boot, counts, guest_lines, plan as plans

START = "[    0.1] vmap_bench: start format=2 allocator=rust release=7.3.4 cpus=1 page_size=4096 scale=100 seed=1\n"
PAIR = ("[    0.2] vmap_bench: result case=area_pair threads=1 metric=cost unit=mns value=2003500 min=2001000 "
        "max=2010000 passes=5 ops=20000\n")
END = "[    0.3] vmap_bench: end failed=0\n"


def test_result():
    """Thousandths become nanoseconds. The kernel's command line, which names the benchmark too, is no result; nor is a
    line that the kernel prints again, as another CPU took the console from it."""
    guest = guest_lines.Guest("Kernel command line: vmap_bench.run=area_pair\n" + START + PAIR[:-30]
                        + "\n** replaying previous printk message **\n" + PAIR + END)
    assert guest.results == [{"case": "area_pair", "metric": "cost", "unit": "ns", "threads": 1, "value": 2003.5,
                              "min": 2001.0, "max": 2010.0, "passes": 5, "ops": 20000}]
    assert guest.ended and guest.last == "area_pair"


def test_skip_and_error():
    """Both keep their reasons; an error of all says that the guest refused."""
    guest = guest_lines.Guest(START + "vmap_bench: skip case=growth threads=2 reason=works with 1 workers at most\n"
                        "vmap_bench: error: case=mixed threads=2: -ENOMEM\n" + END)
    assert guest.skips == [{"case": "growth", "threads": 2, "reason": "works with 1 workers at most"}]
    assert guest.errors == [{"case": "mixed", "threads": 2, "reason": "failed: -ENOMEM"}]
    assert guest.refused is None
    assert 'unknown case "foo"' in guest_lines.Guest('vmap_bench: error: unknown case "foo" in run=\n').refused


@pytest.mark.parametrize("text", ["vmap_bench: result case=x threads=1\n", "vmap_bench: start format=9\n",
                                  "vmap_bench: skip case=x threads=1\n"])
def test_other_lines(text):
    """Lines of no known form are refused, not guessed at."""
    with pytest.raises(guest_lines.Broken):
        guest_lines.Guest(text)


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
    assert (window.case, window.part, window.ops, window.passes) == ("area_pair", "cost", 100, 5)
    assert [window.functions["space"][name] for name in counts.COSTS] == [1200, 200, 100, 400, 0]
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
    assert boot.status_of(code, output, guest_lines.Guest(text)) == expected


def test_seed_is_handed_on():
    """To the guest's random numbers and to the benchmark's."""
    command = boot.arguments(plans.Plan("p", "icount", 1, 1, "area_pair"), "rust", 77, "arm64-bench", "x.log")
    assert "vmap_bench.seed=77" in " ".join(command) and command[command.index("--seed") + 1] == "77"


@pytest.mark.parametrize("cpus", [1, 2, 8])
def test_sets(cpus):
    """Each plan has the boots that a verdict needs, a CPU for each worker, a name of its own, and known cases. No two
    of an instrument have the same case, CPUs and workers."""
    for made in (plans.figures(cpus) + plans.on_request(cpus), plans.sides(cpus)):
        seen = set()
        assert len({one.name for one in made}) == len(made)
        for one in made:
            assert one.repetitions >= (5 if plans.INSTRUMENTS[one.instrument].absolute else 15), one
            plans.case_list(one.run)
            assert one.instrument == "lines" or max(one.threads) <= one.cpus, one
            keys = {(one.instrument, one.cpus, case, threads) for case in one.run.split(",") for threads in one.threads}
            assert not seen & keys, one
            seen |= keys


def test_with_cases():
    """Cases replace those of the plans; memory runs by itself; cases of the emulator are not asked of a guest."""
    every = plans.figures(2)
    made = [(p.name, p.run) for p in plans.with_cases(every, ["area_pair"]) if p.instrument == "icount"]
    assert made == [(name, "area_pair") for name in ("cpus-1", "cpus-2", "cpus-8", "workers-8")]
    assert [p.name for p in plans.with_cases(every, ["memory"])] == ["memory"]
    assert {(p.instrument == "lines", p.run) for p in plans.with_cases(every, ["pair*", "area_pair"])} == {
        (True, "pair,pair_remote"), (False, "pair*,area_pair")}
