# SPDX-License-Identifier: GPL-2.0
"""What scripts/test runs in which order and counts, and when a row of the matrix is stale. No kernel is needed."""

import re
import shlex
from types import SimpleNamespace

import pytest

from harness import matrix, suites
from harness.boot import run


def test_table():
    """Each command of the table is one that its script takes, and each scenario has its words."""
    rows = [row.command for row in matrix.every_row()] + [*suites.tables()["make-test"].values()]
    scenarios = [words for first, *words in map(shlex.split, rows) if first == "scripts/run"]
    assert len(scenarios) > 50 and all(run.parse(words)[1].kernel for words in scenarios)
    assert suites.tables()["words"].keys() <= {*run.names()}


@pytest.mark.parametrize("command, text, code, counts, lines", [
    ("pytest", "=== 2 failed, 3 passed, 1 skipped, 1 error in 2.10s (0:01) ===", 1, (3, 3, 1), 0),
    ("pytest", "FAILED a.py::test_b - c\n=== 1 failed, 3 passed in 2.10s ===", 1, (3, 1, 0), 1),
    ("pytest", "9 passed, 0 failed\n=== no tests ran in 0.01s ===", 5, (0, 1, 0), 1),
    ("x", "1 passed, 0 failed\nFAIL log: no\n7 passed, 3 failed, 2 skipped", 1, (7, 3, 2), 1),
    ("x", "7 passed, 0 failed", 0, (7, 0, 0), 0), ("x", "7 passed, 0 failed", 1, (7, 1, 0), 1),
    ("pytest", "=== 2 skipped in 0.01s ===", 0, (0, 0, 2), 0), ("pytest", "ERROR: usage", 4, (0, 1, 0), 1),
    ("x", "x: skipped: no herd7", 4, (0, 0, 1), 0), ("x", "1 passed, 1 failed", 4, (1, 1, 0), 0),
    ("x", "0 passed, 0 failed", 0, (0, 1, 0), 1), ("x", "7 passed, 0 failed of 14", 0, (0, 1, 0), 1),
    ("x", "7 passed, 0 failed, 1 skipped\nlog", 0, (7, 0, 1), 0), ("x", "Traceback", 1, (0, 1, 0), 1)])
def test_counts(tmp_path, command, text, code, counts, lines):
    """The last line of a suite has its counts; one without a test, and an exit code that contradicts them, are failures."""
    (tmp_path / "log").write_text(f"begin\n{text}\n")
    one = suites.Suite("x", command, process=SimpleNamespace(
        log=tmp_path / "log", finish=lambda: code, display=SimpleNamespace(seconds=1)))
    one.finish()
    assert (one.result.passed, one.result.failed, one.result.skipped) == counts and len(one.failures) == lines


def test_order(tmp_path, monkeypatch, capsys):
    """Suites that boot wait for their kernels and for one another; a kernel that was built is not built again, and one that
    does not build ends nothing. Each suite has a folder for its logs."""
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "do"
    script.write_text("""#!/bin/bash
echo "begin $*" >>all; sleep 0.4; echo "end $1" >>all
[ $1 != bad ] || exit 1
touch $VMAP_RUST_LOGS/log; echo "1 passed, 0 failed"
""")
    script.chmod(0o755)
    (tmp_path / "scripts/build").symlink_to(script)
    monkeypatch.setattr(suites, "REPO", tmp_path)
    monkeypatch.setattr(suites, "in_root", lambda *words, **more: [script, *words[words.index("run") + 1:]])
    monkeypatch.setattr(run, "parse", lambda words: words)
    monkeypatch.setattr(suites.kernels, "load", lambda: ["a", "bad", "not-needed"])
    rows = [*(suites.Suite(f"on-a-{n}", f"scripts/run on-a-{n}", ("a",), "boots") for n in range(3)),
            suites.Suite("on-bad", "scripts/run on-bad", ("bad",), "boots"), suites.Suite("other", "do other")]
    suites.run_all(rows, tmp_path / "logs")
    lines = (tmp_path / "all").read_text().split("\n")
    at = {line.removesuffix(" --no-build"): number for number, line in enumerate(lines)}
    assert at["end a"] < min(at["begin on-a-0"], at["begin bad"]) and at["end bad"] < at["begin on-bad"]
    assert at["begin on-a-2"] > min(at["end on-a-0"], at["end on-a-1"])
    assert "begin on-a-1 --no-build" in lines and "begin on-bad" in lines
    assert suites.show(rows, 0, "logs") == 0 and "\n5 passed, 0 failed\n" in capsys.readouterr().out
    assert all((tmp_path / f"logs/{row.name}/log").exists() for row in rows)


