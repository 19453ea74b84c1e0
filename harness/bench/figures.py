# SPDX-License-Identifier: GPL-2.0
"""The tables that documents quote, made from a stored result: "scripts/bench figures"."""

import re

import numpy as np

from ..machine.settings import REPO, Refused
from ..machine.table import markdown

from . import complaints, pictures, stats
from .native_report import pings, places
from .pictures import BEGIN, END
from .plan import CLOCKS, guest_cases
from .stats import amount

# CPUs x workers of the documents. With one CPU, the rb-trees of Linux 7.3 run without their pools of ranges.
SIZES = ("1x1", "2x1", "8x1", "8x8")
# Columns of README.md, and its rows: what one operation is. Cases that lose follow, whichever they are.
README_SIZES = {"2x1": "2 CPUs, 1 busy", "8x8": "8 CPUs, all busy"}
QUOTED = {"area_pair": "reserve and free a page", "area_4": "reserve and free four pages",
          "area_4096": "reserve and free 16 MiB",
          "lookup_inner_1k": "find_vm_area() in one of 1,000 areas", "vmalloc_pair": "vmalloc() and vfree() of a page",
          "stack": "vmalloc() and vfree() of a kernel stack"}
# Cases of scripts/bench native that README.md quotes, and its columns: instrument, threads, title.
QUOTED_NATIVE = {"area_pair": "reserve and free a page",
                 "area_64": "reserve and free 64 pages", "mixed_1k": "replace one of 1,000 areas, mixed sizes",
                 "area_remote": "reserve; another CPU frees",
                 "find_1k": "find the area of an address, of 1,000"}
NATIVE_COLUMNS = [("native", 1, "1 CPU"), ("native", 2, "2 CPUs"), ("native-calls", 1, "1 CPU, Rust without inlined helpers")]
# Metrics of the table "rest" that say the same as others there, or of what others are sums: they are only in the result.
PARTS = ("in_", "slabs_", "read_misses", "write_misses", "tlbi")
# The document of each table, between lines as BEGIN and END.
DOCUMENTS = {"readme": "README.md", "icount": "docs/bench.md", "rest": "docs/bench.md",
             "readme-native": "README.md", "native": "docs/bench.md", "complaints": "docs/bench.md",
             "readme-complaints": "README.md"}


def lost(row):
    """Tell whether side B lost: by the verdict, or with few passes of a clock by the interval alone."""
    return row.verdict == "slower" or (row.instrument in CLOCKS and (row.low or 0) > 1)


def cell(row, twins=()):
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
    return f"**{text}**" if lost(row) else text


def readme_cell(row):
    """Return the medians of a row and by how much the second differs from the first, for README.md; bold if side B lost."""
    change = f" ({row.median_b / row.median_a - 1:+.0%})" if row.median_a else ""
    text = f"{amount(row.median_a)} -> {amount(row.median_b)}{change}"
    return f"**{text}**" if lost(row) else text


def by_size(rows, one_cell):
    """Return {name of a row: {CPUs x workers: cell}}, in the order of the rows."""
    found = {}
    for row in rows:
        found.setdefault(row.name, {})[row.size] = one_cell(row)
    return found


def readme_table(rows):
    """Return the table of README.md: QUOTED, and then all that loses with its CPUs and workers."""
    rows = [row for row in rows if row.size in README_SIZES]
    texts = QUOTED | {row.name: guest_cases().get(row.case, row.case) for row in rows if lost(row)}
    cells = by_size(rows, readme_cell)
    return markdown(["operation", *(f">{title}" for title in README_SIZES.values())],
                    [[text, *(cells[name].get(size, "-") for size in README_SIZES)]
                     for name, text in texts.items() if name in cells])


def native_tables(result):
    """Return the tables of a result of scripts/bench native: that of README.md, and all of its cases."""
    rows = {(row.instrument, row.threads, row.case): row for row in stats.rows(result) if row.metric == "cost"}
    quoted = [[text, *(readme_cell(rows[instrument, threads, case]) if (instrument, threads, case) in rows else "-"
                       for instrument, threads, _ in NATIVE_COLUMNS)] for case, text in QUOTED_NATIVE.items()]
    lines = []

    def longest(passes):
        """Return the longest of all single operations, in microseconds."""
        return amount(round(max(one["max"] for one in passes) / 1000, 1))

    for (case, threads, place), sides in places(result["native"])[0].items():
        if place != "far":
            times = pings(sides)
            lines.append([f"`{case}`", str(threads), f"{np.median(times):.0f} ns" if times else "",
                          *(cell(rows[instrument, threads, case]) for instrument in ("native", "native-calls")),
                          f"{longest(sides['rbtree'])} -> {longest(sides['rust'])}"])
    return {"readme-native": markdown(["operation", *(f">{title}" for _, _, title in NATIVE_COLUMNS)], quoted),
            "native": markdown(["case", ">threads", ">line there and back", ">rb-trees -> Rust",
                                ">rb-trees -> Rust, helpers as calls", ">longest, us"], lines)}


def tables(result, *others):
    """Return the text of each table by name, each with the command and the commit above it. Of a single result: that of
    README.md, "icount" with CPUs and workers side by side, and the "rest", which the guest's clock does not measure.
    others: results with the same side A, whose side B is shown, too. How many tables a mapping has depends on where it is:
    they are left out. A result of scripts/bench native has tables of its own."""
    head = f"`{result['command']}`, commit {result['commit']}."
    if "native" in result:
        return {name: f"{head}\n\n{text}\n" for name, text in native_tables(result).items()}
    if result["command"].startswith("scripts/bench complaints"):
        return {name: f"{head}\n\n{text}\n" for name, text in complaints.tables(result).items()}
    twins = [{row.key: row for row in stats.rows(other)} for other in others]
    every = [row for row in stats.rows(result) if row.metric != "tables"]
    clock = [row for row in every if row.instrument == "icount" and row.case != "memory"]
    cells = by_size(clock, lambda row: cell(row, twins))
    sizes = [size for size in SIZES if any(size in found for found in cells.values())]
    made = {
        "readme": readme_table(clock),
        "icount": markdown(["case", *(f">{size}" for size in sizes)],
                           [[f"`{name}`", *(found.get(size, "") for size in sizes)] for name, found in cells.items()]),
        "rest": markdown(["case", "CPUs x workers", "instrument", ">" + " -> ".join(result["sides"].values())],
                         [[row.name, row.size, row.instrument, cell(row, twins)] for row in every
                          if row not in clock and not row.metric.startswith(PARTS)])}
    return {name: f"{head}{' Rows with a loss first, losses bold.' if name != 'readme' else ''}\n\n{text}\n"
            for name, text in made.items() if not (others and name == "readme")}


def put(name, text):
    """Replace a table in its document. Refuses a document that does not have the two lines around it."""
    path = REPO / DOCUMENTS[name]
    old = path.read_text(encoding="utf-8")
    begin = BEGIN.format(name)
    new, count = re.subn(f"({begin}\n).*?({END})", lambda lines: f"{lines[1]}{text}{lines[2]}", old, flags=re.DOTALL)
    if count != 1:
        raise Refused(f'{path}: needs a line "{begin}" where the table belongs, and "{END}" behind it')
    path.write_text(new, encoding="utf-8")


def main(_name, args):
    """Print the tables, and with --write put them into the documents and draw them; returns the exit code."""
    made = tables(*args.results)
    print("\n".join(made.values()))
    for name, text in made.items() if args.write else ():
        put(name, text)
    return pictures.main() if args.write else 0
