# SPDX-License-Identifier: GPL-2.0
"""Results as tables and as a plot: "scripts/bench [run]", and the commands that only read stored results."""

from ..machine.settings import Refused, say
from ..machine.table import print_table

from . import results, stats
from .plan import INSTRUMENTS
from .stats import amount, ratio_text

# In the plot: colours of Okabe and Ito; markers by CPUs and workers, of which others have the last one; and what its axis shows
# at least.
COLORS = {"slower": "#d55e00", "too few": "#cc79a7", "no difference": "#777777", "faster": "#009e73"}
MARKERS = {"1x1": ".", "2x1": "o", "8x1": "s", "8x8": "D", "others": "P"}
TICKS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5)


def show_rows(title, rows, sides):
    """Print some rows. sides: names of both."""
    def cells(row):
        interval = "-" if row.low is None else f"{ratio_text(row.low)} to {ratio_text(row.high)}"
        return [row.name, row.size, amount(row.median_a, row.unit), amount(row.median_b, row.unit),
                ratio_text(row.ratio), interval, row.verdict]
    columns = ["case", "NxM", *(f">{side}" for side in sides), ">ratio", ">interval", "verdict"]
    print_table(title, columns, [cells(row) for row in rows])


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
          "NxM is CPUs x workers; values are medians over boots, lower is better;",
          "instr: instructions of all CPUs for one operation; rows that lose come first;",
          f"a verdict needs p < {stats.ALPHA} and {stats.FLOOR:.0%} difference; intervals of the ratio are {stats.LEVEL:.0%}",
          sep="\n")
    every = stats.rows(result)
    for name in result["instruments"]:
        rows = [row for row in every if row.instrument == name]
        show_rows(f"{name}: {INSTRUMENTS[name].what}", rows,
                  [f"{side.upper()} {allocator}" for side, allocator in result["sides"].items()])
        print(f"{name}:", ", ".join(f"{sum(row.verdict == verdict for row in rows)} {verdict}"
                                    for verdict in reversed(stats.VERDICTS)))
    print(*failures(result), sep="\n")


def plot(result, path):
    """Draw the ratios with their intervals, a line for each case, in the order of the table. path: of a new file in
    SVG."""
    from matplotlib import lines, pyplot  # pylint: disable=import-outside-toplevel # it takes a second to import
    rows = [row for row in stats.rows(result) if row.ratio is not None]
    names = list(dict.fromkeys(f"{row.instrument}: {row.name}" for row in rows))
    pyplot.switch_backend("Agg")
    figure, axes = pyplot.subplots(figsize=(12, 2.4 + 0.24 * len(names)), layout="constrained")
    for row in reversed(rows):
        y, color = names.index(f"{row.instrument}: {row.name}"), COLORS[row.verdict]
        axes.plot(row.ratio, y, MARKERS.get(row.size, MARKERS["others"]), color=color)
        if row.low is not None:
            axes.hlines(y, row.low, row.high, color=color, linewidth=2, alpha=0.6)
    axes.axvline(1, color="black", linewidth=1)
    sides = result["sides"]
    axes.set(xscale="log", xlabel=f"ratio {sides['b']} / {sides['a']}, {stats.LEVEL:.0%} interval; "
             f"left of 1: {sides['b']} takes less")
    axes.set_title(f"{sides['b']} against {sides['a']}: {result['command']}, commit {result['commit']}", loc="left")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_xticks([], minor=True)
    losing = {f"{row.instrument}: {row.name}" for row in rows if row.verdict == "slower"}
    for name, label in zip(names, axes.set_yticks(range(len(names)), names, fontsize=8)):
        label.label1.set_color(COLORS["slower"] if name in losing else "black")
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.grid(alpha=0.3)
    keys = [lines.Line2D([], [], color=color, marker="o", linestyle="", label=name) for name, color in COLORS.items()]
    keys += [lines.Line2D([], [], color="black", marker=marker, linestyle="", label=size) for size, marker in MARKERS.items()]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), fontsize=8,
                  title="colour: verdict; marker: CPUs x workers", title_fontsize=8)
    figure.savefig(path)
    pyplot.close(figure)


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
    output = results.store(result)
    show_result(result)
    plot(result, output.with_suffix(".svg"))
    say(f"result: {output}\nplot:   {output.with_suffix('.svg')}")
    return int(results.has_failed(result))


def main(name, args):
    """Run one of these commands; returns the exit code."""
    if name == "run":
        return run(args)
    return {"show": show_result, "compare": compare}[name](*args.results) or 0
