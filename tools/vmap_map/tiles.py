# SPDX-License-Identifier: GPL-2.0
"""The layout of a picture: a snapshot as tiles in the order of addresses.

A tile has 512 cells. A block is one tile: its slots have the same number of cells each. The rest of the space is cut into
regions of 512 pages, which one table of PTEs maps if pages have 4 KiB, with a cell for each page: so both allocators have the
same picture. Regions without anything in them are gaps, and whole regions of one area are folded.
"""

import collections

from vmap_map.figures import size_text

CELLS = 512


def tiles(shot):
    """Tiles as dictionaries: start, bytes, kind ("block", "region", "fold", "gap"), title, runs, and whether a block is
    current. A run is [letter, cells, owner]. Cells that are not reserved have the letter " "."""
    page, found, regions = shot["page_size"], [], collections.defaultdict(list)
    region = page * CELLS
    for piece in shot["pieces"]:
        start, end = piece["start"], piece["end"]
        if "slot" in piece:
            runs = [[letter, (behind - first) * CELLS // (end - start), owner]
                    for first, behind, letter, owner in piece["runs"]]
            title = f"CPU {piece['cpu']}{'*' if piece['current'] else ''} {size_text(piece['slot'])}"
            found.append({"kind": "block", "start": start, "bytes": end - start, "title": title, "runs": runs,
                          "current": piece["current"]})
            continue
        (*_, letter, owner), = piece["runs"]
        first, behind = -(-start // region), end // region
        folded = range(first, behind if behind > first + 1 else first)
        for number in range(start // region, (end - 1) // region + 1):
            at = max(start, number * region)
            # Only the first page of an area is a first page.
            run = [letter if at == start or letter != "B" else "b", (min(end, (number + 1) * region) - at) // page, owner]
            if number not in folded:
                regions[number].append((at, run))
            elif number == first:
                size = len(folded) * region
                found.append({"kind": "fold", "start": at, "bytes": size, "title": size_text(size), "runs": [run]})
    for number, parts in regions.items():
        runs, at = [], number * region
        for start, run in sorted([*parts, ((number + 1) * region, None)], key=lambda part: part[0]):
            runs += [[" ", (start - at) // page, ""]] if start > at else []
            runs += [run] if run else []
            at = start + run[1] * page if run else at
        found.append({"kind": "region", "start": number * region, "bytes": region, "title": "", "runs": runs})
    return with_gaps(sorted(found, key=lambda tile: tile["start"]))


def with_gaps(found):
    """The tiles, with a gap between two that do not touch."""
    result = found[:1]
    for tile in found[1:]:
        end = result[-1]["start"] + result[-1]["bytes"]
        if tile["start"] > end:
            size = tile["start"] - end
            result.append({"kind": "gap", "start": end, "bytes": size, "title": f"gap of {size_text(size)}", "runs": []})
        result.append(tile)
    return result
