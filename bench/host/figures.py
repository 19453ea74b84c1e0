# SPDX-License-Identifier: GPL-2.0
"""The figures of the documents: the table of all bases side by side, and its place in docs/measurements.md."""

from harness.settings import REPO

from . import markdown, stats

# CPUs x workers. With one CPU, the rb-trees of Linux 7.3 run without their pools of ranges.
BASES = ("1x1", "2x1", "8x1", "8x8")
COLUMNS = ["case", *(f">{size}" for size in BASES)]
PAGE = REPO / "docs/measurements.md"
BEGIN, END = "<!-- written by scripts/bench figures -->\n", markdown.END


def cell(row):
    """Return both medians, the ratio with its interval, and a mark when Rust lost."""
    if row is None or row.median_a is None or row.median_b is None:
        return ""
    ratio = f"{row.ratio:.2f}" if row.ratio else "-"
    if row.low is not None and row.high - row.low >= 0.02:
        ratio += f" ({row.low:.2f} to {row.high:.2f})"
    text = f"{stats.amount(row.median_a)} -> {stats.amount(row.median_b)}, {ratio}"
    return f"**{text}**" if row.verdict == "slower" else text


def cells(result):
    """Return the columns and, per case with at least two of the bases, its cells. Slower ones are bold and come first;
    a style per row for the terminal."""
    cases = {}
    for row in stats.rows(result):
        if row.instrument == "icount" and row.size in BASES and row.metric != "tables":
            cases.setdefault(row.name, {})[row.size] = row
    made = [[f"`{name}`", *(cell(sizes.get(size)) for size in BASES)]
            for name, sizes in cases.items() if len(sizes) > 1]
    return COLUMNS, made, ["red" if any("**" in text for text in line) else "" for line in made]


def text_of(result):
    """Return what stands between the two marks of the page."""
    others = dict(result, boots=[boot for boot in result["boots"] if boot["instrument"] != "icount"
                                 or boot["plan"] in ("memory", "page-tables")])
    return (f"`{result['command']}`, commit {result['commit']}, kernel `arm64-bench`. Rows with a loss first, losses bold.\n\n"
            + markdown.table_text(*cells(result)[:2]) + "\n" + markdown.markdown(others).split("\n", 2)[2])


def write(result):
    """Put the tables of a result into the page."""
    markdown.put(PAGE, BEGIN, text_of(result))
