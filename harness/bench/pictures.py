# SPDX-License-Identifier: GPL-2.0
"""Ratios as pictures: the plot of a result, and those of the tables of docs/bench.md: "scripts/bench draw"."""

import hashlib
import io
import math
import re
from collections import namedtuple
from itertools import cycle

from ..machine.settings import REPO, say, write

# Of each picture: its title, the ticks of its axis with its ends, and its tables with their headings.
PICTURES = {
    "cases": ("All cases of docs/bench.md: Rust / rb-trees", (0.25, 0.5, 1, 2), {
        "icount": "Instructions for one operation; CPUs x workers",
        "rest": "Memory, holds, flushes, latency, cache lines; CPUs x workers",
        "native": "Nanoseconds in user space; calls: without inlined helpers"}),
    "programs": ("Programs: Rust (B) / rb-trees (A), or a kernel without patches (C)", (0.8, 0.9, 1, 1.1), {"programs": ""}),
    "complaints": ("What users complain about: Rust / rb-trees", (0.25, 0.5, 1, 2), {"complaints": ""})}
# Of each verdict: a colour of Okabe and Ito, and its name. Of each size, in the order in which they come: a marker.
COLORS = {"faster": ("#009e73", "a gain"), "no difference": ("#777777", "no difference"),
          "too few": ("#cc79a7", "too few boots"), "slower": ("#d55e00", "a loss")}
MARKERS = "XosDP^v*"
# The lines in front of a table of a document, with its name, and behind it.
BEGIN, END = "<!-- figures {} -->", "<!-- end of figures -->"
NUMBER = r"([\d.]+)"
# A ratio, alone or behind the figures of both sides, with its interval. ** marks a loss.
CELL = re.compile(rf"(\*\*)?(?:[\d.,]+ -> [\d.,]+, )?{NUMBER}(?: \({NUMBER} to {NUMBER}\))?(?:\*\*)?")
# A ratio of a table, as a row of a result has it (stats.Row). Without a size, it is drawn as a bar.
Point = namedtuple("Point", "size ratio low high verdict")


def pictures():
    """Return the path of each picture by name, with its tables in docs/bench.md by name, and their hash or ""."""
    document, made = REPO / "docs/bench.md", {}
    tables = dict(re.findall(BEGIN.format(r"([\w-]+)") + f"\n(.*?){END}",
                             document.read_text(encoding="utf-8") if document.is_file() else "", re.S))
    for name, (*_, wanted) in PICTURES.items():
        mine = {table: tables[table] for table in wanted if table in tables}
        stamp = hashlib.sha256("".join(mine.values()).encode()).hexdigest()[:16] if mine else ""
        made[name] = REPO / f"docs/figures-{name}.svg", mine, stamp
    return made


def stale():
    """Return the names of pictures that are not of the tables of now. Other versions of matplotlib draw other bytes: a picture
    has the hash of its tables."""
    return [path.name for path, _, stamp in pictures().values() if path.is_file() != bool(stamp) or (
        stamp and f"<dc:description>{stamp}<" not in path.read_text(encoding="utf-8"))]


def lines_of(name, text):
    """Return the lines of a picture from a table: {label: points}. A label may have a second line. A gain is 2% or more, with
    its whole interval."""
    from .complaints import ROWS  # pylint: disable=import-outside-toplevel # scripts/check needs nothing that this imports
    inverse, found = {row.text for row in ROWS if row.more_is_better}, {}
    header, _, *rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("|")]
    for label, *row in rows:
        label = label.strip("`")
        cells = [(label, size, cell) for size, cell in zip(header[1:], row)]
        if name == "complaints":
            ratio = f"{1 / float(row[3]):.3f}" if label in inverse and row[3] != "-" else row[3]
            cells = [(f"{label}\n{row[1]} -> {row[2].strip('*')} {row[4]}", "", "**" * ("**" in row[2]) + ratio)]
        elif name == "rest":
            cells = [(label, row[0], row[2])]
        elif name == "native":
            size = f"{row[0]} thread{'s' * (row[0] != '1')}"
            cells = [(label, size, row[2]), (f"{label}, calls", size, row[3])]
        elif name == "programs":
            cells = [(f"{label}\n{row[0]}", size, cell) for _, size, cell in cells if "/" in size]
        for line, size, cell in cells:
            if match := CELL.fullmatch(cell):
                ratio, low, high = (float(number) if number else None for number in match.groups()[1:])
                gains = ratio <= 0.98 and (high or ratio) < 1
                found.setdefault(line, []).append(Point(size, ratio, low, high, "slower" if match[1] else
                                                        "faster" if gains else "no difference"))
    # Bars become a staircase.
    return dict(sorted(found.items(), key=lambda line: line[1][0].ratio)) if name == "complaints" else found


