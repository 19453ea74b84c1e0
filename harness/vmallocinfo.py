# SPDX-License-Identifier: GPL-2.0
"""Judges the snapshots of a load in console logs: /proc/vmallocinfo, and the allocator's list of ranges.

In each log, every line must have a known shape. Before and after the load each area must appear once, none may overlap
another, and every task must have a stack. Two logs (one per allocator) must have the same set of line shapes.
"""

import re

from tools.vmap_map import snapshot

from .console import read_files

UNPURGED = "unpurged vm_area"
SYMBOL = r"(?: (?:[\w.$]+\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w+\])?|0x[0-9a-f]+))?"
SHAPE = re.compile(rf"{SYMBOL}(?: pages=\d+)?(?: phys=0x[0-9a-f]+)?(?: ioremap)?(?: sparse)?(?: vmalloc)?(?: vmap)?"
                   rf"(?: user)?(?: dma-coherent)?(?: vpages)?(?: N\d+=\d+)*| vm_map_ram| {UNPURGED}")
STACK = re.compile(r"\b(dup_task_struct|copy_process|alloc_thread_stack\w*|kernel_clone)\+")
PAGE = 4096
# Stacks beyond those of tasks and the two that each CPU caches: of the reader, and of tasks whose grace period has not
# ended.
STACK_SLACK = 12


def shape(rest):
    """Return the text behind a range without its numbers and names."""
    return re.sub(r"\d+", "N", re.sub(r"0x[0-9a-f]+", "H", re.sub(SYMBOL, " SYMBOL", f" {rest}", count=1)))


def read(files):
    """Return the areas of a snapshot, by address. Raises snapshot.Bad if a line, or the list of ranges, is
    malformed."""
    if "vmallocinfo" not in files or "tasks" not in files:
        raise snapshot.Bad("a line is missing")
    areas = snapshot.parse_vmallocinfo("\n".join(files["vmallocinfo"]))
    for area in areas:
        if not SHAPE.fullmatch(f" {area['text']}".rstrip()) or area["start"] % PAGE or area["end"] % PAGE:
            raise snapshot.Bad(f"unknown shape: {area['start']:#x}-{area['end']:#x} {area['text']}")
    if "map" in files:
        pieces = snapshot.parse_map("\n".join(files["map"]))["pieces"]
        for one, two in zip(pieces, pieces[1:]):
            if two["start"] < one["end"]:
                raise snapshot.Bad(f"map: {two['start']:#x} is not above {one['end']:#x}")
    return sorted(areas, key=lambda area: area["start"])


def check_quiet(files, areas):
    """Yield (name, problem or None) for a snapshot that was taken while no load ran, of a kernel with
    CONFIG_VMAP_STACK."""
    # Reading the file takes time: an area that is freed meanwhile is in it twice, as busy and, at the end, as unpurged.
    kinds = [[area for area in areas if (area["state"] == "lazy") == lazy] for lazy in (False, True)]
    bad = [pair for kind in kinds for pair in zip(kind, kind[1:]) if pair[1]["start"] < pair[0]["end"]]
    yield "overlap", bad and " and ".join(f"{area['start']:#x}-{area['end']:#x} {area['text']}" for area in bad[0])
    stacks = sum(1 for area in areas if STACK.match(area["text"]))
    tasks, cpus = map(int, files["tasks"][0].split())
    high = tasks + 2 * cpus + STACK_SLACK
    yield "stacks", not tasks <= stacks <= high and f"{stacks} stacks for {tasks} tasks, expected {tasks} to {high}"


def check_log(path, shapes):
    """Yield (name, problem or nothing) for each check of one log. shapes: a set, to which those of the lines are added."""
    snapshots = read_files(path)
    for when in ("before", "loaded", "after"):
        files = snapshots.get(when, {})
        try:
            areas = read(files)
        except snapshot.Bad as bad:
            yield f"{when}: lines", str(bad)
            continue
        yield f"{when}: lines", None
        if when != "loaded":
            yield from ((f"{when}: {name}", problem) for name, problem in check_quiet(files, areas))
        # Areas of these two kinds come and go.
        shapes |= {shape(area["text"]) for area in areas if area["text"] not in ("vm_map_ram", UNPURGED)}


def judge(result, logs):
    """Count each check of each log, and for two logs the comparison of their shapes."""
    shapes = [set() for _ in logs]
    checks = [(f"{log.rsplit('/', 1)[-1]}: {name}", problem) for log, mine in zip(logs, shapes)
              for name, problem in check_log(log, mine)]
    if len(logs) == 2:
        only = "; ".join(f"only in {log}: {', '.join(sorted(mine - other))}"
                         for log, mine, other in zip(logs, shapes, reversed(shapes)) if mine - other)
        checks.append((f"same {len(shapes[0])} shapes", only or (None if shapes[0] else "found none")))
    for name, problem in checks:
        text = f"FAIL {name}: {problem}" if problem else f"ok {name}"
        result.add(not problem, f"vmallocinfo {name}", f"vmallocinfo: {text}")
