# SPDX-License-Identifier: GPL-2.0
"""Builds one kernel configuration of qemu/kernels.toml."""

import contextlib
import hashlib
import os
import shutil
import subprocess

from . import kernels
from ..patches import prepare, series
from ..machine import step
from ..toolchain import root
from ..toolchain.enter import in_root
from ..machine.lock import locked
from ..machine.options import Parser
from ..patches.series import read
from ..machine.settings import BUILDS, CACHE, LLVM, REPO, SERIES, TREE, Refused, cpus, linux, need_space, remove, write

HELP = """Prepares what is missing (scripts/prepare) and builds kernel configurations of qemu/kernels.toml. The last line
on stdout is the path of the image.

JOBS=N limits the number of parallel jobs (default: all processors)."""
LOG = CACHE / "log"
# The time, user and host of all builds, which keep unchanged kernels identical.
SAME = ("KBUILD_BUILD_TIMESTAMP=2026-01-01", "KBUILD_BUILD_USER=vmap", "KBUILD_BUILD_HOST=rust")


def jobs():
    """Return how many jobs make runs at a time."""
    return os.environ.get("JOBS") or cpus()


def make(kernel, *words, cwd, binds=()):
    """Return the command that runs make for a kernel. cwd: the tree; binds: see in_root_at()."""
    # The quicker mode of ccache does not see what ".incbin" includes: on 32-bit arm and x86 the compressed kernel.
    env = {"CCACHE_DEPEND": 1} if kernel.arch in ("arm64", "um") else {}
    return in_root("make", f"ARCH={kernel.arch}", f"O={kernel.folder}", LLVM, *SAME, *words, cwd=cwd, binds=binds, **env)


def configure(kernel, tree):
    """Make the .config with kunit.py, which refuses when an option that a fragment asks for is missing. It is only made
    again when a fragment, the configuration, the tree or the toolchain changed."""
    folder = kernel.folder
    config, known, before = folder / ".config", folder / ".vmap-rust-config", folder / ".config.before"
    versions = subprocess.run(in_root("sh", "-c", "rustc --version; bindgen --version"), stdout=subprocess.PIPE,
                              check=False).stdout
    digest = hashlib.sha256(f"{read(series.beside(tree, 'stamp'))} {kernel.arch} {kernel.options} {LLVM}".encode() + versions)
    for name in (*kernel.files, "Kconfig"):
        digest.update((REPO / name).read_bytes())
    if read(known) == digest.hexdigest() and read(config):
        return
    words = [word for name in kernel.files for word in ("--kunitconfig", REPO / name)]
    words += [word for option in kernel.options for word in ("--kconfig_add", option)]
    for file in (known, before):
        file.unlink(missing_ok=True)
    if read(config):
        shutil.copy2(config, before)
    step.must(f"configuring {kernel.name}", LOG / f"config-{kernel.name}.log", in_root(
        "tools/testing/kunit/kunit.py", "config", "--arch", kernel.arch, "--build_dir", folder, *words,
        "--make_options", LLVM, cwd=tree), f"configuration {kernel.name} cannot be made from {' '.join(kernel.files)}; "
        "look for a wrong name, or for what the options depend on", cwd=tree)
    # An unchanged .config keeps its time, or everything that depends on it would be looked at again.
    if read(config) == read(before):
        before.replace(config)
    before.unlink(missing_ok=True)
    known.write_text(digest.hexdigest(), encoding="ascii")


def start_from(kernel):
    """Make the new build folder a copy of that of kernel.start, when that one is built from this repository. Make then
    builds again what depends on options that differ."""
    folder, first = kernel.folder, BUILDS / kernel.start
    if folder.exists() or not read(first / ".vmap-rust-config") or not (first / "vmlinux").exists() or \
            read(first / ".vmap-rust-repo").strip() != str(REPO):
        return
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    step.must(f"copying {kernel.start} for {kernel.name}", LOG / f"start-{kernel.name}.log",
              ["cp", "-a", "--reflink=auto", first, new], f"cannot copy {first}")
    for pattern in (".config*", ".kunitconfig", "last_used_kunitconfig", ".vmap-rust-config", "vmlinux*"):
        for file in new.glob(pattern):
            file.unlink()
    (new / kernel.image.relative_to(folder)).unlink(missing_ok=True)
    new.rename(folder)


