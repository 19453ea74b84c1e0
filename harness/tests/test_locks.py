# SPDX-License-Identifier: GPL-2.0
"""Who waits for whom: builds, what they are built from, and runs without a build. No kernel is built."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest

from harness.boot import build, kernels, run
from harness.machine import lock
from harness.patches import prepare
from harness.machine.settings import REPO

# A process that holds a lock, with a command that lives on when it is killed. Arguments: of locked().
HOLDER = """import subprocess, sys
from harness.machine.lock import locked
with locked('a test', sys.argv[1], len(sys.argv) > 2):
    command = subprocess.Popen(['sleep', '1000'], close_fds=False)
    print('held', flush=True)
    command.wait()
"""


@pytest.fixture(name="cache", autouse=True)
def separate_cache(tmp_path, monkeypatch):
    """A cache of this test, in which everything is ready."""
    for module in (lock, build):
        monkeypatch.setattr(module, "CACHE", tmp_path)
    monkeypatch.setattr(lock, "make_cache", lambda: None)
    for module in (kernels, build):
        monkeypatch.setattr(module, "BUILDS", tmp_path / "build")
    monkeypatch.setattr(prepare, "prepare", lambda: tmp_path / "source")
    monkeypatch.delenv(lock.VARIABLE, raising=False)
    return tmp_path


def is_free(path, kind=fcntl.LOCK_EX):
    """Tell whether a lock of the cache can be had now."""
    with open(path, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def free_locks(cache):
    """Return which of the locks of two kernels, and of the tree for what changes it and for builds, are free."""
    return [is_free(cache / "build/arm64.lock"), is_free(cache / "build/uml.lock"), is_free(cache / "lock"),
            is_free(cache / "lock", fcntl.LOCK_SH)]


def test_builds_side_by_side(cache):
    """A build keeps others from its folder, and from changing the tree, but not from building another kernel."""
    with build.held(kernels.get("arm64")) as source:
        assert source == cache / "source" and free_locks(cache) == [False, True, False, True]
    assert free_locks(cache) == [True] * 4


def test_pristine(cache):
    """Kernels without the patches share a tree that each build changes, so nothing is built beside them."""
    (cache / "build").mkdir()
    with build.held(kernels.get("arm64-bench-pristine")):
        assert free_locks(cache) == [True, True, False, False]


def test_alone(cache):
    """What needs some kernels for itself can build them, and nobody else can, nor the kernel that one starts from."""
    with build.alone(["arm64-bench"], "a test"):
        with build.held(kernels.get("arm64-bench")):
            assert free_locks(cache) == [False, True, False, False] and not is_free(cache / "build/arm64-bench.lock")


@pytest.mark.parametrize("words", [["x"], ["x", "shared"]])
def test_killed(cache, words):
    """A killed run holds its lock until the commands that it started have ended, and nothing after that."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, *words], stdout=subprocess.PIPE, text=True, start_new_session=True,
                          env={**os.environ, "VMAP_RUST_CACHE": str(cache), "PYTHONPATH": str(REPO)}) as holder:
        assert holder.stdout.readline() == "held\n" and not is_free(cache / "x")
        holder.kill()
        holder.wait()
        assert not is_free(cache / "x")
        os.killpg(holder.pid, signal.SIGKILL)
    for _ in range(600):
        if is_free(cache / "x"):
            return
        time.sleep(0.1)
    assert False


@pytest.mark.parametrize("words, made", [("boot arm64 --allocator rust --no-build", []), ("boot arm64 --allocator rust", [1])])
def test_no_build(monkeypatch, words, made):
    """A boot of the last build prepares nothing, so it waits for nobody."""
    done = []
    monkeypatch.setattr(run, "INSIDE", False)
    monkeypatch.setattr(prepare, "prepare", lambda: done.append(1))
    monkeypatch.setattr(run, "enter", lambda *words: sys.exit(0))
    with contextlib.suppress(SystemExit):
        run.main(words.split())
    assert done == made
