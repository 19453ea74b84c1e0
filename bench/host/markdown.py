# SPDX-License-Identifier: GPL-2.0
"""Tables of a result for documents: all of it, or a short one for the README; losing rows first."""

import stats


def cell(row):
    """Both medians, the ratio, and a mark when B lost."""
    if row is None:
        return ""
    ratio = "" if row.ratio is None else f" ({row.ratio:.2f})"
    mark = {"slower": " **slower**", "too few": " too few", "one side": " one side"}.get(row.verdict, "")
    return f"{stats.amount(row.median_a)} -> {stats.amount(row.median_b, row.unit)}{ratio}{mark}"


def table_text(head, lines):
    """A table after a line of text."""
    return head + "".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |\n" for line in lines)


def head_text(result):
    """What the cells mean."""
    return f"{result['sides']['a']} -> {result['sides']['b']} (ratio), medians over boots, lower is better:\n\n"


def markdown(result):
    """Everything: a row per case and CPUs x threads, a column per instrument."""
    every = stats.rows(result)
    instruments = [name for name in stats.used(result) if any(row.instrument == name for row in every)]
    # Rows are sorted: the first of a case is its worst one, and so a dict keeps the order that is wanted.
    cases = {}
    for row in every:
        cases.setdefault((row.name, row.size), {})[row.instrument] = row
    lines = [["case", "CPUs x threads", *instruments], ["---", "---"] + ["---:"] * len(instruments)]
    lines += [[name, size, *(cell(by.get(i)) for i in instruments)] for (name, size), by in cases.items()]
    return table_text(head_text(result), lines)


def short(result):
    """Every case once: with one worker and with most of them, as far as an instrument has that.

    A case that has neither, like the page tables, is in the column of its instrument's one worker, with its size.
    """
    every = stats.rows(result)
    columns, taken, cases = [], set(), {}
    for instrument in stats.used(result):
        mine = [row for row in every if row.instrument == instrument]
        if not mine:
            continue
        most = max((row for row in mine if row.cpus == row.threads), key=lambda row: row.threads, default=None)
        sizes = dict.fromkeys(["1x1"] * any(row.size == "1x1" for row in mine) + [most.size] * (most is not None))
        columns += [(instrument, size) for size in sizes]
        for row in mine:
            if row.size in sizes:
                cases.setdefault(row.name, {})[instrument, row.size] = row
                taken.add((instrument, row.name))
    for row in every:
        if (row.instrument, row.name) not in taken:
            taken.add((row.instrument, row.name))
            column = next(column for column in columns if column[0] == row.instrument)
            cases.setdefault(f"{row.name} {row.size}", {})[column] = row
    worst = {name: min(map(stats.losing_first, by.values())) for name, by in cases.items()}
    lines = [["case", *(f"{instrument} {size}" for instrument, size in columns)], ["---"] + ["---:"] * len(columns)]
    lines += [[name, *(cell(cases[name].get(column)) for column in columns)] for name in sorted(cases, key=worst.get)]
    return table_text(head_text(result), lines)
