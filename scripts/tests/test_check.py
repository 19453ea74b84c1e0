# SPDX-License-Identifier: GPL-2.0
"""What scripts/check finds in a small repository: a row for each kind of fault."""

import pytest

from conftest import REPO, User

# The words are put together here, since this file is checked too.
WORD, PATH = "root fold" "er", "/wor" "k/x"
# Texts without a fault, whatever those of this repository do. The cover letter quotes docs/mapping.md; there is no
# docs/bench.md, so README.md quotes nothing.
TEXTS = r"""
(cd $repo && cp -a --parents .gitignore .shellcheckrc harness scripts/{start,check,prepare,in-root} \
    kernel-patches/*/META "$OLDPWD")
git init -q
mkdir -p docs rust/base kernel-patches/v1/mapping
cat >README.md <<'END'
# A heading, with `code`
<!-- SPDX-License-Identifier: GPL-2.0 -->
See [below](docs/more.md#a-second-one), `scripts/check words`.
END
cat >docs/more.md <<'END'
# More
<!-- SPDX-License-Identifier: GPL-2.0 -->
## A second one
| [up](../README.md#a-heading-with-code) |
|-|
END
cat >docs/mapping.md <<'END'
<!-- SPDX-License-Identifier: GPL-2.0 -->
| case | 2x1 | 8x8 |
|-|-|-|
| pair | 1,000 -> 90, 0.09 | **20 -> 1.5, 0.08** |
| `map once` | 30 -> 20 | |
END
printf '  %s\n' 'pair  1,000 -> 90  20 -> 1.5' 'map once  30 -> 20' {pair,pair,pair}'  1,000 -> 90' \
    >kernel-patches/v1/mapping/0000-cover.patch
cat >rust/vmap_rust.rs <<'END'
// SPDX-License-Identifier: GPL-2.0
#[forbid(unsafe_code)]
mod base;
mod ffi;
END
scripts/check $item
"""
COVER = "kernel-patches/v1/mapping/0000-cover.patch"
# The item of scripts/check, a file and what is added to it, and a part of the report.
FAULTS = {
    "a script with a fault": ("shell", "a.sh", "cd $1", "a.sh"),
    "a wrong word": ("spelling", "README.md", "An occur" "ence.", "README.md:4: occur" "ence ==> occurrence"),
    "a wrong word that a patch adds": ("spelling", "a.patch", "\n---\n-Oc" "cured.\n+Occur" "ence.", "a.patch:4: "),
    "no licence": ("licence", "a.c", "int x;", "no SPDX line: a.c"),
    "a path of one machine": ("paths", "a.c", f"// {PATH}", f"a.c:1:// {PATH}"),
    "unsafe code": ("unsafe", "rust/base/a.rs", "// unsafe\nunsafe {}", "rust/base/a.rs:2:unsafe {}"),
    "a module that may be unsafe": ("unsafe", "rust/vmap_rust.rs", "mod more;", "mod more lacks #[forbid"),
    "a layer that uses a higher one": ("unsafe", "rust/base/a.rs", "use crate::{\n    sys::x,\n};", "uses crate::sys"),
    "a banned word": ("words", "README.md", f"In the {WORD}.", f'README.md:4: "{WORD}": use toolchain root'),
    "a banned phrase, across two lines of a comment": (
        "words", "a.rs", "// In the {}\n// {} of it.".format(*WORD.split()), f'a.rs:1: "{WORD}": use toolchain root'),
    "a banned word that a patch adds": ("words", "a.patch", f" The {WORD}.\n+The {WORD}.", "a.patch:2: "),
    "a README of 150 lines": ("docs", "README.md", "\n" * 146, "README.md must have fewer than 150"),
    "a link to no file": ("docs", "README.md", "[gone](docs/gone.md)",
                          "README.md: link docs/gone.md: there is no docs/gone.md"),
    "a link to no heading": ("docs", "docs/more.md", "[gone](../README.md#gone)",
                             "link ../README.md#gone: README.md has no such heading"),
    "the name of no file": ("docs", "docs/more.md", "Run `scripts/gone 3`.", "there is no scripts/gone"),
    "a figure that the table does not have": (
        "docs", COVER, "  pair  1,000 -> 90  20 -> 1.6",
        f"{COVER}: line 6: pair 1,000 -> 90 20 -> 1.6: but the table has 1,000 -> 90, 20 -> 1.5"),
    "one figure that the table does not have": ("docs", COVER, "  map once  30 -> 21", "but the table has 30 -> 20"),
    "a case that the table does not have": ("docs", COVER, "  gone  1 -> 2  3 -> 4", "but the table has no row"),
    "too few figures": ("docs", COVER.replace("cover", "other"), "  pair  1,000 -> 90  20 -> 1.5",
                        "0000-other.patch: only 1 lines quote figures, not 5"),
}


@pytest.mark.parametrize("item, file, text, report", FAULTS.values(), ids=FAULTS)
def test_finds(tmp_path, item, file, text, report):
    """Without a fault the check passes; with one it fails, and the report names it."""
    (tmp_path / "texts").mkdir()
    user = User(tmp_path / "texts", repo=REPO, item=item, file=file, text=text)
    user.run(TEXTS)
    assert report in user.run('echo "$text" >>$file; scripts/check $item', 1)
