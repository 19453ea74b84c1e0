# SPDX-License-Identifier: GPL-2.0
"""Tables, in the terminal or for a document. Columns are names, ">" in front aligns right; rows are lists of text."""

from ..table import print_table

# Of rows that end with such a verdict.
STYLES = {"slower": "red", "faster": "green", "too few": "bold"}


def show(title, columns, rows):
    """Print a table in the terminal."""
    print_table(title, columns, rows, [STYLES.get(row[-1], "") for row in rows])


def markdown(columns, rows):
    """Return a table for a document, without an end of line. ** around a cell is a loss."""
    rule = ["---:" if name.startswith(">") else "---" for name in columns]
    lines = [[name.lstrip(">") for name in columns], rule, *rows]
    return "\n".join(" ".join(["|", " | ".join(text.replace("|", "\\|") for text in line), "|"]) for line in lines)
