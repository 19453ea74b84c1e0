# SPDX-License-Identifier: GPL-2.0
"""scripts/install-into on a plain tree and on a git tree."""

import shutil
import time

import pytest

from conftest import NAMES, PATCHES, REPO, User, clone, sums

GIT = "git -c user.name=t -c user.email=t@localhost -c core.hooksPath=/dev/null -c commit.gpgSign=false"
# The tree, what the user does there first, a call, and its last line.
REFUSED = {
    "no tree given": ("plain", "", "$install", "which kernel tree"),
    "folder that is not there": ("plain", "", "$install nowhere", "there is no folder"),
    "folder without a kernel": ("plain", "", "$install $repo", "is not a Linux kernel source tree"),
    "nothing to remove": ("plain", "", "$install . --remove", "nothing is installed"),
    "unsupported kernel": ("plain", "sed -i 's/^PATCHLEVEL = .*/PATCHLEVEL = 1/' Makefile", "$install .",
                           r"Linux 7\.1.* is not supported: the patches are for"),
    "installed twice": ("plain", "$install .", "$install .", r"already installed in"),
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
    "a branch of that name": ("git", "git branch vmap-rust", "$install .", "has a branch vmap-rust already"),
    "series that does not apply": ("git", "", "$bad .", "nothing was changed"),
    "--only with a wrong value": ("plain", "", "$install . --only maps",
                                  '^install-into: error: --only takes one of fixes maple .*, not "maps"$'),
    "--only without a value": ("plain", "", "$install . --only", 'not ""$'),
    "--remove with --only": ("plain", "", "$install . --remove --only area", "it takes no --only"),
    "--remove with --copy": ("git", "", "$install . --remove --copy", "it takes no --only and no --copy"),
    "--copy in a plain tree": ("plain", "", "$install . --copy", "--copy is for a git tree"),
    "--copy without the allocator": ("git", "", "$install . --copy --only fixes", "that gets the allocator"),
}
# What a killed call leaves: not all files are those of the series, or git has a lock, and the branch is not complete.
# Only for a series that changes mm/vmalloc.c.
HALF = """if [ -d .git ]; then rm .git/vmap-rust/tip; touch .git/index.lock; fi
cp .vmap-rust-installed/orig/mm/vmalloc.c mm 2>/dev/null || rm mm/vmalloc.c"""
MINE = "mkdir mm/vmap_rust; echo mine >mm/vmap_rust/mine.c"
# The tree, what the user does there first, arguments, and what is then true.
INSTALLS = {
    "plain tree": ("plain", "", "", "grep vmap_rust mm/Makefile; [ -e mm/vmap_rust/scripts/build ]"),
    "git tree": ("git", "", "", f'[ $(git rev-list --count master..vmap-rust) = {len(NAMES) + 1} ]; '
                 '[ -e mm/vmap_rust/scripts/build ]; [ -z "$(git status --porcelain)" ]'),
    "git tree, a copy": ("git", "", "--copy", f'[ $(git rev-list --count master..vmap-rust) = {len(NAMES) + 8} ]; '
                         'cmp $repo/Kbuild mm/vmap_rust/Kbuild; cmp $repo/kunit/Kbuild mm/vmap_rust/kunit/Kbuild; '
                         'diff -r $repo/rust/state mm/vmap_rust/rust/state; [ ! -e mm/vmap_rust/README.md ]'),
    "detached HEAD": ("git", "git checkout -q --detach", "", ""),
    "plain tree, beside a mm/vmap_rust of the user": ("plain", MINE, "--only mapping", ""),
    "git tree, beside a mm/vmap_rust of the user": ("git", MINE, "--only fixes", ""),
}


@pytest.fixture(name="tree", params=["plain", "git"])
def kernel_tree(tmp_path, linux, repo, request):
    """A copy of the small kernel source: a plain tree, or a git tree with one commit."""
    shutil.copytree(linux, tmp_path / "tree", symlinks=True)
    tree = User(tmp_path / "tree", git=GIT, repo=repo, install=repo / "scripts/install-into",
                bad=tmp_path / "bad/scripts/install-into")
    if request.param == "git":
        tree.run("$git init -q -b master; $git add -Af; $git commit -q -m base")
    return tree


