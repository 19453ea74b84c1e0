# SPDX-License-Identifier: GPL-2.0
"""The tiles of snapshots as one picture in SVG, which shows under the pointer what is there; and a page to zoom it."""

import collections
import html
import math

from vmap_map import snapshot, tiles

# In cells: a tile, one of a folded area, a gap; the height of tiles, what a row of them takes, and how wide rows are.
WIDTHS = {"block": 32, "region": 32, "fold": 8, "gap": 26}
HEIGHT, ROW, MOST = 16, 25, 150
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="-2 0 {0} {1}" width="{2}" height="{3}" fill="none">
<style>text {{ font: 2.4px sans-serif; fill: #1a1a1a }} .head {{ font-size: 4px }}</style>
<pattern id="cells" width="1" height="1" patternUnits="userSpaceOnUse"><path d="M0 1V0H1" stroke="#fff" stroke-width="0.1"/></pattern>
<rect x="-2" width="100%" height="100%" fill="#fff"/>
{4}
</svg>
"""
PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ margin: 0 16px 40px; font: 14px/1.4 sans-serif; }}
#bar {{ position: sticky; top: 0; left: 0; background: #fff; padding: 6px 0; }}
svg {{ width: 100%; height: auto; }}
td {{ padding: 2px 14px 2px 0; text-align: right; border-bottom: 1px solid #ddd; }}
td:first-child {{ text-align: left; }}
</style>
<div id="bar">
<label>size <input type="range" min="100" max="1000" value="100"
 oninput="document.querySelector('svg').style.width = value + '%'"></label>
<label>owner <input type="search" placeholder="caller or type" oninput="for (const run of document.querySelectorAll('[data-owner]'))
 run.style.opacity = run.dataset.owner.includes(value.trim()) ? 1 : 0.2"></label>
</div>
{svg}
<table>
<tr>{figures}
</table>
</html>
"""


def text(x, y, words, more=""):
    """A text at a place."""
    return f'<text x="{x:g}" y="{y:g}"{more}>{html.escape(words)}</text>'


def rectangle(x, y, width, height, more, title=""):
    """A rectangle. title: what the pointer shows."""
    return (f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" {more}>'
            f'<title>{html.escape(title)}</title></rect>').replace("<title></title>", "")


def cells(first, end, width):
    """The path around some cells of a tile, row by row."""
    (row, x), (last, right) = divmod(first, width), divmod(end, width)
    return f"M{x} {row}H{width}V{last}H{right}V{last + 1}H0V{row + 1}H{x}z"


def range_text(start, size):
    """A range of addresses."""
    return f"{start:#x}-{start + size:#x}"


def draw_run(tile, at, run):
    """A run of a tile from a cell on: only the first cell of an area has the colour of a first page."""
    letter, count, owner = run
    width, unit, whole = WIDTHS[tile["kind"]], tile["bytes"] // tiles.CELLS, tile["kind"] == "fold"
    end = min(at + count, width * HEIGHT)
    paths = [(letter, at, at + 1), ("b", at + 1, end)] if letter == "B" else [(letter, at, end)]
    lines = [snapshot.STATES[letter.replace("B", "b")][1], range_text(tile["start"] + (0 if whole else at * unit), count * unit)]
    lines += [f"owner: {owner}"] if owner else []
    lines = [tile["title"], range_text(tile["start"], tile["bytes"]), *lines] if tile["kind"] == "block" else lines
    return "".join([f'<g data-owner="{html.escape(owner)}"><title>{html.escape(chr(10).join(lines))}</title>', *(
        f'<path fill="{snapshot.STATES[one][0]}" d="{cells(first, behind, width)}"/>' for one, first, behind in paths
        if first < behind), "</g>"])


def draw_tile(tile, x, y, name):
    """A tile at a place. name: where its stripe leads."""
    width, title = WIDTHS[tile["kind"]], tile["title"] or f"…{tile['start'] & 0xffffffff:08x}"
    yield f'<g id="{name}" transform="translate({x} {y})">'
    if tile["kind"] == "gap":
        yield text(width / 2, HEIGHT / 2, title, ' text-anchor="middle"')
    else:
        yield text(0, -1.2, title)
        yield rectangle(0, 0, width, HEIGHT, 'fill="#fff"', "not reserved\n" + range_text(tile["start"], tile["bytes"]))
        at = 0
        for run in tile["runs"]:
            if run[0] != " ":
                yield draw_run(tile, at, run)
            at += run[1]
        stroke = 'stroke="#000" stroke-width="0.6"' if tile.get("current") else 'stroke="#999" stroke-width="0.2"'
        yield f'<path fill="url(#cells)" {stroke} pointer-events="none" d="M0 0H{width}V{HEIGHT}H0z"/>'
    yield "</g>"


def draw_strip(found, name):
    """The whole space in one line: the part of each state of a tile, from above. Gaps have the logarithm of their size."""
    weights = [1 + math.log2(1 + tile["bytes"] / (1 << 21)) if tile["kind"] in ("gap", "fold") else 4 for tile in found]
    x, scale = 0, MOST / sum(weights)
    for number, (tile, weight) in enumerate(zip(found, weights)):
        sizes, y = collections.Counter(), 8
        for letter, count, _ in tile["runs"]:
            sizes[letter.replace("B", "b")] += count
        yield f'<a href="#{name}-{number}">'
        yield rectangle(x, 8, weight * scale, 6, 'fill="#fff"', f"{tile['title']} {range_text(tile['start'], tile['bytes'])}")
        for letter in filter(sizes.get, snapshot.STATES):
            height = 6 * sizes[letter] / tiles.CELLS
            yield rectangle(x, y, weight * scale, height, f'fill="{snapshot.STATES[letter][0]}" pointer-events="none"')
            y += height
        yield "</a>"
        x += weight * scale
    yield f'<path stroke="#999" stroke-width="0.2" d="M0 8H{MOST}v6H0z"/>'


def draw(shots, title):
    """The picture of snapshots side by side, with a legend."""
    parts, bottom = [text(0, 0, title, ' class="head" dy="5"')], 0
    for panel, shot in enumerate(shots):
        found, x, y = tiles.tiles(shot), 0, 20
        parts += [f'<g transform="translate({panel * (MOST + 8)} 8)">', text(0, 6, shot["name"], ' class="head"'),
                  *draw_strip(found, panel)]
        for number, tile in enumerate(found):
            width = WIDTHS[tile["kind"]]
            x, y = (x, y) if x + width <= MOST else (0, y + ROW)
            parts += draw_tile(tile, x, y, f"{panel}-{number}")
            x += width + 4
        parts.append("</g>")
        bottom = max(bottom, y + ROW + 8)
    legend = [*snapshot.STATES.values(), ("#fff", "* current block")]
    for number, (color, what) in enumerate(legend):
        x, y = number % 4 * 37, bottom + number // 4 * 4
        parts += [rectangle(x, y, 4, 2, f'fill="{color}" stroke="{"#000" if what[0] == "*" else "#999"}" stroke-width="0.2"'),
                  text(x + 5, y + 2, what)]
    width, height = len(shots) * (MOST + 8), bottom + 14
    return SVG.format(width, height, 5 * width, 5 * height, "\n".join(parts))


def page(picture, title, rows):
    """A page for a browser, which needs no other file and no network. rows: cells of the table of figures."""
    figures = "\n<tr>".join("".join(f"<td>{html.escape(cell)}" for cell in row) for row in rows)
    return PAGE.format(title=html.escape(title), svg=picture, figures=figures)
