# SPDX-License-Identifier: GPL-2.0
"""Time limits of commands, on a machine that is busy and on one that is not."""

import time

import pytest

from harness.boot import guest, kernels
from harness.machine import step
from harness.boot.verdict import Expected


@pytest.mark.parametrize("load, cpus, seconds", [(0.0, 2, 10), (2.0, 2, 10), (18.0, 2, 90), (18.0, 1, 180)])
def test_limit(monkeypatch, load, cpus, seconds):
    """A limit of 10 s lasts longer where a task has to share a CPU with others, and ends everywhere."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(step, "cpus", lambda: cpus)
    monkeypatch.setattr(step.os, "getloadavg", lambda: (load, 0, 0))
    limit = step.Limit(10)
    while not limit.is_over():
        now[0] += 0.5
    assert abs(now[0] - 100 - seconds) <= 0.5


def test_timeout(tmp_path, capsys):
    """A command that does not end has no exit code, and is ended."""
    assert step.Step("a test", tmp_path / "log", ["sleep", "1000"]).wait(0.2) is None
    assert "a test: not done in 0.2 s" in capsys.readouterr().err
    assert step.Step("a test", tmp_path / "log", ["sleep", "0.1"]).wait(1000) == 0


@pytest.mark.parametrize("accel", ["", "icount"])
def test_patience(accel):
    """The guest's own detectors of hangs are patient, unless its time does not depend on the build host."""
    boot = guest.Boot(kernels.get("arm64"), Expected("rust"), accel=accel)
    assert ("rcu_cpu_stall_timeout=300" in boot.arguments()) == (not accel)
