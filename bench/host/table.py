# SPDX-License-Identifier: GPL-2.0
"""Tables of a result for the terminal."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import stats

STYLES = {"slower": "red", "faster": "green", "no difference": "dim", "too few": "yellow", "one side": "dim"}


def make_console():
    """A console on standard output. Into a file or a pipe lines are as long as they have to be."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 240
    return console


def say(console, text, style=""):
    """Print one line, which only a terminal wraps."""
    console.print(Text(text, style=style), soft_wrap=True)


def print_table(console, columns, cells, styles=None):
    """Print one table. columns: names, ">" in front aligns right; cells: rows of text; styles: a rich style per
    row."""
    table = Table(box=box.ROUNDED)
    for name in columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left", no_wrap=True)
    for row, style in zip(cells, styles or [""] * len(cells), strict=True):
        table.add_row(*map(Text, row), style=style)
    console.print(table)


def print_instrument(console, result, instrument, some):
    """Print the table of one instrument, its summary, and what is missing from it."""
    say(console, f"{instrument}: {result['instruments'][instrument]['what']}", "bold")
    if some:
        sides = [f">{side.upper()} {result['sides'][side]}" for side in "ab"]
        columns = ["case", "NxM", *sides, ">B/A", "interval", "verdict"]
        cells = [[row.name, row.size, stats.amount(row.median_a, row.unit), stats.amount(row.median_b, row.unit),
                  stats.ratio_text(row.ratio), stats.interval_text(row), row.verdict] for row in some]
        print_table(console, columns, cells, [STYLES[row.verdict] for row in some])
    for row in some:
        if row.case.startswith("whole_api") and row.median_a and row.median_b:
            say(console, f"{row.case} {row.size}: operations per second: {1e9 / row.median_a:,.0f} and "
                         f"{1e9 / row.median_b:,.0f}")
    skipped = stats.skips(result, instrument)
    say(console, stats.summary(some, len(skipped)))
    for case, size, reason in skipped:
        say(console, f"skipped: {case} {size}: {reason}")
    print_dead(console, result, instrument)
    say(console, "")


def print_dead(console, result, instrument):
    """Print the boots of an instrument that do not count."""
    for which, _, status in stats.dead(result, instrument):
        say(console, f"boot does not count: {which}: {status}", "red")


def print_result(result):
    """Print everything that was measured, and what was not."""
    console = make_console()
    say(console, f"vmap-rust bench: {result['set']} set of {result['started']}, commit {result['commit']}")
    say(console, "NxM is CPUs x threads; values are medians over boots, lower is better; "
                 f"a verdict needs p < {stats.ALPHA} and {stats.FLOOR:.0%} difference; intervals are {stats.LEVEL:.0%}")
    say(console, "")
    every = stats.rows(result)
    for instrument in stats.used(result):
        print_instrument(console, result, instrument, [row for row in every if row.instrument == instrument])
    for name, instrument in result["instruments"].items():
        if not instrument["used"]:
            say(console, f"{name} was not measured: {instrument['reason']}")
            print_dead(console, result, name)
