# SPDX-License-Identifier: GPL-2.0
"""Results as tables and as a plot: "scripts/bench [run]", and the commands that only read stored results."""

from ..machine.settings import Refused, say
from ..machine.table import print_table

from . import results, stats
from .pictures import draw
from .plan import INSTRUMENTS
from .stats import amount, ratio_text

# Of the axis of the plot.
TICKS = (0.25, 0.5, 0.75, 1, 1.5, 2)


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
    """Draw the ratios with their intervals, in the order of the table. path: of a new file in SVG."""
    groups = {name: {} for name in result["instruments"]}
    for row in stats.rows(result):
        if row.ratio is not None:
            groups[row.instrument].setdefault(row.name, []).append(row)
    a, b = (result["sides"][side] for side in "ab")
    draw(path, f"{b} / {a}", TICKS, groups,
         f"{stats.LEVEL:.0%} intervals; {result['command']}, commit {result['commit']}")


def compare(old, new):
    """Show which counts of side B changed from one result to another, and which times on a machine of one's own; returns
    the exit code: 1 when one became larger. Of hundreds of rows, one in a hundred differs without a cause: a change is one
    whose whole interval is beyond stats.FLOOR. The times of a machine are of one boot, and say so. Refuses results that have
    nothing of this in common."""
    before, after = stats.samples(old), stats.samples(new)
    rows = [stats.make_row(key, unit, before[key][1]["b"], sides["b"]) for key, (unit, sides) in after.items()
            if key in before and before[key][1]["b"] and sides["b"] and (unit != "ns" or key[0] == "machine")]
    if not rows:
        raise Refused("no case of side B was counted in both results with the same CPUs and workers")
    changed = [row for row in rows if row.verdict in ("slower", "faster") and (
        row.low is None or row.low >= 1 + stats.FLOOR or row.high <= 1 - stats.FLOOR)]
    slower = sum(row.verdict == "slower" for row in changed)
    if any(row.instrument == "machine" for row in rows):
        print(*(f"{name}: {result['kernels'].get(new['sides']['b'], '-')}" for name, result in (("old", old), ("new", new))),
              "times of one boot each: of the same kernel on the same machine, another boot can differ as much", sep="\n")
    show_rows(f"side B, {new['sides']['b']}", sorted(changed, key=stats.losing_first), ("old", "new"))
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