def state(tree):
    """Return all that --remove must restore."""
    return sums(tree.folder), tree.run("git branch -a && git status --porcelain --ignored && cat .git/info/e* || :")


def patched(tree):
    """Return the sums without the record of what is installed."""
    return {name: value for name, value in sums(tree.folder).items() if not name.startswith(".vmap-rust-installed")}


@pytest.fixture(name="series", scope="module")
def trees_with_one_series(tmp_path_factory, linux, repo):
    """The sums of trees with one series, and those that it needs. Only those with area have a mm/vmap_rust."""
    found = {}
    for folders in "fixes", "maple", "fixes maple area", "fixes maple area debug", "fixes mapping":
        tree = User(shutil.copytree(linux, tmp_path_factory.mktemp("series") / "tree", symlinks=True))
        tree.run(f"""for folder in {folders}; do
            find {REPO / PATCHES}/$folder -name '*.patch' ! -name '0000-*' | sort | xargs cat |
                patch -p1 -F0 --no-backup-if-mismatch -s
            [ $folder != area ] || ln -s {repo} mm/vmap_rust
        done""")
        found[folders.split()[-1]] = sums(tree.folder)
    return found


@pytest.mark.parametrize("tree, first, call, pattern", REFUSED.values(), ids=REFUSED, indirect=["tree"])
def test_refused(tree, tmp_path, first, call, pattern):
    """The last line says what is wrong, and nothing is changed."""
    if "$bad" in call:
        shutil.copy(clone(tmp_path / "bad") / NAMES[-1], tmp_path / "bad" / PATCHES / "9000-bad.patch")
    tree.run(first)
    before = state(tree)
    tree.refused(call, pattern)
    assert state(tree) == before


@pytest.mark.parametrize("tree, first, words, then", INSTALLS.values(), ids=INSTALLS, indirect=["tree"])
def test_installs(tree, first, words, then):
    """--remove makes all as before, byte for byte, and make sees the restored files as new."""
    tree.run(first)
    before, start = state(tree), time.time() - 60
    tree.run(f"$install . {words}\n{then}")
    tree.run("$install . --remove")
    assert state(tree) == before
    assert (tree.folder / "mm/vmalloc.c").stat().st_mtime > start


@pytest.mark.parametrize("tree", ["git"], indirect=True)
def test_copy_fails(tree, tmp_path):
    """A copy that cannot be made leaves nothing of the commits before it."""
    shutil.rmtree(clone(tmp_path / "bad") / "rust/policy")
    before = state(tree)
    tree.refused("$bad . --copy", "the copy cannot be committed; .* is as it was")
    assert state(tree) == before


@pytest.mark.parametrize("only, other", [("area", "mapping"), ("mapping", "debug"), ("debug", "area"),
                                         ("fixes", "mapping"), ("maple", "fixes")])
def test_one_series(tree, series, only, other):
    """The tree has that series only, and no second one is added; --remove also takes out what an interrupted call has
    left."""
    before = state(tree)
    for name, interrupted in (only, ""), (other, HALF):
        tree.run(f"$install . --only {name}")
        assert patched(tree) == series[name]
        tree.run(interrupted)
        tree.refused(f"$install . --only {only}", "already installed in .*; --remove takes it out")
        tree.run("$install . --remove")
        assert state(tree) == before


@pytest.mark.parametrize("delay", [0.03, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.35, 0.4])
def test_killed(tree, delay):
    """A killed call and a killed --remove are repaired by --remove; without one to repair, there is one to take out."""
    before = state(tree)
    only = "--only mapping" if delay in (0.03, 0.16, 0.25, 0.3, 0.35) else ""
    only = "--copy" if delay in (0.12, 0.25) and (tree.folder / ".git").is_dir() else only
    for words in only, "--remove":
        tree.run(f"timeout -s KILL {delay} $install . {words} >/dev/null 2>&1 || :")
    tree.run("$install . || :")
    tree.run("$install . --remove")
    assert state(tree) == before
