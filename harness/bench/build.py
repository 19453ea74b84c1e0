# SPDX-License-Identifier: GPL-2.0
"""Builds what the benchmark needs beside kernels: plugins of QEMU; and reads the symbols of what was built."""

import re
import subprocess
import tempfile
from pathlib import Path

from ..settings import CACHE, REPO, Refused

FOLDER = CACHE / "build/plugin"
GCC = ("gcc", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-fPIC", "-shared")


def made(out, sources, command, cwd=REPO):
    """Make a file with a command, whose last word is the new file, unless it is newer than its sources; returns its
    path."""
    if not out.exists() or any(out.stat().st_mtime_ns <= source.stat().st_mtime_ns for source in sources):
        out.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may do this at once, and a run that uses the old one keeps it.
        with tempfile.TemporaryDirectory(dir=out.parent) as folder:
            new = Path(folder) / out.name
            if subprocess.run([*command, new], cwd=cwd, check=False).returncode:
                raise Refused(f"{out.name} cannot be made of {sources[0]}")
            new.replace(out)
    return out


def plugin(name="count"):
    """Build a plugin of QEMU, "count", "lines" or "total"; returns its path."""
    sources = [REPO / "bench/plugin" / file for file in (f"{name}.c", "marks.h", "qemu-plugin.h")]
    return made(FOLDER / f"{name}.so", sources, [*GCC, sources[0], "-o"])


def output(*command):
    """Return what a program prints. Refuses with its error if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{command[0]} {command[-1]}: {done.stderr.strip() or 'failed'}")
    return done.stdout


def symbols(path, *more):
    """Return (address, size, type, name) of each symbol that a file defines, by address. more: options of llvm-nm."""
    lines = output("llvm-nm", "--numeric-sort", "--print-size", "--defined-only", *more, path)
    return [(int(addr, 16), int(size or "0", 16), kind, name)
            for addr, size, kind, name in re.findall(r"^(\w{16}) (?:(\w{16}) )?(\w) (.*)$", lines, re.M)]


def functions(path):
    """Return (address, name) of each function of a program or an object, in the order of addresses."""
    return [(addr, name) for addr, _, kind, name in symbols(path, "--demangle") if kind in "tTwW"]
