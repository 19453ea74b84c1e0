# SPDX-License-Identifier: GPL-2.0
"""Items that only read text, in the folder of the repository: shell, spelling, words, licence, paths, checkpatch."""

import re
import shutil
import subprocess

from ..rust import in_root
from ..settings import CACHE, REPO, TREE
from . import CPUS, PATCHES, Fault, output, read, refuse, sources

# Files without licences, patches and pictures.
TEXTS = (":!LICENSE*", ":!*.patch", ":!*.png")
# Correct words that codespell reports: "vas" is the kernel's plural of vmap_area.
OUR_WORDS = "vas"
BANNED = "scripts/lib/banned-words"
# Between two words of a phrase: blanks, or the end of a line and the comment sign of the next one.
GAP = r"(?:[ \\t]+|[ \\t]*\\n(?:[ \\t]|//[/!]?|[#*+>])*)"
# Paths of one machine, and host names of package registries. Brackets keep this file from having one.
ELSEWHERE = (r"""-e(^|[[:space:]"'`=:(])/(wor[k]|roo[t]|hom[e]/[a-z]+|tm[p]/(boo[t]|pla[n]))(/|$)""",
             r"-e\b(deb|ftp|security|snapshot)\.([a-z0-9-]+\.)*[d]ebian\.org|\b(static\.|index\.)?crate[s]\.io\b",
             r"-e\bpyp[i]\.org|\bproxy\.golan[g]")


def spread(files, number, *words, **more):
    """Return what a command prints in the toolchain root for that number of files at a time, on all processors. Raises
    Fault if it fails."""
    return output(*in_root("xargs", "-d", "\\n", "-P", CPUS, "-n", number, *words), input="\n".join(files), **more)


def shell():
    """Raise Fault if shellcheck reports anything above the level "style"."""
    files = [file for file in sources(":!*.patch", ":!*.png")
             if file.endswith(".sh") or re.match(r"#!.*\b(bash|sh)\n", read(file))]
    # One process reads one script after the other, for two minutes.
    spread(files, 6, "shellcheck", "-S", "info", "--")
    return f"{len(files)} scripts"


def spelling():
    """Raise Fault if codespell finds anything, also in what the patches add: in copies, in which all lines are empty
    but those of the mail and the added ones. checkpatch could ask codespell's dictionary itself, but takes ten times
    as long with it."""
    files, patches, folder = sources(*TEXTS), sources("*.patch"), CACHE / "check/spelling"
    shutil.rmtree(folder, ignore_errors=True)
    for patch in patches:
        mail, _, diff = read(patch).partition("\n---\n")
        (folder / patch).parent.mkdir(parents=True, exist_ok=True)
        (folder / patch).write_text(f"{mail}\n\n" + re.sub(r"^[^+\n].*", "", diff, flags=re.M), encoding="utf-8")
    output(*in_root("codespell", "-L", OUR_WORDS, "--", *files, *(folder / patch for patch in patches)))
    return f"{len(files)} files and {len(patches)} patches"


def banned_words():
    """Raise Fault with FILE:LINE, the banned word and what to use instead, for each use of one. Of a patch only the
    message and the added lines count."""
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
    refuse(found)


def without_licence():
    """Raise Fault with the files whose first two lines have no SPDX line."""
    spdx = re.compile(r"(.*\n)?.*SPDX-License-Identifier: GPL-2\.0")
    refuse(f"no SPDX line: {file}" for file in sources(*TEXTS) if not spdx.match(read(file)))


def machine_paths():
    """Raise Fault with the lines that have paths of one machine, or host names of package registries."""
    refuse(subprocess.run(["grep", "-nHE", *ELSEWHERE, "--", *sources()], stdout=subprocess.PIPE, encoding="utf-8",
                          errors="replace", check=False).stdout.splitlines())


def checkpatch(files, *words):
    """Run the kernel's checkpatch on files. Raises Fault if it prints anything: by itself it does not fail on a file
    that it cannot read."""
    refuse(spread(files, 8, "perl", "scripts/checkpatch.pl", "--strict", "--no-summary", "--show-types", "--terse",
                  *words, cwd=TREE, stderr=subprocess.STDOUT).splitlines())
    return f"{len(files)} files"


def checkpatch_patches():
    """Check the style of the patches, also those for other series of Linux."""
    patches = [f"{REPO}/{file}" for file in sources("kernel-patches/*.patch") if "/0000-" not in file]
    # It must not look like a series without faults.
    refuse([] if patches else [f"{PATCHES} has no patches"])
    # The commit of a "Fixes:" is not to be found: the source has no history.
    return checkpatch(patches, "--ignore", "UNKNOWN_COMMIT_ID")


def checkpatch_sources():
    """Check the style of the C files, but not of the plugin of QEMU and what belongs to the emulator."""
    files = sources("*.c", "*.h", ":!bench/plugin", ":!bench/host")
    return checkpatch([f"mm/vmap_rust/{file}" for file in files], "-f")


def made_from():
    """Check that the patches for other series of Linux were made from those that there are now (scripts/rebase)."""
    for meta in PATCHES.parent.glob("*/META"):
        base = "".join(re.findall("^Based-On: (.*)", read(meta), re.M))
        for was, name in re.findall(r"^Made-From: (\w+) (.*)", read(meta), re.M):
            patch = PATCHES.parent / f"v{base}" / name
            if output("bash", "-c", '. "$0/scripts/lib/series.sh"; patch_hash "$1"', REPO, patch).strip() != was:
                raise Fault(f"{patch} has changed since; run scripts/rebase {meta.parent.name[1:]}")
