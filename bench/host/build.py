# SPDX-License-Identifier: GPL-2.0
"""Builds what the benchmark needs beside kernels: plugins of QEMU, the model of caches, and debug information; and
reads the symbols of what was built."""

import re
import subprocess
import tempfile
from pathlib import Path

from harness.settings import CACHE, REPO, Refused

FOLDER = CACHE / "build/plugin"
CACHELINES = REPO / "bench/host/cachelines"


def build_library(out, sources, *more):
    """Compile C files to a shared library, unless it is newer than they and their headers; returns its path. more:
    words for gcc."""
    if out.exists() and all(out.stat().st_mtime_ns > source.stat().st_mtime_ns for source in sources):
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    files = [source for source in sources if source.suffix == ".c"]
    # A run that uses the old one keeps it.
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        new = Path(folder) / out.name
        if subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-fPIC", "-shared",
                           "-fvisibility=hidden", "-o", new, *files, *more], check=False).returncode:
            raise Refused(f"{sources[0].relative_to(REPO)} does not compile")
        new.replace(out)
    return out


def plugin(name="count"):
    """Build a plugin of QEMU, "count" or "total"; returns its path."""
    sources = [REPO / "bench/plugin" / file for file in (f"{name}.c", "qemu-plugin.h")]
    return build_library(FOLDER / f"{name}.so", sources)


def cache_model(out=FOLDER / "cachelines.so"):
    """Build the model of caches; returns its path."""
    return build_library(out, [CACHELINES / name for name in ("model.c", "caches.c", "model.h")], "-l:libunicorn.so.2")


def types_of(folder):
    """Compile mm/vmap_area_ops.c of a build folder once more with debug information; returns the object, beside the
    model. The kernel stays as it is: only the layout of types is read."""
    out = FOLDER / f"{folder.name}-types.o"
    if out.exists() and out.stat().st_mtime_ns > (folder / "vmlinux").stat().st_mtime_ns:
        return out
    text = (folder / "mm/.vmap_area_ops.o.cmd").read_text(encoding="utf-8")
    command = re.sub("-Wp,-MMD,[^ ]*", "", re.search(r"^savedcmd_\S+ := (.*)", text, re.M)[1])
    # Several processes may do this at once.
    with tempfile.TemporaryDirectory(dir=out.parent) as temporary:
        new = Path(temporary) / out.name
        if subprocess.run(command.replace("-o mm/vmap_area_ops.o", f"-g -o {new}", 1), shell=True, cwd=folder,
                          check=False).returncode:
            raise Refused("mm/vmap_area_ops.c does not compile with debug information")
        new.replace(out)
    return out


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
