# SPDX-License-Identifier: GPL-2.0
"""What the item series of scripts/check finds, in a small kernel tree with one patch, where a shell script is make."""

from types import SimpleNamespace

import pytest

from harness import series as patched
from harness.checks import Fault, series

PATCH = """From: A <a@b.c>
Date: Thu, 1 Jan 2026 00:00:00 +0000
Subject: [PATCH] mm: change

Why.
---
diff --git a/mm/vmalloc.c b/mm/vmalloc.c
--- a/mm/vmalloc.c
+++ b/mm/vmalloc.c
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
"""
GOOD = "sleep 0.01; touch mm/vmalloc.o"


@pytest.fixture(name="tree")
def small_tree(tmp_path, monkeypatch):
    """A source with three files, and a build of it."""
    monkeypatch.chdir(tmp_path)
    for folder, names in (("source", ["mm/Kconfig", "mm/Makefile", "Makefile"]), ("base", [".config", "mm/vmalloc.o"]),
                          ("check/arm64/off", [".config", "mm/vmalloc.o"])):
        for name in names:
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text(f"{name}\n")
    (tmp_path / "source/mm/vmalloc.c").write_text("one\ntwo\nthree\n")
    (tmp_path / "0001-a.patch").write_text(PATCH)
    (tmp_path / "source.stamp").touch()
    (tmp_path / "Kconfig").touch()
    for name, place in (("CHECK", "check"), ("AM", "check/am"), ("WALKED", "check/tree"), ("LOGS", "logs")):
        monkeypatch.setattr(series, name, tmp_path / place)
    monkeypatch.setattr(series, "TREE", tmp_path)
    monkeypatch.setattr(series, "touched", lambda: ["mm/vmalloc.c"])
    monkeypatch.setattr(series.kernels, "get", lambda name: SimpleNamespace(name=name, folder=tmp_path / "base"))
    monkeypatch.setattr(series.builds, "claim", lambda folder: None)
    patched.copy_source(series.WALKED, tmp_path / "source")
    series.start(tmp_path / "source")
    return tmp_path


def make(monkeypatch, tree, script):
    """Let a shell script be what make runs for the objects."""
    monkeypatch.setattr(series.builds, "make", lambda kernel, *words, **more: [
        "sh", "-c", f"cd {tree}/check/arm64/off; {'true' if words == ('olddefconfig',) else script}"])


def apply_and_build(tree):
    """Apply the patch, and build with the option off; returns what that says."""
    patches = [tree / "0001-a.patch"]
    series.apply(tree / "source", patches, patches)
    return series.build("x/1", "off", patches)


def test_good_patch(tree, monkeypatch):
    """A patch that builds is not built again."""
    make(monkeypatch, tree, GOOD)
    assert apply_and_build(tree) == ""
    make(monkeypatch, tree, "false")
    assert series.build("x/1", "off", [tree / "0001-a.patch"]).startswith("unchanged since it built on")


@pytest.mark.parametrize("script, report", [
    ("echo 'a.c:1: error: bad'; false", "error: bad"), (f"{GOOD}; echo 'a.c:1:1: warning: x'", "warning: x"),
    ("rm mm/vmalloc.o", "mm/vmalloc.o was not built"), ("touch -d @1 mm/vmalloc.o", "mm/vmalloc.o was not built")])
def test_build_that_fails(tree, monkeypatch, script, report):
    """A build must make each object, without a warning."""
    make(monkeypatch, tree, script)
    with pytest.raises(Fault, match=report):
        apply_and_build(tree)


def test_option_that_cannot_be_chosen(tree, monkeypatch):
    """The configuration must have what the build is about."""
    make(monkeypatch, tree, GOOD)
    with pytest.raises(Fault, match="RUST cannot be y"):
        series.configure(tree / "base", tree / "base", {"RUST": "y"}, lambda word: (tree / "base/.config").write_text(""))


@pytest.mark.parametrize("old, new", [(" three", " four"), ("-two", "-other")])
def test_patch_that_does_not_apply(tree, monkeypatch, old, new):
    """git am refuses it."""
    make(monkeypatch, tree, GOOD)
    (tree / "0001-a.patch").write_text(PATCH.replace(old, new))
    with pytest.raises(Fault, match="patch does not apply"):
        apply_and_build(tree)


def test_other_files(tree, monkeypatch):
    """git am and patch must give the same."""
    make(monkeypatch, tree, GOOD)
    monkeypatch.setattr(patched, "put_patches", lambda *words: None)
    with pytest.raises(Fault, match="git am and patch differ in mm/vmalloc.c"):
        apply_and_build(tree)
