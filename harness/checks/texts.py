# SPDX-License-Identifier: GPL-2.0
"""Items that only read text, in the folder of the repository: shell, spelling, words, docs, licence, paths,
checkpatch."""

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


def shell(check):
    """Check that shellcheck reports nothing above the level "style"."""
    files = [file for file in sources(":!*.patch", ":!*.png")
             if file.endswith(".sh") or re.match(r"#!.*\b(bash|sh)\n", read(file))]
    # One process reads one script after the other, for two minutes.
    check(f"shellcheck, {len(files)} scripts", spread, files, 6, "shellcheck", "-S", "info", "--")


def spelling(check):
    """Check that codespell finds nothing, also in what the patches add: in copies, in which all lines are empty but
    those of the mail and the added ones. checkpatch could ask codespell's dictionary itself, but takes ten times as
    long with it."""
    files, patches, folder = sources(*TEXTS), sources("*.patch"), CACHE / "check/spelling"
    shutil.rmtree(folder, ignore_errors=True)
    for patch in patches:
        mail, _, diff = read(patch).partition("\n---\n")
        (folder / patch).parent.mkdir(parents=True, exist_ok=True)
        (folder / patch).write_text(f"{mail}\n\n" + re.sub(r"^[^+\n].*", "", diff, flags=re.M), encoding="utf-8")
    check(f"codespell, {len(files)} files and {len(patches)} patches", output,
          *in_root("codespell", "-L", OUR_WORDS, "--", *files, *(folder / patch for patch in patches)))


def banned_words():
    """Raise Fault with FILE:LINE, the banned word and what to use instead, for each use of one. Of a patch only the
    message and the added lines count."""
    words, found = [], []
    for line in re.findall("^[^#\n].*", read(BANNED), re.M):
        regex, use = line.split("\t")
        # Look-behinds need a fixed width, so blanks in parentheses that start with "?" stay as they are.
        parts = [part if part[:2] == "(?" else re.sub(" ", GAP, part) for part in re.split(r"(\(\?[^)]*\))", regex)]
        words.append((re.compile(rf"\b(?:{''.join(parts)})\b", re.I), use))
    for path in sources(":!LICENSE*", ":!*.svg", ":!*.png", f":!{BANNED}"):
        text = re.sub(r"^[- ].*", "", read(path), flags=re.M) if path.endswith(".patch") else read(path)
        hits = ((hit.start(), re.sub(r"\s[\s/!#*+>]*", " ", hit[0]), use)
                for word, use in words for hit in word.finditer(text))
        found += [f'{path}:{text.count(chr(10), 0, at) + 1}: "{word}": use {use}' for at, word, use in sorted(hits)]
    refuse(found)


def readme_length():
    """Return the length of README.md. Raises Fault if it has 150 lines or more."""
    lines = read("README.md").count("\n")
    if lines >= 150:
        raise Fault(f"{lines} lines\nREADME.md must have fewer than 150; move what users rarely need to docs/")
    return f"{lines} lines"


def without_licence():
    """Raise Fault with the files whose first two lines have no SPDX line."""
    spdx = re.compile(r"(.*\n)?.*SPDX-License-Identifier: GPL-2\.0")
    refuse(f"no SPDX line: {file}" for file in sources(*TEXTS) if not spdx.match(read(file)))


def machine_paths():
    """Raise Fault with the lines that have paths of one machine, or host names of package registries."""
    refuse(subprocess.run(["grep", "-nHE", *ELSEWHERE, "--", *sources()], stdout=subprocess.PIPE, encoding="utf-8",
                          errors="replace", check=False).stdout.splitlines())


def run_checkpatch(files, *words):
    """Run the kernel's checkpatch on files. Raises Fault if it prints anything: by itself it does not fail on a file
    that it cannot read."""
    refuse(spread(files, 8, "perl", "scripts/checkpatch.pl", "--strict", "--no-summary", "--show-types", "--terse",
                  *words, cwd=TREE, stderr=subprocess.STDOUT).splitlines())


def made_from(meta):
    """Check that the patches for another series of Linux were made from those that there are now (scripts/rebase)."""
    for was, name in re.findall(r"^Made-From: (\w+) (.*)$", read(meta), re.M):
        now = output("bash", "-c", '. "$0/scripts/lib/series.sh"; patch_hash "$1"', REPO, PATCHES / name)
        if now.strip() != was:
            raise Fault(f"{PATCHES / name} has changed since; run scripts/rebase {meta.parent.name[1:]}")


def checkpatch(check):
    """Check that the patches and the C files follow the kernel's style."""
    patches = [file for file in sources(f"{PATCHES.parent.relative_to(REPO)}/*.patch") if "/0000-" not in file]
    if not patches:
        # It must not look like a series without faults.
        check("checkpatch, patches", refuse, [f"{PATCHES} has no patches"])
    for patch in patches:
        # The commit of a "Fixes:" is not to be found: the source has no history.
        name = patch.removeprefix(f"{PATCHES.parent.relative_to(REPO)}/").removeprefix(f"{PATCHES.name}/")
        check(f"checkpatch {name}", run_checkpatch, [f"{REPO}/{patch}"], "--ignore", "UNKNOWN_COMMIT_ID")
    for meta in sorted(PATCHES.parent.glob("*/META")):
        if meta.parent != PATCHES:
            check(f"patches for Linux {meta.parent.name[1:]} are of today's", made_from, meta)
    # The plugin of QEMU and what belongs to the emulator are no kernel code.
    files = [f"mm/vmap_rust/{file}" for file in sources("*.c", "*.h", ":!bench/plugin", ":!bench/host")]
    if files:
        check(f"checkpatch, {len(files)} C files", run_checkpatch, files, "-f")
