# SPDX-License-Identifier: GPL-2.0
"""One table of three sides: the pristine kernel, and the series with each allocator, from two results with the first in
common."""

from . import stats

COLUMNS = ["case", "NxM", ">pristine", ">series, rb-trees", ">series, Rust", ">times fewer, rb-trees",
           ">times fewer, Rust"]


def cells(rbtree, rust):
    """Return the columns, per case a row of text, and its style: red where a side takes more than the pristine kernel.

    rbtree, rust: results whose side A is the pristine kernel, and side B the allocator of their name.
    """
    other = {row.key: row for row in stats.rows(rbtree)}
    made, styles = [], []
    for row in sorted(stats.rows(rust), key=lambda r: r.key):
        twin = other.get(row.key)
        if twin is None or row.median_a is None:
            continue
        medians = (row.median_a, twin.median_b, row.median_b)
        fewer = [row.median_a / b if b else None for b in medians[1:]]
        made.append([row.name, row.size, *(stats.amount(median, row.unit) for median in medians),
                     *("-" if f is None else f"{f:.2f}" for f in fewer)])
        styles.append("red" if min((f for f in fewer if f), default=1) < 1 - stats.FLOOR else "")
    return COLUMNS, made, styles
