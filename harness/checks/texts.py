# SPDX-License-Identifier: GPL-2.0
"""Items that read text, in the folder of the repository: shell, spelling, links, figures, paths, layers."""

import posixpath
import re
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote

from ..bench import pictures
from ..toolchain.enter import in_root
from . import fault_if, output, read, sources, spread

# Paths of one machine, and host names of package registries. Brackets keep this file from having one.
ELSEWHERE = re.compile(r"""(?:^|[\s"'`=:(])/(?:wor[k]|roo[t]|hom[e]/[a-z]+|tm[p]/(?:boo[t]|pla[n]))(?:/|$)"""
                       r"|\b(?:deb|ftp|security|snapshot)\.(?:[a-z0-9-]+\.)*[d]ebian\.org|\bpyp[i]\.org"
                       r"|\b(?:static\.|index\.)?crate[s]\.io\b|\bproxy\.golan[g]")
# "rust/host/src/*.rs", or the first word of "scripts/test host NAME"; not what the kernel's tree or a build has.
IN_BACKTICKS = re.compile(r"(?!(?:scripts/gdb|\S*\.o)(?: |$))"
                          r"((?:bench|docs|harness|kernel-patches|kunit|mapping|qemu|rust|scripts|tools)/[\w./*-]*)(?: .*)?")
# Layers of rust/, the lowest first. The crate root, ffi.rs, kernel_space.rs and debugfs.rs use all.
LAYERS = ("base", "sys", "state", "policy", "check")


def shell():
    """shellcheck finds nothing above the level "style" in shell scripts."""
    files = [file for file in sources(":!*.patch")
             if file.endswith(".sh") or re.match(r"#!.*\b(bash|sh)\n", read(file))]
    # One process reads one script after the other, for two minutes.
    spread(files, 6, "shellcheck", "-S", "info", "--")
    return f"{len(files)} scripts"


def spelling():
    """codespell finds nothing in texts and patches."""
    files = sources(":!LICENSE*", ":!docs/*.svg")
    # "vas" is the kernel's plural of vmap_area.
    output(*in_root("codespell", "-L", "vas", "--", *files))
    return f"{len(files)} files"


def parts_of(path):
    """Yield (kind, text) of each heading, link and text in backticks of a document."""
    # No other item needs this package.
    from markdown_it import MarkdownIt
    tokens = MarkdownIt("commonmark").enable("table").parse(read(path))
    for before, token in zip(tokens, tokens[1:]):
        if before.type == "heading_open":
            yield "heading", "".join(child.content for child in token.children)
        yield from ((child.type, child.attrs.get("href") or child.attrs.get("src", child.content))
                    for child in token.children or [])


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
            if not any(fnmatch(file, pattern) for file in files):
                found.append(f"{path}: there is no {match[1]}")
        elif kind in ("link_open", "image") and not re.match(r"\w+:", text):
            target, _, anchor = unquote(text).partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
            if target not in files:
                found.append(f"{path}: link {text}: there is no {target}")
            elif anchor and anchor not in anchors.get(target, {anchor}):
                found.append(f"{path}: link {text}: {target} has no such heading")
    fault_if(found)
    return f"{len(parts)} documents"


def figures():
    """Tables in docs/ are of one commit, named above each, and have what README.md quotes; pictures are of these tables."""
    commits, text = {}, "".join(map(read, sources("docs/*.md")))
    # Columns of figures are aligned to the right.
    for above, table in re.findall(r"((?:(?!\|).*\n)*)((?:\|.*\n)+)", text):
        if "---:" in table:
            name = re.findall(r"\bcommit ([0-9a-f]{12}(?:-dirty)?)\b", above)[-1:] or ["no commit"]
            commits.setdefault(name[0], []).append(table.partition("\n")[0])
    fault_if(f"{name}: the table {title}" for name, titles in commits.items() for title in titles
             if len(commits) > 1 or "no" in name or "dirty" in name)
    pairs = re.findall(r"^\|.*", read("README.md"), re.M)
    fault_if(f"README.md: {pair}: no table of docs/ has that" for line in pairs
             for pair in re.findall(r"[\d.,]+ -> [\d.,]*\d", line) if pair not in text)
    fault_if(f"docs/{name}: is not of the tables of docs/bench.md; run make figures" for name in pictures.stale())


def machine_paths():
    """No path of one machine, and no host name of a package registry."""
    fault_if(f"{file}:{number}:{line}" for file in sources()
             for number, line in enumerate(read(file).split("\n"), 1) if ELSEWHERE.search(line))


def layers():
    """Each layer of rust/ uses only itself and lower ones; tests use check/."""
    found = []
    # A file of check/ can be a module of another layer.
    owner = {f"rust/{path}": file.parent.name for file in Path("rust").glob("*/mod.rs")
             for path in re.findall(r'#\[path = "\.\./(.*)"\]', read(file))}
    for file in (file for layer in LAYERS for file in sorted(Path("rust", layer).glob("*.rs"))):
        allowed = LAYERS[:LAYERS.index(owner.get(str(file), file.parent.name)) + 1]
        # In "use crate::{", each name that is indented once more is one of the crate.
        text = re.sub(r"^( *)(pub(\(crate\))? )?use crate::\{\n(.*\n)*?\1\};",
                      lambda use: re.sub(rf"^{use[1]}    (?=[a-z_]+(::|,))", "crate::", use[0], flags=re.M),
                      read(file), flags=re.M)
        # What is above a layer is the crate.
        above = f"|super::(?={'|'.join(LAYERS)}|ffi|kernel_space|debugfs)" if file.name == "mod.rs" else ""
        found += [f"{file}:{number}: uses crate::{name}" for number, line in enumerate(text.split("\n"), 1)
                  for name in re.findall(rf"(?:crate::{above})([a-z_]+)", line)
                  if name not in allowed and not line.lstrip().startswith("//")]
    fault_if(found)
