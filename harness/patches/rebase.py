# SPDX-License-Identifier: GPL-2.0
"""Makes the patches for another series of Linux out of those for the tested one, in a git repository that has only the
files that the patches touch, rebase/vVERSION of the cache: branch series has the patches on the old kernel, next those on
the new one."""

import hashlib
import os
import re
import shutil

from . import prepare, series
from ..machine.lock import locked
from ..machine.options import Parser
from .series import change_of, read
from ..machine.settings import CACHE, REPO, ROOT_KERNEL, Linux, Refused, git, kernel_version, linux, need_tool, remove, say, \
    write

HELP = f"""Makes or updates kernel-patches/vVERSION (7.4, for example): the patches that differ from those for Linux
{ROOT_KERNEL}. Where one does not apply it names it and shows the conflict. Resolve it in the folder that it names,
"git add" the files, "git am --continue", and call this again. The source is the package linux-source-VERSION, or
KERNEL_TARBALL=FILE. Afterwards KERNEL=VERSION builds and tests this kernel, for example KERNEL=VERSION make demo."""
META = """# SPDX-License-Identifier: GPL-2.0
# The patches that differ from those for the kernel of Based-On; all others are the same.
Linux-Series: {0}
Linux-Tested: {1}
Based-On: {2}
"""
SETTINGS = """[user]
name = vmap-rust
email = vmap-rust@localhost
[commit]
gpgSign = false
[core]
hooksPath = /dev/null
"""


def old_source():
    """Return the folder of the source of the old series: any that is there, since KERNEL_TARBALL is that of the new one."""
    os.environ["KERNEL_TARBALL"] = ""
    found = sorted((CACHE / "src").glob(f"linux-{ROOT_KERNEL}*.stamp"))
    return found[0].with_suffix("") if found else prepare.prepare("source", linux(ROOT_KERNEL))


def patch_hash(patch):
    """Return the hash of what a patch changes, without its mail."""
    return hashlib.sha256(change_of(patch).encode()).hexdigest()[:16]


def commit_source(work, names, folder, branch):
    """Make a branch one commit with the files of these names, as they are in a folder."""
    git(work, "checkout", "-q", "--orphan", branch)
    git(work, "rm", "-rfq", "--ignore-unmatch", ".")
    for name in (name for name in names if (folder / name).exists()):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, work / name)
    git(work, "add", "-Af", ".")
    git(work, "commit", "-q", "-m", folder.name)


def change(work, commit):
    """Return what a commit changes, without what depends on the rest of the files."""
    return re.sub("(?m)^index .*\n|(?<=^@@) .*", "", git(work, "diff-tree", "-p", "--no-commit-id", commit))


@locked("rebase", "rebase.lock")
def rebase(version):
    """Make or update the patches for a series of Linux. Raises Refused if it shows a conflict."""
    source = prepare.prepare("source", Linux(version, version, ROOT_KERNEL))
    old, folder, work = linux(ROOT_KERNEL), REPO / f"kernel-patches/v{version}", CACHE / f"rebase/v{version}"
    paths = series.patches(old)
    names = [str(path.relative_to(old.patches)) for path in paths]
    made_from = [f"Made-From: {patch_hash(path)} {name}" for path, name in zip(paths, names)]
    digest = hashlib.sha256(f"{source}\n".encode() + b"".join(path.read_bytes() for path in paths)).hexdigest()
    # Unless the last call was for the same patches.
    if read(work / ".git/made-of") != digest:
        remove(work)
        work.mkdir(parents=True)
        git(work, "init", "-q")
        with open(work / ".git/config", "a", encoding="utf-8") as config:
            config.write(SETTINGS)
        commit_source(work, series.files_of(paths), old_source(), "series")
        git(work, "tag", "old")
        git(work, "am", "-q", *paths)
        # The same mails with the blobs of this repository, which a merge needs: those in the patches may be of an older base.
        git(work, "format-patch", "-q", "--full-index", "-N", "-o", work / ".git/series", "old..series")
        mails = sorted((work / ".git/series").iterdir())
        commit_source(work, series.files_of(paths), source, "next")
        git(work, "tag", "new")
        write(work / ".git/made-of", digest)
        # What was made of a patch before, if that has not changed since.
        known = read(folder / "META").split("\n")
        git(work, "am", "-q", "-3", *(folder / name if line in known else mail for mail, name, line
                                      in zip(mails, names, made_from, strict=True)), check=False)
    if (work / ".git/rebase-apply").exists():
        say("\n".join(git(work, "--no-pager", "diff").split("\n")[:80]))
        raise Refused(f"{names[int(read(work / '.git/rebase-apply/next')) - 1]} does not apply to Linux {version}: resolve "
                      f"it in {work}, git add, git am --continue, then call this again")
    new, made = folder.with_name(f"{folder.name}.new"), []
    remove(new)
    new.mkdir()
    before, after = (git(work, "rev-list", "--reverse", some).split() for some in ("old..series", "new..next"))
    for name, line, was, commit in zip(names, made_from, before, after, strict=True):
        if change(work, commit) != change(work, was):
            (new / name).parent.mkdir(exist_ok=True)
            text = git(work, "format-patch", "-q", "-1", "--zero-commit", "--no-signature", "--stdout", commit)
            (new / name).write_text(text, encoding="utf-8")
            made.append(f"{line}\n")
    write(new / "META", META.format(version, kernel_version(source), ROOT_KERNEL) + "".join(made))
    remove(folder)
    new.rename(folder)
    say(f"{folder.relative_to(REPO)}: {len(made)} of {len(names)} patches differ; try them with KERNEL={version} make demo")


def main(arguments):
    """Make the patches; returns the exit code."""
    parser = Parser(HELP, "rebase")
    parser.add_argument("version", metavar="VERSION", help="a series of Linux, for example 7.4")
    version = parser.parse_args(arguments).version
    if version == ROOT_KERNEL or not re.fullmatch(r"\d+\.\d+", version):
        raise Refused(f"which series of Linux, for example 7.4? The patches are for Linux {ROOT_KERNEL}")
    need_tool("git")
    rebase(version)
    return 0
