# SPDX-License-Identifier: GPL-2.0
"""Shows and compares stored results: the commands of scripts/bench that only read them."""

from harness.settings import REPO

from . import stats, store, table
from .stats import amount, interval_text, ratio_text
from .table import Table

STYLES = {"slower": "red", "faster": "green", "no difference": "dim", "too few": "bold", "one side": "dim"}
# CPUs x workers of the documents. With one CPU, the rb-trees of Linux 7.3 run without their pools of ranges.
BASES = ("1x1", "2x1", "8x1", "8x8")
FIGURES, FIGURES_MARK = REPO / "docs/bench.md", "<!-- written by scripts/bench figures -->\n"
SIDES, SIDES_MARK = REPO / "docs/mapping.md", "<!-- written by scripts/bench sides -->\n"


def rows_table(title, rows, sides):
    """Return the table of some rows. sides: names of both."""
    columns = ["case", "NxM", *(f">{side}" for side in sides), ">ratio", ">interval", "verdict"]
    return Table(title, columns, [
        [row.name, row.size, amount(row.median_a, row.unit), amount(row.median_b, row.unit), ratio_text(row.ratio),
         interval_text(row), row.verdict] for row in rows], [STYLES[row.verdict] for row in rows])


def failures(result):
    """Yield a line for each case that was skipped, and for each boot that does not count."""
    lines = {}
    for boot in result["boots"]:
        where = f"{boot['instrument']} {boot['plan']} {boot['side']} ({boot['allocator']})"
        if boot["status"] != "ok":
            lines[f"boot does not count: {where} repetition {boot['repetition']}: {boot['status']}"] = None
        for skip in boot["skips"] if boot["status"] == "ok" else ():
            size = f"{boot['cpus']}x{skip['threads']}"
            lines[f"skipped: {boot['instrument']} {skip['case']} {size}: {skip['reason']}"] = None
    yield from lines


def result_parts(result):
    """Return all that was measured, and what was not, as parts of table.py."""
    sides = [f"{side.upper()} {name}" for side, name in result["sides"].items()]
    every = stats.rows(result)
    parts = [f"vmap-rust bench: {result['set']} set of {result['started']}, commit {result['commit']}",
             "NxM is CPUs x workers; values are medians over boots, lower is better; a verdict needs p < "
             f"{stats.ALPHA} and {stats.FLOOR:.0%} difference; intervals are {stats.LEVEL:.0%}"]
    for name, instrument in result["instruments"].items():
        rows = [row for row in every if row.instrument == name]
        if rows:
            parts.append(rows_table(f"{name}: {instrument['what']}", rows, sides))
        parts.append(f"{name}: {stats.summary(rows)}")
    return [*parts, *failures(result)]


def page(result):
    """Return the HTML page of a result: a plot for each instrument, and all that result_parts() has."""
    from . import plots  # pylint: disable=import-outside-toplevel # it takes a second to import
    sides = result["sides"]
    plotted = (plots.ratios([row for row in stats.rows(result) if row.instrument == name],
                            f"{name}: ratio {sides['b']} / {sides['a']}, {stats.LEVEL:.0%} interval")
               for name in result["instruments"])
    taken = [f"Command: {result['command']}", f"Host: {result['host']}",
             *(f"Kernel {name}: {text}" for name, text in result["kernels"].items())]
    return table.page(f"vmap-rust bench: {sides['b']} against {sides['a']}",
                      [*filter(None, plotted), *result_parts(result), *taken])


def bases_cell(row):
    """Return both medians, the ratio with its interval, and a mark when Rust lost."""
    if row is None or row.median_a is None or row.median_b is None:
        return ""
    ratio = f"{row.ratio:.2f}" if row.ratio else "-"
    if row.low is not None and row.high - row.low >= 0.02:
        ratio += f" ({row.low:.2f} to {row.high:.2f})"
    text = f"{amount(row.median_a)} -> {amount(row.median_b)}, {ratio}"
    return f"**{text}**" if row.verdict == "slower" else text


def loss_styles(rows):
    """Return the style of each row: red where a cell has a loss."""
    return ["red" if any("**" in cell for cell in row) else "" for row in rows]


def figures(result):
    """Return the two tables of the documents: cases with at least two of the bases side by side; and what is not measured
    by the guest's clock, with all metrics of a case in one cell."""
    cases, others = {}, {}
    for row in stats.rows(result):
        if row.instrument == "icount" and row.case != "memory":
            if row.size in BASES and row.metric != "tables":
                cases.setdefault(row.name, {})[row.size] = row
            continue
        key = row.case, row.size, row.instrument
        unit = "" if row.unit.lower() in row.metric else row.unit
        text = f"{row.metric} {amount(row.median_a)} -> {amount(row.median_b, unit)}"
        others.setdefault(key, []).append(f"**{text}**" if row.verdict == "slower" else text)
    made = [[f"`{name}`", *(bases_cell(sizes.get(size)) for size in BASES)]
            for name, sizes in cases.items() if len(sizes) > 1]
    rest = [[*key, ", ".join(texts)] for key, texts in others.items()]
    return [Table("all bases", ["case", *(f">{size}" for size in BASES)], made,
                  loss_styles(made)),
            Table("the rest", ["case", "CPUs x workers", "instrument", " -> ".join(result["sides"].values())],
                  rest, loss_styles(rest))]


