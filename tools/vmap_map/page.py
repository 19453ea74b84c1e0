# SPDX-License-Identifier: GPL-2.0
"""One HTML page with snapshots as tiles, to zoom. It needs no other file and no network; the data in it are deflated."""

import base64
import html
import json
import os
import zlib

from vmap_map import figures, tiles

HERE = os.path.dirname(os.path.abspath(__file__))


def read(name):
    """A part of the page."""
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def data_of(shots, rows):
    """What page.js draws. A tile is [kind, start, bytes, unit, runs, cpu, current, slot]; a run is [letter, cells, owner], where an
    owner is a number in the list of all owners, or -1."""
    names, owners, panels = {}, [], []

    def number(owner):
        if owner not in names:
            names[owner] = len(owners)
            owners.append(" ".join(part for part in owner if part) or "unknown")
        return names[owner]

    for shot in shots:
        packed = []
        for tile in tiles.tiles(shot):
            runs = [[letter, length, number(owner) if owner and any(owner) else -1] for letter, length, owner in tile["runs"]]
            packed.append([tile["kind"], hex(tile["start"])[2:], tile["bytes"], tile["unit"], runs,
                           tile.get("cpu", -1), int(tile.get("current", False)), tile.get("slot", 0)])
        panels.append({"name": shot["name"], "tiles": packed})
    table = [[name, *cells] for name, cells in figures.rows_for(shots, rows)]
    return {"owners": owners, "panels": panels, "table": table}


def write(shots, rows, path, title):
    """Write the page. Returns its size in bytes."""
    text = json.dumps(data_of(shots, rows), separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    title = title or "vmalloc space: " + " and ".join(shot["name"] for shot in shots)
    page = read("page.html")
    for name, part in (("STYLE", read("page.css")), ("SCRIPT", read("page.js")), ("TITLE", html.escape(title)), ("DATA", packed)):
        page = page.replace(f"@{name}@", part)
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)
    return len(page.encode())
