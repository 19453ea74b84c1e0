# SPDX-License-Identifier: GPL-2.0
"""Archives that guests boot from: busybox with the scripts of qemu/, or the Debian guest image with those of
qemu/guest/.
"""

import gzip
import os
import re
import secrets
import shutil
import subprocess
from pathlib import Path

from .settings import CACHE, REPO, Refused, Skipped

FORMATS = {"arm64": "ARM aarch64", "arm": "32-bit.*ARM", "x86_64": "x86-64", "um": "x86-64"}
# Modules that the guests of the guest image load. Without one of them, its tests are skipped.
MODULES = ("test_module", "test_vmalloc", "test_maple_tree", "test_bpf", "lkdtm")


def busybox(arch):
    """Return the path of a static busybox."""
    name = arch.replace("um", "x86_64")
    # BUSYBOX and the busybox of the build host are for TOOLCHAIN=host.
    for file in (os.environ.get("BUSYBOX", ""), f"/opt/busybox-{name}/bin/busybox",
                 CACHE / f"root/opt/busybox-{name}/bin/busybox",
                 CACHE / f"busybox-{arch}/bin/busybox", "/usr/bin/busybox", "/bin/busybox"):
        if file and Path(file).exists():
            kind = subprocess.run(["file", "-L", file], capture_output=True, text=True, check=False).stdout
            if re.search(f"{FORMATS[arch]}.*static", kind):
                return file
    raise Skipped(f"no static busybox for {arch}; set BUSYBOX=FILE")


def packed_test_vmalloc(kernel):
    """Return the path of test_vmalloc, compressed. Its init always fails after the tests, and then insmod loads a
    module a second time in another way, which would repeat the tests. The kernel cannot read a compressed module in the
    first way."""
    packed = kernel.folder / "test_vmalloc.ko.gz"
    packed.write_bytes(gzip.compress((kernel.folder / "lib/test_vmalloc.ko").read_bytes(), mtime=0))
    return packed


def make_busybox(kernel, bench=False, commands=None):
    """Make the archive with busybox and the load, or with bench/init.sh; returns its path. commands: bytes, what
    qemu/shell.sh runs."""
    if not bench and not (kernel.folder / "lib/test_module.ko").is_file():
        raise Refused(f"configuration {kernel.name} is not built, or has no modules; run scripts/build {kernel.name}")
    files = {"bin/busybox": busybox(kernel.arch), "init": REPO / ("bench/init.sh" if bench else "qemu/init.sh")}
    if not bench:
        if kernel.has("TEST_VMALLOC", "m"):
            files["test_vmalloc.ko.gz"] = packed_test_vmalloc(kernel)
        files |= {path.name: path for path in sorted((REPO / "qemu").glob("*.sh")) if path.name != "init.sh"}
        modules = (kernel.folder / f"{name}.ko"
                   for name in ("lib/test_module", "mm/kasan/kasan_test", "mm/vmap_rust/kunit/vmap_leak"))
        files |= {path.name: path for path in modules if path.is_file()}
    if commands is not None:
        files["commands"] = write(kernel.folder / "commands", commands)
    lines = ["nod /dev/console 600 0 0 c 5 1", "nod /dev/null 666 0 0 c 1 3",
             *(f"file /{name} {path} 755 0 0" for name, path in files.items())]
    folders = [f"dir /{name} {mode} 0 0" for name,
               mode in (("dev", 755), ("bin", 755), ("proc", 755), ("sys", 755), ("tmp", 1777))]
    # gen_init_cpio (built with the kernel) makes device nodes without root privileges.
    archive = subprocess.run([kernel.folder / "usr/gen_init_cpio", "/dev/stdin"],
                             input="\n".join(folders + lines).encode() + b"\n",
                             stdout=subprocess.PIPE, check=False)
    if archive.returncode:
        raise Refused(f"{kernel.folder}/usr/gen_init_cpio failed")
    name = "initramfs-bench.cpio" if bench else "initramfs.cpio" if commands is None else "initramfs-shell.cpio"
    return write(kernel.folder / name, archive.stdout)


def write(path, content):
    """Write a file in one step, for a run at the same time; returns its path."""
    # Not by the number of the process: each entry to the toolchain root counts its own.
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    new.write_bytes(content)
    new.replace(path)
    return path


def add_debuggers(kernel, part, release):
    """Add tools/, and the debug info of the kernel where drgn finds it, without the kernel's code."""
    shutil.copytree(REPO / "tools", part / "tools", ignore=shutil.ignore_patterns("test_*", "__pycache__", "vmap_map", "vmap-map"))
    folder = part / "usr/lib/debug/boot"
    folder.mkdir(parents=True)
    if subprocess.run(["objcopy", "--only-keep-debug", kernel.folder / "vmlinux", folder / f"vmlinux-{release}"],
                      check=False).returncode:
        raise Refused(f"objcopy failed on {kernel.folder}/vmlinux")


def make_guest_image(kernel, peers=None, debuggers=False):
    """Make the archive with the guest image, the scripts of qemu/guest, the modules of the kernel, the folder peers,
    and what debuggers need; returns its path."""
    if kernel.arch != "x86_64":
        raise Refused(f"configuration {kernel.name} is not for x86_64, as the guest image is")
    if not (kernel.folder / "modules.order").is_file():
        raise Refused(f"configuration {kernel.name} is not built, or has no modules; run scripts/build {kernel.name}")
    part = kernel.folder / "guest-part"
    shutil.rmtree(part, ignore_errors=True)
    release = (kernel.folder / "include/config/kernel.release").read_text(encoding="ascii").strip()
    modules = part / "usr/lib/modules" / release
    (modules / "kernel").mkdir(parents=True)
    (part / "guest").mkdir()
    for file in [*(REPO / "qemu/guest").glob("*.sh"), REPO / "qemu/functions.sh"]:
        shutil.copy(file, part / "guest")
    (part / "guest/init.sh").rename(part / "init")
    (part / "init").chmod(0o755)
    for name in sorted(set((kernel.folder / "modules.order").read_text(encoding="ascii").split())):
        if Path(name).stem in MODULES:
            shutil.copy((kernel.folder / name).with_suffix(".ko"), modules / "kernel")
    for name in ("modules.builtin", "modules.order"):
        shutil.copy(kernel.folder / name, modules)
    if peers:
        shutil.copytree(peers, part / "peers", symlinks=True)
    if debuggers:
        add_debuggers(kernel, part, release)
    if not any(subprocess.run(["/usr/sbin/depmod", "-b", base, release], stderr=subprocess.DEVNULL,
                              check=False).returncode == 0
               for base in (part / "usr", part)):
        raise Refused(f"depmod failed in {part}")
    archive = subprocess.run(["bash", "-o", "pipefail", "-c",
                              "find . -print0 | cpio --quiet -o -0 -H newc -R 0:0 | zstd -q -3"], cwd=part,
                             stdout=subprocess.PIPE, check=True).stdout
    shutil.rmtree(part)
    return write(kernel.folder / "initramfs-guest.cpio.zst", (CACHE / "guest-image.cpio.zst").read_bytes() + archive)
