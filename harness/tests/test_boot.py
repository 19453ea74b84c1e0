# SPDX-License-Identifier: GPL-2.0
"""Wrong use is refused in one line, and a guest that hangs is ended. Needs the kernel arm64."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from harness.settings import LOGS, REPO

RUN = [REPO / "scripts/run", "boot"]
REFUSED = {
    "unknown scenario": ("nope arm64", 'unknown scenario "nope"; there are: boot .* kunit '),
    "unknown configuration": ("boot nope --allocator rust", 'unknown configuration "nope".* arm64 '),
    "unknown allocator": ("boot arm64 --allocator buddy", "choose from '?rbtree'?, '?rust'?, '?none"),
    "no allocator": ("boot arm64", "required: --allocator"),
    "CPUs not a number": ("boot arm64 --allocator rust --cpus two",
                          '--cpus: must be a whole number from 1 to 64, not "two"'),
    "too many CPUs": ("boot arm64 --allocator rust --cpus 65", "--cpus: must be a whole number from 1 to 64"),
    "no memory": ("boot arm64 --allocator rust --mem 0", "--mem: must be"),
    "timeout zero": ("boot arm64 --allocator rust --timeout 0", "--timeout: must be"),
    "value missing": ("boot arm64 --allocator rust --cpus", "--cpus: expected one argument"),
    "unknown option": ("boot arm64 --allocator rust --fast 1", "unrecognized arguments: --fast"),
    "more nodes than CPUs": ("boot arm64 --allocator rust --nodes 2", "--nodes 2 needs at least as many CPUs"),
    "no such initramfs": ("boot arm64 --allocator rust --initramfs /nonexistent", "cannot read the initramfs"),
    "bad expression": ("boot arm64 --allocator rust --allow (", "not a regular expression"),
    "log cannot be written": ("boot arm64 --allocator rust --log /proc/nope/log", "cannot write the log"),
    "loops of test_vmalloc": ("vmalloc arm64 --allocator rust --loops 0",
                              "--loops: must be a whole number from 1 to 100000000"),
    "mask of test_vmalloc": ("vmalloc arm64 --allocator rust --mask 0x2000",
                             "--mask: must be a whole number from 1 to 8191"),
    "guest too large": ("vmalloc arm64 --allocator rust --threads 1024 --cpus 64", "need a guest of .* use fewer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    """Exit code 1 and one line that says what to do."""
    words, pattern = REFUSED[name]
    done = subprocess.run([REPO / "scripts/run", *words.split()], capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 1 and text.count("\n") == 1 and re.search(pattern, text), text


def still_running(token):
    """Tell whether a process has the token in its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_text(errors="replace")
            if text.startswith("qemu") and token in text:
                return True
        except OSError:
            pass
    return False


def wait_for(condition):
    """Wait up to 20 s; tells whether the condition has become true."""
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


@pytest.fixture(name="hanging", scope="module")
def boot_that_hangs():
    """A boot that does not end by itself, with a limit of 10 s."""
    token, log, start = f"run_test_{os.getpid()}", LOGS / "run-test.log", time.monotonic()
    done = subprocess.run([*RUN, "arm64", "--allocator", "rust", "--timeout", "10", "--log", log, "--append",
                           f"kunit.enable=0 test_vmalloc.run_test_mask=1 test_vmalloc.test_loop_count=2000000000 {token}"],
                          capture_output=True, text=True, check=False)
    return done, log, time.monotonic() - start, token


def test_a_hanging_guest_fails(hanging):
    """Its exit code is 1."""
    assert hanging[0].returncode == 1


def test_the_verdict_names_the_timeout(hanging):
    """The verdict begins with the timeout."""
    assert re.match("FAIL timeout: .* 10 s ", hanging[0].stdout)


def test_the_path_of_the_log_is_printed(hanging):
    """The user sees where the log is."""
    assert f"log: {hanging[1]}" in hanging[0].stderr


def test_the_log_has_the_boot(hanging):
    """What the guest printed is kept."""
    assert "Linux version" in hanging[1].read_text(errors="replace")


def test_it_is_ended_in_time(hanging):
    """Not before the limit, nor long after it."""
    assert 10 <= hanging[2] < 40


def test_no_emulator_stays_behind(hanging):
    """Nothing of it runs any more."""
    assert wait_for(lambda: not still_running(hanging[3]))


def test_interrupted():
    """SIGTERM ends the emulator as well."""
    token = f"run_term_{os.getpid()}"
    with subprocess.Popen([*RUN, "arm64", "--allocator", "rust", "--log", LOGS / "run-term.log", "--append",
                           f"kunit.enable=0 test_vmalloc.run_test_mask=1 test_vmalloc.test_loop_count=2000000000 {token}"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        assert wait_for(lambda: still_running(token))
        child.terminate()
    assert wait_for(lambda: not still_running(token))


def test_a_log_that_would_be_lost_is_refused():
    """The run has a /tmp of its own."""
    done = subprocess.run([*RUN, "arm64", "--allocator", "rust", "--log", "/tmp/run-test.log"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 1 and "of its own: name a file in the current folder" in done.stderr


def test_a_missing_end_marker_fails():
    """The emulator ends by itself, and the verdict must still be FAIL."""
    done = subprocess.run([*RUN, "arm64", "--allocator", "rust", "--timeout", "60", "--log", LOGS / "run-test.log",
                           "--end-marker", "never printed",
                           "--append", "kunit.enable=0 test_vmalloc.run_test_mask=0"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1 and done.stdout.startswith("FAIL end marker")


@pytest.mark.parametrize("allocator", ["rust", "rbtree"])
def test_shell(allocator):
    """Commands from a pipe run in the guest, and their exit code is that of the script."""
    commands = "cat /sys/kernel/debug/vmap_rust/allocator; nproc; exit 3"
    done = subprocess.run([REPO / "scripts/run", "shell", "arm64", "--no-build", "--allocator", allocator],
                          input=commands, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout.split("\n") == [allocator, "2", "exit code 3", ""], done
    empty = subprocess.run([REPO / "scripts/run", "shell", "arm64", "--no-build"], input="", capture_output=True,
                           text=True, check=False)
    assert empty.returncode == 1 and "neither a terminal nor has commands" in empty.stderr
