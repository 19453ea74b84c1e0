# SPDX-License-Identifier: GPL-2.0
"""Reads what guests and the plugin of QEMU have written; without a boot."""

import pytest

from harness.bench import boots, counts, patches, plan as plans, programs
from harness.machine.settings import Refused

PAIR = ("[    0.2] vmap_bench: result case=area_pair threads=1 metric=cost unit=mns value=2003500 min=2001000 "
        "max=2010000 passes=5 ops=20000\n")


def test_lines():
    """Thousandths become nanoseconds. The kernel's command line is no result; nor is a line that the kernel prints
    again, as another CPU took the console from it. Skips and errors keep their reasons."""
    results, skips = boots.read(
        "Kernel command line: vmap_bench.run=area_pair\n" + PAIR[:-30]
        + "\n** replaying previous printk message **\n" + PAIR
        + "vmap_bench: skip case=growth threads=2 reason=works with 1 workers at most\n"
        "vmap_bench: error: case=mixed threads=2: -ENOMEM\nvmap_bench: end failed=0\n")
    assert results == [{"case": "area_pair", "metric": "cost", "unit": "ns", "threads": 1, "value": 2003.5,
                        "min": 2001.0, "max": 2010.0}]
    assert skips == [{"case": "growth", "threads": 2, "reason": "works with 1 workers at most"},
                     {"case": "mixed", "threads": 2, "reason": "failed: -ENOMEM"}]


@pytest.mark.parametrize("reasons, text, expected", [
    ([], PAIR, "ok"), (["the emulator ended with exit code 137", "x"], PAIR, "the emulator ended with exit code 137"),
    ([], "vmap_bench: result case=x threads=1\n", "cannot read this line of the guest: result case=x threads=1"),
    ([], "vmap_bench: skip case=x threads=1\n", "cannot read this line of the guest: skip case=x threads=1")])
def test_boot(monkeypatch, tmp_path, reasons, text, expected):
    """The record of a boot says in one line why it does not count; lines of no known form are not guessed at."""
    (tmp_path / "log").write_text(text)
    monkeypatch.setattr(boots.Boot, "run", lambda self: reasons)
    record = boots.boot((plans.QUICK[0], "a", "rust", 0, 77, "arm64-bench", f"{tmp_path}/log"))
    assert record["status"] == expected and len(record["results"]) == (expected == "ok")


