# SPDX-License-Identifier: GPL-2.0
"""The item docs: README.md is short, links lead somewhere, and quoted figures are those of the tables of docs/."""

import posixpath
import re
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote

from . import fault_if, read, sources

# "rust/host/src/*.rs", or the first word of "scripts/test fuzz 300"; not what the kernel's tree or a build has.
IN_BACKTICKS = re.compile(r"(?!(?:scripts/gdb|\S*\.o)(?: |$))"
                          r"((?:bench|docs|harness|kernel-patches|kunit|qemu|rust|scripts|tools)/[\w./*-]*)(?: .*)?")
PAIR = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)? -> \d+(?:,\d{3})*(?:\.\d+)?")
# The columns of a table that are quoted: 2 CPUs and one worker, and 8 CPUs and 8 workers.
SIZES = ("2x1", "8x8")
# Texts that quote, the page that they quote, and how many lines they have at least.
QUOTES = (("README.md", "docs/bench.md", 8), ("Kconfig", "docs/bench.md", 1),
          ("kernel-patches/*/area/0000-*.patch", "docs/bench.md", 5),
          ("kernel-patches/*/mapping/0000-*.patch", "docs/mapping.md", 5))


def readme_length():
    """README.md has fewer than 150 lines."""
    lines = read("README.md").count("\n")
    fault_if([f"{lines} lines\nREADME.md must have fewer than 150; move what users rarely need to docs/"] * (lines >= 150))
    return f"{lines} lines"


def parts_of(path):
    """Yield (kind, text) of each heading, link and text in backticks of a document."""
    # No other item needs this package.
    from markdown_it import MarkdownIt
    tokens = MarkdownIt("commonmark").enable("table").parse(read(path))
    for before, token in zip(tokens, tokens[1:]):
        if before.type == "heading_open":
            yield "heading", "".join(child.content for child in token.children)
        yield from ((child.type, child.attrs.get("href", child.content)) for child in token.children or [])


def links():
    """Relative links, their anchors and paths in backticks lead somewhere."""
    files, parts, found = set(sources()), {path: [*parts_of(path)] for path in sources("*.md")}, []
    files.update(str(folder) for file in list(files) for folder in Path(file).parents)
    # GitHub gives such an anchor to the first heading of that name.
    anchors = {path: {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for kind, text in some if kind == "heading"}
               for path, some in parts.items()}
    for path, kind, text in ((path, *part) for path, some in parts.items() for part in some):
        if kind == "code_inline" and (match := IN_BACKTICKS.fullmatch(text)):
            # A word in capitals, as in docs/litmus/NAME.litmus, stands for any name.
            pattern = re.sub(r"\b[A-Z]+\b", "*", match[1].rstrip("/"))
            found += [f"{path}: there is no {match[1]}"] * (not any(fnmatch(file, pattern) for file in files))
        elif kind == "link_open" and not re.match(r"\w+:", text):
            target, _, anchor = unquote(text).partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
            if target not in files:
                found.append(f"{path}: link {text}: there is no {target}")
            elif anchor and anchor not in anchors.get(target, {anchor}):
                found.append(f"{path}: link {text}: {target} has no such heading")
    fault_if(found)
    return f"{len(parts)} documents"


def table_of(page):
    """Return {case: the pair of each of SIZES, or ""} of the tables of a page that have a column for each size."""
    found, columns = {}, []
    for line in page.splitlines():
        cells = [cell.strip(" `*") for cell in line.strip("|").split("|")]
        if set(SIZES) <= set(cells):
            columns = cells
        elif not line.startswith("|"):
            columns = []
        elif pairs := [PAIR.match(cell) for size, cell in zip(columns, cells) if size in SIZES]:
            found[cells[0]] = [pair[0] if pair else "" for pair in pairs]
    return found


def figures():
    """Texts quote only figures that the tables of their page have. Without the page there is nothing to quote.

    A line quotes if it begins with a word and has a pair for each size, or with a case of a table and the first pair."""
    for texts, page, least in (row for row in QUOTES if sources(row[1])):
        table = table_of(read(page))
        # Of "map" and "map once" the longer one.
        begin = re.compile(rf"[\s|*`]*(?=[a-z])({'|'.join(map(re.escape, sorted(table, key=len, reverse=True)))})?\b")
        for file in sources(texts):
            quotes = []
            for number, line in enumerate(read(file).splitlines(), 1):
                match, pairs = begin.match(line), PAIR.findall(line)
                if match and (len(pairs) == len(SIZES) or match[1] and len(pairs) == 1):
                    quotes.append((f"line {number}: {' '.join(line.split())}", pairs, table.get(match[1], ["no row"])))
            fault_if(f"{file}: {quote}: but the table has {', '.join(have)}" for quote, pairs, have in quotes
                   if pairs != have[:len(pairs)])
            fault_if([f"{file}: only {len(quotes)} lines quote figures, not {least}"] * (len(quotes) < least))
