# SPDX-License-Identifier: GPL-2.0
"""Results as tables and as a plot: "scripts/bench [run]", and the commands that only read stored results."""

import json

from ..settings import Refused, say, write

from . import results, stats
from .plan import INSTRUMENTS
from .stats import amount, ratio_text
from .table import print_markdown, show

# In the plot: colours of Okabe and Ito, and markers.
MARKS = {"slower": ("#d55e00", "^"), "too few": ("#cc79a7", "x"), "no difference": ("#777777", "o"),
         "faster": ("#009e73", "v")}
# CPUs x workers of the documents. With one CPU, the rb-trees of Linux 7.3 run without their pools of ranges.
SIZES = ("1x1", "2x1", "8x1", "8x8")


def show_rows(title, rows, sides):
    """Print some rows. sides: names of both."""
    def cells(row):
        interval = "-" if row.low is None else f"{ratio_text(row.low)} to {ratio_text(row.high)}"
        return [row.name, row.size, amount(row.median_a, row.unit), amount(row.median_b, row.unit),
                ratio_text(row.ratio), interval, row.verdict]
    columns = ["case", "NxM", *(f">{side}" for side in sides), ">ratio", ">interval", "verdict"]
    show(title, columns, [cells(row) for row in rows])


def failures(result):
    """Return a line for each boot that does not count, and for each case that was skipped."""
    lines = []
    for boot in result["boots"]:
        if boot["status"] != "ok":
            lines.append(f"boot does not count: {boot['instrument']} {boot['plan']} {boot['side']} ({boot['allocator']}) "
                         f"repetition {boot['repetition']}: {boot['status']}")
        lines += [f"skipped: {boot['instrument']} {skip['case']} {boot['cpus']}x{skip['threads']}, {boot['allocator']}: "
                  f"{skip['reason']}" for skip in boot["skips"]]
    return list(dict.fromkeys(lines))


def show_result(result):
    """Print all that was measured, and what was not."""
    print(f"{result['command']}, {result['started']}, commit {result['commit']}",
          *(f"kernel {name}: {what}" for name, what in result["kernels"].items()),
          "NxM is CPUs x workers; values are medians over boots, lower is better; instr: instructions of all CPUs for one "
          f"operation; a verdict needs p < {stats.ALPHA} and {stats.FLOOR:.0%} difference; intervals of the ratio are "
          f"{stats.LEVEL:.0%}; rows that lose come first", sep="\n")
    every = stats.rows(result)
    for name in result["instruments"]:
        rows = [row for row in every if row.instrument == name]
        show_rows(f"{name}: {INSTRUMENTS[name].what}", rows,
                  [f"{side.upper()} {allocator}" for side, allocator in result["sides"].items()])
        print(f"{name}:", ", ".join(f"{sum(row.verdict == verdict for row in rows)} {verdict}"
                                    for verdict in reversed(stats.VERDICTS)))
    print(*failures(result), sep="\n")