class Functions:
    """Symbols of a kernel that nobody has built: a function for each 256 bytes."""

    def name(self, addr):
        """The function at an address."""
        return ("space", "pool", "other")[addr // 256]

    def part(self, name):
        """The part of the kernel."""
        return dict.fromkeys(("space", "pool"), "allocator in Rust").get(name, counts.REST)


COUNTS = ("window 0 area_pair cost 100 5\nflush 0 3\nsoftirq 0 700\nblock 0 10 5 1 0 2 0 200\n"
          "block 0 20 2 0 1 0 0 100\nblock 0 210 3 0 0 0 1 100\nhold 0 ff00 24 10 900 400\n"
          "hold 0 ff00 148 1 500 500\nhold 0 bb00 224 1 9000 9000\nturns 0 16\nmiss 0 10 1000 1 30 22\n"
          "miss 0 210 1038 0 20 0\nmiss 0 10 1040 0 10 5\nend\n")


@pytest.mark.parametrize("instrument, figures", [
    ("holds", {"longest_hold": 500}), ("latency", {"softirq": 700}), ("flushes", {"flushes": 30, "tlbi": 1000}),
    ("lines", {"misses": 0.6, "read_misses": 0.3, "write_misses": 0.3, "worst_line": 0.5})])
def test_counts(tmp_path, instrument, figures):
    """Blocks are summed up by function; what an instrument reports of them. Locks of others do not count."""
    (tmp_path / "log.counts").write_text(COUNTS)
    window, = counts.read(tmp_path / "log", Functions())
    assert (window.case, window.part, window.ops, window.passes) == ("area_pair", "cost", 100, 5)
    assert (window.fair_turns, window.fair_misses.total()) == (16, 27)
    assert [window.functions["space"][name] for name in counts.COSTS] == [1200, 200, 100, 400, 0]
    found = counts.results(tmp_path / "log", instrument, Functions(), 1)
    assert {result["metric"]: result["value"] for result in found} == pytest.approx(figures)


@pytest.mark.parametrize("text", ["", COUNTS[:-4], COUNTS.replace("block 0 10 5", "block 0 10 x"),
                                  COUNTS.replace("flush 0", "flush 1"), COUNTS.replace("hold", "held")])
def test_broken_counts(tmp_path, text):
    """A file that is cut off or has another form is refused, not guessed at."""
    (tmp_path / "log.counts").write_text(text)
    with pytest.raises(Refused):
        counts.read(tmp_path / "log", Functions())


def test_sets():
    """Each plan has the boots that a verdict needs, a CPU for each worker, a name of its own, and known cases."""
    for made in plans.SETS.values():
        assert len({one.name for one in made}) == len(made)
        for one in made:
            assert one.repetitions >= 5, one
            assert plans.case_list(one.run) and max(one.threads) <= one.cpus, one


def test_chosen_cases():
    """With --cases, the boots are those that such a case needs: its scale, and what runs before it."""
    def chosen(cases):
        return [(one.name, one.run) for one in plans.only_cases(plans.FIGURES, cases) if one.instrument in ("icount", "latency")]

    assert chosen("page_tables,latency_1") == [
        (name, "page_tables,latency_1") for name in ("cpus-1", "tables", "cpus-8", "workers-8", "latency-2", "latency-8")]
    assert chosen("area_pair") == [(name, "area_pair") for name in ("cpus-1", "cpus-2", "cpus-8", "workers-8")]


def test_patches():
    """All patches of all series are in order; a row has what the series and single patches change."""
    names = patches.patches()
    assert names[:2] == ["first 1", "first 2"] and names[-1].startswith("mapping ") and len(set(names)) == len(names)
    states = {count: {("x", "2x1"): 1000 if count < 2 else 500, ("same", "2x1"): 7} for count in range(len(names) + 1)}
    assert list(patches.patches_rows("arm64-bench", names, states)) == [
        ["arm64", "x", "2x1", "1,000 -> 500 (0.50)", "", "", "first 2 0.50"]]
    # Only whole series.
    states = {count: states[count] for count in patches.ends(names)}
    assert list(patches.patches_rows("x86_64-bench", names, states)) == [
        ["x86_64", "x", "2x1", "1,000 -> 500 (0.50)", "", "", ""]]


@pytest.mark.parametrize("console, totals, error", [
    ("program: bpf-array ops=10 areas=20\nprogram: unshare FAIL unshare: no room\n", "1000 end", "unshare: no room"),
    ("program: bpf-array ops=10 areas=20\n", "1000 2 end", "1 rows, but 2 pairs of marks"),
    ("program: bpf-array ops=10 areas=20\n", "1000", "1 rows, but 0 pairs of marks"),
    ("program: bpf-array ops=10 areas=20\nprogram: unshare ops=1 areas=0\n", "1000 77 end", "")])
def test_programs(tmp_path, console, totals, error):
    """A row that fails, and counts that belong to no row or are cut off, are refused; others come by their names."""
    log = tmp_path / "log"
    log.write_text(f"vmap allocator: rust (mm/vmap_rust)\n{console}programs: done\n")
    (tmp_path / "log.counts").write_text(totals)
    if error:
        with pytest.raises(Refused, match=error):
            programs.read(log)
    else:
        assert programs.read(log) == {"bpf-array": (100, 2), "unshare": (77, 0)}


@pytest.mark.parametrize("b, ratio", [([1200, 1201, 1202, 1199, 1198], "**1.200**"), ([800, 801, 802, 799, 798], "0.800"),
                                      ([1000, 1100, 1050, 950, 900], "1.000")])
def test_programs_ratio(b, ratio):
    """A loss is bold if all of its interval is above 1."""
    sides = {"A": [1000, 1001, 1002, 999, 998], "B": b, "C": [500] * 5}
    cells = programs.row("x", "what", {side: [{"x": (value, 2)} for value in values] for side, values in sides.items()})
    assert cells[:4] == ["x", "what", "2", "1,000"] and cells[6] == ratio and cells[7].startswith("**")
