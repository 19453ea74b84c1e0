# SPDX-License-Identifier: GPL-2.0
"""Snapshots of the vmalloc address space, from files of the kernel or copies of them in a folder.

A snapshot has pieces in the order of addresses, areas and blocks. A piece has runs (start, end, letter, owner): slots of
a block, or the area as a whole. STATES has the letters. What is behind the last slot of a block is a run, too.
"""

import os
import re

VERSION = 1
# With the rb-trees the map is empty, or not there.
FILES = {"map": "/sys/kernel/debug/vmap_rust/map", "vmallocinfo": "/proc/vmallocinfo"}
# Letters: those of slots in the map, then others, in the order of a legend. Their colour is of the palette of Okabe and Ito.
STATES = {"B": ("#0072B2", "busy, first page of an area"), "b": ("#56B4E9", "busy"), "u": ("#CC79A7", "leaving"),
          "f": ("#F0E442", "being flushed"), "l": ("#E69F00", "lazy"), "!": ("#D55E00", "leaked"), "?": ("#666666", "changing"),
          "-": ("#009E73", "behind the last slot"), ".": ("#e4e4e4", "free in a block")}
SLOT_STATES = ".Bulf?"
AREA_STATES = {"busy": "B", "leaving": "u", "lazy": "l", "flushed": "f", "changing": "?", "leaked": "!"}
KINDS = ("ioremap", "vmalloc", "vmap", "user", "dma-coherent", "vm_map_ram", "sparse")
HIDDEN = "addresses are hidden: read it as root, with kernel.kptr_restrict=1"

HEAD = re.compile(r"vmap_rust map (\d+) page (\d+) home 0x([0-9a-f]+)-0x([0-9a-f]+)$")
LINE = re.compile(rf"0x([0-9a-f]+)-0x([0-9a-f]+) (?:area ({'|'.join(AREA_STATES)})|block (?:changing|cpu (\d+) "
                  rf"(current|pool) slot ([1-9]\d*) ([{SLOT_STATES}]+)))$")
INFO = re.compile(r"0x([0-9a-f]+)-0x([0-9a-f]+) +(\d+)(?: (.*))?$")
CALLER = re.compile(r"([\w.$]+)\+0x[0-9a-f]+/0x[0-9a-f]+")


class Bad(Exception):
    """A snapshot that cannot be read; the text says why and where."""


def end_of(text, start):
    """The exclusive end of a range. The end of the address space is printed as 0."""
    end = int(text, 16)
    return end if end > start else 1 << (64 if start >> 32 else 32)


def parse_map(text):
    """The pieces of a map file, and its page size and range."""
    lines = text.splitlines()
    head = HEAD.match(lines[0]) if lines else None
    if not head:
        raise Bad("map: the first line is no \"vmap_rust map\"")
    if int(head[1]) != VERSION:
        raise Bad(f"map: version {head[1]}, this program reads {VERSION}")
    page_size, home = int(head[2]), int(head[3], 16)
    pieces = []
    for number, line in enumerate(lines[1:], 2):
        match = LINE.match(line)
        start = int(match[1], 16) if match else 0
        piece = {"start": start, "end": end_of(match[2], start)} if match else {}
        if match and match[7]:
            piece |= {"cpu": int(match[4]), "current": match[5] == "current", "slot": int(match[6]) * page_size}
            match = match if len(match[7]) == (piece["end"] - start) // piece["slot"] else None
        if not match:
            raise Bad(f"map: line {number} is neither an area nor a block: {line[:80]}")
        pieces.append(piece | {"block": not match[3], "runs": runs_of(piece, match[7] or AREA_STATES.get(match[3], "?"))})
    return {"page_size": page_size, "start": home, "end": end_of(head[4], home), "pieces": pieces}


def runs_of(piece, letters):
    """The runs of a piece with these letters of its slots, or one letter. Each busy slot is a run of its own."""
    size, at = piece.get("slot", piece["end"] - piece["start"]), piece["start"]
    runs = []
    for found in re.finditer(r"B|([^B])\1*", letters):
        runs.append((at, at + len(found[0]) * size, found[0][0], ""))
        at = runs[-1][1]
    return runs + ([(at, piece["end"], "-", "")] if at < piece["end"] else [])


def parse_vmallocinfo(text):
    """The areas of /proc/vmallocinfo: start, end, state (busy or lazy), owner with type, and the text behind the range."""
    areas = []
    for number, line in enumerate(text.splitlines(), 1):
        match = INFO.match(line)
        start = int(match[1], 16) if match else 0
        # The kernel prints zeros or hashes instead of addresses.
        if not start or end_of(match[2], start) - start != int(match[3]):
            raise Bad(f"vmallocinfo: line {number}: {HIDDEN if match or 'ptrval' in line else line[:80]}")
        rest = match[4] or ""
        caller, kinds = CALLER.match(rest), [kind for kind in KINDS if kind in rest.split()]
        areas.append({"start": start, "end": end_of(match[2], start), "text": rest,
                      "state": "lazy" if "unpurged vm_area" in rest else "busy",
                      "owner": " ".join([*([caller[1]] if caller else []), *kinds[:1]])})
    return areas


def from_texts(texts):
    """A snapshot from a dictionary of the contents of FILES."""
    info = parse_vmallocinfo(texts.get("vmallocinfo", ""))
    if texts.get("map"):
        shot = parse_map(texts["map"])
        owners = {area["start"]: area["owner"] for area in info if area["state"] == "busy"}
        for piece in shot["pieces"]:
            piece["runs"] = [(*run[:3], owners.get(run[0], "")) for run in piece["runs"]]
    else:
        shot = {"page_size": 4096, "start": None}
        shot["pieces"] = [{"start": area["start"], "end": area["end"], "block": False, "runs": [
            (area["start"], area["end"], AREA_STATES[area["state"]], area["owner"])]} for area in without_overlaps(info)]
    if not shot["pieces"]:
        raise Bad("no area at all: there is neither a map nor a vmallocinfo")
    shot["pieces"].sort(key=lambda piece: piece["start"])
    return shot


def without_overlaps(areas):
    """The areas in ascending order. A busy one counts where a stale lazy one overlaps it: reading the file takes time."""
    kept = []
    for area in sorted(areas, key=lambda area: (area["start"], area["state"] == "lazy")):
        if kept and area["start"] < kept[-1]["end"]:
            if kept[-1]["state"] == "busy" or area["state"] == "lazy":
                continue
            kept.pop()
        kept.append(area)
    return kept


def read(name):
    """The contents of FILES that there are: of this system ("live"), or in a folder."""
    texts = {}
    for file, path in FILES.items():
        try:
            with open(path if name == "live" else os.path.join(name, file), encoding="utf-8", errors="replace") as opened:
                texts[file] = opened.read()
        except FileNotFoundError:
            pass
    if "vmallocinfo" not in texts:
        raise Bad(f"{name}: there is no file vmallocinfo")
    return texts


def share_range(shots):
    """Give snapshots of the rb-trees, which say neither where vmalloc space is nor how large a page is, the page size of
    another snapshot, and its range if their areas meet it, or else that of their areas."""
    known = [shot for shot in shots if shot["start"] is not None]
    for shot in shots:
        if shot["start"] is None:
            first, last = shot["pieces"][0]["start"], shot["pieces"][-1]["end"]
            shot["page_size"] = known[0]["page_size"] if known else shot["page_size"]
            like = next((other for other in known if other["start"] < last and first < other["end"]), None)
            shot["start"], shot["end"] = (like["start"], like["end"]) if like else (first, last)
