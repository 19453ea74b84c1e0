# SPDX-License-Identifier: GPL-2.0
"""What harness/checks/figures.py finds."""

from harness.checks.figures import wrong

PAGE = """
| case | 1x1 | 2x1 | 8x1 | 8x8 |
| --- | ---: | ---: | ---: | ---: |
| `area_pair` | 2,000 -> 900, 0.45 | 1,300 -> 1,000, 0.77 | | **1,400 -> 1,500, 1.07** |
| `large_burst alloc` | | 20 -> 10, 0.5 | | 40 -> 30, 0.75 |

| case | NxM | pristine | series, rb-trees | series, Rust |
| --- | --- | ---: | ---: | ---: |
| stack | 2x1 | 50 instr | 40 instr | 30 instr |
| stack | 8x8 | 60 instr | 45 instr | 30 instr |
"""
GOOD = """| `area_pair`: reserve and free | 1,300 -> 1,000 | 1,400 -> 1,500 | text |
| `large_burst alloc` | 20 -> 10 | 40 -> 30 |
  stack of a task    50 -> 40     60 -> 45
  no quote           1 -> 2
  stack              50 -> 40
"""


def test_what_is_in_the_table():
    """Both kinds of tables, with and without backticks."""
    assert wrong(GOOD, PAGE, 4) == []


def test_what_is_not():
    """A figure that differs, a case without a row, and too few quotes."""
    assert wrong(GOOD.replace("1,000", "1,001"), PAGE, 3) == \
        ["line 1: area_pair 2x1: 1,300 -> 1,001, but the table has 1,300 -> 1,000"]
    assert wrong(GOOD.replace("stack", "stock"), PAGE, 3) == \
        [f"line 3: stock {size}, but the table has no row" for size in ("2x1: 50 -> 40", "8x8: 60 -> 45")]
    assert wrong("  stack 50 -> 41", PAGE, 1) == ["line 1: stack 2x1: 50 -> 41, but the table has 50 -> 40"]
    assert wrong("", PAGE, 1) == ["only 0 lines quote figures, not 1"]
