# SPDX-License-Identifier: GPL-2.0
"""scripts/install-into on a plain tree and on a git tree."""

import re
import shutil
import time

import pytest

from conftest import NAMES, PATCHES, REPO, User, clone, sums

GIT = "git -c user.name=t -c user.email=t@localhost -c core.hooksPath=/dev/null -c commit.gpgSign=false"
# The tree, what the user does there first, a call, and its last line. $bad is a clone of the repository.
REFUSED = {
    "folder without a kernel": ("plain", "", "$install $repo", "is not a Linux kernel source tree"),
    "unsupported kernel": ("plain", "sed -i 's/^PATCHLEVEL = .*/PATCHLEVEL = 1/' Makefile", "$install .",
                           r"Linux 7\.1.* is not supported: the patches are for"),
    "installed twice": ("plain", "$install .", "$install .", r"already installed in .*; --remove takes it out"),
    "a file that was changed since": ("plain", "$install .; echo '/* mine */' >>mm/vmalloc.c", "$install . --remove",
                                      "changed since they were installed: mm/vmalloc.c"),
    "mm/vmap_rust of somebody else": ("plain", "mkdir mm/vmap_rust", "$install .", "not from this script"),
    "changes in the way": ("plain", "sed -i s/vmalloc_init/vmalloc_init_/ mm/vmalloc.c mm/mm_init.c init/main.c",
                           "$install .", "nothing was changed"),
    "a commit of the user": ("git", "$install .; $git commit -q --allow-empty -m mine", "$install . --remove",
                             "has 1 commits of yours"),
    "a change on the branch": ("git", "$install .; echo >>mm/vmalloc.c", "$install . --remove",
                               "changes that are not committed"),
    "a change in git": ("git", "echo >>mm/vmalloc.c", "$install .", "changes that are not committed; commit or stash"),
    "a rebase of the user": ("git", "mkdir .git/rebase-apply", "$install .", "in the middle of a merge, rebase"),
    "a git tree without a commit": ("git", "rm -rf .git; $git init -q", "$install .", "git tree without a commit; commit all"),
    "a file that git does not track": (
        "git", "$git rm -q --cached mm/vmalloc.c; $git commit -q -m x; echo '/*' >.git/info/exclude", "$install .",
        "git does not track mm/vmalloc.c in .*; commit all files"),
    "a git folder that git refuses": ("git", "echo >.git/HEAD", "$install .", "git does not take .* for its tree"),
    "a branch of that name": ("git", "git branch vmap-rust", "$install .", "has a branch vmap-rust already"),
    "series that does not apply": ("git", f"cp $bad/{NAMES[-1]} $bad/{PATCHES}/area/9000-bad.patch",
                                   "$bad/scripts/install-into .", "nothing was changed"),
    "--only with a wrong value": ("plain", "", "$install . --only maps",
                                  "^install-into: error: argument --only: invalid choice: 'maps' .choose from '?first"),
}
# The tree has the patches of these series, and nothing else.
SAME = f"""same() {{
    cp -a $linux ../same
    for series; do
        (cd ../same && git --git-dir=/dev/null apply $(ls {REPO / PATCHES}/$series/*.patch | grep -v /0000-))
    done
    diff -r --no-dereference -x .git -x '.vmap-rust*' -x vmap_rust . ../same
}}
"""
# What a killed call leaves: not all files are those of the series, or git has a lock, and the branch is not complete.
HALF = """folder=.git
[ -d $folder ] || folder=.vmap-rust-git
rm $folder/vmap-rust/tip mm/vmalloc.c
touch $folder/index.lock"""
MINE = "mkdir mm/vmap_rust; echo mine >mm/vmap_rust/mine.c"
# The tree, what the user does there first, arguments, and what is then true.
INSTALLS = {
    "plain tree": ("plain", "", "", "grep vmap_rust mm/Makefile; [ -e mm/vmap_rust/scripts/build ]"),
    "git tree": ("git", "", "", f'[ $(git rev-list --count master..vmap-rust) = {len(NAMES) + 1} ]; '
                 '[ -e mm/vmap_rust/scripts/build ]; [ -z "$(git status --porcelain)" ]'),
    "detached HEAD": ("git", "git checkout -q --detach", "", ""),
    "only area": ("plain", "", "--only area", "same first vmalloc area; [ -L mm/vmap_rust ]"),
    "only vmalloc": ("git", "", "--only vmalloc", "same vmalloc; [ ! -e mm/vmap_rust ]"),
    "plain tree, beside a mm/vmap_rust of the user": ("plain", MINE, "--only mapping", "same first mapping"),
    "plain tree, interrupted": ("plain", "", "", HALF),
    "git tree, interrupted": ("git", "", "--only mapping", HALF),
}


