# SPDX-License-Identifier: GPL-2.0
"""Figures that other texts quote from the tables of docs/. A quoting line names a case, then has a pair "A -> B" with 2 CPUs
and one worker, and mostly one with 8 CPUs and 8 workers. Each must be in the table."""

import re

from . import read, refuse, sources

NUMBER = r"(\d+(?:,\d{3})*(?:\.\d+)?)"
PAIR = re.compile(f"{NUMBER} -> {NUMBER}")
NAME = re.compile(r"[\s|*]*`?([a-z]\w*(?: [a-z_]+)?)`?")
SIZES = ("2x1", "8x8")
# Texts that quote, the page that they quote, and how many lines they have at least.
QUOTES = (("README.md", "docs/bench.md", 8), ("Kconfig", "docs/bench.md", 1),
          ("kernel-patches/*/area/0000-*.patch", "docs/bench.md", 5),
          ("kernel-patches/*/mapping/0000-*.patch", "docs/mapping.md", 5))


def figures(text):
    """Return the pair of each (case, size) of the tables of a page. A table has a column of pairs for each size, or one
    of sizes ("NxM") and then the two figures."""
    found, columns = {}, []
    for line in text.splitlines():
        cells = [cell.strip(" `*") for cell in line.strip("|").split("|")]
        if "NxM" in cells or set(SIZES) <= set(cells):
            columns = cells
        elif line.startswith("|") and columns:
            row = dict(zip(columns, cells))
            if row.get("NxM") in SIZES and len(cells) > 3:
                found[cells[0], row["NxM"]] = tuple(cell.split(" ")[0] for cell in cells[2:4])
            for size in SIZES:
                if pair := PAIR.search(row.get(size, "")):
                    found[cells[0], size] = pair.groups()
    return found


def quotes(text, known):
    """Yield (number of the line, case, pairs) of each quoting line. With one pair, it must name a known case."""
    for number, line in enumerate(text.splitlines(), 1):
        name, pairs = NAME.match(line), PAIR.findall(line)
        if name and len(pairs) in (1, len(SIZES)):
            # In text without backticks, the word after a case is not part of it.
            case = name[1] if (name[1], SIZES[0]) in known else name[1].split(" ")[0]
            if len(pairs) > 1 or (case, SIZES[0]) in known:
                yield number, case, pairs


def wrong(text, page, least):
    """Return what is wrong with the quotes of a text, a line each."""
    known, lines = figures(page), []
    found = list(quotes(text, known))
    for number, case, pairs in found:
        for size, pair in zip(SIZES, pairs):
            if known.get((case, size)) != pair:
                lines.append(f"line {number}: {case} {size}: {' -> '.join(pair)}, but the table has "
                             f"{' -> '.join(known.get((case, size), ['no row']))}")
    if len(found) < least:
        lines.append(f"only {len(found)} lines quote figures, not {least}")
    return lines


def check():
    """Fault if a text quotes a figure that is not in the table of its page. Without the page there is nothing to quote."""
    bad = []
    for pattern, page, least in QUOTES:
        for file in sources(pattern) if sources(page) else ():
            bad += [f"{file}: {line}" for line in wrong(read(file), read(page), least)]
    refuse(bad)
