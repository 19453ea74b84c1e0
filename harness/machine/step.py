# SPDX-License-Identifier: GPL-2.0
"""Long commands: each with a log, a line of progress, and an end whatever happens to this program."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time

from .settings import CACHE, Refused, cpus, say

# Seconds between two lines of progress when stderr is no terminal.
QUIET = 30
# Lines of a log that name an error, and six more.
ERROR = re.compile(r"^(?:(?:.*[^a-z_\n])?(?:error|Error|ERROR|E)(?:\[E\d+\])?: |"
                   r".*(?:undefined reference|No space left)).*(?:\n.*){0,6}", re.M)


def last_line(log):
    """Return the last line of a log that is not blank, and that says more than where make is; without control
    characters."""
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - 2000))
        text = file.read().decode(errors="replace")
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip() and not line.startswith("make[")]
    return re.sub(r"[^ -~]", "", " ".join(lines[-1].split())) if lines else ""


class Display:
    """Shows on stderr what is being done: in a terminal in one line that changes, else in new lines from time to time."""

    def __init__(self):
        self.start = self.shown = self.looked = time.monotonic()

    @property
    def seconds(self):
        """Seconds since the start."""
        return int(time.monotonic() - self.start)

    def show(self, *texts):
        """Show what each function of texts returns: one for each thing that is being done."""
        now, is_terminal = time.monotonic(), sys.stderr.isatty()
        if now - self.looked < 1:
            return
        self.looked = now
        lines = [text() for text in texts]
        if is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print("\r\033[K" + f"{self.seconds} s, {' | '.join(lines)}"[:width], end="", file=sys.stderr, flush=True)
        elif now - self.shown >= QUIET:
            self.shown = now
            say("\n".join(f"{self.seconds} s, {line[:110]}" for line in lines))


class Limit:
    """A time limit that other work on the build host does not shorten. Of each second counts the part of a CPU that a
    runnable task gets on average. What hangs without a need for CPUs ends, too."""

    def __init__(self, seconds):
        self.left, self.last = seconds, time.monotonic()

    def is_over(self):
        """Tell whether the time is over. Call this more often than once a minute, for which the load is an average."""
        now = time.monotonic()
        self.left -= (now - self.last) * min(1, cpus() / max(os.getloadavg()[0], 1))
        self.last = now
        return self.left < 0


class Step:
    """A command in a process group of its own, whose output is in a log."""

    def __init__(self, what, log, command, good=(0,), **more):
        """Start it.

        what: is being done; good: exit codes that say no failure; more: what subprocess.Popen takes, for example cwd, env
        and stdin."""
        self.what, self.log, self.good, self.display = what, log, good, Display()
        os.makedirs(os.path.dirname(log), exist_ok=True)
        with open(log, "wb") as out:
            # The kernel ends it if this program is killed. Until it has ended, it holds the locks (harness/machine/lock.py).
            self.child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)],
                                          **{"stdin": subprocess.DEVNULL, **more}, stdout=out,
                                          stderr=subprocess.STDOUT, start_new_session=True, close_fds=False)

    def text(self):
        """Return what is being done, and how far it is."""
        return f"{self.what}: {last_line(self.log)}"

    def running(self):
        """Tell whether it still runs, and show its progress."""
        if self.child.poll() is not None:
            return False
        self.display.show(self.text)
        return True

    def stop(self):
        """End it and all that it started in its group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.child.pid, number)
                self.child.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass

    def finish(self):
        """Say how it ended; returns the exit code."""
        code = self.child.wait()
        clear = "\r\033[K" if sys.stderr.isatty() else ""
        seconds = self.display.seconds
        say(f"{clear}{self.what}: done, {seconds} s" if code in self.good else
            f"{clear}{self.what}: failed after {seconds} s (exit code {code}); log: {self.log}")
        return code

    def wait(self, timeout=None):
        """Wait for its end; returns the exit code, or None after timeout seconds (see Limit)."""
        limit, pause = Limit(timeout or float("inf")), 0.05
        try:
            while self.running():
                if limit.is_over():
                    say(f"{self.what}: not done in {timeout} s; log: {self.log}")
                    return None
                time.sleep(pause)
                pause = min(pause * 1.2, 0.5)
            return self.finish()
        finally:
            self.stop()


def new_logs(name, keep):
    """Make the folder of the logs of a run; returns its path. name: of the kind of run; keep: of how many former runs of
    that kind the logs stay."""
    for old in sorted(path for path in (CACHE / "log").glob(f"{name}-2*") if path.is_dir())[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    # Not by the number of the process: each entry to the toolchain root counts its own.
    folder = CACHE / f"log/{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
    folder.mkdir(parents=True)
    return folder


def errors(log):
    """Return the lines of a log that name an error, or its last lines; 30 at most."""
    with open(log, encoding="utf-8", errors="replace") as file:
        text = file.read().strip()
    return "\n".join(("\n".join(ERROR.findall(text)) or "\n".join(text.split("\n")[-20:])).split("\n")[:30])


def must(what, log, command, why, **more):
    """Run a command to its end. If it fails, prints what its log says of it and raises Refused(why)."""
    if Step(what, log, command, **more).wait() != 0:
        say(errors(log))
        raise Refused(why)
