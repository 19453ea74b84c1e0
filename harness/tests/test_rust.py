# SPDX-License-Identifier: GPL-2.0
"""What reads the output of cargo and cargo-mutants."""

import re

import pytest

from harness import faults, mutants, rust
from harness.result import Result

OK = "test a ... ok\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.1s\n"
BAD = "test b ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n"


@pytest.mark.parametrize("text, code, totals", [
    (OK, 0, "3 passed, 0 failed, 1 skipped"), (OK + BAD, 101, "4 passed, 1 failed, 1 skipped"),
    (OK, 101, "3 passed, 1 failed, 1 skipped"), ("error: it does not compile\n", 101, "0 passed, 1 failed"),
    ("test result: ok. 0 passed; 0 failed; 0 ignored\n", 0, "0 passed, 1 failed"),
    (OK, None, "3 passed, 1 failed, 1 skipped")])
def test_counts_of_cargo(tmp_path, text, code, totals):
    """An exit code that no failed test explains, and a log without a test, are failures."""
    (tmp_path / "log").write_text(text)
    result = Result(quiet=True)
    rust.count_tests(result, tmp_path / "log", code)
    assert result.totals() == totals


def test_survivors(tmp_path, monkeypatch):
    """Mutants that nobody noticed need an explanation each, and an explanation needs its mutants."""
    monkeypatch.setattr(mutants, "OUT", tmp_path)
    monkeypatch.setattr(mutants, "EXPLAINED", tmp_path / "explained")
    (tmp_path / "explained").write_text(
        "# head\n1 base/a.rs: replace + with - in f # why # so\n2 base/a.rs: delete ! in g # why\n"
        "1 base/b.rs: other # why\n")
    (tmp_path / "mutants.out").mkdir()
    (tmp_path / "mutants.out/missed.txt").write_text("".join(f"host/src/../../base/a.rs:{x}\n" for x in (
        "10:2: replace + with - in f", "9:2: replace + with - in f",
        "4:1: delete ! in g")) + "host/src/sys/../../../sys/c.rs:1:1: x\n")
    outcomes = mutants.Outcomes()
    outcomes.collect()
    assert mutants.survivors(outcomes, "base/a") == [
        "explained base/a.rs:4:1: delete ! in g", "explained base/a.rs:9:2: replace + with - in f",
        "MISSED    base/a.rs:10:2: replace + with - in f", "STALE     base/a.rs: delete ! in g"]
    outcomes.forget("base/a", "missed")
    assert outcomes.of("missed") == ["sys/c.rs:1:1: x"] and not (tmp_path / "mutants.out").exists()


@pytest.mark.parametrize("noticed, text, line", [
    (["a"], "error: x", "ok - f: noticed by a"), ([], "error[E1]: x\n", "not ok - f: does not compile"),
    ([], "fine", "not ok - f: no test noticed")])
def test_faults(tmp_path, monkeypatch, noticed, text, line):
    """A fault that no test noticed, or that does not compile, is a failure."""
    monkeypatch.setattr(faults, "LOG", tmp_path / "log")
    (tmp_path / "log").write_text(text)
    result, lines = Result(), []
    result.show = lines.append
    faults.judge("f", noticed, result)
    assert lines[0].startswith(line) and result.good == bool(noticed)


def test_ended_tests():
    """A fault can end all tests by a signal. A compiler that a signal ends has tested nothing."""
    ended = ("error: {}\n\nCaused by:\n  process didn't exit successfully: `/t/deps/x-1 'explore::'` "
             "(signal: 6, SIGABRT: process abort signal)\n")
    assert re.findall(faults.ENDED_TESTS, "test a ... ok\n" + ended.format("test failed, to rerun pass `--lib`"),
                      re.M) == ["SIGABRT"]
    assert not re.findall(faults.ENDED_TESTS, ended.format("could not compile `x` (lib test)"), re.M)
