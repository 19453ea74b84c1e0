# SPDX-License-Identifier: GPL-2.0
"""Wrong use is refused in one line, and a guest that hangs is ended. Boots the kernel arm64 as it is built."""

import contextlib
import os
import pty
import re
import subprocess
import time
from pathlib import Path

import pytest

from harness.machine.settings import REPO

# What "scripts/run boot arm64" gets, or another scenario in front, and a part of the only line.
REFUSED = {
    "unknown scenario": ("nope arm64", 'unknown scenario "nope"; there are: boot .* kunit '),
    "mask of test_vmalloc": ("vmalloc arm64 --allocator rust --mask 0x2000", "--mask: must be a .* from 0x1 to 0x1fff"),
    "stress without a guest image": ("stress arm64", "arm64 has no guest image.*; use x86_64-user"),
    "dumps of user-mode Linux": ("tools uml", "uml is user-mode Linux, of which QEMU writes no dump; use arm64"),
    "an allocator that is not there": ("boot arm64-off --allocator rbtree", "arm64-off has none as allocator, not rbtree;"),
    "the default by name": ("shell arm64-off --allocator rust", "arm64-off has none as allocator, not rust;"),
    "shell without commands": ("shell arm64 --no-build", "neither a terminal nor has commands"),
}
# What keeps a guest busy for longer than any test.
HANGS = "kunit.enable=0 test_vmalloc.run_test_mask=1 test_vmalloc.test_loop_count=2000000000"


def run(*words, **more):
    """Run scripts/run to its end; returns what subprocess.run does."""
    return subprocess.run([REPO / "scripts/run", *words], capture_output=True, text=True, check=False,
                          **{"input": "", **more})


def boot(token, *words):
    """Return the words for scripts/run that boot a guest that hangs, with kernel arguments and these options."""
    return ["boot", "arm64", "--no-build", "--allocator", "rust", "--append", f"{HANGS} {token}", *words]


@pytest.mark.parametrize("words, pattern", REFUSED.values(), ids=REFUSED)
def test_refused(words, pattern):
    """Exit code 1 and one line that says what to do."""
    done = run(*words.split())
    text = done.stdout + done.stderr
    assert done.returncode == 1 and text.count("\n") == 1 and re.search(pattern, text), text


def wait_for(token, running):
    """Wait until an emulator with a token in its arguments runs, or until none does; tell whether. It gets five minutes: a
    busy machine is slow."""
    for _ in range(3000):
        found = subprocess.run(["pgrep", "-f", f"^qemu.*{token}"], stdout=subprocess.DEVNULL, check=False)
        if (found.returncode == 0) == running:
            return True
        time.sleep(0.1)
    return False


def test_hangs():
    """A guest that does not end is ended at its limit, not before it; the verdict names that first, and the log keeps what
    the guest has printed."""
    token, start = f"run_test_{os.getpid()}", time.monotonic()
    done = run(*boot(token, "--timeout", "10"))
    assert time.monotonic() - start >= 10
    assert done.returncode == 1 and re.match("FAIL boot-arm64-rust.log: timeout: .* 10 s ", done.stdout)
    assert "Linux version" in Path(re.search("^log: (.*)$", done.stderr, re.M)[1]).read_text(errors="replace")
    assert wait_for(token, running=False)


def test_interrupted():
    """SIGTERM ends the emulator as well."""
    token = f"run_term_{os.getpid()}"
    with subprocess.Popen([REPO / "scripts/run", *boot(token)], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as child:
        assert wait_for(token, running=True)
        child.terminate()
    assert wait_for(token, running=False)


def test_a_missing_line_fails():
    """The emulator ends by itself, and the verdict must still be FAIL."""
    done = run(*"vmalloc arm64 --no-build --allocator rust --mask 1 --loops 1 --require never".split())
    assert done.returncode == 1 and re.match("FAIL [^ ]*: required line", done.stdout) and "1 passed, 1 failed" in done.stdout


@pytest.mark.parametrize("allocator", ["rust", "rbtree"])
def test_shell(allocator):
    """Commands from a pipe run in the guest, and what they print is not judged. A script that fails is a failure."""
    script = "cat /sys/kernel/debug/vmap_rust/allocator; nproc; dmesg | grep -c 'vmap alloc'; echo 'WARNING: x'; "
    done = run("shell", "arm64", "--no-build", "--allocator", allocator, input=script)
    assert done.returncode == 0 and done.stdout.split("\n") == [allocator, "2", "1", "WARNING: x", "ok exit code 0",
                                                             "2 passed, 0 failed", ""], done
    done = run("shell", "arm64", "--no-build", "--allocator", allocator, input="exit 3")
    assert done.returncode == 1 and done.stdout == "FAIL exit code 3\n1 passed, 1 failed\n", done


@pytest.mark.parametrize("words, code", [(b"exit 3", 1), (b"exit", 0)])
def test_shell_in_a_terminal(words, code):
    """The exit code is that of the shell, as from a pipe."""
    child, terminal = pty.fork()
    if not child:
        os.execv(REPO / "scripts/run", ["run", "shell", "arm64", "--no-build"])
    text, typed = b"", False
    with contextlib.suppress(OSError):
        while data := os.read(terminal, 65536):
            text += data
            if b"exit or Ctrl-D" in text and not typed:
                typed = True
                os.write(terminal, words + b"\r")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code, text.decode()
