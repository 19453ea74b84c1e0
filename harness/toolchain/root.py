# SPDX-License-Identifier: GPL-2.0
"""Makes the toolchain root: a Debian with all that builds and boots kernels and measures them. It is made in root.new,
which becomes root when all is in place: a root that exists is complete."""

import hashlib
import os
import shutil
import subprocess

from . import debian
from ..machine import step
from .enter import ROOT, STAMP, in_root_at
from ..machine.lock import locked
from ..machine.settings import CACHE, TOOLCHAIN, Refused, need_space, need_tool, remove, say

PACKAGES = """
    rustc rust-src rustfmt rust-clippy cargo
    make gcc libc6-dev clang-22 lld-22 llvm-22 libclang-22-dev flex bison bc libelf-dev libdw-dev libssl-dev
    python3 cpio xz-utils zstd kmod rsync perl git pahole ccache patch file gawk procps util-linux sparse
    ca-certificates
    qemu-system-arm qemu-system-x86 qemu-system-data
    shellcheck codespell ripgrep python3-ply python3-git python3-rich python3-scipy python3-matplotlib
    python3-pytest python3-drgn gdb-multiarch libncurses-dev""".split()
# SUITE has 0.71.1, which libclang 22 makes mistakes with. The suite that has this one now.
BINDGEN, BINDGEN_SUITE = "0.72.1", "forky"
# Make what the scripts of these packages would have made: in the folder of the root, then in the root.
FILES = """
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
cp usr/share/libc-bin/nsswitch.conf etc
touch etc/resolv.conf etc/hosts
cat usr/share/ca-certificates/mozilla/*.crt >etc/ssl/certs/ca-certificates.crt
for row in awk:gawk cc:gcc which:which.debianutils; do ln -sf "${row#*:}" "usr/bin/${row%:*}"; done
ln -sf blas/libblas.so.3 lapack/liblapack.so.3 usr/lib/*-linux-gnu
"""
PROGRAMS = "ldconfig; update-ccache-symlinks; python3 -m compileall -q -j 0 /usr/lib/python3*"
# What only the test matrix has, by the architecture of Linux. Busyboxes: that as Debian calls it, and the suite that has it.
BUSYBOXES = {"arm": ("armhf", debian.SUITE), "riscv": ("riscv64", debian.SUITE), "loongarch": ("loong64", "forky")}
# Emulators: files of the root, with the package and the file in it.
EMULATORS = {
    "riscv": {"usr/bin/qemu-system-riscv64": ("qemu-system-riscv", "usr/bin/qemu-system-riscv64"),
              "usr/share/qemu/opensbi-riscv64-generic-fw_dynamic.bin":
              ("opensbi", "usr/lib/riscv64-linux-gnu/opensbi/generic/fw_dynamic.bin")},
    "loongarch": {"usr/bin/qemu-system-loongarch64": ("qemu-system-misc", "usr/bin/qemu-system-loongarch64")}}
NEW, LOG = CACHE / "root.new", CACHE / "log"


def recipe():
    """Return the hash of what a root is made of: another one means another root."""
    # The number goes up when the code that makes a root changes.
    rows = ["3", debian.SUITE, debian.BACKPORTS, *PACKAGES, BINDGEN, BINDGEN_SUITE, FILES, PROGRAMS]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def ready():
    """Tell whether the root of this recipe is complete."""
    return STAMP.is_file() and STAMP.read_text(encoding="ascii").strip() == recipe() and \
        all(os.access(ROOT / name, os.X_OK) for name in ("usr/bin/make", "opt/cargo/bin/bindgen"))


def put_busybox(arch, suite, folder):
    """Put the static busybox for initial file systems into folder/bin. arch: as Debian calls it."""
    debian.fetch_file(f"busybox for {arch}", arch, "busybox-static", "usr/bin/busybox", folder / "bin/busybox",
                      "look at the network and call this again", suite)


