# SPDX-License-Identifier: GPL-2.0
"""Tables for the terminal: with rich when Python has it, else plain columns."""


def print_table(title, columns, rows, styles=()):
    """Print one table. columns: names, a leading ">" aligns right; rows: text cells; styles: one rich style per row, or
    ""."""
    names = [c.lstrip(">") for c in columns]
    right = [c.startswith(">") for c in columns]
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        print(title)
        width = [max(len(r[i]) for r in [names, *rows]) for i in range(len(names))]
        for row in [names, *rows]:
            print("  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, width, right)).rstrip())
        return
    table = Table(title=Text(title), box=box.ROUNDED, title_justify="left")
    for name, align in zip(names, right):
        table.add_column(name, justify="right" if align else "left", no_wrap=True)
    for number, row in enumerate(rows):
        table.add_row(*map(Text, row), style=styles[number] if styles else "")
    console = Console(highlight=False)
    # A file or a pipe gets full lines without wrapped cells.
    console.width = console.width if console.is_terminal else 240
    console.print(table)
