# SPDX-License-Identifier: GPL-2.0
"""The tiles of snapshots as a picture, for documents. Needs matplotlib."""

from matplotlib import colors, patches, pyplot

from vmap_map import snapshot, tiles

# In cells: a tile, one of a folded area, a gap; the space of a row of tiles; and the most of a row.
WIDTHS = {"block": 32, "region": 32, "fold": 8, "gap": 26}
HEIGHT, ROW, MOST = 16, 25, 150
# Inches of a cell.
CELL = 0.05


def places(found):
    """Yield (column, row, tile) in cells: from left to right, in rows."""
    x = y = 0
    for tile in found:
        width = WIDTHS[tile["kind"]]
        if x + width > MOST:
            x, y = 0, y + ROW
        yield x, y, tile
        x += width + 4


def image(tile):
    """The colours of the cells of a tile."""
    cells = []
    for letter, count, _ in tile["runs"]:
        first = snapshot.STATES.get(letter, ("#ffffff",))[0]
        rest = snapshot.STATES["b"][0] if letter == "B" else first
        cells += [first, *[rest] * (count - 1)]
    width = WIDTHS[tile["kind"]]
    cells = [colors.to_rgb(color) for color in cells[:width * HEIGHT]]
    return [cells[at:at + width] for at in range(0, width * HEIGHT, width)]


def draw(shots, path, title):
    """Draw snapshots side by side."""
    panels = [list(places(tiles.tiles(shot))) for shot in shots]
    rows = max(y for panel in panels for _, y, _ in panel) + ROW
    pyplot.switch_backend("Agg")
    figure, every = pyplot.subplots(1, len(shots), squeeze=False, layout="constrained",
                                    figsize=(len(shots) * (MOST + 8) * CELL, (rows + 30) * CELL))
    for axes, shot, panel in zip(every[0], shots, panels):
        axes.set(xlim=(-1, MOST), ylim=(rows, -6), aspect="equal")
        axes.set_title(shot["name"], loc="left")
        axes.axis("off")
        for x, y, tile in panel:
            if tile["kind"] == "gap":
                axes.text(x + 13, y + HEIGHT / 2, tile["title"], fontsize=7, ha="center", va="center", color="#555555")
                continue
            width, is_current = WIDTHS[tile["kind"]], tile.get("current")
            axes.imshow(image(tile), extent=(x, x + width, y + HEIGHT, y), interpolation="nearest")
            axes.text(x, y - 1.5, tile["title"] or f"…{tile['start'] & 0xffffffff:08x}", fontsize=7)
            axes.add_patch(patches.Rectangle((x, y), width, HEIGHT, fill=False, linewidth=1.6 if is_current else 0.6,
                                             edgecolor="black" if is_current else "#999999"))
        # imshow() has set them to its own.
        axes.set(xlim=(-1, MOST), ylim=(rows, -6))
    figure.suptitle(title, fontsize=11)
    keys = [patches.Patch(facecolor=color, edgecolor="#999999", label=text) for color, text in snapshot.STATES.values()]
    keys.append(patches.Patch(facecolor="white", edgecolor="black", label="* current block"))
    figure.legend(handles=keys, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
