# SPDX-License-Identifier: GPL-2.0
"""The plot of a result: the ratio of each case with its interval."""

import io

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

# Colours of Okabe and Ito, and markers.
MARKS = {"slower": ("#d55e00", "^"), "too few": ("#cc79a7", "x"), "no difference": ("#777777", "o"),
         "faster": ("#009e73", "v")}


def ratios(rows, label):
    """Return an SVG of the rows that have a ratio, the first one on top, or None if there is none. label: of the
    axis."""
    rows = [row for row in rows if row.ratio is not None and row.verdict in MARKS]
    if not rows:
        return None
    figure, axes = pyplot.subplots(figsize=(12, 1.4 + 0.19 * len(rows)), layout="constrained")
    for y, row in enumerate(rows):
        color, marker = MARKS[row.verdict]
        if row.low is not None:
            axes.hlines(y, row.low, row.high, color=color, linewidth=2, alpha=0.6)
        axes.plot(row.ratio, y, marker, color=color, markersize=5)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", xlabel=label, ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), [f"{row.name}  {row.size}" for row in rows], fontsize=8)
    axes.grid(alpha=0.3)
    handles = [axes.plot([], [], marker, color=color, label=verdict)[0] for verdict, (color, marker) in MARKS.items()]
    axes.legend(handles=handles, loc="lower right")
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return out.getvalue()
