# SPDX-License-Identifier: GPL-2.0
"""Judges the snapshots of a load in console logs: /proc/vmallocinfo, and the allocator's list of ranges.

In each log, every line must have a known shape, and before and after the load no busy area may overlap another. Two logs
(one per allocator) must have the same set of line shapes."""

import re

from tools.vmap_map import snapshot

from .console import read_files

UNPURGED = "unpurged vm_area"
SYMBOL = r"(?: (?:[\w.$]+\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w+\])?|0x[0-9a-f]+))?"
SHAPE = re.compile(rf"{SYMBOL}(?: pages=\d+)?(?: phys=0x[0-9a-f]+)?(?: ioremap)?(?: sparse)?(?: vmalloc)?(?: vmap)?"
                   rf"(?: user)?(?: dma-coherent)?(?: vpages)?(?: N\d+=\d+)*| vm_map_ram| {UNPURGED}")
STACK = re.compile(r"\b(dup_task_struct|copy_process|alloc_thread_stack\w*|kernel_clone)\+")


def shape(rest):
    """Return the text behind a range without its numbers and names."""
    return re.sub(r"\d+", "N", re.sub(r"0x[0-9a-f]+", "H", re.sub(SYMBOL, " SYMBOL", f" {rest}", count=1)))


def shapes_of(log):
    """Return the shapes of the lines in all snapshots of a log. Raises snapshot.Bad if something is wrong in one."""
    found, snapshots = set(), read_files(log)
    for when in ("before", "loaded", "after"):
        files = snapshots.get(when, {})
        if "vmallocinfo" not in files:
            raise snapshot.Bad(f"{when}: a line is missing")
        areas = snapshot.parse_vmallocinfo("\n".join(files["vmallocinfo"]))
        # Reading the file takes time: an area that is freed meanwhile is in it twice, as busy and as unpurged.
        busy = sorted((area for area in areas if area["state"] == "busy"), key=lambda area: area["start"])
        for one, two in zip(busy, busy[1:]):
            if when != "loaded" and two["start"] < one["end"]:
                raise snapshot.Bad(f"{when}: {one['start']:#x} {one['text']} overlaps {two['start']:#x} {two['text']}")
        for area in areas:
            if not SHAPE.fullmatch(f" {area['text']}".rstrip()):
                raise snapshot.Bad(f"{when}: unknown shape: {area['start']:#x}-{area['end']:#x} {area['text']}")
        if "map" in files:
            snapshot.parse_map("\n".join(files["map"]))
        # Areas of these two kinds come and go.
        found |= {shape(area["text"]) for area in areas if area["text"] not in ("vm_map_ram", UNPURGED)}
    return found


def judge(result, logs):
    """Count one check for each log, by allocator, and for two logs the comparison of their shapes."""
    shapes = {}
    for allocator, log in logs.items():
        try:
            shapes[allocator] = shapes_of(log)
            problem = "" if shapes[allocator] else "no area"
        except snapshot.Bad as bad:
            problem = str(bad)
        result.add(not problem, f"{allocator} vmallocinfo", problem)
    if len(logs) == 2:
        only = set.symmetric_difference(*shapes.values()) if len(shapes) == 2 else {"not compared"}
        result.add(not only, "same shapes", ", ".join(sorted(only)))
