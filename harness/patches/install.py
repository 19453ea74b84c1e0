# SPDX-License-Identifier: GPL-2.0
"""Installs the allocator into a kernel tree of the user, or removes it from there.

The link and the patches become commits on a branch of a git tree; a plain tree gets a git folder of its own for that, which
has the files that the patches touch. The record is the folder vmap-rust in the git folder. It is complete before the first
change, and has "former", what was checked out before, "files", the names of the files that the patches touch, and, as long as
the installation is complete, "tip", the last commit."""

import fcntl
import os
import subprocess
import tempfile
from pathlib import Path

from . import series
from ..machine.options import Parser
from .series import read
from ..machine.settings import REPO, SERIES, Refused, check_version, kernel_version, linux, need_tool, remove, say, write

BRANCH, LINK, OWN = "vmap-rust", Path("mm/vmap_rust"), Path(".vmap-rust-git")
HELP = f"""Applies the patches for the series of the kernel tree KDIR and links mm/vmap_rust to this repository. In a git
tree the link and the patches become commits on a new branch {BRANCH}; in any other tree the files are changed, and their
originals kept in {OWN}. Nothing is changed when a patch does not apply, or when a git tree has uncommitted changes."""
# In the middle of these, a git tree has something that a checkout could lose.
UNFINISHED = "rebase-apply rebase-merge MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD BISECT_LOG".split()


def git(*words, ok=True):
    """Return what git prints about the current folder, without the user's hooks and signing, and with an identity when
    there is none. ok: raise Refused if it fails; otherwise return "" then."""
    settings = {"core.hooksPath": "/dev/null", "commit.gpgSign": "false", "advice.detachedHead": "false",
                # A git that tidies up in the background would hold the lock.
                "gc.auto": "0", "maintenance.auto": "false"}
    if subprocess.run(["git", "var", "GIT_COMMITTER_IDENT"], capture_output=True, check=False).returncode:
        settings |= {"user.name": "vmap-rust", "user.email": "vmap-rust@localhost"}
    own = ["-c", "core.autocrlf=false", "--git-dir", OWN, "--work-tree", "."] if OWN.is_dir() else []
    done = subprocess.run(["git", *(word for item in settings.items() for word in ("-c", "=".join(item))), *own, *words],
                          capture_output=True, text=True, check=False, close_fds=False)
    if done.returncode and ok:
        lines = done.stderr.strip().splitlines() or ["failed"]
        raise Refused(f"git {words[0]}: {next((line for line in lines if line.startswith(('error: ', 'fatal: '))), lines[-1])}")
    return "" if done.returncode else done.stdout.strip()


def git_path(name):
    """Return the path of a file of the git folder."""
    return Path(git("rev-parse", "--git-path", name))


def has_branch():
    """Tell whether our branch exists."""
    return bool(git("rev-parse", "-q", "--verify", f"refs/heads/{BRANCH}", ok=False))


def on_branch():
    """Tell whether HEAD is on our branch."""
    return git("symbolic-ref", "-q", "--short", "HEAD", ok=False) == BRANCH


def forget(record):
    """Remove the record. Renamed first: a killed call then leaves a whole record, or one that does not count."""
    record.rename(f"{record}.new")
    remove(OWN if OWN.is_dir() else f"{record}.new")


def check_clean():
    """Raise Refused if there is something of the user in the tree that a checkout could lose."""
    if any(git_path(name).exists() for name in UNFINISHED):
        raise Refused(f"{Path.cwd()} is in the middle of a merge, rebase, am or bisect; finish it first")
    changed = git("status", "--porcelain", "--untracked-files=no")
    if changed and OWN.is_dir():
        raise Refused(f"changed since they were installed: {' '.join(line.split()[-1] for line in changed.splitlines())}; save "
                      "your changes and undo them first")
    if changed:
        raise Refused(f"{Path.cwd()} has changes that are not committed; commit or stash them first")


def put(record, paths, linked):
    """Make the branch with the link and the patches."""
    try:
        git("checkout", "-q", "-b", BRANCH)
        # First, so that each later commit can be built.
        if linked:
            LINK.symlink_to(REPO)
            git("add", "-f", LINK)
            git("commit", "-q", "-m", "mm: link vmap_rust to its repository")
        git("am", "-q", *paths)
        write(record / "tip", git("rev-parse", BRANCH))
    except (Refused, OSError) as error:
        try:
            take_out(record)
            forget(record)
        except (Refused, OSError):
            raise Refused(f"{error}; call this with --remove, which restores {Path.cwd()}") from None
        raise Refused(f"{error}; {Path.cwd()} is as it was") from None


def take_out(record):
    """Check out what was there before, and delete our branch. Raises Refused if commits or changes of the user would be
    lost."""
    former, tip = read(record / "former"), read(record / "tip")
    if tip:
        added = git("rev-list", "--count", f"{tip}..{BRANCH}", ok=False) or "0"
        if added != "0":
            raise Refused(f"branch {BRANCH} has {added} commits of yours; move them to another branch (git branch NAME "
                          f"{BRANCH} && git branch -f {BRANCH} {tip[:12]})")
        if on_branch():
            check_clean()
        (record / "tip").unlink()
    else:
        # A killed git has left its locks. The tree had no changes when the call that was interrupted began.
        for name in ("index", "HEAD", "config", "packed-refs", f"refs/heads/{BRANCH}"):
            git_path(f"{name}.lock").unlink(missing_ok=True)
        if on_branch():
            if git_path("rebase-apply").is_dir():
                git("am", "--quit")
            if LINK.is_symlink() and os.readlink(LINK) == str(REPO):
                LINK.unlink()
            git("reset", "-q", "--hard")
            git("clean", "-q", "-f", "-d", "--", *read(record / "files").split())
    if on_branch():
        try:
            git("checkout", "-q", former, "--")
        except Refused as error:
            if tip:
                write(record / "tip", tip)
            raise Refused(f"{error}; mend that, and call this again") from None
    if has_branch():
        git("branch", "-q", "-D", BRANCH)


