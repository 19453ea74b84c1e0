# SPDX-License-Identifier: GPL-2.0
"""Makes the patches for another series of Linux out of those for the tested one, in a git repository that has only the
files that the patches touch, rebase/vVERSION of the cache: branch series has the patches on the old kernel, next those on
the new one."""

import hashlib
import os
import re
import shutil
import subprocess

from . import prepare, series
from .lock import locked
from .options import Parser
from .series import change_of, read
from .settings import CACHE, REPO, ROOT_KERNEL, Linux, Refused, kernel_version, linux, need_tool, remove, say, write

HELP = f"""Makes or updates kernel-patches/vVERSION (7.4, for example): the patches that differ from those for Linux
{ROOT_KERNEL}. Where one does not apply it names it and shows the conflict. Resolve it in the folder that it names,
"git add" the files, "git commit", and call this again. The source is the package linux-source-VERSION, or
KERNEL_TARBALL=FILE. Afterwards KERNEL=VERSION builds and tests this kernel, for example KERNEL=VERSION make demo."""
META = """# SPDX-License-Identifier: GPL-2.0
# The patches that differ from those for the kernel of Based-On; all others are the same.
Linux-Series: {0}
Linux-Tested: {1}
Based-On: {2}
"""
SETTINGS = {"user.name": "vmap-rust", "user.email": "vmap-rust@localhost", "commit.gpgSign": "false", "gc.auto": "0",
            "core.hooksPath": "/dev/null"}


def source_of(kernel, tarball=""):
    """Return the folder of the source of a kernel; unpacks it if it is missing. tarball: of the user."""
    os.environ["KERNEL_TARBALL"] = tarball
    return prepare.prepare("source", kernel)


def patch_hash(patch):
    """Return the hash of what a patch changes, without its mail."""
    return hashlib.sha256(change_of(patch).encode()).hexdigest()[:16]


class Rebase:
    """The patches for one series of Linux, made from those for another one."""

    def __init__(self, version):
        self.old, self.version = linux(ROOT_KERNEL), version
        self.folder, self.work = REPO / f"kernel-patches/v{version}", CACHE / f"rebase/v{version}"
        self.patches = series.patches(self.old)
        self.names = [str(path.relative_to(self.old.patches)) for path in self.patches]

    def git(self, *words):
        """Return what git prints about the repository. Raises CalledProcessError if it fails."""
        return subprocess.run(["git", "-C", self.work, *words], capture_output=True, text=True, check=True).stdout

    def works(self, *words):
        """Tell whether git succeeds."""
        return subprocess.run(["git", "-C", self.work, *words], capture_output=True, check=False).returncode == 0

    def commits(self, some):
        """Return the commits of a range, the oldest first."""
        return self.git("rev-list", "--reverse", some).split()

    def commit_source(self, folder, branch):
        """Make a branch one commit with the files that the patches touch, as they are in a folder."""
        self.git("checkout", "-q", "--orphan", branch)
        self.git("rm", "-rfq", "--ignore-unmatch", ".")
        for name in series.files_of(self.patches):
            if (folder / name).exists():
                (self.work / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(folder / name, self.work / name)
        self.git("add", "-Af", ".")
        self.git("commit", "-q", "--author", "vmap-rust <vmap-rust@localhost>", "-m", folder.name)

    def begin(self, source):
        """Make the repository, unless it is what the last call was for. source: the folder of the new kernel."""
        digest = hashlib.sha256(f"{source}\n".encode() + b"".join(path.read_bytes() for path in self.patches)).hexdigest()
        made_of = self.work / ".git/made-of"
        if read(made_of) == digest:
            return
        remove(self.work)
        self.work.mkdir(parents=True)
        self.git("init", "-q")
        for name, value in SETTINGS.items():
            self.git("config", name, value)
        self.commit_source(source_of(self.old), "old")
        self.git("checkout", "-q", "-b", "series")
        if not self.works("am", "-q", *self.patches):
            raise Refused(f"git am refuses a patch for Linux {ROOT_KERNEL}; see {self.work}")
        self.commit_source(source, "new")
        self.git("checkout", "-q", "-b", "next")
        write(made_of, digest)

    def apply(self, name, commit):
        """Apply a patch: what was made of it before, if it has not changed since; or what git makes of the commit, that
        patch on the old kernel. Tells whether that worked."""
        if f"Made-From: {patch_hash(self.old.patches / name)} {name}" in read(self.folder / "META").split("\n"):
            if self.works("am", "-q", self.folder / name):
                return True
            self.git("am", "--abort")
        return self.works("cherry-pick", commit)

    def apply_all(self):
        """Go on with the first patch that is not applied. Raises Refused if it shows a conflict."""
        done, going = len(self.commits("new..next")), (self.work / ".git/CHERRY_PICK_HEAD").exists()
        for name, commit in list(zip(self.names, self.commits("old..series"), strict=True))[done:]:
            if going or not self.apply(name, commit):
                say("\n".join(self.git("--no-pager", "diff").split("\n")[:80]))
                raise Refused(f"{name} does not apply to Linux {self.version}: resolve it in {self.work}, git add, git "
                              "commit, then call this again")

    def change(self, commit):
        """Return what a commit changes, without what depends on the rest of the files."""
        return re.sub("(?m)^index .*\n|(?<=^@@) .*", "", self.git("diff-tree", "-p", "--no-commit-id", commit))

    def export(self, tested):
        """Write the patches that change something else than on the old kernel. tested: the version of the new one."""
        made, new = [], self.folder.with_name(self.folder.name + ".new")
        remove(new)
        new.mkdir()
        for name, was, commit in zip(self.names, self.commits("old..series"), self.commits("new..next"), strict=True):
            if self.change(commit) != self.change(was):
                (new / name).parent.mkdir(exist_ok=True)
                text = self.git("format-patch", "-q", "-1", "--zero-commit", "--no-signature", "--stdout", commit)
                (new / name).write_text(text, encoding="utf-8")
                made.append(f"Made-From: {patch_hash(self.old.patches / name)} {name}\n")
        write(new / "META", META.format(self.version, tested, ROOT_KERNEL) + "".join(made))
        remove(self.folder)
        new.rename(self.folder)
        say(f"{self.folder.relative_to(REPO)}: {len(made)} of {len(self.names)} patches differ; try them with "
            f"KERNEL={self.version} make demo")

    @locked("rebase", "rebase.lock")
    def run(self):
        """Make or update the patches."""
        source = source_of(Linux(self.version, self.version, ROOT_KERNEL), os.environ.get("KERNEL_TARBALL", ""))
        self.begin(source)
        self.apply_all()
        self.export(kernel_version(source))


def main(arguments):
    """Make the patches; returns the exit code."""
    parser = Parser(HELP, "rebase")
    parser.add_argument("version", metavar="VERSION", help="a series of Linux, for example 7.4")
    version = parser.parse_args(arguments).version
    if version == ROOT_KERNEL:
        raise Refused(f"the patches are for Linux {ROOT_KERNEL} already; which other series?")
    if not re.fullmatch(r"\d+\.\d+", version):
        raise Refused("which series of Linux, for example 7.4? see --help")
    need_tool("git")
    Rebase(version).run()
    return 0