@pytest.fixture(name="tree", params=["plain", "git"])
def kernel_tree(tmp_path, linux, repo, request):
    """A copy of the small kernel source: a plain tree, or a git tree with one commit."""
    shutil.copytree(linux, tmp_path / "tree", symlinks=True)
    tree = User(tmp_path / "tree", git=GIT, linux=linux, repo=repo, install=repo / "scripts/install-into",
                bad=tmp_path / "bad")
    if request.param == "git":
        tree.run("$git init -q -b master; $git add -Af; $git commit -q -m base")
    return tree


def state(tree):
    """Return all that --remove must restore."""
    return sums(tree.folder), tree.run("git branch -a && git status --porcelain --ignored && cat .git/info/e* || :")


@pytest.mark.parametrize("tree, first, call, pattern", REFUSED.values(), ids=REFUSED, indirect=["tree"])
def test_refused(tree, tmp_path, first, call, pattern):
    """The last line says what is wrong, and nothing is changed."""
    if "$bad" in call:
        clone(tmp_path / "bad")
    tree.run(first)
    before = state(tree)
    tree.refused(call, pattern)
    assert state(tree) == before


@pytest.mark.parametrize("tree, first, words, then", INSTALLS.values(), ids=INSTALLS, indirect=["tree"])
def test_installs(tree, first, words, then):
    """--remove makes all as before, byte for byte, and make sees the restored files as new."""
    tree.run(first)
    before, start = state(tree), time.time() - 60
    tree.run(f"{SAME}$install . {words}\n{then}")
    tree.run("$install . --remove")
    assert state(tree) == before
    assert (tree.folder / "mm/vmalloc.c").stat().st_mtime > start


FULL = """
cp -a . /mnt/tree
cd /mnt/tree
head -c ${free}K /dev/zero >../room
cat /dev/zero >../full 2>/dev/null || rm ../room
! $install . 2>$said || exit 7
rm ../full
[ ! -d .vmap-rust-git ] || $install . --remove
diff -r --no-dereference . $tree
cat $said
"""


@pytest.mark.parametrize("tree", ["plain"], indirect=True)
@pytest.mark.parametrize("free", [100, 1500])
def test_full_disk(tree, tmp_path, free):
    """One line says what is wrong; then the tree is as it was, or --remove makes it so. free: KiB."""
    (tmp_path / "full").write_text(FULL)
    text = tree.run(f"export free={free} said={tmp_path}/said tree=$PWD install\n"
                    f"bwrap --dev-bind / / --size 32000000 --tmpfs /mnt bash -eu {tmp_path}/full")
    assert re.fullmatch("install-into: error: .*(free some disk|nothing was changed|as it was|call this with --remove).*",
                        text.splitlines()[-1]), text
    assert len((tmp_path / "said").read_text().splitlines()) == 1


# A plain tree also gets its git folder.
@pytest.mark.parametrize("tree", ["plain"], indirect=True)
@pytest.mark.parametrize("delay", [0.1, 0.2, 0.35])
def test_killed(tree, delay):
    """A killed call and a killed --remove are repaired by --remove; without one to repair, there is one to take out."""
    before = state(tree)
    for words in "", "--remove":
        tree.run(f"timeout -s KILL {delay} $install . {words} >/dev/null 2>&1 || :")
    tree.run("$install . || :")
    tree.run("$install . --remove")
    assert state(tree) == before
