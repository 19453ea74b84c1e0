# SPDX-License-Identifier: GPL-2.0
"""Tables: for the terminal, with rich when Python has it, else columns between tabs; and for documents."""

# Of rows that end with such a verdict of the bench.
STYLES = {"slower": "red", "faster": "green", "too few": "bold"}


def print_table(title, columns, rows):
    """Print one table. columns: names, a leading ">" aligns right, a leading "~" lets cells have more lines; rows: text cells, of
    which the last may be a verdict."""
    names = [name.lstrip(">~") for name in columns]
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
        table.add_column(name, justify="right" if column.startswith(">") else "left", no_wrap=not column.startswith("~"))
    for row in rows:
        table.add_row(*map(Text, row), style=STYLES.get(row[-1], "bold red" if "FAIL" in row[-1] else ""))
    console = Console(highlight=False)
    # A file or a pipe gets full lines without wrapped cells.
    console.width = console.width if console.is_terminal else 240
    console.print(table)


def markdown(columns, rows):
    """Return a table for a document, without an end of line. ** around a cell is a loss."""
    rule = ["---:" if name.startswith(">") else "---" for name in columns]
    lines = [[name.lstrip(">") for name in columns], rule, *rows]
    return "\n".join(" ".join(["|", " | ".join(text.replace("|", "\\|") for text in line), "|"]) for line in lines)