def draw_rows(axes, rows, ends):
    """Draw headings, which have no points, and labels with points and intervals. Beyond the ends there are only numbers.
    Returns what the legend explains."""
    def stroke(spans, **style):
        # One path for all is short.
        axes.plot([x for _, start, end in spans for x in (start, end, math.nan)], [y for y, *_ in spans for _ in range(3)],
                  solid_capstyle="butt", **style)

    def put(text, x, y, shift, up=0, **style):
        axes.annotate(text, (x, y), (shift, up), textcoords="offset points", va="center", **style)

    def clip(x):
        return min(max(x, ends[0]), ends[1])

    points, (left, right) = [(y, one) for y, (_, some) in enumerate(rows) for one in some], axes.get_xlim()
    markers = dict(zip(filter(None, dict.fromkeys(one.size for _, one in points)), cycle(MARKERS)))
    stroke([(y, left, right) for y, (_, some) in enumerate(rows) if some], color="#e0e0e0", linewidth=0.5)
    keys = []
    for verdict, (color, name) in COLORS.items():
        mine = [(y, one) for y, one in points if one.verdict == verdict]
        keys += axes.plot([], [], "s", color=color, label=name) if mine else []
        # Also a bar of 1 is wide enough to be seen.
        stroke([(y, min(clip(one.ratio), 0.99), max(clip(one.ratio), 1.01)) for y, one in mine if not one.size], color=color,
               linewidth=9)
        stroke([(y, clip(one.low), clip(one.high)) for y, one in mine if one.low is not None], color=color, linewidth=2,
               alpha=0.5)
        for size, marker in markers.items():
            if some := [(clip(one.ratio), y) for y, one in mine if one.size == size]:
                axes.plot(*zip(*some), marker, color=color, markeredgewidth=0)
    for size, marker in markers.items():
        keys += axes.plot([], [], marker, color="black", markeredgewidth=0, label=size)
    for y, (label, some) in enumerate(rows):
        label, _, more = label.partition("\n")
        lost = any(one.verdict == "slower" for one in some)
        put(label, left, y, -5 if some else 4, 5 if more else 0, ha="right" if some else "left",
            color=COLORS["slower"][0] if lost else "black", weight="normal" if some and not lost else "bold")
        put(more, left, y, -5, -5, ha="right", fontsize=7, color="#555555")
        beyond = [one.ratio for one in some if not one.size or clip(one.ratio) != one.ratio]
        for ha, shift, mine in (("right", -5, [x for x in beyond if x <= 1]), ("left", 5, [x for x in beyond if x > 1])):
            if mine:
                put(" ".join(f"{ratio:.3g}" for ratio in mine), clip(mine[0]), y, shift, ha=ha, fontsize=7)
    return keys


def draw(path, title, ticks, groups, foot, stamp=""):
    """Draw ratios, a line for each case, as a new file in SVG. ticks: of the axis, with its ends; groups: {heading: {label:
    points}}, where a row of a result is a point, too; foot: what is written below; stamp: for stale()."""
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel # it takes a second to import
    rows = [row for heading, lines in groups.items() if lines
            for row in [*([(heading, ())] if len(groups) > 1 else []), *lines.items()]]
    ends, room, file = (ticks[0], ticks[-1]), (ticks[-1] / ticks[0]) ** 0.18, io.StringIO()
    height = 1.6 + sum(0.28 if "\n" in label else 0.17 for label, _ in rows)
    # Text stays text, in any sans-serif font, and the bytes are the same each time.
    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vmap-rust", "font.size": 8, "lines.markersize": 5,
                            "font.sans-serif": ["DejaVu Sans"], "figure.constrained_layout.w_pad": 0.2}):
        pyplot.switch_backend("Agg")
        figure, axes = pyplot.subplots(figsize=(9, height), layout="constrained")
        axes.set(xscale="log", xlim=(ends[0] / room, ends[1] * room), ylim=(max(len(rows), 1) - 0.5, -0.5), yticks=[])
        axes.axvline(1, color="black", linewidth=1)
        for inner, outer in zip(ends, axes.get_xlim()):
            axes.axvspan(inner, outer, color="#f2f2f2", linewidth=0)
        keys = draw_rows(axes, rows, ends)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.tick_params(labeltop=True, top=True)
        axes.grid(alpha=0.3)
        axes.set_xlabel(f"ratio, lower is better\n{foot}", fontsize=7)
        figure.legend(handles=keys, loc="outside upper center", ncols=min(len(keys), 10) or 1, frameon=False, title=title,
                      title_fontproperties={"size": 11, "weight": "bold"})
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Description": stamp,
                                                     "Rights": "SPDX-License-Identifier: GPL-2.0"})
        pyplot.close(figure)
    # A quarter of the bytes is indentation, how far text is rotated, and more than two digits behind the point.
    write(path, re.sub(r' transform="rotate\(-0 [^"]*"|^ +|(?<=\.\d\d)\d+(?=")', "", file.getvalue(), flags=re.M))


def main(_name=None, _args=None):
    """Draw the pictures whose tables docs/bench.md has, and remove the others; returns the exit code."""
    for name, (path, mine, stamp) in pictures().items():
        title, ticks, headings = PICTURES[name]
        if not mine:
            path.unlink(missing_ok=True)
        else:
            heads = dict.fromkeys(text.partition("\n")[0].split(". ")[0].strip(".").replace("`", "") for text in mine.values())
            draw(path, title, ticks, {headings[table]: lines_of(table, text) for table, text in mine.items()}, "\n".join(heads),
                 stamp)
            say(f"picture: {path}")
    return 0