def plot(result, path):
    """Draw the ratios of all rows with their intervals, the first on top. path: of a new file in SVG."""
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel # it takes a second to import
    rows = [row for row in stats.rows(result) if row.ratio is not None]
    pyplot.switch_backend("Agg")
    figure, axes = pyplot.subplots(figsize=(12, 1.4 + 0.19 * len(rows)), layout="constrained")
    for y, row in enumerate(rows):
        color, marker = MARKS[row.verdict]
        axes.plot(row.ratio, y, marker, color=color)
        if row.low is not None:
            axes.hlines(y, row.low, row.high, color=color, linewidth=2, alpha=0.6)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", xlabel=f"ratio {result['sides']['b']} / {result['sides']['a']}, {stats.LEVEL:.0%} interval")
    labels = [f"{row.instrument}: {row.name}  {row.size}: {row.verdict}" for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.margins(y=0.5 / max(len(rows), 1))
    axes.grid(alpha=0.3)
    figure.savefig(path)
    pyplot.close(figure)


def figures_cell(row, twins):
    """Return the medians of a row and of side B in other results, for a document; of a single result also the ratio with
    its interval, and bold if side B lost. twins: rows of the other results by key."""
    medians = [row.median_a, row.median_b, *(getattr(twin.get(row.key), "median_b", None) for twin in twins)]
    text = " -> ".join(map(amount, medians))
    if twins:
        return text
    if row.ratio:
        text += f", {row.ratio:.2f}"
    if row.low is not None and row.high - row.low >= 0.02:
        text += f" ({row.low:.2f} to {row.high:.2f})"
    return f"**{text}**" if row.verdict == "slower" else text


def print_figures(result, *others):
    """Print tables for documents: numbers of CPUs and workers side by side; and what is not measured by the guest's clock.
    others: results with the same side A, whose side B is shown, too. How many tables a mapping has depends on where it is:
    they are left out."""
    twins = [{row.key: row for row in stats.rows(other)} for other in others]
    cases, rest = {}, []
    for row in stats.rows(result):
        if row.instrument != "icount" or row.case == "memory":
            rest.append([row.name, row.size, row.instrument, figures_cell(row, twins)])
        elif row.metric != "tables":
            cases.setdefault(row.name, {})[row.size] = figures_cell(row, twins)
    sizes = [size for size in SIZES if any(size in cells for cells in cases.values())]
    print(f"`{result['command']}`, commit {result['commit']}. Rows with a loss first, losses bold.\n")
    print_markdown(["case", *(f">{size}" for size in sizes)],
                   [[f"`{name}`", *(cells.get(size, "") for size in sizes)] for name, cells in cases.items()])
    if rest:
        print_markdown(["case", "CPUs x workers", "instrument", ">" + " -> ".join(result["sides"].values())], rest)


def compare(old, new):
    """Show which counts of side B changed from one result to another; returns the exit code: 1 when one became larger.
    Of hundreds of rows, one in a hundred differs without a cause: a change is one whose whole interval is beyond
    stats.FLOOR. Refuses results that have no count in common."""
    before, after = stats.samples(old), stats.samples(new)
    rows = [stats.make_row(key, unit, before[key][1]["b"], sides["b"]) for key, (unit, sides) in after.items()
            if key in before and before[key][1]["b"] and sides["b"] and unit != "ns"]
    if not rows:
        raise Refused("the two results have no count in common")
    changed = [row for row in rows if row.verdict in ("slower", "faster") and (
        row.low is None or row.low >= 1 + stats.FLOOR or row.high <= 1 - stats.FLOOR)]
    slower = sum(row.verdict == "slower" for row in changed)
    show_rows(f"counts of side B, {new['sides']['b']}", sorted(changed, key=stats.losing_first), ("old", "new"))
    few, gone = sum(row.verdict == "too few" for row in rows), len(before.keys() - after.keys())
    print(f"{slower} slower, {len(changed) - slower} faster, {len(rows) - len(changed) - few} as before, {few} of too few boots, "
          f"{gone} missing in the new result")
    return int(slower > 0)


def run(args):
    """Measure as the options say, store the result and its plot, and show it; returns the exit code: 1 if a boot or a
    case failed."""
    result = results.measure(args, " ".join(["scripts/bench", *args.words]))
    results.FOLDER.mkdir(parents=True, exist_ok=True)
    output = results.FOLDER / f"{result['started']}.json"
    write(output, json.dumps(result, indent=1) + "\n")
    show_result(result)
    plot(result, output.with_suffix(".svg"))
    say(f"result: {output}\nplot:   {output.with_suffix('.svg')}")
    return int(any(boot["status"] != "ok" or any(skip["reason"].startswith("failed") for skip in boot["skips"])
                   for boot in result["boots"]))


def main(name, args):
    """Run one of these commands; returns the exit code."""
    if name == "run":
        return run(args)
    return {"show": show_result, "figures": print_figures, "compare": compare}[name](*args.results) or 0
