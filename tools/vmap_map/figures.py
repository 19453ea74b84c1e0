# SPDX-License-Identifier: GPL-2.0
"""Figures of a snapshot: how much is used, and how fragmented the rest is. All sizes are in bytes."""


def runs_of(piece):
    """The runs of a piece as (start, end, letter). Letters: those of slots, and of areas: B busy, u leaving, l lazy, f flushed,
    ? changing, ! leaked. What is behind the last slot of a block has the letter -."""
    if piece["kind"] == "area":
        letters = {"busy": "B", "leaving": "u", "lazy": "l", "flushed": "f", "leaked": "!"}
        return [(piece["start"], piece["end"], letters.get(piece["state"], "?"))]
    slots = piece.get("slots")
    if not slots:
        return [(piece["start"], piece["end"], "?")]
    runs, first = [], 0
    for at in range(1, len(slots) + 1):
        # Each busy slot is a run of its own.
        if at == len(slots) or slots[at] == "B" or slots[at] != slots[first]:
            runs.append((piece["start"] + first * piece["slot"], piece["start"] + at * piece["slot"], slots[first]))
            first = at
    return runs + [(runs[-1][1], piece["end"], "-")] * (runs[-1][1] < piece["end"])


def table_span(page_size):
    """Bytes that one table of PTEs maps: it fills a page with entries of 8 bytes."""
    return page_size // 8 * page_size


def figures(shot):
    """The figures of a snapshot as a dictionary. Pieces outside of vmalloc space, modules for example, do not count."""
    inside = [p for p in shot["pieces"] if p["start"] >= shot["start"] and p["end"] <= shot["end"]]
    size = dict.fromkeys("Bulf.?!-", 0)
    areas, touched = 0, set()
    span = table_span(shot["page_size"])
    for piece in inside:
        for start, end, letter in runs_of(piece):
            size[letter] += end - start
            areas += letter == "B"
            if letter == "B":
                touched.update(range(start // span, (end - 1) // span + 1))
    gaps, at = [], shot["start"]
    for piece in inside:
        if piece["start"] > at:
            gaps.append(piece["start"] - at)
        at = max(at, piece["end"])
    if shot["end"] > at:
        gaps.append(shot["end"] - at)
    used = (inside[-1]["end"] - inside[0]["start"]) if inside else 0
    return {
        "space": shot["end"] - shot["start"],
        "areas": areas,
        "busy": size["B"],
        "lazy": size["l"] + size["f"] + size["u"],
        "free in blocks": size["."],
        "blocks": sum(piece["kind"] == "block" for piece in inside),
        "gaps": len(gaps),
        "in gaps": sum(gaps),
        "largest gap": max(gaps, default=0),
        "spread": used / size["B"] if size["B"] else 0.0,
        "regions": len(touched),
        "tables": len(touched) * shot["page_size"],
        "meminfo tables": (shot.get("tables") or {}).get("meminfo_kib"),
    }


def size_text(size):
    """A size with a unit, three digits at most."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if size >= 100 or size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return ""


ROWS = (
    ("areas", "busy areas"), ("busy", "busy, whole slots"), ("lazy", "lazy, leaving or being flushed"), ("blocks", "blocks"),
    ("free in blocks", "free in blocks"), ("gaps", "gaps"), ("in gaps", "free in gaps"),
    ("largest gap", "largest gap"), ("spread", "spread: span from the first to the last piece / busy"),
    ("regions", "2 MiB regions with a busy area"), ("tables", "their tables of PTEs (estimate)"),
    ("meminfo tables", "PageTables of /proc/meminfo"),
)


def rows_for(shots, all_figures):
    """Lines of a table: a name, and a text for each snapshot."""
    span = table_span(shots[0]["page_size"])
    for key, name in ROWS:
        cells = []
        for values in all_figures:
            value = values[key]
            if value is None:
                cells.append("-")
            elif key == "meminfo tables":
                cells.append(size_text(value * 1024))
            elif key == "spread":
                cells.append(f"{value:,.1f}")
            elif key in ("areas", "blocks", "gaps", "regions"):
                cells.append(f"{value:,}")
            else:
                cells.append(size_text(value))
        yield name.replace("2 MiB", size_text(span)), cells
