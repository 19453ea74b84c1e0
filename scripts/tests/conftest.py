# SPDX-License-Identifier: GPL-2.0
"""What the tests of the set-up scripts share. They call the scripts like a user, from a shell, and compare trees.

The kernel tree of these tests is small: it has the files that the patches touch."""

import hashlib
import os
import re
import subprocess

import pytest

from harness.patches import series, source
from harness.machine.settings import CACHE, REPO, ROOT_KERNEL, linux

# The scripts get the environment of a user: no variables of this Python, and no settings. None can use the real cache.
for variable in list(os.environ):
    if re.match("PYTHON|VMAP_RUST_|KERNEL", variable):
        del os.environ[variable]
os.environ |= {"TOOLCHAIN": "root", "VMAP_RUST_CACHE": "/proc/none"}


class User:
    """A user in a folder, with names for lines of bash."""

    def __init__(self, folder, **names):
        self.folder, self.names = folder, "".join(f"{name}='{value}'\n" for name, value in names.items())

    def run(self, script, code=0):
        """Run lines of bash, which end with the first error, and check the exit code; returns all that they print."""
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", self.names + script], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=self.folder)
        assert done.returncode == code, f"exit code {done.returncode}: {done.stdout}"
        return done.stdout

    def refused(self, script, pattern):
        """Check that lines of bash exit with 1, and that the last line that they print matches."""
        text = self.run(script, 1)
        assert re.search(f"(?:{pattern}).*\n\\Z", text, re.M), text


def sums(folder):
    """Return type and mode, and the target or a hash of the content, of everything in a folder except a .git folder."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        content = (os.readlink(path) if path.is_symlink()
                   else path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest())
        found[str(path.relative_to(folder))] = oct(path.lstat().st_mode), content
    return {name: value for name, value in found.items() if not re.match(r"\.git(/|$)", name)}


HERE = User(REPO, source=source.find(linux(ROOT_KERNEL)))
# The folder of the patches, the supported and the tested kernel, and the patches in the order in which they are applied.
KERNEL = linux(ROOT_KERNEL)
SERIES, TESTED, PATCHES = KERNEL.series, KERNEL.tested, KERNEL.patches.relative_to(REPO)
NAMES = [path.relative_to(REPO) for path in series.patches(KERNEL)]


def clone(folder):
    """Copy this repository's scripts, patches and configurations to a folder, where a test may change them."""
    HERE.run(f"mkdir {folder}; cp -a --parents scripts kernel-patches harness qemu/kernels.toml qemu/configs \
             Kbuild Kconfig rust kunit bench {folder}")
    return folder


@pytest.fixture(name="cache", autouse=True)
def separate_cache(tmp_path, monkeypatch):
    """The cache of a test: it has only the toolchain root of the real one."""
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "root").symlink_to(CACHE / "root")
    monkeypatch.setenv("VMAP_RUST_CACHE", str(folder))
    return folder


@pytest.fixture(name="linux", scope="session")
def fake_source(tmp_path_factory):
    """A copy of the files of the kernel source that the patches and the scripts use."""
    folder = tmp_path_factory.mktemp("source") / "linux"
    HERE.run(f"""
        mkdir {folder}; cd $source
        for file in {" ".join(series.files_of(series.patches(KERNEL)))} Makefile Kbuild Kconfig \\
            mm/Makefile mm/Kconfig mm/vmalloc.c lib/maple_tree.c rust/Makefile scripts/Makefile.build \\
            tools/testing/kunit/kunit.py; do
            [ ! -e $file ] || cp -p --parents $file {folder}
        done""")
    return folder


@pytest.fixture(name="repo", scope="session")
def fake_repo(tmp_path_factory):
    """A clone of this repository that no test changes."""
    return clone(tmp_path_factory.mktemp("clone") / "repo")
