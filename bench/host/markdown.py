# SPDX-License-Identifier: GPL-2.0
"""The table of a result for documents; losing rows first."""

from harness.settings import Refused

from . import stats, table

# What stands between a mark of its own and this line of a page is written by a command.
END = "<!-- end -->\n"


def cell(row):
    """Both medians, the ratio, and a mark when B lost."""
    if row is None:
        return ""
    ratio = "" if row.ratio is None else f" ({row.ratio:.2f})"
    mark = {"slower": " **slower**", "too few": " too few", "one side": " one side"}.get(row.verdict, "")
    return f"{stats.amount(row.median_a)} -> {stats.amount(row.median_b, row.unit)}{ratio}{mark}"


def table_text(columns, cells):
    """A table. columns: names, ">" in front aligns right; cells: rows of text."""
    rule = ["---:" if name.startswith(">") else "---" for name in columns]
    lines = [[name.lstrip(">") for name in columns], rule, *cells]
    return "".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |\n" for line in lines)


def markdown(result):
    """Everything: a row per case and CPUs x threads, a column per instrument."""
    every = stats.rows(result)
    instruments = [name for name in stats.used(result) if any(row.instrument == name for row in every)]
    # Rows are sorted: the first of a case is its worst one, and so a dict keeps the order that is wanted.
    cases = {}
    for row in every:
        cases.setdefault((row.name, row.size), {})[row.instrument] = row
    cells = [[name, size, *(cell(by.get(i)) for i in instruments)] for (name, size), by in cases.items()]
    return (f"{result['sides']['a']} -> {result['sides']['b']} (ratio), medians over boots, lower is better:\n\n"
            + table_text(["case", "CPUs x threads", *(f">{name}" for name in instruments)], cells))


def show(page, mark, columns, cells, write):
    """Print a table in the terminal, or put it into a page if write."""
    if write:
        put(page, mark, table_text(columns, cells))
    else:
        table.print_table(table.make_console(), columns, cells)


def put(page, mark, text):
    """Put text between the line mark and the line END of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Refused(f"{page} has no line {mark.strip()} and {END.strip()} behind it")
    page.write_text(before + begin + "\n" + text + "\n" + end + after, encoding="utf-8")
