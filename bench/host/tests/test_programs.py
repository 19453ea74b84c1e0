# SPDX-License-Identifier: GPL-2.0
"""What reads and shows what guests of "scripts/bench programs" print, tested without a boot."""

import os
import subprocess

import pytest

from bench.host import counts, program_rows as rows, programs
from harness.settings import REPO

CONSOLE = ["vmap allocator: rust (mm/vmap_rust)", "program: bpf-array ops=10 areas=20",
           "program: bwrap FAIL bwrap: no room", "program: make ops=1 areas=0",
           "latency: cyclictest-idle mean=1500 max=2500", "programs: done"]


def taken(a, b, c, name="bpf-array"):
    """The values of boots for one row: lists of instructions for 10 operations."""
    made = programs.Taken()
    for side, values in zip("ABC", (a, b, c), strict=True):
        for value in values:
            made.add(side, [f"program: {name} ops=10 areas=20"], [value])
    return made


def test_lines_of_a_guest():
    """Rows come in their order, with what failed, and latencies apart from them."""
    found, latencies = rows.read(CONSOLE)
    assert [(row.name, row.ops, row.areas, row.error) for row in found] == [
        ("bpf-array", 10, 20, None), ("bwrap", 0, 0, "bwrap: no room"), ("make", 1, 0, None)]
    assert latencies == {"cyclictest-idle": (1500, 2500)}


def test_a_row_that_fails():
    """It is in the list of failures and in the table, and takes no count from other rows."""
    made = programs.Taken()
    made.add("B", CONSOLE, [1000, 77])
    assert made.failures == ["bwrap, B: bwrap: no room"]
    assert made.values["bpf-array"]["B"] == [100] and made.values["make"]["B"] == [77]
    assert made.areas["bpf-array"] == [2]
    table = programs.programs_table(made, "")
    row = next(row for row in table.rows if row[0] == "bwrap")
    assert row[3:6] == ["failed"] * 3 and table.styles[table.rows.index(row)] == "red"


def test_counts_without_a_row():
    """Counts that belong to no row are refused."""
    with pytest.raises(counts.Bad, match="2 rows, but 3 pairs of marks"):
        programs.Taken().add("A", CONSOLE, [1, 2, 3])


@pytest.mark.parametrize("b, ratio, style", [([1200, 1201, 1199], "**1.200**", "red"),
                                             ([801, 800, 799], "0.800", "green"),
                                             ([1000, 1100, 900], "1.000", "dim")])
def test_table(b, ratio, style):
    """A loss beyond the spread is bold and red; what spreads more than it differs is neither."""
    made = taken([1000, 1001, 999], b, [1000, 1000, 1000])
    table = programs.programs_table(made, "")
    cells, styles = table.rows, table.styles
    assert len(cells) == 1 and len(cells[0]) == len(programs.COLUMNS)
    assert cells[0][2] == "2" and cells[0][3] == "100" and cells[0][6] == ratio and styles == [style]
    assert made.unsure() == (["bpf-array"] if style == "dim" else [])


def test_latencies():
    """The means of all sides, then the lowest and the highest maximum."""
    made = programs.Taken()
    made.add("B", ["latency: cyclictest-vfree mean=11 max=60"], [])
    for side, pair in (("A", "mean=10 max=90"), ("B", "mean=11 max=70"), ("C", "mean=12 max=80")):
        made.add(side, [f"latency: cyclictest-vfree {pair}"], [])
    assert [cell[2:] for cell in programs.latency_table(made, "").rows] == [["10", "11", "12", "90 to 90", "60 to 70",
                                                                      "80 to 80"]]


def test_rows_of_the_script():
    """Each row has a text, and a pattern chooses some."""
    text = (REPO / "bench/programs.sh").read_text(encoding="utf-8")
    assert len(rows.texts()) == sum(line.startswith("\tprogram ") for line in text.split("\n"))
    assert len(rows.texts("latency")) == sum(line.startswith("\tlatency ") for line in text.split("\n"))
    assert rows.chosen("bwrap,*-8m") == ["bpf-ringbuf-8m", "bwrap"]


@pytest.mark.parametrize("words", [("programs", "--programs", "nothing"), ("profile-program", "nothing")])
def test_unknown_program(words):
    """An unknown name ends the command before anything is built."""
    done = subprocess.run(["python3", "-P", "-m", "bench.host", *words], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(REPO), "VMAP_RUST_PARSE": "1"})
    assert done.returncode == 1 and 'unknown program "nothing"; there are: ' in done.stderr
    assert len(done.stderr.split("\n")) == 2
