# SPDX-License-Identifier: GPL-2.0
"""Builds what the benchmark needs beside kernels: a plugin of QEMU, the model of caches, and debug information."""

import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

from harness.settings import CACHE, REPO, Refused, say

PLUGIN = CACHE / "build/plugin/count.so"
MODEL = CACHE / "build/plugin/cachelines.so"
CACHELINES = REPO / "bench/host/cachelines"


def is_newer(file, *sources):
    """Tell whether a file is there and newer than its sources."""
    return file.exists() and all(file.stat().st_mtime_ns > source.stat().st_mtime_ns for source in sources)


def build_library(out, sources, *more):
    """Compile C files to a shared library, unless it is newer than they and their headers. more: words for gcc."""
    if is_newer(out, *sources):
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


def check_kernel(vmlinux):
    """Refuse a vmlinux that is not in the build folder of a kernel with the allocator. Returns the folders that it
    needs: this one, its kernel tree, and the repository of the allocator."""
    folder = vmlinux.parent
    if not vmlinux.is_file():
        raise Refused(f"there is no {vmlinux}")
    if not (folder / "source").is_symlink() or not (folder / "mm/vmap_rust/rust/.vmap_rust.o.cmd").exists():
        raise Refused(f"{folder} is no build folder of a kernel with the allocator, or it is being built")
    tree = (folder / "source").resolve()
    return [folder, tree, (tree / "mm/vmap_rust").resolve()]


def saved_command(folder, name):
    """Return the command by which kbuild made an object of a build folder."""
    path = folder / name
    text = path.with_name(f".{path.name}.cmd").read_text(encoding="utf-8")
    return re.search(r"^savedcmd_\S+ := (.*)", text, re.M)[1]


def build_types(vmlinux):
    """Compile mm/vmalloc.c, mm/vmap_area_ops.c and the allocator of a kernel once more, with debug information; returns
    the folder of the objects. The kernel stays as it is: only the layout of types is read from these objects."""
    folder, *_, repo = check_kernel(vmlinux)
    out = CACHE / "build/types" / hashlib.sha256(f"{folder}\n".encode()).hexdigest()[:16]
    last = out / "vmap_rust.o"
    if all(is_newer(file, vmlinux) for file in (out / "vmap_area_ops.o", last)):
        return out
    if any(is_newer(file, vmlinux) for glob in ("*.rs", "*/*.rs") for file in (repo / "rust").glob(glob)):
        say(f"the sources of the allocator are newer than {vmlinux}: names of fields may be wrong")
    out.mkdir(parents=True, exist_ok=True)
    last.unlink(missing_ok=True)
    for name in ("vmalloc", "vmap_area_ops"):
        command = re.sub("-Wp,-MMD,[^ ]*", "", saved_command(folder, f"mm/{name}.o"))
        command = command.replace(f"-o mm/{name}.o", f"-g -o {out}/{name}.o", 1)
        if subprocess.run(command, shell=True, cwd=folder, check=False).returncode:
            raise Refused(f"mm/{name}.c does not compile with debug information")
    command = saved_command(folder, "mm/vmap_rust/rust/vmap_rust.o").split(";")[0]
    command = re.sub("--out-dir [^ ]*|--emit=[^ ]*", "", re.sub("^OBJTREE=[^ ]*", f"OBJTREE={folder}", command))
    if subprocess.run(f"{command} -Cdebuginfo=2 --emit=obj={last}", shell=True, cwd=folder, check=False,
                      env={**os.environ, "RUSTC_BOOTSTRAP": "1"}).returncode:
        raise Refused("the allocator does not compile with debug information")
    return out
