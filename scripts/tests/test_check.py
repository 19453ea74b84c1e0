# SPDX-License-Identifier: GPL-2.0
"""scripts/check finds banned words, a long README, dead links and wrong figures in a small repository."""

import pytest

from conftest import REPO, User

# The words are put together here, since this file is checked too.
WORD = "root fold" "er"
# Texts without a fault, whatever those of this repository do.
TEXTS = r"""
(cd $repo && cp -a --parents harness scripts/lib scripts/lib.sh scripts/check scripts/prepare scripts/in-root \
    kernel-patches/*/META "$OLDPWD")
git init -q
mkdir docs
printf '# A heading, with `code`\n\nSee [below](docs/more.md#a-second-one-1), `scripts/check words`.\n' >README.md
printf '# More\n\n## A second one\n\n## A second one\n\n| [up](../README.md#a-heading-with-code) |\n|-|\n' >docs/more.md
# The page that a cover letter quotes; there is no docs/bench.md, so README.md quotes nothing.
mkdir -p kernel-patches/v1/mapping
printf '| case | 2x1 | 8x8 |\n|-|-|-|\n' >docs/mapping.md
for case in pair stack huge io ram; do
    printf '| %s | 1,000 -> 90, 0.09 | 20 -> 1.5, **0.08** |\n' $case >>docs/mapping.md
    printf '  %s  1,000 -> 90  20 -> 1.5\n' $case >>kernel-patches/v1/mapping/0000-cover.patch
done
scripts/check $item
"""
# The item of scripts/check, a file and what is added to it, and a part of the report.
FAULTS = {
    "a banned word": ("words", "README.md", f"In the {WORD}.", f'README.md:4: "{WORD}": use toolchain root'),
    "a banned phrase, across two lines of a comment": (
        "words", "a.rs", "// In the {}\n// {} of it.".format(*WORD.split()), f'a.rs:1: "{WORD}": use toolchain root'),
    "a banned word that a patch adds": ("words", "a.patch", f" The {WORD}.\n+The {WORD}.", "a.patch:2: "),
    "a README of 150 lines": ("docs", "README.md", "\n" * 146, "README.md must have fewer than 150"),
    "a link to no file": ("docs", "README.md", "[gone](docs/gone.md)",
                          "README.md:4: link docs/gone.md: there is no docs/gone.md"),
    "a link to no heading": ("docs", "docs/more.md", "[gone](../README.md#gone)",
                             "link ../README.md#gone: README.md has no such heading"),
    "the name of no file": ("docs", "docs/more.md", "Run `scripts/gone 3`.", "there is no scripts/gone"),
    "a figure that the table does not have": (
        "docs", "kernel-patches/v1/mapping/0000-cover.patch", "  stack  1,000 -> 90  20 -> 1.6",
        "0000-cover.patch: line 6: stack 8x8: 20 -> 1.6, but the table has 20 -> 1.5"),
    "a case that the table does not have": (
        "docs", "kernel-patches/v1/mapping/0000-cover.patch", "  gone  1 -> 2  3 -> 4", "but the table has no row"),
    "too few figures": ("docs", "kernel-patches/v1/mapping/0000-other.patch", "  stack  1,000 -> 90  20 -> 1.5",
                        "0000-other.patch: only 1 lines quote figures, not 5"),
}


@pytest.mark.parametrize("item, file, text, report", FAULTS.values(), ids=FAULTS)
def test_finds(tmp_path, item, file, text, report):
    """Without a fault the check passes; with one it fails, and the report names it."""
    (tmp_path / "texts").mkdir()
    user = User(tmp_path / "texts", repo=REPO, item=item, file=file, text=text)
    user.run(TEXTS)
    assert report in user.run('echo "$text" >>$file; scripts/check $item', 1)
