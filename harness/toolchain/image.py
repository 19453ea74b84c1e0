# SPDX-License-Identifier: GPL-2.0
"""Makes the guest images: the Debian user space of the guests that run stress-ng and the kernel's own tests (x86_64), and
that of "scripts/bench programs" and of random system calls (arm64).

An image is the folder NAME of the cache and its archive NAME.cpio.zst; both are complete when NAME/.stamp has the hash of
the recipe."""

import dataclasses
import hashlib
import os
from pathlib import Path

from . import debian
from ..machine import step
from .enter import in_root
from ..machine.lock import locked
from ..machine.settings import CACHE, REPO, Refused, need_space, remove

# Dependencies that only graphics stressors load.
WITHOUT = ("libllvm|mesa-|libz3|libxml2|libegl-mesa|libx11|libxcb|libxau|libxdmcp|libxshmfence|libwayland|libsensors|"
           "libdrm-|libpciaccess|openssl-provider|debconf|libedit|libpam-runtime|init-system")
# What no guest reads.
UNREAD = ("usr/share/doc usr/share/man usr/share/locale usr/share/info usr/share/i18n usr/share/common-licenses "
          "usr/share/lintian usr/share/bash-completion usr/share/zoneinfo usr/lib/x86_64-linux-gnu/gconv "
          "usr/lib/x86_64-linux-gnu/perl-base").split()
# Half of the tree of programs, which each boot would unpack. tcc needs libtcc1.a and libc_nonshared.a.
PROGRAMS_UNREAD = ("usr/lib/python3.13 usr/bin/python3.13 " + " ".join(f"usr/lib/aarch64-linux-gnu/{name}" for name in (
    "gconv security libc.a libm-2.41.a libcrypt.a libmvec.a libicudata.so.76.1 libicui18n.so.76.1").split())).split()
# Makes what the scripts of the packages would have made. Arguments: what no guest reads.
FINISH = """
mkdir -p dev proc sys tmp run root mnt opt/bin
rm -rf "$@"
[ -e etc/passwd ] || echo root:x:0:0:root:/root:/bin/bash >etc/passwd
[ -e etc/group ] || echo root:x:0: >etc/group
[ -e usr/bin/sh ] || ln -s bash usr/bin/sh
[ -e usr/bin/awk ] || ln -s gawk usr/bin/awk
"""
# Arguments: the archive, and what find leaves out of it.
PACK = 'find . "${@:2}" ! -name .stamp -print0 | cpio --quiet -o -0 -H newc -R 0:0 | zstd -q -T0 -9 -f -o "$1"'


@dataclasses.dataclass(frozen=True)
class Image:
    """What an image is made of."""

    arch: str  # as Debian calls it
    packages: str
    pruned: tuple  # what find leaves out of the archive
    unread: list
    sources: tuple = ()  # programs in C that are compiled for it

    def recipe(self):
        """Return the hash of the recipe: another hash means another image."""
        texts = [(REPO / file).read_text(encoding="utf-8") for file in self.sources]
        rows = [debian.SUITE, WITHOUT, FINISH, PACK, str(self), *texts]
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


IMAGES = {
    # Programs that scripts in the guest run; drgn for tools/vmap on /proc/kcore.
    "guest-image": Image("amd64", """base-files bash coreutils util-linux mount kmod procps grep sed gawk findutils gzip
        libc-bin busybox-static stress-ng trinity python3-drgn""",
        ("-path", "./usr/include", "-prune", "-o", "!", "-name", "*.a"), UNREAD,
        tuple(sorted(str(path.relative_to(REPO)) for path in REPO.glob("qemu/guest/*.c")))),
    "programs-image": Image("arm64", """base-files bash coreutils util-linux mount kmod procps grep sed gawk findutils
        libc-bin libc6-dev linux-libc-dev tcc iproute2 iptables stress-ng trinity rt-tests
        xfsprogs erofs-utils""", ("-true",), [*UNREAD, *PROGRAMS_UNREAD])}


def ready(name):
    """Tell whether an image is that of its recipe. Needs no lock: the stamp is written last."""
    stamp = CACHE / name / ".stamp"
    return stamp.is_file() and stamp.read_text(encoding="ascii") == IMAGES[name].recipe() and \
        (CACHE / f"{name}.cpio.zst").is_file()


def prepare(name):
    """Make an image unless it is ready."""
    image, tree, archive, new = IMAGES[name], CACHE / name, CACHE / f"{name}.cpio.zst", CACHE / f"{name}.new"
    if ready(name):
        return
    with locked(name, f"{name}.lock"):
        if ready(name):
            return
        if image.sources and os.uname().machine != "x86_64":
            raise Refused("the guest image has programs for x86_64; use an x86_64 build host")
        commands = [debian.bash(FINISH, *image.unread), *(in_root(
            "gcc", "-O2", "-Wall", "-Werror", "-static", "-o", f"opt/bin/{Path(file).stem}", REPO / file, cwd=new)
            for file in image.sources), in_root(*debian.bash(PACK, f"{archive}.new", *image.pruned), cwd=new)]
        need_space(1000, "the guest image")
        debian.fetch("guest image", image.arch, image.packages.split(), new, WITHOUT)
        for number, command in enumerate(commands, 1):
            step.must(f"guest image: {number} of {len(commands)}", CACHE / f"log/{name}-{number}.log", command,
                      "the guest image could not be made", cwd=new)
        remove(tree)
        Path(f"{archive}.new").replace(archive)
        (new / ".stamp").write_text(image.recipe(), encoding="ascii")
        new.rename(tree)
