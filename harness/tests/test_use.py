# SPDX-License-Identifier: GPL-2.0
"""How commands are called: what --help prints, a tool without what it needs, interrupts."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from harness.boot import run
from harness import __main__ as start, test
from harness.bench import main as bench
from harness.machine.settings import REPO

# The words of each command before --help.
HELPS = [[name] for name in start.MODULES] + [["run", name] for name in run.names()] + [
    ["bench", name] for name in bench.COMMANDS if name != "run"] + [["test", name] for name in test.TOOLS]


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_help_fits(monkeypatch, capsys, words, columns):
    """No line of --help is longer than the terminal is wide."""
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit, match="0"):
        start.main(*words, "--help")
    text = capsys.readouterr().out
    assert text and not [line for line in text.split("\n") if len(line) > columns]


def test_vmap_without_drgn():
    """tools/vmap says what to install. Without its site packages, Python has no drgn."""
    done = subprocess.run([sys.executable, "-S", REPO / "tools/vmap", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and re.fullmatch("vmap: error: drgn is missing; install it .*\n", done.stderr)


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3])
def test_interrupt_at_the_start(tmp_path, delay):
    """An interrupt ends a script without a traceback, and is not taken for a Python that is missing."""
    # What the script would call as root.
    (tmp_path / "apt-get").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    (tmp_path / "apt-get").chmod(0o755)
    with subprocess.Popen([REPO / "scripts/in-root", "sleep", "1000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}) as child:
        time.sleep(delay)
        os.killpg(child.pid, signal.SIGINT)
        text, _ = child.communicate(timeout=600)
    assert not (tmp_path / "called").exists() and "Traceback" not in text
    assert text in ("", "in-root: interrupted\n") and child.returncode in (130, -signal.SIGINT)
