# SPDX-License-Identifier: GPL-2.0
"""One table of three sides: the pristine kernel, and the series with each allocator, from two results with the first in common."""

import stats


def lines(rbtree, rust):
    """Per case: name, pristine, series with rb-trees, series with Rust, and how many times fewer the last two take; None: no value.

    rbtree, rust: results whose side A is the pristine kernel, and side B the allocator of their name.
    """
    other = {row.key: row for row in stats.rows(rbtree)}
    made = []
    for row in sorted(stats.rows(rust), key=lambda r: r.key):
        twin = other.get(row.key)
        if twin is None or row.median_a is None:
            continue
        faster = [row.median_a / b if b else None for b in (twin.median_b, row.median_b)]
        made.append((row.name, row.size, row.unit, row.median_a, twin.median_b, row.median_b, *faster))
    return made


def cells(made):
    """Such lines as text."""
    return [[name, size, *(stats.amount(v, unit) for v in values), *("-" if f is None else f"{f:.2f}" for f in faster)]
            for name, size, unit, *rest in made for values, faster in [(rest[:3], rest[3:])]]


HEAD = ["case", "NxM", ">pristine", ">series, rb-trees", ">series, Rust", ">times fewer, rb-trees", ">times fewer, Rust"]


def markdown(rbtree, rust):
    """The table for documents."""
    rule = ["---:" if name.startswith(">") else "---" for name in HEAD]
    return "".join("| " + " | ".join(line) + " |\n" for line in [[name.lstrip(">") for name in HEAD], rule, *cells(lines(rbtree, rust))])


def print_sides(rbtree, rust):
    """The table for the terminal: red where a side takes more than the pristine kernel."""
    import table
    console = table.make_console()
    made = lines(rbtree, rust)
    worst = [min((f for f in line[6:] if f), default=1) for line in made]
    table.print_table(console, HEAD, cells(made), ["red" if w < 1 - stats.FLOOR else "" for w in worst])