def put_bindgen():
    """Put bindgen into root.new: that of a package, which takes seconds, or else one built from source."""
    what, file = f"toolchain root: bindgen {BINDGEN}", NEW / "opt/cargo/bin/bindgen"
    try:
        debian.fetch_file(what, debian.machine(), "bindgen", "usr/bin/bindgen", file, "it is built instead", BINDGEN_SUITE)
        done = subprocess.run(in_root_at(NEW, ["bindgen", "--version"]), capture_output=True, text=True, check=False)
        if done.stdout == f"bindgen {BINDGEN}\n":
            return
    except Refused as why:
        say(str(why))
    file.unlink(missing_ok=True)
    step.must(what, LOG / "root-bindgen.log", in_root_at(
        NEW, ["cargo", "install", "bindgen-cli", "--version", BINDGEN, "--locked", "--root", "/opt/cargo"], writable=True,
        env={"CARGO_PROFILE_RELEASE_OPT_LEVEL": "1"}),
        f"bindgen {BINDGEN} could not be built; look at the network and call this again")


def prepare_busybox(arch):
    """Make the busybox for an architecture of Linux that only the test matrix has, in the cache, unless it is there."""
    folder = CACHE / f"busybox-{arch}"
    given = TOOLCHAIN == "host" and os.environ.get("BUSYBOX")
    if arch in BUSYBOXES and not given and not os.access(folder / "bin/busybox", os.X_OK):
        with locked(f"busybox for {arch}", f"busybox-{arch}.lock"):
            put_busybox(*BUSYBOXES[arch], folder)


def prepare_emulator(arch):
    """Put the emulator for an architecture of Linux that only the test matrix has into the root, whose libraries it uses,
    unless it is there."""
    files = EMULATORS.get(arch, {}) if TOOLCHAIN == "root" else {}
    if not all(os.access(ROOT / name, os.R_OK) for name in files):
        with locked(f"emulator for {arch}", f"emulator-{arch}.lock"):
            for name, (package, file) in files.items():
                debian.fetch_file(f"{package} for {arch}", debian.machine(), package, file, ROOT / name,
                                  "look at the network and call this again")


def check_host():
    """Make sure that bubblewrap works. As root this installs it; another user needs an administrator for that."""
    if not shutil.which("bwrap"):
        if os.getuid():
            raise Refused('bubblewrap is missing; ask an administrator to run "apt-get install bubblewrap", or use '
                          "TOOLCHAIN=host")
        install = "apt-get install -y --no-install-recommends bubblewrap"
        step.must("installing bubblewrap", LOG / "host-tools.log", [
            "sh", "-c", f"{install} || {{ apt-get update && {install}; }}"], "install bubblewrap",
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    need_tool("bwrap", "bubblewrap")
    done = subprocess.run(["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "true"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Refused(f"bubblewrap does not work here ({done.stdout.strip()}); user namespaces must be allowed (in a "
                      "container: more privileges), or use TOOLCHAIN=host")


def prepare():
    """Make the root unless it is ready. Holds the lock of the cache."""
    if ready():
        return
    if STAMP.exists():
        say("the toolchain root is damaged or of an older recipe: making it again")
    check_host()
    need_space(4000, "the toolchain root")
    debian.fetch("toolchain root", debian.machine(), ["?essential", *PACKAGES], NEW)
    for command in (debian.bash(FILES), in_root_at(NEW, debian.bash(PROGRAMS), writable=True)):
        step.must("toolchain root: finish", LOG / "root-finish.log", command, "the toolchain root could not be made",
                  cwd=NEW)
    for arch in ("amd64", "arm64"):
        put_busybox(arch, debian.SUITE, NEW / f"opt/busybox-{arch.replace('amd64', 'x86_64')}")
    put_bindgen()
    (NEW / STAMP.name).write_text(f"{recipe()}\n", encoding="ascii")
    old = CACHE / "root.old"
    remove(old)
    if ROOT.exists():
        ROOT.rename(old)
    NEW.rename(ROOT)
    remove(old)