def check(record, plain, linked):
    """Raise Refused if nothing can be installed into the current folder; returns the series of Linux that it has."""
    here, version = Path.cwd(), kernel_version(".")
    if record.is_dir():
        raise Refused(f"already installed in {here}, or a call was interrupted; --remove takes it out")
    if not Path("Kbuild").is_file() or not Path("mm/vmalloc.c").is_file() or not version:
        raise Refused(f"{here} is not a Linux kernel source tree")
    if not os.access("mm", os.W_OK):
        raise Refused(f"{here} is not writable")
    own = ".".join(version.split(".")[:2])
    kernel = linux(own if (REPO / f"kernel-patches/v{own}/META").is_file() else SERIES)
    check_version(kernel, version, "the tree")
    if linked and os.path.lexists(LINK):
        raise Refused(f"{here}/{LINK} is there, but not from this script; move it away")
    if not plain:
        if not git("rev-parse", "-q", "--verify", "HEAD", ok=False):
            raise Refused(f"{here} is a git tree without a commit; commit all files of the kernel first (git add -f .)")
        check_clean()
        if has_branch():
            raise Refused(f"{here} has a branch {BRANCH} already; rename or delete it first")
    return kernel


def install(args, record, plain):
    """Install into the current folder. Raises Refused, if it has to, before the first change."""
    here, some, new = Path.cwd(), series.with_needed(args.only), record.with_name(f"{record.name}.new")
    # Only the allocator uses mm/vmap_rust; without it, one there is the user's own.
    linked = "area" in some
    paths = series.patches(check(record, plain, linked), some)
    names = series.files_of(paths)
    tracked = names if plain else git("ls-files", "--", *names).split("\n")
    if left := [name for name in names if os.path.lexists(name) and name not in tracked]:
        raise Refused(f"git does not track {left[0]} in {here}; commit all files of the kernel first (git add -f .)")
    with tempfile.TemporaryDirectory() as scratch:
        series.apply_copy(paths, here, Path(scratch, "tree"), names)
    try:
        if plain:
            OWN.mkdir()
            git("init", "-q")
            git("add", "-f", "--", *filter(os.path.exists, names))
            git("commit", "-q", "-m", "originals")
        new.mkdir()
        write(new / "former", git("symbolic-ref", "-q", "--short", "HEAD", ok=False) or git("rev-parse", "HEAD"))
        write(new / "files", "".join(f"{name}\n" for name in names))
    except (Refused, OSError) as error:
        remove(OWN if plain else new)
        raise Refused(f"{error}; nothing was changed in {here}") from None
    # From here on the record counts.
    new.rename(record)
    put(record, paths, linked)
    say(f"installed in {here} ({'plain' if plain else 'git'} tree{f', only {args.only}' if args.only else ''}); "
        f"{'make menuconfig shows it below Memory Management options' if linked else 'it has no option'}")


def main(arguments):
    """Install or remove; returns the exit code."""
    parser = Parser(HELP, "install-into")
    parser.add_argument("folder", metavar="KDIR", help="the kernel tree")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--only", choices=series.ALL, default="", metavar="SERIES", help=(
        f"apply only one of {', '.join(series.ALL)}, and those that it needs; without area there is no mm/vmap_rust"))
    group.add_argument("--remove", action="store_true", help="restore every file byte for byte, with a new modification "
                       "time, so that make rebuilds it; or repair what an interrupted call has left")
    args = parser.parse_args(arguments)
    need_tool("git")
    try:
        os.chdir(args.folder)
    except OSError:
        raise Refused(f"there is no folder {args.folder}") from None
    top = git("rev-parse", "--show-toplevel", ok=False)
    plain = OWN.is_dir() or not top or Path(top) != Path.cwd()
    if plain and Path(".git").exists() and not OWN.is_dir():
        raise Refused(f"git does not take {Path.cwd()} for its tree; look at what git status says there")
    record = OWN / BRANCH if plain else git_path(BRANCH)
    # What was being prepared, or is left of a record that does not count any more.
    left = OWN if plain else Path(f"{record}.new")
    # One call at a time; the processes of a killed one hold the lock until they end.
    folder = os.open(".", os.O_RDONLY)
    os.set_inheritable(folder, True)
    fcntl.flock(folder, fcntl.LOCK_EX)
    if args.remove and not record.is_dir() and not left.is_dir():
        raise Refused(f"nothing is installed in {Path.cwd()}")
    if not plain or not record.is_dir():
        remove(left)
    if not args.remove:
        install(args, record, plain)
        return 0
    if record.is_dir():
        take_out(record)
        forget(record)
    say(f"removed from {Path.cwd()}")
    return 0
