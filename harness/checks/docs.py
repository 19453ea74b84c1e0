# SPDX-License-Identifier: GPL-2.0
"""The item docs: README.md is short, links lead somewhere, and quoted figures are those of the tables of docs/."""

import posixpath
import re
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote

from . import Fault, read, refuse, sources

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
    """Return the length of README.md. Raises Fault if it has 150 lines or more."""
    lines = read("README.md").count("\n")
    if lines >= 150:
        raise Fault(f"{lines} lines\nREADME.md must have fewer than 150; move what users rarely need to docs/")
    return f"{lines} lines"


def parts_of(path):
    """Yield (kind, text) of each heading, link and text in backticks of a document."""
    # No other item needs this package.
    from markdown_it import MarkdownIt  # pylint: disable=import-outside-toplevel
    tokens = MarkdownIt("commonmark").enable("table").parse(read(path))
    for before, token in zip(tokens, tokens[1:]):
        if before.type == "heading_open":
            yield "heading", "".join(child.content for child in token.children)
        yield from ((child.type, child.attrs.get("href", child.content)) for child in token.children or [])


def anchors_of(path):
    """Return the anchors that GitHub gives to the headings of a document, each to the first of that name."""
    headings = (text for kind, text in parts_of(path) if kind == "heading")
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


def problem_of(path, kind, text, files):
    """Return why a relative link, its anchor or a path in backticks leads nowhere; None if it leads to one of the files
    of the repository, or is neither."""
    if kind == "code_inline":
        match = IN_BACKTICKS.fullmatch(text)
        # A word in capitals, as in docs/litmus/NAME.litmus, stands for any name.
        pattern = re.sub(r"\b[A-Z]+\b", "*", match[1].rstrip("/")) if match else "*"
        if not any(fnmatch(file, pattern) for file in files):
            return f"there is no {match[1]}"
    if kind == "link_open" and not re.match(r"\w+:", text):
        target, _, anchor = unquote(text).partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
        if target not in files:
            return f"link {text}: there is no {target}"
        if anchor and target.endswith(".md") and anchor not in anchors_of(target):
            return f"link {text}: {target} has no such heading"
    return None


def links():
    """Return the number of links and paths of the documents. Raises Fault with those that lead nowhere."""
    files = set(sources())
    files.update(str(folder) for file in list(files) for folder in Path(file).parents)
    found = [(path, kind, text) for path in sources("*.md") for kind, text in parts_of(path)
             if kind in ("link_open", "code_inline")]
    problems = ((path, problem_of(path, kind, text, files)) for path, kind, text in found)
    refuse(f"{path}: {problem}" for path, problem in problems if problem)
    return f"{len(found)} links and names"


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


def wrong_quotes(text, page, least):
    """Return what is wrong with the quotes of a text, a line each. A line quotes if it begins with a word and has a
    pair for each size, or if it begins with a case of the table and has the pair of the first size."""
    table, count, bad = table_of(page), 0, []
    for number, line in enumerate(text.splitlines(), 1):
        begin, pairs = re.sub(r"^[\s|*`]+", "", line), PAIR.findall(line)
        # Of "map" and "map once" the longer one.
        case = max((case for case in table if re.match(rf"{re.escape(case)}\b", begin)), key=len, default=None)
        if begin[:1].islower() and (len(pairs) == len(SIZES) or case and len(pairs) == 1):
            count += 1
            if pairs != table.get(case, [])[:len(pairs)]:
                bad.append(f"line {number}: {' '.join(begin.split())}: but the table has "
                           f"{', '.join(table.get(case, ['no row']))}")
    return bad if count >= least else [*bad, f"only {count} lines quote figures, not {least}"]


def figures():
    """Raise Fault if a text quotes a figure that its page has not. Without the page there is nothing to quote."""
    for texts, page, least in QUOTES:
        for file in sources(texts) if sources(page) else ():
            refuse(f"{file}: {line}" for line in wrong_quotes(read(file), read(page), least))
