# SPDX-License-Identifier: GPL-2.0
"""Figures and a map of snapshots for the terminal. A map has a line for each tile; letters say the same as colours."""

import sys

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vmap_map import figures, tiles

# Letter: colour of Okabe and Ito, and meaning. The page has the same ones.
STATES = {
    "B": ("#0072B2", "busy"),
    "b": ("#56B4E9", "busy, less than half of it"),
    "u": ("#CC79A7", "leaving"),
    "l": ("#E69F00", "lazy"),
    "f": ("#F0E442", "being flushed"),
    ".": ("#bbbbbb", "free in a block"),
    "?": ("#888888", "changing"),
    "!": ("#D55E00", "leaked"),
    "-": ("#009E73", "behind the last slot"),
}
WIDTH = 64


def title_of(tile):
    """What the tile is, in a few words."""
    if tile["kind"] == "block":
        return f"CPU {tile['cpu']}{'*' if tile['current'] else ' '} {figures.size_text(tile['slot'])}"
    if tile["kind"] == "fold":
        return figures.size_text(tile["bytes"])
    return ""


def line_of(tile):
    """The line of a tile."""
    if tile["kind"] == "gap":
        return Text(f"{'':18} gap of {figures.size_text(tile['bytes'])}", style="dim")
    line = Text(f"{tile['start']:#018x} {title_of(tile):<14} ")
    for letter in tiles.bins(tile, WIDTH):
        color = STATES.get(letter, ("",))[0]
        line.append(letter, style=f"black on {color}" if color and letter != "." else "dim")
    return line


def show(shots, rows, lines):
    """Print the figures of all snapshots and, if `lines` is not 0, at most that many lines of the map of each."""
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console.width = 120
    table = Table(box=box.ROUNDED)
    table.add_column("figure")
    for shot in shots:
        table.add_column(shot["name"], justify="right")
    for name, cells in figures.rows_for(shots, rows):
        table.add_row(name, *cells)
    console.print(table)
    if any(shot.get("range_known") is False for shot in shots):
        console.print("The range of vmalloc space is not known: gaps below the first and above the last area do not count.", style="dim")
    if not lines:
        return
    for shot in shots:
        drawn = tiles.tiles(shot)
        console.print(Text(f"\n{shot['name']}: {len(drawn)} lines; * is a current block; a size is that of its slots", style="bold"))
        for tile in drawn[:lines]:
            console.print(line_of(tile), soft_wrap=True)
        if len(drawn) > lines:
            console.print(Text(f"... {len(drawn) - lines} more lines: --lines {len(drawn)}", style="dim"))
    legend = Text("\n")
    for letter, (color, meaning) in STATES.items():
        legend.append(f" {letter} ", style=f"black on {color}")
        legend.append(f" {meaning}  ")
    console.print(legend)
