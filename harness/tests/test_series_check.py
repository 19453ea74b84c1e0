# SPDX-License-Identifier: GPL-2.0
"""What the item series of scripts/check finds, in a small kernel tree with one patch, where a shell script is make."""

from types import SimpleNamespace

import pytest

from harness.patches import series as patched
from harness.checks import series
from harness.machine.settings import Refused

PATCH = """diff --git a/mm/vmalloc.c b/mm/vmalloc.c
--- a/mm/vmalloc.c
+++ b/mm/vmalloc.c
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
"""


@pytest.fixture(name="build")
def small_tree(tmp_path, monkeypatch):
    """A function that applies a patch to a small source, and lets a shell script be what make runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("source/mm/Kconfig", "source/mm/Makefile", "source/Makefile", "base/.config", "check/arm64/off/.config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "source/mm/vmalloc.c").write_text("one\ntwo\nthree\n")
    (tmp_path / "source.stamp").touch()
    for name, place in (("CHECK", "check"), ("WALKED", "check/tree"), ("LOGS", "logs"), ("TREE", "")):
        monkeypatch.setattr(series, name, tmp_path / place)
    monkeypatch.setattr(series, "touched", lambda: ["mm/vmalloc.c"])
    monkeypatch.setattr(series.kernels, "get", lambda name: SimpleNamespace(name=name, folder=tmp_path / "base"))
    monkeypatch.setattr(series.builds, "claim", lambda folder: None)
    patched.copy_source(series.WALKED, tmp_path / "source")
    (tmp_path / "0001-a.patch").write_text(PATCH)

    def build(script):
        monkeypatch.setattr(series.builds, "make", lambda kernel, *words, **more: [
            "sh", "-c", "true" if words == ("olddefconfig",) else script])
        paths = [tmp_path / "0001-a.patch"]
        return series.build("x/1", "off", paths[0], tmp_path / "source", paths)
    return build


def test_good_patch(build):
    """A patch that builds is not built again."""
    assert build("grep TWO check/tree/mm/vmalloc.c") == ""
    assert build("false").startswith("unchanged since it built on")


@pytest.mark.parametrize("script", ["echo 'a.c:1: error: bad'; false", "echo 'a.c:1:1: warning: bad'"])
def test_build_that_fails(build, script):
    """A build succeeds, without a warning."""
    with pytest.raises(Refused, match="bad"):
        build(script)
