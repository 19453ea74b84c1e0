# SPDX-License-Identifier: GPL-2.0
"""Tables, and where they are shown: in the terminal, or in a document, where a command replaces what it has written."""

from dataclasses import dataclass

from ..settings import REPO, Refused, write
from ..table import print_table

# Of rows with such a cell in the terminal.
STYLES = {"slower": "red", "faster": "green", "no difference": "dim", "too few": "bold", "one side": "dim",
          "failed": "red"}
# Where --write puts the tables of a command.
DOCUMENTS = {"figures": "docs/bench.md", "hook": "docs/bench.md", "programs": "docs/bench.md",
             "sides": "docs/mapping.md", "patches": "docs/mapping.md"}
# In a document, a command writes between a line that names it and this one.
END = "<!-- end -->\n"


@dataclass
class Table:
    """columns: names, ">" in front aligns right; rows: lists of text, with ** around a loss."""

    title: str
    columns: list
    rows: list


def style_of(row):
    """Return the colour of a row in the terminal: that of its verdict, or red for a loss."""
    for cell in row:
        if cell in STYLES:
            return STYLES[cell]
    return "red" if any("**" in cell for cell in row) else ""


def show(parts):
    """Print parts, each a Table or a line of text, in the terminal."""
    for part in parts:
        if isinstance(part, str):
            print(part)
        else:
            plain = [[cell.replace("**", "") for cell in row] for row in part.rows]
            print_table(part.title, part.columns, plain, list(map(style_of, part.rows)))


def markdown(table):
    """Return a table for a document."""
    rule = ["---:" if name.startswith(">") else "---" for name in table.columns]
    lines = [[name.lstrip(">") for name in table.columns], rule, *table.rows]
    return "".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |\n" for line in lines)


def put(command, text):
    """Put text into the document of a command, as what scripts/bench COMMAND has written. Refuses one that has no place
    for it."""
    path, mark = REPO / DOCUMENTS[command], f"<!-- written by scripts/bench {command} -->\n"
    before, begin, rest = path.read_text(encoding="utf-8").partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Refused(f"{path} has no line {mark.strip()} and {END.strip()} behind it")
    write(path, f"{before}{begin}\n{text}\n{end}{after}")


def show_or_put(tables, command, write, head=""):
    """Print tables in the terminal, or if write put them into the document of their command, below a line of text."""
    if write:
        put(command, (head and head + "\n\n") + "\n".join(map(markdown, tables)))
    else:
        show(tables)
