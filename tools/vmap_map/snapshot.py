# SPDX-License-Identifier: GPL-2.0
"""Snapshots of the vmalloc address space, from files of the kernel or copies of them in a folder.

The files are debugfs vmap_rust/map (only with the allocator in Rust), /proc/vmallocinfo and, if there is one, /proc/meminfo.
"""

import os
import re

VERSION = 1
FILES = {
    "allocator": "/sys/kernel/debug/vmap_rust/allocator",
    "map": "/sys/kernel/debug/vmap_rust/map",
    "vmallocinfo": "/proc/vmallocinfo",
    "meminfo": "/proc/meminfo",
}
# Letters of slots in the map file, and the states that areas with an entry of their own can have.
SLOT_STATES = {".": "free", "B": "busy", "u": "leaving", "l": "lazy", "f": "flushing", "?": "changing"}
AREA_STATES = {"busy", "leaving", "lazy", "flushed", "changing", "leaked"}
HIDDEN = "addresses are hidden: read it as root, with kernel.kptr_restrict=1"

HEAD = re.compile(r"vmap_rust map (\d+) page (\d+) home 0x([0-9a-f]+)-0x([0-9a-f]+)$")
AREA = re.compile(r"0x([0-9a-f]+)-0x([0-9a-f]+) area (\w+)$")
BLOCK = re.compile(r"0x([0-9a-f]+)-0x([0-9a-f]+) block (?:changing|cpu (\d+) (current|pool) slot (\d+) (\S+))$")
INFO = re.compile(r"0x([0-9a-f]+)-0x([0-9a-f]+) +(\d+)(?: (.*))?$")
CALLER = re.compile(r"([\w.$]+)\+0x[0-9a-f]+/0x[0-9a-f]+")
KINDS = ("ioremap", "vmalloc", "vmap", "user", "dma-coherent", "vm_map_ram", "sparse")


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
    page_size, start = int(head[2]), int(head[3], 16)
    pieces = []
    for number, line in enumerate(lines[1:], 2):
        area, block = AREA.match(line), BLOCK.match(line)
        if area and area[3] in AREA_STATES:
            first = int(area[1], 16)
            pieces.append({"kind": "area", "state": area[3], "start": first, "end": end_of(area[2], first)})
        elif block and (piece := block_of(block, page_size)):
            pieces.append(piece)
        else:
            raise Bad(f"map: line {number} is neither an area nor a block: {line[:80]}")
    return {"page_size": page_size, "start": start, "end": end_of(head[4], start), "pieces": pieces}


def block_of(block, page_size):
    """The piece for a match of BLOCK; None if its letters are not those of as many slots as it has."""
    first = int(block[1], 16)
    piece = {"kind": "block", "start": first, "end": end_of(block[2], first)}
    if block[6]:
        slot = int(block[5]) * page_size
        piece.update(cpu=int(block[3]), current=block[4] == "current", slot=slot, slots=block[6])
        if not slot or len(block[6]) != (piece["end"] - first) // slot or not set(block[6]) <= SLOT_STATES.keys():
            return None
    return piece


def parse_vmallocinfo(text):
    """The areas of /proc/vmallocinfo: start, end, state, owner, type, and the text behind the range."""
    areas = []
    for number, line in enumerate(text.splitlines(), 1):
        match = INFO.match(line)
        if not match:
            raise Bad(f"vmallocinfo: line {number}: {HIDDEN if 'ptrval' in line else line[:80]}")
        start, rest = int(match[1], 16), match[4] or ""
        area = {"start": start, "end": end_of(match[2], start), "state": "busy", "text": rest}
        # The kernel prints zeros or hashes instead of addresses.
        if not start or area["end"] - start != int(match[3]):
            raise Bad(f"vmallocinfo: line {number}: {HIDDEN}")
        if "unpurged vm_area" in rest:
            area["state"] = "lazy"
        caller = CALLER.match(rest)
        words = rest.split()
        area["owner"] = caller[1] if caller else words[0] if words[:1] == ["vm_map_ram"] else ""
        area["type"] = next((kind for kind in KINDS if kind in words), "")
        areas.append(area)
    return areas


