# SPDX-License-Identifier: GPL-2.0
"""Plots of a result as SVG. Each function returns [(caption, SVG bytes)], which is empty when there is no such data."""

from collections import Counter
import io
import math
import re

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
import numpy as np

from . import stats

# From the palette of Okabe and Ito; verdicts also have markers of their own.
SIDES = {"a": "#e69f00", "b": "#0072b2"}
MARKS = {"slower": ("#d55e00", "^"), "too few": ("#cc79a7", "x"), "no difference": ("#777777", "o"),
         "faster": ("#009e73", "v")}
# Lines and points of guests with different numbers of CPUs; the last ones are of several guests.
LINES = [("-", "o"), ("--", "s"), (":", "D"), ("-.", "^"), ("-", "v")]
TIME = {"ns": "cost, ns", "instr": "cost, instructions"}
WIDTH = 12  # inches
EDGE = 60  # the largest ratio an axis shows, and the inverse of the smallest
STYLE = {"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True, "svg.hashsalt": "vmap-rust"}


def to_svg(figure):
    """The figure as SVG, the same for the same data; the figure is closed."""
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return out.getvalue()


def plain(value, _=None):
    """A tick label without powers of ten."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and abs(value) >= 1e5:
            return f"{value / size:g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:g}"


def side_names(result):
    """Labels of the sides."""
    return {side: f"{side.upper()} {result['sides'][side]}" for side in "ab"}


def grid(items, draw, columns=4):
    """Small multiples as SVG: draw(axes, item) for each item; one legend above them."""
    columns = min(columns, len(items))
    lines = math.ceil(len(items) / columns)
    height = 0.5 + 2.5 * lines
    width = WIDTH if columns == 4 else 0.5 + 3.5 * columns
    with matplotlib.rc_context(STYLE):
        figure, panels = pyplot.subplots(lines, columns, figsize=(width, height), squeeze=False)
        figure.subplots_adjust(left=0.85 / width, right=1 - 0.3 / width, top=1 - 0.7 / height, bottom=0.45 / height,
                               wspace=0.38, hspace=0.55)
        labels = {}
        for axes, item in zip(panels.flat, items):
            draw(axes, item)
            axes.title.set_fontsize(8.5)
            labels.update((label, handle) for handle, label in zip(*axes.get_legend_handles_labels()))
        for axes in panels.flat[len(items):]:
            axes.set_visible(False)
        figure.legend(labels.values(), labels.keys(), loc="upper left", ncols=max(1, min(len(labels), columns * 3 // 2)),
                      frameon=False)
        return to_svg(figure)


def draw_series(axes, points, color, label, line="-", marker="o"):
    """A line through the medians of [(x, values)], with bars from the smallest to the largest value."""
    points = sorted((x, values) for x, values in points if values)
    if not points:
        return
    middle = [float(np.median(values)) for _, values in points]
    spread = [[m - min(values) for m, (_, values) in zip(middle, points)],
              [max(values) - m for m, (_, values) in zip(middle, points)]]
    # A is drawn first and wider: it can be seen below a B of the same values.
    width = 3 if color == SIDES["a"] else 1.3
    axes.errorbar([x for x, _ in points], middle, yerr=spread, color=color, label=label, linestyle=line, marker=marker,
                  markersize=2.5 + width, linewidth=width, capsize=2, elinewidth=0.8)


def from_zero(axes, rows):
    """The y axis holds all values of the rows, and 0."""
    values = [value for row in rows for value in row.a + row.b]
    top = 1.08 * max(0, *values)
    axes.set_ylim(min(0, 1.08 * min(values)), top if top > 0 else 1)
    axes.yaxis.set_major_formatter(FuncFormatter(plain))


def draw_ratios(axes, rows):
    """Ratio and interval of each row, the first one on top."""
    # All points are on the axis, and of an interval as much as one power of ten.
    left = min(0.8, *(row.ratio if row.low is None else max(row.low, row.ratio / 10) for row in rows)) / 1.1
    right = max(1.2, *(row.ratio if row.high is None else min(row.high, row.ratio * 10) for row in rows)) * 1.1
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for verdict, (color, marker) in MARKS.items():
        mine = [(y, row) for y, row in enumerate(rows) if row.verdict == verdict]
        if not mine:
            continue
        for y, row in mine:
            if row.low is not None:
                axes.hlines(y, min(max(row.low, left), right), max(min(row.high, right), left), color=color, linewidth=2,
                            alpha=0.6)
            if not left <= row.ratio <= right:
                axes.annotate(f"{row.ratio:.3g}", (min(max(row.ratio, left), right), y), fontsize=8, va="center",
                              ha="right" if row.ratio > right else "left", textcoords="offset points",
                              xytext=(-6 if row.ratio > right else 6, 0))
        axes.plot([min(max(row.ratio, left), right) for _, row in mine], [y for y, _ in mine], marker, color=color,
                  markersize=5, label=verdict, clip_on=False)
    axes.axvline(1, color="black", linewidth=1)
    axes.axvspan(1 - stats.FLOOR, 1 + stats.FLOOR, color="black", alpha=0.07, linewidth=0)
    axes.set_yticks(range(len(rows)), [f"{row.name}  {row.size}" for row in rows], fontsize=8)
    # Few labels over many powers of ten, more within one.
    wide = right / left
    steps = (1,) if wide > 200 else (1, 2, 5) if wide > 8 else (1, 1.2, 1.5, 2, 3, 5, 8)
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=50))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", top=True, labeltop=True)


def ratios(result, rows):
    """Per instrument the ratio of each row with its interval, losing ones on top."""
    made = []
    for instrument in stats.used(result):
        mine = [row for row in rows if row.instrument == instrument and row.ratio is not None]
        if not mine:
            continue
        height = 1.4 + 0.19 * len(mine)
        with matplotlib.rc_context(STYLE):
            figure, axes = pyplot.subplots(figsize=(WIDTH, height))
            figure.subplots_adjust(left=3 / WIDTH, right=1 - 0.3 / WIDTH, top=1 - 0.75 / height, bottom=0.55 / height)
            draw_ratios(axes, mine)
            names = side_names(result)
            axes.set_xlabel(f"ratio {names['b']} / {names['a']} (no unit, log axis; left of 1 is faster), "
                            f"{stats.LEVEL:.0%} interval")
            figure.legend(loc="upper right", ncols=len(MARKS), frameon=False)
            made.append((f"{instrument}: ratio of each case", to_svg(figure)))
    return made


def draw_scaling(axes, rows, names, lines):
    """Cost over threads: one line per side, or per side and number of CPUs where such a guest has several points."""
    groups = {}
    for row in rows:
        groups.setdefault(row.cpus, []).append(row)
    if max(len({row.threads for row in group}) for group in groups.values()) < 2:
        groups = {None: rows}
    mixed = "CPUs = threads" if all(row.cpus == row.threads for row in rows) else "several guests"
    for cpus, group in groups.items():
        for side, color in SIDES.items():
            label = f"{names[side]}, {cpus} CPU{'s' * (cpus > 1)}" if cpus else f"{names[side]}, {mixed}"
            points = [(row.threads, getattr(row, side)) for row in group]
            draw_series(axes, points, color, label, *lines.get(cpus, LINES[-1]))
    ticks = sorted({row.threads for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("threads", fontsize=8)
    axes.set_ylabel(TIME[rows[0].unit], fontsize=8)
    from_zero(axes, rows)
    axes.set_title(rows[0].name)


def scaling(result, rows):
    """Per instrument the cost of each case over the number of threads, where there are several."""
    made, names = [], side_names(result)
    for instrument in stats.used(result):
        groups = {}
        for row in rows:
            if row.instrument == instrument and row.unit in TIME and "latency" not in row.case:
                groups.setdefault(row.name, []).append(row)
        items = [groups[name] for name in sorted(groups) if len({row.threads for row in groups[name]}) > 1]
        counts = sorted({row.cpus for item in items for row in item}, reverse=True)
        lines = {cpus: LINES[number % (len(LINES) - 1)] for number, cpus in enumerate(counts)}
        if items:
            image = grid(items, lambda axes, item, lines=lines: draw_scaling(axes, item, names, lines))
            made.append((f"{instrument}: cost over threads", image))
    return made


def merged_hists(result):
    """Histograms added up over the good boots: (instrument, cpus, threads, case, metric, unit) -> Counter per side."""
    found = {}
    for boot in result["boots"]:
        for hist in boot["hists"] if boot["status"] == "ok" else ():
            key = (boot["instrument"], boot["cpus"], hist["threads"], hist["case"], hist["metric"],
                   stats.unit_of(result, boot["instrument"], hist["unit"]))
            side = found.setdefault(key, {"a": Counter(), "b": Counter()})[boot["side"]]
            for bound, count in hist["buckets"]:
                side[bound] += count
    return {key: sides for key, sides in found.items() if any(sum(side.values()) for side in sides.values())}


def draw_tail(axes, item, names):
    """Share of the operations that took at least so long."""
    (instrument, cpus, threads, case, metric, unit), sides = item
    for side, color in SIDES.items():
        bounds = sorted(bound for bound, count in sides[side].items() if count)
        if bounds:
            counts = np.array([sides[side][bound] for bound in bounds], dtype=float)
            share = counts[::-1].cumsum()[::-1] / counts.sum()
            # The axis has no 0: what took less than a unit is drawn at half a one.
            axes.step([max(bound, 0.5) for bound in bounds], share, where="post", color=color, linewidth=1.6,
                      label=names[side], marker=".", markersize=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel({"ns": "ns", "instr": "instructions"}.get(unit, unit), fontsize=8)
    axes.set_ylabel("share at or above", fontsize=8)
    axes.set_title(f"{instrument} {case} {metric} {cpus}x{threads}")


def latency(result):
    """Complementary distributions of latencies, both axes logarithmic, one panel per instrument, case and metric."""
    items = sorted(merged_hists(result).items(), key=lambda item: item[0])
    if not items:
        return []
    return [("latency distributions", grid(items, lambda axes, item: draw_tail(axes, item, side_names(result)), 3))]


def draw_numbered(axes, item, names, number, log, text):
    """Values over the number that `number` finds in a row."""
    title, rows = item
    for side, color in SIDES.items():
        draw_series(axes, [(number(row), getattr(row, side)) for row in rows], color, names[side])
    ticks = sorted({number(row) for row in rows})
    if log:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{t:,}" for t in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    elif len(ticks) <= 12:
        axes.set_xticks(ticks)
    axes.set_xlabel(text[0], fontsize=8)
    axes.set_ylabel(text[1].format(unit=rows[0].unit), fontsize=8)
    from_zero(axes, rows)
    axes.set_title(title)


def numbered(result, groups, number, log, text, caption):
    """One panel per group of rows, or nothing when there is no group."""
    names = side_names(result)
    if not groups:
        return []
    return [(caption, grid(sorted(groups.items()),
                           lambda axes, item: draw_numbered(axes, item, names, number, log, text)))]


def memory(result, rows):
    """Memory of an area over the number of live areas, which is the end of the case's or of the metric's name."""
    groups, areas = {}, {}
    for row in rows:
        found = re.fullmatch(r"memory_(\d+) (.+)|memory (.+)_(\d+)", f"{row.case} {row.metric}")
        if found:
            areas[row.key] = int(found[1] or found[4])
            groups.setdefault(f"{row.instrument} {found[2] or found[3]} {row.size}", []).append(row)
    # What was taken at one number of areas only is in the table.
    groups = {title: group for title, group in groups.items() if len({areas[row.key] for row in group}) > 1}
    return numbered(result, groups, lambda row: areas[row.key], True, ("live areas", "{unit} per area"),
                    "memory of an area")


def page_tables(result, rows):
    """Page tables left after each cycle."""
    groups = {}
    for row in rows:
        if row.case == "page_tables" and re.fullmatch(r"cycle_\d+", row.metric):
            groups.setdefault(f"{row.instrument} page tables, {row.cpus} CPU{'s' * (row.cpus > 1)}", []).append(row)
    return numbered(result, groups, lambda row: int(row.metric.split("_")[1]), False, ("cycle", "page tables, {unit}"),
                    "page tables over cycles")
