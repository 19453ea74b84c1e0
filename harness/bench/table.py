# SPDX-License-Identifier: GPL-2.0
"""Tables, in the terminal or for a document. Columns are names, ">" in front aligns right; rows are lists of text."""

from ..table import print_table

# Of rows that end with such a verdict.
STYLES = {"slower": "red", "faster": "green", "too few": "bold"}


def show(title, columns, rows):
    """Print a table in the terminal."""
    print_table(title, columns, rows, [STYLES.get(row[-1], "") for row in rows])


def print_markdown(columns, rows):
    """Print a table for a document. ** around a cell is a loss."""
    rule = ["---:" if name.startswith(">") else "---" for name in columns]
    for line in [[name.lstrip(">") for name in columns], rule, *rows]:
        print("|", " | ".join(text.replace("|", "\\|") for text in line), "|")
    print()
