# SPDX-License-Identifier: GPL-2.0
"""Links between the documents: a relative link of a Markdown file must lead to a file of the repository or its folder,
its #anchor to a heading there; so must a path in backticks that begins with a folder of the repository."""

import posixpath
import re
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote

from . import read, refuse, sources

# "rust/host/src/*.rs", or the first word of "scripts/test fuzz 300"; not what the kernel's tree or a build has.
IN_BACKTICKS = re.compile(r"(?!(?:scripts/gdb|\S*\.o)(?: |$))"
                          r"((?:bench|docs|harness|kernel-patches|kunit|qemu|rust|scripts|tools)/[\w./*-]*)(?: .*)?")


def parts_of(path):
    """Yield (line, kind, text) of each link, heading and text in backticks of a document."""
    # No other item needs this package.
    from markdown_it import MarkdownIt  # pylint: disable=import-outside-toplevel
    line, opened = 1, None
    for token in MarkdownIt("commonmark").enable("table").parse(read(path)):
        line = token.map[0] + 1 if token.map else line
        if opened == "heading_open":
            yield line, "heading", "".join(child.content for child in token.children)
        for child in token.children or []:
            if child.type == "link_open":
                yield line, "link", child.attrs["href"]
            elif child.type == "code_inline":
                yield line, "code", child.content
            line += child.type == "softbreak"
        opened = token.type


def anchors_of(path):
    """Return the anchors that GitHub gives to the headings of a document."""
    headings = [text.lower() for _, kind, text in parts_of(path) if kind == "heading"]
    slugs = [re.sub(r"[^\w -]", "", text).replace(" ", "-") for text in headings]
    return {f"{slug}-{slugs[:at].count(slug)}".removesuffix("-0") for at, slug in enumerate(slugs)}


def problem_of(path, kind, text, files):
    """Return why a link, or a path in backticks, leads nowhere; None if it does lead somewhere or is neither."""
    if kind == "code":
        match = IN_BACKTICKS.fullmatch(text)
        # A word in capitals, as in docs/litmus/NAME.litmus, stands for any name.
        pattern = re.sub(r"\b[A-Z]+\b", "*", match[1].rstrip("/")) if match else "*"
        if not any(fnmatch(file, pattern) for file in files):
            return f"there is no {match[1]}"
    if kind == "link" and not re.match(r"\w+:", text):
        target, _, anchor = unquote(text).partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
        if target not in files:
            return f"link {text}: there is no {target}"
        if anchor and target.endswith(".md") and anchor not in anchors_of(target):
            return f"link {text}: {target} has no such heading"
    return None


def follow():
    """Return the number of links and names. Raises Fault with FILE:LINE and the reason for each that leads nowhere."""
    files = set(sources())
    files.update(str(folder) for file in list(files) for folder in Path(file).parents)
    found = [(f"{path}:{line}", problem_of(path, kind, text, files)) for path in sources("*.md")
             for line, kind, text in parts_of(path) if kind != "heading"]
    refuse(f"{place}: {problem}" for place, problem in found if problem)
    return f"{len(found)} links and names"
