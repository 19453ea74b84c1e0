# SPDX-License-Identifier: GPL-2.0
"""Results as tables and as a page of plots: "scripts/bench [run]", and the commands that only read stored results."""

import contextlib
import html
import io
import os

from ..settings import Refused, say, write

from . import results, stats, table
from .stats import amount, ratio_text
from .table import Table

# In plots: colours of Okabe and Ito, and markers.
MARKS = {"slower": ("#d55e00", "^"), "too few": ("#cc79a7", "x"), "no difference": ("#777777", "o"),
         "faster": ("#009e73", "v")}
# CPUs x workers of the documents. With one CPU, the rb-trees of Linux 7.3 run without their pools of ranges.
BASES = ("1x1", "2x1", "8x1", "8x8")
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1>
{plots}
<pre>{text}</pre></body></html>
"""


def rows_table(title, rows, sides):
    """Return the table of some rows. sides: names of both."""
    def cells(row):
        interval = "-" if row.low is None else f"{ratio_text(row.low)} to {ratio_text(row.high)}"
        return [row.name, row.size, amount(row.median_a, row.unit), amount(row.median_b, row.unit),
                ratio_text(row.ratio), interval, row.verdict]
    columns = ["case", "NxM", *(f">{side}" for side in sides), ">ratio", ">interval", "verdict"]
    return Table(title, columns, [cells(row) for row in rows])


def failures(result):
    """Return a line for each boot that does not count, and for each case that was skipped."""
    lines = {}
    for boot in result["boots"]:
        if boot["status"] != "ok":
            lines[f"boot does not count: {boot['instrument']} {boot['plan']} {boot['side']} ({boot['allocator']}) "
                  f"repetition {boot['repetition']}: {boot['status']}"] = None
            continue
        for skip in boot["skips"]:
            lines[f"skipped: {boot['instrument']} {skip['case']} {boot['cpus']}x{skip['threads']}, {boot['allocator']}: "
                  f"{skip['reason']}"] = None
    return list(lines)


def result_parts(result):
    """Return all that was measured, and what was not, as parts of table.show()."""
    sides = [f"{side.upper()} {name}" for side, name in result["sides"].items()]
    every = stats.rows(result)
    parts = [f"{result['command']}, {result['started']}, commit {result['commit']}, {', '.join(result['kernels'])}",
             "NxM is CPUs x workers; values are medians over boots, lower is better; instr: instructions of all CPUs for one "
             f"operation; a verdict needs p < {stats.ALPHA} and {stats.FLOOR:.0%} difference; intervals of the ratio are "
             f"{stats.LEVEL:.0%}; rows that lose come first"]
    for name, instrument in result["instruments"].items():
        rows = [row for row in every if row.instrument == name]
        if rows:
            parts.append(rows_table(f"{name}: {instrument['what']}", rows, sides))
        numbers = [f"{sum(row.verdict == verdict for row in rows)} {verdict}" for verdict in reversed(stats.VERDICTS)]
        parts.append(f"{name}: {', '.join(numbers)}")
    return [*parts, *failures(result)]


def plot(rows, label):
    """Return an SVG of the ratios of rows with their intervals, the first on top. label: of the axis."""
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel # it takes a second to import
    pyplot.switch_backend("Agg")
    figure, axes = pyplot.subplots(figsize=(12, 1.4 + 0.19 * len(rows)), layout="constrained")
    for y, row in enumerate(rows):
        color, marker = MARKS[row.verdict]
        axes.plot(row.ratio, y, marker, color=color)
        if row.low is not None:
            axes.hlines(y, row.low, row.high, color=color, linewidth=2, alpha=0.6)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", xlabel=label, ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), [f"{row.name}  {row.size}: {row.verdict}" for row in rows], fontsize=8)
    axes.grid(alpha=0.3)
    with io.StringIO() as out:
        figure.savefig(out, format="svg")
        pyplot.close(figure)
        return out.getvalue()[out.getvalue().index("<svg"):]


def page(result):
    """Return the HTML page of a result: a plot for each instrument, all that "show" prints, and how it was taken."""
    sides, every, plots = result["sides"], stats.rows(result), []
    for name in result["instruments"]:
        if rows := [row for row in every if row.instrument == name and row.ratio is not None]:
            plots.append(plot(rows, f"{name}: ratio {sides['b']} / {sides['a']}, {stats.LEVEL:.0%} interval"))
    with contextlib.redirect_stdout(io.StringIO()) as text:
        table.show([*result_parts(result), f"Command: {result['command']}", f"Host: {result['host']}",
                    *(f"Kernel {name}: {what}" for name, what in result["kernels"].items())])
    return PAGE.format(title=html.escape(f"vmap-rust bench: {sides['b']} against {sides['a']}"),
                       plots="\n".join(plots), text=html.escape(text.getvalue()))


def bases_cell(row):
    """Return both medians, the ratio with its interval, and a mark when Rust lost."""
    if row is None or row.median_a is None or row.median_b is None:
        return ""
    ratio = f"{row.ratio:.2f}" if row.ratio else "-"
    if row.low is not None and row.high - row.low >= 0.02:
        ratio += f" ({row.low:.2f} to {row.high:.2f})"
    text = f"{amount(row.median_a)} -> {amount(row.median_b)}, {ratio}"
    return f"**{text}**" if row.verdict == "slower" else text


def figures(result):
    """Return the two tables of docs/bench.md: cases with at least two of the bases side by side; and what is not
    measured by the guest's clock, with all metrics of a case in one cell."""
    cases, others = {}, {}
    for row in stats.rows(result):
        if row.instrument == "icount" and row.case != "memory":
            if row.size in BASES and row.metric != "tables":
                cases.setdefault(row.name, {})[row.size] = row
            continue
        unit = "" if row.unit.lower() in row.metric else row.unit
        text = f"{row.metric} {amount(row.median_a)} -> {amount(row.median_b, unit)}"
        texts = others.setdefault((row.case, row.size, row.instrument), [])
        texts.append(f"**{text}**" if row.verdict == "slower" else text)
    made = [[f"`{name}`", *(bases_cell(sizes.get(size)) for size in BASES)]
            for name, sizes in cases.items() if len(sizes) > 1]
    rest = [[*key, ", ".join(texts)] for key, texts in others.items()]
    return [Table("all bases", ["case", *(f">{size}" for size in BASES)], made),
            Table("the rest", ["case", "CPUs x workers", "instrument", " -> ".join(result["sides"].values())], rest)]


