# SPDX-License-Identifier: GPL-2.0
"""What reads the output of cargo, cargo-mutants and herd7."""

import signal
import subprocess
from types import SimpleNamespace

import pytest

from harness.allocator import faults, litmus, mutants, rust
from harness.machine.result import Result
from harness.machine.settings import REPO

OK = "test a ... ok\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.1s\n"
ENDED = ("error: {}\n\nCaused by:\n  process didn't exit successfully: `/t/deps/x-1 'explore::'` "
         "({})\n")
ABORT = "signal: 6, SIGABRT: process abort signal"
BAD = "test b ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n"


NONE = "test result: ok. 0 passed; 0 failed; 0 ignored\n"


@pytest.mark.parametrize("text, code, totals", [
    (OK, 0, "3 passed, 0 failed, 1 skipped"), (OK + BAD, 101, "4 passed, 1 failed, 1 skipped"),
    (OK, 101, "3 passed, 1 failed, 1 skipped"), ("error: it does not compile\n", 101, "0 passed, 1 failed"),
    (NONE, 0, "0 passed, 1 failed"),
    (OK, None, "3 passed, 1 failed, 1 skipped")])
def test_counts_of_cargo(tmp_path, text, code, totals):
    """An exit code that no failed test explains, and a log without a test, are failures."""
    (tmp_path / "log").write_text(text)
    result = Result()
    rust.count_tests(result, tmp_path / "log", code)
    assert result.totals() == totals


@pytest.mark.parametrize("patch", sorted((REPO / "kunit/faults").glob("*.patch")), ids=lambda patch: patch.stem)
def test_fault_applies(patch):
    """Each fault of the allocator applies to it as it is: the matrix, which tries them, would say so a week later."""
    subprocess.run(["patch", "--dry-run", "-s", "-p1", "-r", "-", "-d", REPO, "-i", patch], check=True)


def test_forgets_what_changed(tmp_path, monkeypatch):
    """What was tried is tried again after a file has changed."""
    monkeypatch.setattr(mutants, "OUT", tmp_path / "out")
    monkeypatch.setattr(mutants, "RUST", tmp_path)
    (tmp_path / "base").mkdir()
    for text, known in (("a", False), ("a", True), ("b", False)):
        (tmp_path / "base/x.rs").write_text(text)
        mutants.forget_changed()
        assert bool(mutants.outcomes("caught", "missed")) == known
        (tmp_path / "out/mutants.out/caught.txt").write_text("host/src/../../base/x.rs:1:2: delete ! in f")


@pytest.mark.parametrize("text, code, good", [
    ("Observation a Never 0 3", 0, True), ("Observation a Sometimes 1 2", 0, False), ("", -signal.SIGXCPU, False)])
def test_litmus(tmp_path, text, code, good):
    """The result must be the expected one. A test that was not done in its time has none."""
    (tmp_path / "a.litmus").write_text("(* Result: Never *)")
    result = Result()
    litmus.judge(tmp_path / "a.litmus", SimpleNamespace(stdout=text, returncode=code), result)
    assert result.good == good


def test_exclusions():
    """Each entry excludes as many mutants as it is listed times."""
    found = ["/a.rs:1:2: delete ! in f", "/a.rs:1:9: delete ! in f", "/b.rs:1:2: delete ! in f"]
    assert not mutants.wrong_exclusions([r"/a.rs:\d+:9: delete", "/b.rs"], found)
    assert not mutants.wrong_exclusions(["/a.rs", "/a.rs"], found)
    assert [line.partition(";")[0] for line in mutants.wrong_exclusions(["/a.rs", "/c.rs"], found)] == [
        "/a.rs excludes 2 mutants, not 1", "/c.rs excludes 0 mutants, not 1"]


@pytest.mark.parametrize("text, line", [
    ("test a ... FAILED\nerror: x", "ok f: noticed by a"), ("[FAILED] vmap_a\n", "ok f: noticed by vmap_a"),
    ("error[E1]: x\n", "FAIL f: does not compile"), ("fine", "FAIL f: no test noticed"),
    # A boot that failed otherwise, or was not done in time, has found nothing.
    ("FAIL kunit.log: line 7: WARNING: x\n", "FAIL f: no test noticed"),
    ("FAIL kunit.log: timeout: the guest was ended\n", "FAIL f: no test noticed"),
    # A fault can end all tests by a signal, which must be the one that its file names.
    (ENDED.format("test failed, to rerun pass `--lib`", ABORT), "ok f: noticed by SIGABRT"),
    (ENDED.format("test failed, to rerun pass `--lib`", "signal: 9, SIGKILL: kill"), "FAIL f: does not compile, or tests ended"),
    (ENDED.format("could not compile `x` (lib test)", ABORT), "FAIL f: does not compile")])
def test_faults(tmp_path, monkeypatch, capsys, text, line):
    """A fault that no test noticed, or that does not compile, is a failure."""
    result = Result()
    monkeypatch.setattr(faults, "LOGS", tmp_path)
    faults.judge("f", *faults.run("f", ["printf", "%s", text]), ["SIGABRT"], result)
    assert capsys.readouterr().out.startswith(line) and result.good == line.startswith("ok")


def test_faults_in_time(tmp_path, monkeypatch):
    """Tests that did not end in time have noticed nothing, unless one had failed before."""
    monkeypatch.setattr(faults, "LOGS", tmp_path)
    for text, found in ("test a ... ok", []), ("test a ... FAILED", ["a"]):
        names, said = faults.run("f", ["sh", "-c", f"echo '{text}'; sleep 600"], 0.2)
        assert names == found and said.endswith("not done in 0.2 s\n")
