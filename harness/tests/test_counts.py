# SPDX-License-Identifier: GPL-2.0
"""What scripts/test counts, and when a row of the matrix is stale. No kernel is needed."""

from types import SimpleNamespace

import pytest

from harness import prepare, series, suites
from harness.settings import REPO
from harness.suites import matrix, plugin

PATCH = """Subject: x

diff --git a/mm/a.c b/mm/a.c
--- a/mm/a.c
+++ b/mm/a.c
@@ -1 +1 @@
-old
+new
"""


def test_patched_files(tmp_path, monkeypatch):
    """They depend on what the patches make of the source, not on their mails, nor on the tree of the cache."""
    (tmp_path / "source/mm").mkdir(parents=True)
    (tmp_path / "source/mm/a.c").write_text("old\n")
    (tmp_path / "0001-a.patch").write_text(PATCH)
    monkeypatch.setattr(matrix, "CACHE", tmp_path)
    monkeypatch.setattr(prepare, "prepare", lambda part: tmp_path / "source")
    monkeypatch.setattr(series, "patches", lambda kernel: [tmp_path / "0001-a.patch"])
    first = matrix.patched_files("1")
    (tmp_path / "0001-a.patch").write_text(PATCH.replace("Subject: x", "Subject: y"))
    assert matrix.patched_files("2") == first
    (tmp_path / "0001-a.patch").write_text(PATCH.replace("+new", "+newer"))
    assert matrix.patched_files("3") != first and matrix.patched_files("1") == first


@pytest.mark.parametrize("now, failed, cell", [("a", 0, "7"), ("a", 2, "7, 2 FAILED"), ("b", 0, "stale"), (None, 0, "?")])
def test_cell(tmp_path, monkeypatch, now, failed, cell):
    """A result counts if it is that of the files that there are now."""
    monkeypatch.setattr(matrix, "RESULTS", tmp_path)
    monkeypatch.setattr(matrix.Entry, "state", lambda self: "a")
    if now:
        (tmp_path / "x-kunit.json").write_text(f'{{"state": "{now}", "passed": 7, "failed": {failed}}}')
    assert matrix.Entry("x", "kunit", "scripts/run kunit x").cell() == cell


def test_order(monkeypatch):
    """Tests that need no kernel come first, then those of kernels in the order in which they are built."""
    monkeypatch.setenv("VMAP_RUST_BUILDING", "arm64 arm64-debug uml")
    wanted = ["harness", "boots", "kunit-arm64-rust", "kunit-debug-rust", "kunit-uml-rust"]
    files = {"harness": "harness/tests/test_step.py", "boots": "harness/tests/test_boot.py"}
    items = [SimpleNamespace(path=REPO / files.get(name, "harness/suites/test_suites.py"), user_properties=[],
                             callspec=SimpleNamespace(params={"suite": name})) for name in reversed(wanted)]
    items.sort(key=lambda item: item.callspec.params["suite"] != "boots")
    config = SimpleNamespace(getoption=lambda name: "", hook=SimpleNamespace(pytest_deselected=lambda items: None))
    plugin.pytest_collection_modifyitems(config, items)
    assert [plugin.suite_name(item) for item in items] == wanted


CASE = '<testcase name="{}" time="2.5"><properties><property name="suite" value="{}"/>{}</properties>{}</testcase>'
MANY = '<property name="passed" value="7"/><property name="failed" value="{}"/><property name="skipped" value="2"/>'


@pytest.mark.parametrize("cases, code, rows", [
    ([("a", "x", "", ""), ("b", "x", "", '<failure message="no"/>'), ("c", "x", "", "<skipped/>")], 1, {"x": [1, 1, 1]}),
    ([("a", "x", MANY.format(0), ""), ("b", "y", MANY.format(3), '<failure message="no"/>')], 1,
     {"x": [7, 0, 2], "y": [7, 3, 2]}),
    ([("a", "x", MANY.format(0), '<error message="no"/>')], 1, {"x": [7, 1, 2]}), ([], 0, {"x": [0, 1, 0]}),
    ([("a", "x", "", "")], 3, {"x": [1, 0, 0], "pytest": [0, 1, 0]})])
def test_counts_of_suites(tmp_path, cases, code, rows):
    """A test counts as many checks as its guest reports; a suite without a test, and an exit code that contradicts the
    counts, are failures."""
    process = object.__new__(suites.Process)
    process.names, process.log, process.junit, process.tests = ["x"], "log", tmp_path / "junit.xml", ""
    process.step = type("Step", (), {"finish": lambda self: code})()
    process.junit.write_text(f"<testsuites><testsuite>{''.join(CASE.format(*case) for case in cases)}</testsuite></testsuites>")
    assert {name: row[:3] for name, row in process.finish().items()} == rows
