# SPDX-License-Identifier: GPL-2.0
"""Prepares the cache folder: toolchain root, kernel source, patched tree. A second run makes only what is
missing."""

import contextlib
import shutil
import subprocess

from ..toolchain import debian, root
from . import series, source
from ..toolchain.enter import in_root
from ..machine.lock import is_held, locked
from ..machine.options import Parser
from ..machine.settings import BUILDS, LLVM, REPO, SERIES, TOOLCHAIN, Refused, check_settings, linux

HELP = f"""Prepares the cache folder: toolchain root, kernel source, patched tree. What is ready is not made again.

  root    the toolchain root, a Debian {debian.SUITE} (with TOOLCHAIN=host: check the tools of the build host)
  source  the kernel source
  all     both, and the tree: the source with its patches applied and mm/vmap_rust linked here (default)
TOOLCHAIN=host uses the tools of the build host, KERNEL_TARBALL=FILE another archive of the kernel source. All parts are
in the cache folder: ~/.cache/vmap-rust, or VMAP_RUST_CACHE."""
# Tools of the build host; those with a + end with the version of LLVM.
TOOLS = ("make git file xz python3 flex bison bc rustc bindgen clang+ ld.lld+ llvm-ar+ llvm-nm+ llvm-objcopy+ "
         "qemu-system-aarch64 qemu-system-x86_64").split()
# What this process holds until it ends.
KEPT = contextlib.ExitStack()


def check_host():
    """TOOLCHAIN=host: raise Refused if tools are missing."""
    version = LLVM.removeprefix("LLVM=")
    names = [tool.replace("+", version if version.startswith("-") else "") for tool in TOOLS]
    if missing := [name for name in names if not shutil.which(name)]:
        raise Refused(f"TOOLCHAIN=host: tools are missing: {' '.join(missing)}; install them, or leave TOOLCHAIN unset to "
                      "use the toolchain root")


def ready(part, kernel):
    """Tell whether a part and those that it needs are ready. Needs no lock: a stamp is written after its part."""
    if TOOLCHAIN != "root" or not root.ready():
        return False
    return part == "root" or (tree_ready(kernel) if part == "all" else bool(source.find(kernel)))


def tree_ready(kernel):
    """Tell whether the tree of a kernel is that of this repository."""
    folder = source.find(kernel)
    return bool(folder) and series.ready(kernel.tree, folder, series.patches(kernel)) and series.linked(kernel.tree)


def clone_lock(kernel):
    """Return the arguments of locked() for the lock of those that use the tree of a kernel with the link of one clone: its
    commands share it, and what links the tree to another clone has it alone."""
    return f"a command of {REPO}", f"tree-v{kernel.series}.lock"


def prepare(part="all", kernel=None):
    """Make a part and those that it needs; returns the folder of the source, or None for the root. The tree then stays
    linked to this repository until this process, and what it has started, have ended. So this may wait for commands of
    another clone: a caller of prepare("all") must have no lock that these may want."""
    check_settings()
    kernel = kernel or linux(SERIES)
    what, name = clone_lock(kernel)
    while part == "all" and not is_held(name):
        if not series.linked(kernel.tree):
            with locked(what, name):
                make(part, kernel)
        KEPT.enter_context(locked(what, name, shared=True))
        # Another clone may have changed that before the lock was taken.
        if series.linked(kernel.tree):
            break
        KEPT.close()
    return make(part, kernel)


def make(part, kernel):
    """As prepare(), but does not wait for other clones."""
    # A run with nothing to do takes no lock: it must not wait for a run that builds.
    if ready(part, kernel):
        return None if part == "root" else source.find(kernel)
    with locked("prepare"):
        if TOOLCHAIN == "host":
            check_host()
        else:
            root.prepare()
        if part == "root":
            return None
        folder = source.prepare(kernel)
        if part == "source":
            return folder
        series.prepare(kernel, folder)
        if TOOLCHAIN == "host" and subprocess.run(in_root(
                "make", "-s", "-C", kernel.tree, f"O={BUILDS}/.rustavailable", LLVM, "rustavailable"), check=False).returncode:
            raise Refused(f"TOOLCHAIN=host: the kernel cannot use these Rust tools (make {LLVM} rustavailable)")
        return folder


def main(arguments):
    """Make one part; returns the exit code."""
    parser = Parser(HELP, "prepare")
    parser.add_argument("part", nargs="?", default="all", choices=("root", "source", "all"), metavar="PART")
    prepare(parser.parse_args(arguments).part)
    return 0