def write_figures(result):
    """Put the tables of a result into the document."""
    head = f"`{result['command']}`, commit {result['commit']}. Rows with a loss first, losses bold.\n\n"
    table.put(FIGURES, FIGURES_MARK, head + "\n".join(map(table.markdown, figures(result))))


def sides(rbtree, rust):
    """Return one table of three sides, a row for each case: the pristine kernel, and the series with each allocator.
    rbtree, rust: results whose side A is the pristine kernel, and side B the allocator of their name. Red: a side takes
    more than the pristine kernel. How many tables a mapping has depends on where it is: they are left out."""
    other = {row.key: row for row in stats.rows(rbtree)}
    cells, styles, sizes = {}, {}, {}
    for row in sorted(stats.rows(rust), key=lambda r: r.key):
        twin = other.get(row.key)
        if twin is None or row.median_a is None or row.name.endswith(" tables"):
            continue
        medians = (row.median_a, twin.median_b, row.median_b)
        sizes[row.size] = None
        cells.setdefault(row.name, {})[row.size] = " -> ".join(map(amount, medians))
        if any(row.median_a and median > row.median_a * (1 + stats.FLOOR) for median in medians[1:]):
            styles[row.name] = "red"
    return Table("three sides", ["case", *(f">{size}" for size in sizes)],
                 [[name, *(cell.get(size, "") for size in sizes)] for name, cell in cells.items()],
                 [styles.get(name, "") for name in cells])


def side_b(result, absolute):
    """Per key of a row (unit, values) of side B: as measured, or divided by side A's of the same repetition."""
    found = {}
    for key, (unit, of) in stats.samples(result).items():
        values = list(of["b"].values())
        if not absolute.get(key[0]):
            # Another day is another speed of the host. A ratio to nothing is none: such a repetition does not count.
            base = {boot[:2]: value for boot, value in of["a"].items()}
            unit, values = "b/a", [value / base[boot[:2]] for boot, value in of["b"].items() if base.get(boot[:2])]
        if values:
            found[key] = (unit, values)
    return found


def is_beyond(row):
    """Tell whether a row is a change to act on: its whole interval is outside of what counts as no difference. Of
    hundreds of rows, one in a hundred differs without a cause."""
    if row.verdict not in ("slower", "faster") or row.ratio is None:
        return row.verdict in ("slower", "faster")
    return row.low is not None and (row.low >= 1 + stats.FLOOR or row.high <= 1 - stats.FLOOR)


def compare(old, new):
    """Show what changed from old to new on side B. Returns 1 when something became slower, else 0."""
    absolute = {name: one["absolute"] for name, one in new["instruments"].items()}
    before, after = side_b(old, absolute), side_b(new, absolute)
    common = sorted(before.keys() & after.keys())
    if not common:
        table.show(["the two results have no row in common: nothing to compare"])
        return 1
    rows = sorted((stats.make_row(key, after[key][0], before[key][1], after[key][1]) for key in common),
                  key=stats.losing_first)
    parts = [f"warning: {what} differs: {old[what]} -> {new[what]}" for what in ("host", "sides", "kernels")
             if old[what] != new[what]]
    changed = [row for row in rows if is_beyond(row)]
    for name in new["instruments"]:
        if mine := [row for row in changed if row.instrument == name]:
            parts.append(rows_table(f"{name}, side B: {new['sides']['b']}", mine, ("old", "new")))
    for name, keys in (("old", before.keys() - after.keys()), ("new", after.keys() - before.keys())):
        if keys:
            parts.append(f"only in the {name} result: " + ", ".join(" ".join(map(str, key)) for key in sorted(keys)))
    slower = sum(row.verdict == "slower" for row in changed)
    table.show([*parts, f"{slower} slower, {len(changed) - slower} faster, {len(rows) - len(changed)} as before"])
    return 1 if slower else 0


def main(name, args):
    """Run one of these commands on the results that it names; returns the exit code."""
    results = [store.load(path) for path in args.results]
    if name == "compare":
        return compare(*results)
    if name == "sides":
        table.show_or_put(SIDES, SIDES_MARK, sides(*results), args.write)
    elif name == "figures":
        write_figures(*results) if args.write else table.show(figures(*results))
    elif args.output:
        store.write(args.output, page(*results).encode())
    else:
        table.show(result_parts(*results))
    return 0
