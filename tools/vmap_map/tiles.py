# SPDX-License-Identifier: GPL-2.0
"""The layout of a picture: a snapshot as tiles in the order of addresses.

A tile has 512 cells. A block is one tile: its slots have the same number of cells each. The rest of the space is cut into regions of 512 pages, what
one table of PTEs maps, with a cell for each page: so both allocators have the same picture, and tiles count page tables. Regions
without anything in them are gaps, and whole regions of one area are folded.
"""

from vmap_map.figures import runs_of

CELLS = 512


def owners_of(piece):
    """Owner and type of the areas of a piece, by start address."""
    if piece["kind"] == "area":
        return {piece["start"]: (piece.get("owner", ""), piece.get("type", ""))}
    return {area["start"]: (area["owner"], area["type"]) for area in piece.get("areas", ())}


def cut(start, end, region):
    """The numbers of the regions of an area: those that it fills, if these are two or more, and the others."""
    whole = range(-(-start // region), end // region)
    if len(whole) < 2:
        whole = range(0)
    return whole, [number for number in range(start // region, (end - 1) // region + 1) if number not in whole]


def region_runs(parts, start, region, page_size):
    """The runs of a region with parts (first, end, letter, owner) of areas."""
    runs, at = [], start
    for first, end, letter, owner in sorted(parts, key=lambda part: part[0]):
        if first > at:
            runs.append([" ", (first - at) // page_size, None])
        runs.append([letter, (end - first) // page_size, owner])
        at = end
    if at < start + region:
        runs.append([" ", (start + region - at) // page_size, None])
    return runs


def tiles(shot):
    """Tiles as dictionaries: start, bytes, unit (bytes of a cell), kind ("block", "region", "fold", "gap"), runs, and cpu, current
    and slot (bytes) of a block. A run is [letter, cells, owner or None]; an owner is (name, type). Cells without a run are not reserved:
    letter " "."""
    unit = shot["page_size"]
    region = unit * CELLS
    found, regions = [], {}
    for piece in shot["pieces"]:
        owners = owners_of(piece)
        if piece["kind"] == "block" and piece.get("slots"):
            size = piece["end"] - piece["start"]
            # Slots are whole cells: where a cell has more than a page, they have 20 to 40 of them.
            runs = [[letter, (end - start) * CELLS // size, owners.get(start)] for start, end, letter in runs_of(piece)]
            found.append({"kind": "block", "start": piece["start"], "bytes": size, "unit": size // CELLS,
                          "runs": runs, "cpu": piece["cpu"], "current": piece["current"], "slot": piece["slot"]})
            continue
        (start, end, letter), = runs_of(piece)
        owner = owners.get(start)

        def shown(at, start=start, letter=letter):
            """The letter of the part of the area at an address: only its first page is a first page."""
            return "b" if letter == "B" and at > start else letter

        whole, others = cut(start, end, region)
        if whole:
            found.append({"kind": "fold", "start": whole.start * region, "bytes": len(whole) * region, "unit": unit,
                          "runs": [[shown(whole.start * region), CELLS, owner]]})
        for number in others:
            low, high = max(start, number * region), min(end, (number + 1) * region)
            regions.setdefault(number, []).append((low, high, shown(low), owner))
    for number, parts in regions.items():
        found.append({"kind": "region", "start": number * region, "bytes": region, "unit": unit,
                      "runs": region_runs(parts, number * region, region, unit)})
    return with_gaps(sorted(found, key=lambda tile: tile["start"]))


def with_gaps(found):
    """The tiles, with a gap between two that do not touch."""
    result = []
    for tile in found:
        if result and tile["start"] > (end := result[-1]["start"] + result[-1]["bytes"]):
            result.append({"kind": "gap", "start": end, "bytes": tile["start"] - end, "unit": 0, "runs": []})
        result.append(tile)
    return result


def bins(tile, count):
    """The most frequent letter in each of `count` equal parts of a tile; a part with any lazy cell is lazy, one with any busy
    cell is not free."""
    cells = "".join(letter.ljust(1) + (letter.lower() if letter == "B" else letter) * (length - 1) for letter, length, _ in tile["runs"])
    result, width = [], CELLS // count
    for at in range(0, CELLS, width):
        part = cells[at:at + width]
        rank = {letter: part.count(letter) for letter in set(part)}
        if not part.strip():
            result.append(" ")
            continue
        for letter in "!lfu":
            if rank.get(letter):
                result.append(letter)
                break
        else:
            busy = rank.get("B", 0) + rank.get("b", 0)
            # A part that is less than half full has its own letter.
            result.append(("B" if busy * 2 >= width else "b") if busy else max(rank, key=rank.get))
    return result