def parse_meminfo(text):
    """Kibibytes of page tables: of processes and of the kernel."""
    found = re.search(r"^PageTables: +(\d+) kB", text, re.M)
    return int(found[1]) if found else None


def from_texts(texts):
    """A snapshot from a dictionary of the contents of FILES."""
    info = parse_vmallocinfo(texts.get("vmallocinfo", ""))
    shot = {"allocator": texts.get("allocator", "").strip() or "rbtree", "page_size": 4096,
            "start": None, "end": None, "tables": {"meminfo_kib": parse_meminfo(texts.get("meminfo", ""))}}
    if texts.get("map"):
        shot.update(parse_map(texts["map"]), allocator="rust")
        join(shot["pieces"], info)
    else:
        # A busy area counts where a stale lazy one overlaps it: the file lists lazy ranges last.
        shot["pieces"] = [{"kind": "area", **area} for area in without_overlaps(info)]
    if not shot["pieces"]:
        raise Bad("no area at all: there is neither a map nor a vmallocinfo")
    shot["name"] = shot["allocator"]
    shot["pieces"].sort(key=lambda piece: piece["start"])
    return shot


def without_overlaps(areas):
    """The areas in ascending order, without lazy ones that overlap others: reading the file takes time."""
    kept = []
    for area in sorted(areas, key=lambda area: (area["start"], area["state"] == "lazy")):
        if kept and area["start"] < kept[-1]["end"]:
            if kept[-1]["state"] == "busy" or area["state"] == "lazy":
                continue
            kept.pop()
        kept.append(area)
    return kept


def join(pieces, info):
    """Add owner and type from /proc/vmallocinfo to areas, and the list "areas" to blocks."""
    info = sorted((area for area in info if area["state"] == "busy"), key=lambda area: area["start"])
    place = 0
    for piece in sorted(pieces, key=lambda piece: piece["start"]):
        while place < len(info) and info[place]["start"] < piece["start"]:
            place += 1
        if piece["kind"] == "block":
            piece["areas"] = []
        while place < len(info) and info[place]["start"] < piece["end"]:
            area = info[place]
            place += 1
            known = {key: area[key] for key in ("start", "end", "owner", "type")}
            if piece["kind"] == "block":
                piece["areas"].append(known)
            elif area["start"] == piece["start"]:
                piece.update(owner=area["owner"], type=area["type"])


def read_folder(folder):
    """The contents of copies of FILES in a folder; those that are missing are left out."""
    texts = {}
    for name in FILES:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                texts[name] = file.read()
    if "vmallocinfo" not in texts:
        raise Bad(f"{folder}: there is no file vmallocinfo")
    return texts


def read_live():
    """The contents of FILES of this system. Those in debugfs may be missing."""
    texts = {}
    for name, path in FILES.items():
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts[name] = file.read()
        except FileNotFoundError:
            pass
    return texts


def save_live(folder):
    """Copy FILES of this system to a folder."""
    os.makedirs(folder, exist_ok=True)
    for name, text in read_live().items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def load(name):
    """Read the snapshot that a command line names: "live", or a folder."""
    return from_texts(read_live() if name == "live" else read_folder(name))


def share_range(shots):
    """Give snapshots of the rb-trees, which do not say where vmalloc space is, the range of another snapshot of the same size
    of pages if their areas meet it, or else that of their areas."""
    known = [shot for shot in shots if shot["start"] is not None]
    for shot in shots:
        if shot["start"] is None:
            first, last = shot["pieces"][0]["start"], shot["pieces"][-1]["end"]
            like = next((other for other in known if other["start"] < last and first < other["end"]), None)
            shot["start"], shot["end"] = (like["start"], like["end"]) if like else (first, last)
            shot["range_known"] = like is not None