def three_sides(rbtree, rust):
    """Return the table of docs/mapping.md, a row for each case: the pristine kernel, and the series with each
    allocator. rbtree, rust: results whose side A is the pristine kernel, and side B the allocator of their name. How
    many tables a mapping has depends on where it is: they are left out."""
    other = {row.key: row for row in stats.rows(rbtree)}
    cells, sizes = {}, {}
    for row in sorted(stats.rows(rust), key=lambda r: r.key):
        twin = other.get(row.key)
        medians = (row.median_a, twin and twin.median_b, row.median_b)
        if None in medians or row.metric == "tables":
            continue
        sizes[row.size] = None
        cells.setdefault(row.name, {})[row.size] = " -> ".join(map(amount, medians))
    return Table("three sides", ["case", *(f">{size}" for size in sizes)],
                 [[name, *(cell.get(size, "") for size in sizes)] for name, cell in cells.items()])


def compare(old, new):
    """Show which counts of side B changed from one result to another; returns the exit code: 1 when one became larger.
    Of hundreds of rows, one in a hundred differs without a cause: a change is one whose whole interval is beyond
    stats.FLOOR. Refuses results that have no count in common."""
    before, after = stats.samples(old), stats.samples(new)
    rows = [stats.make_row(key, unit, before[key][1]["b"], sides["b"]) for key, (unit, sides) in after.items()
            if key in before and before[key][1]["b"] and sides["b"] and new["instruments"][key[0]]["absolute"]]
    if not rows:
        raise Refused("the two results have no count in common")
    changed = [row for row in rows if row.verdict in ("slower", "faster") and (
        row.low is None or row.low >= 1 + stats.FLOOR or row.high <= 1 - stats.FLOOR)]
    slower = sum(row.verdict == "slower" for row in changed)
    parts = [f"{slower} slower, {len(changed) - slower} faster, {len(rows) - len(changed)} as before"]
    if changed:
        parts.insert(0, rows_table(f"counts of side B, {new['sides']['b']}", sorted(changed, key=stats.losing_first),
                                   ("old", "new")))
    table.show(parts)
    return 1 if slower else 0


def run(args):
    """Measure as the options say, store each result and its page, and show it; returns the exit code: 1 if a boot or a
    case failed."""
    try:
        results.FOLDER.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise Refused(f"cannot write to {results.FOLDER}") from None
    command = os.environ.get("VMAP_RUST_BENCH_COMMAND") or " ".join(["scripts/bench", *args.words])
    name, made = results.now("%Y%m%d-%H%M%S"), []
    for args.b in ("rbtree", "rust") if args.set == "sides" else (args.b,):
        result, logs = results.measure(args, command)
        output = results.FOLDER / f"{name}{f'-{args.b}' * (args.set == 'sides')}.json"
        results.save(output, result)
        table.show(result_parts(result))
        write(output.with_suffix(".html"), page(result))
        say(f"result: {output}\npage:   {output.with_suffix('.html')}\nlogs:   {logs}")
        made.append(result)
    if args.set == "sides":
        table.show([three_sides(*made)])
    return int(any(boot["status"] != "ok" or any(skip["reason"].startswith("failed") for skip in boot["skips"])
                   for result in made for boot in result["boots"]))


def main(name, args):
    """Run one of these commands; returns the exit code."""
    if name == "run":
        return run(args)
    loaded = [results.load(path) for path in args.results]
    if name == "compare":
        return compare(*loaded)
    if name == "sides":
        table.show_or_put([three_sides(*loaded)], name, args.write)
    elif name == "figures":
        head = f"`{loaded[0]['command']}`, commit {loaded[0]['commit']}. Rows with a loss first, losses bold."
        table.show_or_put(figures(*loaded), name, args.write, head)
    else:
        table.show(result_parts(*loaded))
    return 0
