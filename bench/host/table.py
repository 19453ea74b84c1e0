# SPDX-License-Identifier: GPL-2.0
"""Tables, and how they are shown: in a terminal, in documents, and in HTML pages.

What is shown is a list of parts: a line of text, a Table, or the bytes of an SVG.
"""

import base64
import html
from dataclasses import dataclass, field

from harness.settings import Refused
from harness.table import print_table

# Classes of rows in HTML, and their looks.
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 sans-serif; margin: 1rem auto; max-width: 1220px; }} img {{ max-width: 100%; }}
table {{ border-collapse: collapse; font-size: 13px; }} th, td {{ border: 1px solid #ccc; padding: .1rem .5rem; }}
.n {{ text-align: right; }} .red {{ color: #b34700; }} .green {{ color: #00704f; }} .dim {{ color: #5c5c5c; }}
</style></head><body><h1>{title}</h1>
{body}</body></html>
"""
# What stands between a mark of its own and this line of a document is written by a command.
END = "<!-- end -->\n"


@dataclass
class Table:
    """columns: names, ">" in front aligns right; rows: lists of text, with ** around a loss; styles: "red", "green",
    "dim", "bold" or "" for each row."""

    title: str
    columns: list
    rows: list
    styles: list = field(default_factory=list)

    def styled(self):
        """Return (row, style) of each row."""
        return zip(self.rows, self.styles or [""] * len(self.rows), strict=True)


def show(parts):
    """Print parts in the terminal."""
    for part in parts:
        if isinstance(part, str):
            print(part)
        else:
            plain = [[cell.replace("**", "") for cell in row] for row in part.rows]
            print_table(part.title, part.columns, plain, part.styles)


def markdown(table):
    """Return a table for a document."""
    rule = ["---:" if name.startswith(">") else "---" for name in table.columns]
    lines = [[name.lstrip(">") for name in table.columns], rule, *table.rows]
    return "".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |\n" for line in lines)


def page(title, parts):
    """Return an HTML page that needs no other file."""
    body = []
    for part in parts:
        if isinstance(part, str):
            body.append(f"<p>{html.escape(part)}</p>")
        elif isinstance(part, bytes):
            body.append(f'<p><img alt="plot" src="data:image/svg+xml;base64,{base64.b64encode(part).decode()}"></p>')
        else:
            sides = ["n" if name.startswith(">") else "" for name in part.columns]
            rows = [("th", [name.lstrip(">") for name in part.columns], ""), *(("td", *row) for row in part.styled())]
            body.append(f"<h3>{html.escape(part.title)}</h3>\n<table>\n" + "".join(
                f'<tr class="{style}">' + "".join(f'<{tag} class="{side}">{html.escape(cell.replace("**", ""))}</{tag}>'
                                                  for side, cell in zip(sides, row, strict=True)) + "</tr>\n"
                for tag, row, style in rows) + "</table>")
    return PAGE.format(title=html.escape(title), body="\n".join(body))


def put(document, mark, text):
    """Put text between the line mark and the line END of a document (a path). Refuses one that lacks them."""
    before, begin, rest = document.read_text(encoding="utf-8").partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Refused(f"{document} has no line {mark.strip()} and {END.strip()} behind it")
    document.write_text(before + begin + "\n" + text + "\n" + end + after, encoding="utf-8")


def show_or_put(document, mark, table, write):
    """Print a table in the terminal, or if write put it into a document."""
    if write:
        put(document, mark, markdown(table))
    else:
        show([table])
