# SPDX-License-Identifier: GPL-2.0
"""Items that read text, in the folder of the repository: shell, spelling, words, licence, paths, unsafe."""

import re
import subprocess
from pathlib import Path

from ..enter import in_root
from . import fault_if, output, read, sources, spread

BANNED = "harness/checks/banned-words"
# Between two words of a phrase: blanks, or the end of a line and the comment sign of the next one.
GAP = r"(?:[ \\t]+|[ \\t]*\\n(?:[ \\t]|//[/!]?|[#*+>])*)"
# Paths of one machine, and host names of package registries. Brackets keep this file from having one.
ELSEWHERE = (r"""-e(^|[[:space:]"'`=:(])/(wor[k]|roo[t]|hom[e]/[a-z]+|tm[p]/(boo[t]|pla[n]))(/|$)""",
             r"-e\b(deb|ftp|security|snapshot)\.([a-z0-9-]+\.)*[d]ebian\.org|\b(static\.|index\.)?crate[s]\.io\b",
             r"-e\bpyp[i]\.org|\bproxy\.golan[g]")
# Layers of rust/, the lowest first. The crate root, ffi.rs, debugfs.rs and debug/ use all.
LAYERS = ("base", "sys", "state", "policy", "check")
# Modules of the crate that may have unsafe code. In some modules of theirs, too, #[forbid(unsafe_code)] makes the
# compiler refuse it.
UNSAFE = ("debug", "ffi", "state", "sys")


def shell():
    """shellcheck finds nothing above the level "style" in shell scripts."""
    files = [file for file in sources(":!*.patch", ":!*.png")
             if file.endswith(".sh") or re.match(r"#!.*\b(bash|sh)\n", read(file))]
    # One process reads one script after the other, for two minutes.
    spread(files, 6, "shellcheck", "-S", "info", "--")
    return f"{len(files)} scripts"


def spelling():
    """codespell finds nothing in texts and patches."""
    files = sources(":!LICENSE*", ":!*.png")
    # "vas" is the kernel's plural of vmap_area.
    output(*in_root("codespell", "-L", "vas", "--", *files))
    return f"{len(files)} files"


def banned_words():
    """No text has a word of harness/checks/banned-words; of a patch only the message and the added lines count."""
    words, found = [], []
    for line in re.findall("^[^#\n].*", read(BANNED), re.M):
        regex, use = line.split("\t")
        # A look-behind, which ends with a blank and a parenthesis, needs a fixed width.
        regex = re.sub(r" (?!\))", GAP, regex)
        words.append((re.compile(rf"\b(?:{regex})\b", re.I), use))
    for path in sources(":!LICENSE*", ":!*.svg", ":!*.png", f":!{BANNED}"):
        text = re.sub(r"^[- ].*", "", read(path), flags=re.M) if path.endswith(".patch") else read(path)
        for hit, use in ((hit, use) for word, use in words for hit in word.finditer(text)):
            phrase = re.sub(r"\s[\s/!#*+>]*", " ", hit[0])
            found.append(f'{path}:{text.count(chr(10), 0, hit.start()) + 1}: "{phrase}": use {use}')
    fault_if(found)


def licence():
    """Each file has an SPDX line, as its first or second."""
    spdx = re.compile(r"(.*\n)?.*SPDX-License-Identifier: GPL-2\.0")
    fault_if(f"no SPDX line: {file}" for file in sources(":!LICENSE*", ":!*.patch", ":!*.png")
             if not spdx.match(read(file)))


def machine_paths():
    """No path of one machine, and no host name of a package registry."""
    done = subprocess.run(["grep", "-nHE", *ELSEWHERE, "--", *sources()], stdout=subprocess.PIPE, encoding="utf-8",
                          errors="replace", check=False)
    fault_if(done.stdout.splitlines())
    fault_if(["grep cannot read a file"] if done.returncode > 1 else [])


def code_of(text):
    """Return (number, line) of the lines of Rust code that are no comments."""
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if not line.lstrip().startswith("//")]


def unsafe_code():
    """Only sys, state, debug and ffi have unsafe code; in all others the compiler forbids it."""
    files = sources(":(glob)rust/*.rs", "rust/base", "rust/check", "rust/policy", ":!rust/ffi.rs", ":!rust/vmap_rust.rs")
    fault_if(f"{file}:{number}:{line}" for file in files for number, line in code_of(read(file))
             if re.search(r"\bunsafe\b", line))
    fault_if(f"rust/vmap_rust.rs: mod {name} lacks #[forbid(unsafe_code)]"
             for before, name in re.findall(r"^(.*)\n(?=mod (\w+);$)", read("rust/vmap_rust.rs"), re.M)
             if name not in UNSAFE and before != "#[forbid(unsafe_code)]")
    return f"{len(files)} files"


def layers():
    """Each layer of rust/ uses only itself and lower ones; tests use check/."""
    found = []
    for file in (file for layer in LAYERS for file in sorted(Path("rust", layer).glob("*.rs"))):
        allowed = LAYERS[:LAYERS.index(file.parent.name) + 1]
        # In "use crate::{", each name that is indented once is one of the crate.
        text = re.sub(r"^(pub(\(crate\))? )?use crate::\{\n(.*\n)*?\};",
                      lambda use: re.sub(r"^    (?=[a-z_]+(::|,))", "crate::", use[0], flags=re.M),
                      read(file).split("kunit_tests(")[0], flags=re.M)
        found += [f"{file}:{number}: uses crate::{name}" for number, line in code_of(text)
                  for name in re.findall("crate::([a-z_]+)", line)
                  if name not in allowed and not file.name.endswith("tests.rs")]
    fault_if(found)
