# SPDX-License-Identifier: GPL-2.0
"""The folders of numbered patches (0001-...patch; 0000 is the cover letter), and kernel trees with these patches.

A tree is a copy of the source by hard links in which patched files are replaced, never written to. When the patches
change, only files whose content differs are replaced, so that builds stay incremental."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from ..machine import step
from ..machine.settings import CACHE, REPO, Refused, kernel_version, linux, need_space, need_tool, remove, say, write

# In the order in which they are applied.
ALL = ("first", "vmalloc", "mapping", "area")
# What a series needs before itself; others need nothing. Each patch of "first" needs nothing of the others either.
NEEDS = {"mapping": ("first",), "area": ("first", "vmalloc")}
# What a kernel without the allocator can have.
WITHOUT = ALL[:3]
LOG = CACHE / "log/tree.log"


def with_needed(name):
    """Return a series and those that it needs, in order; all for ""."""
    return (*NEEDS.get(name, ()), name) if name else ALL


def patches(kernel, series=()):
    """Return the paths of the patches of some series for a kernel, in order. Where the kernel has none of its own, those of
    the series of Linux on which it is based. Without series: all."""
    base = linux(kernel.base).patches if kernel.base else kernel.patches
    found = [path for name in series or ALL for path in sorted((base / name).glob("[0-9][0-9][0-9][0-9]-*.patch"))
             if not path.name.startswith("0000-")]
    own = [kernel.patches / path.relative_to(base) for path in found]
    return [one if one.exists() else path for one, path in zip(own, found)]


def change_of(patch):
    """Return what a patch changes, without its mail."""
    text = Path(patch).read_text(encoding="utf-8")
    return text[text.find("\ndiff --git ") + 1:]


def files_of(paths):
    """Return the names of the files that patches touch, sorted, relative to the kernel tree."""
    names = set()
    for path in paths:
        text = Path(path).read_text(encoding="utf-8")
        names |= set(re.findall(r"^(?:--- a/|\+\+\+ b/|rename from |rename to )([^\t\n]+)", text, re.M))
    return sorted(names)


def apply_copy(paths, tree, scratch, names):
    """Copy the named files of a tree to the new folder scratch and apply patches there. Only reads the tree. Raises
    Refused, with a line that names the first patch that does not apply."""
    need_tool("git")
    remove(scratch)
    scratch.mkdir(parents=True)
    for name in names:
        if (tree / name).exists():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, scratch / name)
    for path in paths:
        # A repository in which the folder lies, as in the git folder of a user's tree, must not count.
        done = subprocess.run(["git", "--git-dir=/dev/null", "apply", "--whitespace=nowarn", path], cwd=scratch,
                              capture_output=True, text=True, check=False, close_fds=False)
        if done.returncode:
            raise Refused(f"patch {path.name} does not apply to Linux {kernel_version(tree)} "
                          f"({done.stderr.partition(chr(10))[0]}); nothing was changed in {tree}")


def beside(tree, what):
    """Return the path of a file about a tree."""
    return tree.with_name(f"{tree.name}.{what}")


def read(path):
    """Return the text of a small file, or "" if there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def stamp(source, paths):
    """Return what identifies the content of a tree: the source, and a hash of it and the patches."""
    digest = hashlib.sha256(f"{source.name} {read(beside(source, 'stamp'))}".encode())
    for path in paths:
        digest.update(path.read_bytes())
    return f"{source.name} {digest.hexdigest()[:16]}\n"


def ready(tree, source, paths):
    """Tell whether a tree is the source with these patches."""
    return (tree / "Makefile").exists() and read(beside(tree, "stamp")) == stamp(source, paths)


def copy_source(tree, source):
    """Make a tree a copy of the source, unless it is one, with whatever patches."""
    if (tree / "Makefile").exists() and read(beside(tree, "source")) == read(beside(source, "stamp")):
        return
    need_space(200, "the kernel tree")
    for left in tree.parent.glob(f"{tree.name}.*"):
        remove(left)
    remove(tree)
    tree.parent.mkdir(parents=True, exist_ok=True)
    new = beside(tree, "new")
    step.must("kernel tree: copy", LOG, ["cp", "-al", source, new], "the kernel tree could not be made")
    new.rename(tree)
    shutil.copy(beside(source, "stamp"), beside(tree, "source"))


def put_patches(tree, source, paths):
    """Make a tree the source with these patches; tells whether it was something else. If one does not apply, raises
    Refused, and the tree does not change.

    TREE.files lists the files that may differ from the source; it is written before the first of them is replaced, so
    that a killed run can be repeated."""
    if ready(tree, source, paths):
        return False
    scratch = beside(tree, "scratch")
    names = sorted({*read(beside(tree, "files")).split("\n"), *files_of(paths)} - {""})
    try:
        apply_copy(paths, source, scratch, names)
        beside(tree, "stamp").unlink(missing_ok=True)
        write(beside(tree, "files"), "".join(f"{name}\n" for name in names))
        for name in names:
            new, old = scratch / name, tree / name
            if not new.exists():
                old.unlink(missing_ok=True)
            elif not old.exists() or new.read_bytes() != old.read_bytes() or new.stat().st_mode != old.stat().st_mode:
                new.touch()
                old.parent.mkdir(parents=True, exist_ok=True)
                new.replace(old)
    finally:
        remove(scratch)
    write(beside(tree, "stamp"), stamp(source, paths))
    return True


def linked(tree):
    """Tell whether mm/vmap_rust of a tree points to this repository."""
    place = tree / "mm/vmap_rust"
    return place.is_symlink() and os.readlink(place) == str(REPO)


def link(tree):
    """Make it point there."""
    if not linked(tree):
        (tree / "mm/vmap_rust").unlink(missing_ok=True)
        (tree / "mm/vmap_rust").symlink_to(REPO)


def prepare(kernel, source):
    """Make or update the tree of a kernel. Holds the lock of the cache. When a patch does not apply, raises Refused, and
    the tree does not change."""
    paths = patches(kernel)
    copy_source(kernel.tree, source)
    if put_patches(kernel.tree, source, paths):
        say(f"kernel tree: {len(paths)} patches on {source.name} in {kernel.tree}")
    link(kernel.tree)


def prepare_without(kernel, source, count):
    """Make or update the tree for benchmarks without the allocator: the source with the first count patches of WITHOUT,
    and this repository wired up. Returns its path, and whether it is a new copy, whose files may be older than objects of
    another state."""
    tree, new = kernel.tree.with_name(f"{kernel.tree.name}-pristine"), False
    copy_source(tree, source)
    put_patches(tree, source, patches(kernel, WITHOUT)[:count])
    if "vmap_rust" not in read(tree / "mm/Makefile"):
        new = True
        # Files of a copy by hard links are replaced, never written to.
        text = read(source / "mm/Kconfig")
        at = text.index('source "mm/damon/Kconfig"')
        write(tree / "mm/Kconfig", f'{text[:at]}source "mm/vmap_rust/Kconfig"\n{text[at:]}')
        write(tree / "mm/Makefile", read(source / "mm/Makefile") + "obj-y += vmap_rust/\n")
    link(tree)
    return tree, new
