# SPDX-License-Identifier: GPL-2.0
"""Tables for the terminal: with rich when Python has it, else columns between tabs."""


def print_table(title, columns, rows, styles=()):
    """Print one table. columns: names, a leading ">" aligns right; rows: text cells; styles: one rich style per row, or
    ""."""
    names = [name.lstrip(">") for name in columns]
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        print(title, *map("\t".join, [names, *rows]), sep="\n")
        return
    table = Table(title=Text(title), box=box.ROUNDED, title_justify="left")
    for name, column in zip(names, columns):
        table.add_column(name, justify="right" if name != column else "left", no_wrap=True)
    for number, row in enumerate(rows):
        table.add_row(*map(Text, row), style=styles[number] if styles else "")
    console = Console(highlight=False)
    # A file or a pipe gets full lines without wrapped cells.
    console.width = console.width if console.is_terminal else 240
    console.print(table)
