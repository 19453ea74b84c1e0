# SPDX-License-Identifier: GPL-2.0
"""Checks of the sources, the program of scripts/check. Each is a function whose docstring begins with what must hold. It
raises Refused with what it found, or returns what it has looked at, of which the last line is printed."""

import subprocess
from pathlib import Path

from ..toolchain.enter import in_root
from ..machine.settings import REPO, Refused, cpus


def fault_if(lines):
    """Raise Refused with these lines if there are any."""
    text = "\n".join(lines)
    if text:
        raise Refused(text)


def read(file):
    """Return the text of a file."""
    return Path(file).read_text(encoding="utf-8", errors="replace")


def output(*words, **more):
    """Return what a command prints. Raises Refused with that if it fails. more: what subprocess.run takes, for example cwd and
    input; without stderr, the user sees messages immediately."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, encoding="utf-8", errors="replace",
                          check=False, close_fds=False, **{"input": "", **more})
    if done.returncode:
        raise Refused(done.stdout)
    return done.stdout


def sources(*globs):
    """Return the files of the repository that git tracks or does not ignore; with globs only those that match."""
    files = output("git", "ls-files", "-coz", "--exclude-standard", "--", *globs, cwd=REPO).split("\0")
    return [file for file in files if (REPO / file).is_file()]


def spread(files, number, *words, **more):
    """Return what a command prints in the toolchain root for that number of files at a time, on all processors. Raises
    Refused if it fails."""
    return output(*in_root("xargs", "-d", "\\n", "-P", cpus(), "-n", number, *words, cwd=more.get("cwd")),
                  input="\n".join(files), **more)