def claim(folder):
    """Make a build folder one of this repository: objects of another clone can be newer than the files of this one, and
    different."""
    if read(folder / ".vmap-rust-repo").strip() != str(REPO):
        shutil.rmtree(folder / "mm/vmap_rust", ignore_errors=True)
        (folder / ".vmap-rust-repo").write_text(f"{REPO}\n", encoding="utf-8")


def lock_of(kernel):
    """Hold the lock of the build folder of a kernel."""
    return locked(f"build {kernel.name}", (BUILDS / f"{kernel.name}.lock").relative_to(CACHE))


@contextlib.contextmanager
def alone(names, what):
    """Hold what kernels are built from, and the folders of those with these names, so that nobody else builds them.

    what: of this run, for those that wait."""
    with contextlib.ExitStack() as stack:
        wanted = {*names, *(kernels.get(name).start for name in names)}
        for kernel in (kernel for name, kernel in kernels.load().items() if name in wanted):
            stack.enter_context(lock_of(kernel))
        stack.enter_context(locked(what))
        yield


@contextlib.contextmanager
def held(kernel):
    """Hold the build folder of a kernel, and the tree, which is that of this repository; returns the folder of the source.
    Others can build other kernels meanwhile, but not those without the patches, which share a tree. This run has called
    prepare() before."""
    with lock_of(kernel):
        source = prepare.prepare()
        with locked(f"build {kernel.name}", shared=not kernel.pristine):
            yield source


def build(kernel, count=0):
    """Build a kernel; returns the path of the image. Raises Refused if it does not build. count: of a kernel without the
    patches (kernel.pristine), how many patches of series.WITHOUT it has nevertheless."""
    tree, folder = TREE, kernel.folder
    # Before the lock of a kernel, for which a command of another clone may wait that uses the tree.
    prepare.prepare()
    if kernel.start and not folder.exists():
        with lock_of(kernels.get(kernel.start)), lock_of(kernel):
            start_from(kernel)
    with held(kernel) as source:
        if not kernel.image.exists():
            need_space(1500, f"the kernel {kernel.name}")
        if kernel.pristine:
            tree, new = series.prepare_without(linux(SERIES), source, count)
            for old in BUILDS.glob("*-pristine") if new else ():
                shutil.rmtree(old)
        # Objects can be newer than the files of another source.
        made_of = folder / ".vmap-rust-source"
        if read(made_of) not in ("", read(series.beside(source, "stamp"))):
            remove(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write(made_of, read(series.beside(source, "stamp")))
        claim(folder)
        configure(kernel, tree)
        step.must(f"building {kernel.name}", LOG / f"build-{kernel.name}.log", make(
            kernel, f"-j{jobs()}", "all", cwd=tree), f"kernel {kernel.name} does not build", cwd=tree)
        if not kernel.image.is_file():
            raise Refused(f"kernel {kernel.name} was built, but there is no {kernel.image}; check its arch in "
                          "qemu/kernels.toml")
    return kernel.image


def main(arguments):
    """Build some of them; returns the exit code."""
    parser = Parser(f"{HELP}\n\nKnown: {' '.join(kernels.load())}", "build")
    parser.add_argument("names", metavar="NAME", nargs="+", help="a configuration")
    for kernel in [kernels.get(name) for name in parser.parse_args(arguments).names]:
        # kunit.py makes no configuration for riscv64 without its firmware. The root in which that is put must be complete.
        prepare.prepare()
        root.prepare_emulator(kernel.arch)
        print(build(kernel))
    return 0