@pytest.mark.parametrize("now, failed, cell", [("a", 0, "7"), ("a", 2, "7, 2 FAILED"), ("b", 0, "stale"), (None, 0, "?")])
def test_cell(tmp_path, monkeypatch, now, failed, cell):
    """A result counts if it is that of the files that there are now."""
    monkeypatch.setattr(matrix, "RESULTS", tmp_path)
    monkeypatch.setattr(matrix.Row, "state", lambda self, files: "a")
    if now:
        (tmp_path / "x-kunit.json").write_text(f'{{"state": "{now}", "passed": 7, "failed": {failed}}}')
    assert matrix.Row("x", "kunit", "scripts/run kunit x").cell() == cell


def test_run(tmp_path, monkeypatch, capsys):
    """Rows that boot run together, then the others one by one; each result is stored as soon as its suite has ended, and counts
    only if no file has changed since the rows began: then the run ends."""
    monkeypatch.setattr(matrix, "RESULTS", tmp_path)
    monkeypatch.setattr(matrix, "files_hash", lambda: files)
    monkeypatch.setattr(suites, "prepare", lambda name, command: suites.Suite(name, command, kind=command))
    groups, files = [], "a"

    def run_all(group, logs, ended):
        nonlocal files
        groups.append([one.name for one in group])
        for one in group:
            one.result, one.failures = suites.Result(7, len(groups) > 2), ["FAIL x"] * (len(groups) > 2)
            files = "b" if len(groups) > 2 else "a"
            ended(one)
            assert rows[one.name].file.is_file()

    monkeypatch.setattr(suites, "run_all", run_all)
    rows = {f"{name}-x": matrix.Row(name, "x", kind) for name, kind in
            [("tool", "other"), ("a", "boots"), ("b", "boots"), ("last", "other"), ("more", "other")]}
    with pytest.raises(matrix.Refused, match="has changed since"):
        matrix.run([*rows.values()])
    assert groups == [["a-x", "b-x"], ["tool-x"], ["last-x"]]
    assert [row.fresh for row in rows.values()] == [True, True, True, False, False]
    assert re.findall(r"(\d) of 5, 0 s, (\S+): (\w+)", capsys.readouterr().err) == [
        ("1", "7", "boots"), ("2", "7", "boots"), ("3", "7", "other"), ("4", "stale", "other")]


def test_files(tmp_path, monkeypatch):
    """A result depends on all files but documents and cover letters, also on those that are not committed."""
    monkeypatch.setattr(matrix, "REPO", tmp_path)
    matrix.git(tmp_path, "init", "-q")
    (tmp_path / "docs").mkdir()
    (tmp_path / "series").mkdir()
    hashes = []
    for name in ("docs/x.txt", "README.md", "series/0000-cover-letter.patch", "x.sh", "kernel.c"):
        (tmp_path / name).write_text("x")
        hashes.append(matrix.files_hash())
    assert hashes[0] == hashes[1] == hashes[2] != hashes[3] != hashes[4]


def test_row_without_a_kernel(capsys):
    """A row of --full without columns of its own can be printed alone, and then is the only one."""
    matrix.main(SimpleNamespace(names=["soak-rust"], table=True, list=False))
    rows = re.findall(r"^\W*([\w-]+) .* (?:\?|stale|\d+) ", capsys.readouterr().out, re.M)
    assert "soak-rust" in rows and "arm64" not in rows
