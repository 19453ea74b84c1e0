# SPDX-License-Identifier: GPL-2.0
"""Figures of a snapshot: how much is used, and how fragmented the rest is."""


def figures(shot):
    """The figures of a snapshot by name, as texts. Pieces outside of vmalloc space, modules for example, do not count."""
    inside = [piece for piece in shot["pieces"] if piece["start"] >= shot["start"] and piece["end"] <= shot["end"]]
    runs = [run for piece in inside for run in piece["runs"]]
    busy, lazy, free = (sum(end - start for start, end, letter, _ in runs if letter in letters)
                        for letters in ("B", "luf", "."))
    gaps, at = [], shot["start"]
    for start, end in [*((piece["start"], piece["end"]) for piece in inside), (shot["end"], shot["end"])]:
        gaps += [start - at] if start > at else []
        at = max(at, end)
    return {
        "busy areas": f"{sum(run[2] == 'B' for run in runs):,}",
        "busy, whole slots": size_text(busy),
        "lazy, leaving or being flushed": size_text(lazy),
        "blocks": f"{sum(piece['block'] for piece in inside):,}",
        "free in blocks": size_text(free),
        "gaps": f"{len(gaps):,}",
        "free in gaps": size_text(sum(gaps)),
        "largest gap": size_text(max(gaps, default=0)),
        "spread: span from the first to the last piece / busy":
            f"{(inside[-1]['end'] - inside[0]['start']) / busy if busy else 0.0:,.1f}",
    }


def size_text(size):
    """A size in bytes with a unit, three digits at most."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if size >= 100 or size == int(size) else f"{size:.1f} {unit}"
