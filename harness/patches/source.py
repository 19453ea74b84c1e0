# SPDX-License-Identifier: GPL-2.0
"""Unpacks the kernel source into the cache.

src/linux-VERSION is complete when src/linux-VERSION.stamp exists. Nothing writes to it after that: each build has a
separate folder, and trees replace files instead of changing them."""

import os
from pathlib import Path

from ..toolchain import debian
from ..machine import step
from ..toolchain.enter import in_root
from .series import beside, read
from ..machine.settings import CACHE, INSIDE, TOOLCHAIN, Refused, check_version, kernel_version, need_space, remove, write


def archive(kernel):
    """Return the path of the archive of the kernel's source: the user's, or that of a Debian package, which may not be
    there yet."""
    own, name = os.environ.get("KERNEL_TARBALL", ""), f"linux-source-{kernel.series}.tar.xz"
    # Commands in the root find the source that was made of it, and do not see the file.
    if own and not INSIDE and not os.access(own, os.R_OK):
        raise Refused(f"KERNEL_TARBALL={own} cannot be read")
    return Path(os.path.realpath(own)) if own else Path("/usr/src" if TOOLCHAIN == "host" else CACHE) / name


def facts(file):
    """Return what a stamp says of an archive."""
    info = os.stat(file)
    return f"tarball={file}\nsize={info.st_size}-{int(info.st_mtime)}\n"


def find(kernel):
    """Return the folder of a complete source from the archive that would be used now, or None. Another archive (a newer
    package, another KERNEL_TARBALL) means another source."""
    file = archive(kernel)
    for stamp in sorted((CACHE / "src").glob(f"linux-{kernel.series}*.stamp")):
        if (facts(file) if file.exists() else f"/{file.name}\n") in read(stamp):
            return stamp.with_suffix("")
    return None


def prepare(kernel):
    """Unpack the source of a kernel, whose own checksums detect damage, unless it is there; returns its folder. Holds the
    lock of the cache."""
    if found := find(kernel):
        return found
    file, new, package = archive(kernel), CACHE / "src/unpack.new", f"linux-source-{kernel.series}"
    give = f"give KERNEL_TARBALL=/path/to/linux-{kernel.tested}.tar.xz"
    remove(new)
    need_space(2500, "the kernel source")
    if not file.exists() and TOOLCHAIN == "host":
        raise Refused(f"no kernel source: {file} is missing; install the package {package}, or {give}")
    if not file.exists():
        debian.fetch_file("kernel source", debian.machine(), package, f"usr/src/{file.name}", file,
                          f"look at the network and call this again, or {give}")
    new.mkdir(parents=True)
    try:
        # In the toolchain root: a minimal build host has no xz. A quarter of the source is generated headers of one driver,
        # which no configuration builds.
        step.must(f"kernel source: unpack {file.name}", CACHE / "log/source.log", in_root(
            "tar", "-x", "--strip-components=1", "--no-same-owner", "-C", new, "--exclude=*/amd/include/asic_reg",
            "-f", file, binds=["--ro-bind", file, file]),
            f"{file} cannot be unpacked: it is damaged, or the disk is full; free some disk, or remove a damaged file of the "
            f"cache and call this again, or {give}")
        version = kernel_version(new)
        if not version:
            raise Refused(f"{file} holds no kernel source")
        check_version(kernel, version, "the kernel source", f"; {give}")
    except Refused:
        remove(new)
        raise
    folder = CACHE / f"src/linux-{version}"
    old = [*(CACHE / "src").glob(f"linux-{kernel.series}*.stamp")]
    # A tree shares its files with the source that is removed here.
    for stamp in [*old, *kernel.tree.parent.glob(f"{kernel.tree.name}*.source"),
                  *kernel.tree.parent.glob(f"{kernel.tree.name}*.stamp")]:
        stamp.unlink(missing_ok=True)
    for path in (folder, *(stamp.with_suffix("") for stamp in old)):
        remove(path)
    new.rename(folder)
    write(beside(folder, "stamp"), facts(file))
    return folder
