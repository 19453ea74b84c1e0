# SPDX-License-Identifier: GPL-2.0
"""What scripts/check finds in a small repository: a row for each kind of fault."""

import pytest

from conftest import REPO, User

# Put together here, since this file is checked too.
PATH = "/wor" "k/x"
# Texts without a fault, whatever those of this repository do.
TEXTS = r"""
(cd $repo && cp -a --parents .gitignore .shellcheckrc harness scripts/{start,check,prepare,in-root} \
    kernel-patches/*/META "$OLDPWD")
git init -q
mkdir -p docs rust/base
cat >README.md <<'END'
# A heading, with `code`
<!-- SPDX-License-Identifier: GPL-2.0 -->
See [below](docs/more.md#a-second-one), `scripts/check docs`.
END
cat >docs/more.md <<'END'
# More
<!-- SPDX-License-Identifier: GPL-2.0 -->
## A second one
[up](../README.md#a-heading-with-code)
END
scripts/check $item
"""
# The item of scripts/check, a file and what is added to it, and a part of the report.
FAULTS = {
    "a script with a fault": ("shell", "a.sh", "cd $1", "a.sh"),
    "a wrong word": ("spelling", "README.md", "An occur" "ence.", "README.md:4: occur" "ence ==> occurrence"),
    "a path of one machine": ("paths", "a.c", f"// {PATH}", f"a.c:1:// {PATH}"),
    "a layer that uses a higher one": ("layers", "rust/base/a.rs", "use crate::{\n    sys::x,\n};", "uses crate::sys"),
    "a use in a module": ("layers", "rust/base/a.rs", "mod a {\n    use crate::{\n        sys::x,\n    };\n}",
                          "uses crate::sys"),
    "a higher layer beside a mod.rs": ("layers", "rust/base/mod.rs", "use super::sys::x;", "uses crate::sys"),
    "a link to no file": ("docs", "README.md", "[gone](docs/gone.md)",
                          "README.md: link docs/gone.md: there is no docs/gone.md"),
    "a picture that is gone": ("docs", "README.md", "![gone](docs/gone.png)", "there is no docs/gone.png"),
    "a link to no heading": ("docs", "docs/more.md", "[gone](../README.md#gone)",
                             "link ../README.md#gone: README.md has no such heading"),
    "figures of no commit": ("figures", "docs/more.md", "| a |\n| ---: |\n| 1 -> 2 |", "no commit: the table | a |"),
    "figures of two commits": (
        "figures", "docs/more.md", "commit 0123456789ab\n| a |\n| ---: |\ncommit 0123456789ac\n| b |\n| ---: |",
        "0123456789ac: the table | b |"),
    "a figure that only README.md has": ("figures", "README.md", "| 1,200 -> 600 (-50%) |",
                                         "README.md: 1,200 -> 600: no table of docs/ has that"),
    "a table without its picture": (
        "figures", "docs/bench.md", "commit 0123456789ab\n<!-- figures icount -->\n| a |\n| ---: |\n<!-- end of figures -->",
        "docs/figures-cases.svg: is not of the tables of docs/bench.md; run make figures"),
    "the name of no file": ("docs", "docs/more.md", "Run `scripts/gone 3`.", "there is no scripts/gone"),
}


@pytest.mark.parametrize("item, file, text, report", FAULTS.values(), ids=FAULTS)
def test_finds(tmp_path, item, file, text, report):
    """Without a fault the check passes; with one it fails, and the report names it."""
    (tmp_path / "texts").mkdir()
    user = User(tmp_path / "texts", repo=REPO, item=item, file=file, text=text)
    user.run(TEXTS)
    assert report in user.run('echo "$text" >>$file; scripts/check $item', 1)
