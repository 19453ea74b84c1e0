# SPDX-License-Identifier: GPL-2.0
"""scripts/rebase: patches for another series of Linux."""

import re

import pytest

from conftest import NAMES, SERIES, TESTED, User, clone

# A made-up Linux 9.9 is the source of the tests, changed.
NEXT = """
cp -r $linux next
sed -i 's/^VERSION = .*/VERSION = 9/; s/^PATCHLEVEL = .*/PATCHLEVEL = 9/; s/^SUBLEVEL = .*/SUBLEVEL = 0/' next/Makefile
"""
PACK = "tar -cf next.tar next; export KERNEL_TARBALL=$PWD/next.tar\n"


@pytest.fixture(name="kit")
def with_sources(tmp_path, cache, linux):
    """A clone, and a cache with the source of the tested series."""
    source = cache / f"src/linux-{TESTED}"
    kit = User(tmp_path, linux=linux, repo=clone(tmp_path / "repo"), rebase=tmp_path / "repo/scripts/rebase")
    kit.run(f"mkdir {source.parent}; cp -r $linux {source}; echo tarball=/linux-source-{SERIES}.tar.xz >{source}.stamp")
    return kit


def test_nothing_differs(kit):
    """All patches apply, so the new folder has none; a second call changes nothing."""
    text = kit.run(NEXT + "echo >>next/lib/Kconfig.debug\n" + PACK + "$rebase 9.9; $rebase 9.9")
    assert f"kernel-patches/v9.9: 0 of {len(NAMES)} patches differ" in text
    assert "Linux-Tested: 9.9\n" in kit.run("cat repo/kernel-patches/v9.9/META")
    assert not kit.run("find repo/kernel-patches/v9.9 -name '*.patch'")


def test_conflict(kit):
    """The first patch that does not apply is named. When that is resolved, it is the only one that differs, and later
    calls, also with an empty cache, know it."""
    change = "sed -i '/^VME SUBSYSTEM/d' next/MAINTAINERS\n"
    kit.refused(NEXT + change + PACK + "$rebase 9.9",
                r"area/.*-let-mm-vmap_rust-.*\.patch does not apply to Linux 9\.9: resolve it")
    assert not kit.run("find repo/kernel-patches -path '*v9.9*'")
    kit.run("cd $VMAP_RUST_CACHE/rebase/v9.9; git checkout -q --theirs MAINTAINERS; git add .; git am -q --continue")
    text = kit.run("KERNEL_TARBALL=$PWD/next.tar $rebase 9.9; rm -r $VMAP_RUST_CACHE/rebase; "
                   "KERNEL_TARBALL=$PWD/next.tar $rebase 9.9")
    assert re.findall(r"v9\.9: (\d+) of", text) == ["1", "1"]


@pytest.mark.parametrize("words", ["9", SERIES])
def test_use(kit, words):
    """Wrong use gets one line, and makes nothing."""
    kit.refused(f"$rebase {words}", "which series of Linux")
    assert not kit.run("find repo/kernel-patches -name 'v9*'")
