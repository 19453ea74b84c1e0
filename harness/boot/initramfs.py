# SPDX-License-Identifier: GPL-2.0
"""Archives that guests boot from: busybox or the Debian guest image, each with the scripts of qemu/ and the kernel's
modules."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path, PurePath

from ..machine.settings import CACHE, REPO, Refused, Skipped, write

FORMATS = {"arm64": "ARM aarch64", "arm": "32-bit.*ARM", "riscv": "64-bit.*RISC-V", "loongarch": "64-bit.*LoongArch",
           "x86_64": "x86-64", "um": "x86-64"}
# Modules that guests load, if the kernel has them.
MODULES = ("lib/test_module", "lib/test_vmalloc", "lib/test_maple_tree", "lib/test_bpf", "drivers/misc/lkdtm/lkdtm",
           "mm/kasan/kasan_test", "mm/vmap_rust/kunit/vmap_leak")


def busybox(arch):
    """Return the path of a static busybox for an architecture of Linux. Raises Skipped if there is none."""
    name = f"opt/busybox-{arch.replace('um', 'x86_64')}/bin/busybox"
    # BUSYBOX and the busybox of the build host are for TOOLCHAIN=host.
    for file in (os.environ.get("BUSYBOX", ""), f"/{name}", CACHE / "root" / name, CACHE / f"busybox-{arch}/bin/busybox",
                 "/bin/busybox"):
        kind = subprocess.run(["file", "-L", file], capture_output=True, text=True, check=False).stdout
        if re.search(f"{FORMATS[arch]}.*static", kind):
            return file
    raise Skipped(f"no static busybox for {arch}; set BUSYBOX=FILE")


def common_files(kernel):
    """Return the files of all guests, a dictionary of paths in the archive and on the build host."""
    if not (kernel.folder / "lib/test_module.ko").is_file():
        raise Refused(f"configuration {kernel.name} is not built, or has no modules; run scripts/build {kernel.name}")
    files = {path.name: path for path in sorted((REPO / "qemu").glob("*.sh"))}
    files["init"] = files.pop("init.sh")
    return files | {path.name: path for path in (kernel.folder / f"{name}.ko" for name in MODULES) if path.is_file()}


def pack(kernel, files):
    """Return the archive of files, a dictionary of paths in the archive and on the build host."""
    folders = {str(folder) for name in files for folder in PurePath(name).parents} | {"dev", "proc", "sys", "tmp"}
    lines = [*(f"dir /{name} {1777 if name == 'tmp' else 755} 0 0" for name in sorted(folders - {"."})),
             "nod /dev/console 600 0 0 c 5 1", "nod /dev/null 666 0 0 c 1 3",
             *(f"file /{name} {path} 755 0 0" for name, path in files.items())]
    # gen_init_cpio (built with the kernel) makes device nodes without root privileges.
    archive = subprocess.run([kernel.folder / "usr/gen_init_cpio", "/dev/stdin"], stdout=subprocess.PIPE, check=False,
                             input="\n".join(lines).encode() + b"\n")
    if archive.returncode:
        raise Refused(f"{kernel.folder}/usr/gen_init_cpio failed")
    return archive.stdout


def make_busybox(kernel, commands=None, folder=None):
    """Make the archive with busybox and the scripts; returns its path. commands: bytes, what qemu/shell.sh runs; folder: of
    this run, for an archive with commands."""
    files = common_files(kernel) | {"bin/busybox": busybox(kernel.arch)}
    if commands is not None:
        files["commands"] = write(folder / "commands", commands)
    return write((kernel.folder if commands is None else folder) / "initramfs.cpio", pack(kernel, files))


def tree(folder, prefix):
    """Return the files below a folder, with a prefix of their paths in the archive."""
    return {f"{prefix}/{path.relative_to(folder)}": path for path in sorted(folder.rglob("*")) if path.is_file()}


@contextlib.contextmanager
def module_files(kernel, paths):
    """Give the files of modules of a kernel, with what depmod lists of them, by their paths in the archive. paths: of the
    modules on the build host."""
    release = (kernel.folder / "include/config/kernel.release").read_text(encoding="ascii").strip()
    with tempfile.TemporaryDirectory(prefix="guest-modules-", dir=kernel.folder) as base:
        modules = Path(base, "lib/modules", release)
        (modules / "kernel").mkdir(parents=True)
        lists = [kernel.folder / name for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order")]
        for path in (*paths, *filter(Path.is_file, lists)):
            shutil.copy(path, modules if path in lists else modules / "kernel")
        run("/usr/sbin/depmod", "-b", base, release)
        yield tree(Path(base, "lib"), "usr/lib")


def run(*command):
    """Run a command. Refuses with its words if it fails."""
    if subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode:
        raise Refused(f"failed: {' '.join(map(str, command))}")


def add_to_image(image, kernel, files, name):
    """Make an archive of that name with the files on top of an image in the cache; returns its path."""
    archive = subprocess.run(["zstd", "-q", "-3"], input=pack(kernel, files), stdout=subprocess.PIPE, check=True).stdout
    return write(kernel.folder / name, (CACHE / image).read_bytes() + archive)


def make_guest_image(kernel, debuggers=False):
    """Make the archive with the image for a kernel; returns its path. debuggers: with tools/, and the debug info of the kernel
    where drgn finds it, without the kernel's code. Two runs may make one at the same time."""
    files = common_files(kernel)
    if not kernel.guest_image:
        files["usr/bin/busybox"] = busybox(kernel.arch)
    # Programs find modules where depmod has listed them.
    with (module_files(kernel, [path for name, path in files.items() if name.endswith(".ko")]) as modules,
          tempfile.NamedTemporaryFile(prefix="vmlinux.debug-", dir=kernel.folder) as symbols):
        if debuggers:
            run("objcopy", "--only-keep-debug", kernel.folder / "vmlinux", symbols.name)
            files |= {name: path for name, path in tree(REPO / "tools", "tools").items()
                      if not re.search(r"test_|__pycache__|vmap.map", name)}
            release = (kernel.folder / "include/config/kernel.release").read_text(encoding="ascii").strip()
            files[f"usr/lib/debug/boot/vmlinux-{release}"] = symbols.name
        return add_to_image(f"{kernel.user_image}.cpio.zst", kernel, files | modules,
                            f"initramfs-{'debuggers' if debuggers else 'guest'}.cpio.zst")
