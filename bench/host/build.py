# SPDX-License-Identifier: GPL-2.0
"""Builds what the benchmark needs beside kernels: plugins of QEMU, the model of caches, and debug information."""

import re
import subprocess
import tempfile
from pathlib import Path

from harness.settings import CACHE, REPO, Refused

PLUGIN = CACHE / "build/plugin/count.so"
MODEL = CACHE / "build/plugin/cachelines.so"
CACHELINES = REPO / "bench/host/cachelines"


def build_library(out, sources, *more):
    """Compile C files to a shared library, unless it is newer than they and their headers. more: words for gcc."""
    if out.exists() and all(out.stat().st_mtime_ns > source.stat().st_mtime_ns for source in sources):
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    files = [source for source in sources if source.suffix == ".c"]
    # A run that uses the old one keeps it.
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        new = Path(folder) / out.name
        if subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-fPIC", "-shared",
                           "-fvisibility=hidden", "-o", new, *files, *more], check=False).returncode:
            raise Refused(f"{sources[0].relative_to(REPO)} does not compile")
        new.replace(out)


def build_plugin():
    """Build the plugin of QEMU that counts instructions."""
    build_library(PLUGIN, [REPO / "bench/plugin" / name for name in ("count.c", "qemu-plugin.h")])


def build_model(out=MODEL):
    """Build the model of caches."""
    build_library(out, [CACHELINES / name for name in ("model.c", "caches.c", "model.h")], "-l:libunicorn.so.2")


def types_of(folder):
    """Compile mm/vmap_area_ops.c of a build folder once more with debug information; returns the object, beside the
    model. The kernel stays as it is: only the layout of types is read."""
    out, name = MODEL.with_name(f"{folder.name}-types.o"), "mm/vmap_area_ops.o"
    if out.exists() and out.stat().st_mtime_ns > (folder / "vmlinux").stat().st_mtime_ns:
        return out
    text = (folder / "mm/.vmap_area_ops.o.cmd").read_text(encoding="utf-8")
    command = re.sub("-Wp,-MMD,[^ ]*", "", re.search(r"^savedcmd_\S+ := (.*)", text, re.M)[1])
    # Several processes may do this at once.
    with tempfile.TemporaryDirectory(dir=out.parent) as temporary:
        new = Path(temporary) / out.name
        if subprocess.run(command.replace(f"-o {name}", f"-g -o {new}", 1), shell=True, cwd=folder,
                          check=False).returncode:
            raise Refused("mm/vmap_area_ops.c does not compile with debug information")
        new.replace(out)
    return out
