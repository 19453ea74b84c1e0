# SPDX-License-Identifier: GPL-2.0
"""Packages of Debian, for the toolchain root, the guest images and other programs of the cache.

The apt of the build host downloads them, with lists of its own in the cache, and checks their signatures and hashes.
They are only unpacked: no script of a package runs, so any user can do it. What is downloaded stays until all is
unpacked, so that a run that was interrupted does not download twice."""

import getpass
import os
import re
import subprocess
from pathlib import Path

from ..machine import step
from ..machine.settings import CACHE, Refused, need_tool, remove

SUITE = "trixie"
# What is too old in the suite, and comes from its backports.
BACKPORTS = "rustc rust-src rustfmt rust-clippy cargo libstd-rust-* linux-libc-dev"
KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"
LOG = CACHE / "log"
# Arguments: the folder of the packages, the new folder, a pattern of names that are left out. Texts, translations and the
# source of rustc itself, a fifth of the toolchain root, are not kept.
UNPACK = r"""
mkdir -p "$2"
for deb in "$1"/*.deb; do
    ! [[ ${deb##*/} =~ ^($3) ]] || continue
    dpkg-deb -x "$deb" "$2"
    rm -rf "$2"/usr/share/{doc,info,locale,man} "$2"/usr/src/rustc-*/{compiler,src}
done
chmod -R u+rwX "$2"
"""
# Arguments: a new folder, the path of a file in a package, the command that downloads the package.
EXTRACT = r"""
mkdir -p "$1"
cd "$1"
"${@:3}"
dpkg-deb --fsys-tarfile *.deb | tar -x -O "./$2" >file
chmod 755 file
"""


def bash(script, *words):
    """Return the command that runs lines of bash, which end with the first error."""
    return ["bash", "-euo", "pipefail", "-c", script, "bash", *words]


def machine():
    """Return the architecture of the build host, as Debian calls it."""
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()


def mirror():
    """Return the address of the Debian mirror that the apt of this machine uses. Raises Refused if it has none."""
    rows = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(LABEL)",
                           "Identifier: Packages"], capture_output=True, text=True, check=False).stdout
    own = re.search(r"^VERSION_CODENAME=(.*)$", Path("/etc/os-release").read_text(encoding="utf-8"), re.M)
    # Without downloaded lists there is no label yet; the release's own name is enough.
    found = re.search(rf"^(\S+) (?:\S+ Debian|{own[1] if own else 'stable'} *)$", rows, re.M)
    if not found:
        raise Refused("no Debian mirror in this machine's apt configuration (see apt-get indextargets); add one, or use "
                      "TOOLCHAIN=host")
    return found[1]


def apt(arch, *words, suite=SUITE, archives=CACHE):
    """Return the command that runs the apt of the build host on files in the cache only.

    arch: as Debian calls it; suite: of Debian; archives: the folder to which packages are downloaded."""
    base = CACHE / f"apt/{suite}-{arch}"
    values = {"Dir::State": base, "Dir::State::status": base / "status", "Dir::Cache": base / "cache",
              "Dir::Cache::archives": archives, "Dir::Etc::sourcelist": base / "sources.list",
              "Dir::Etc::sourceparts": "/dev/null", "Dir::Etc::preferences": base / "preferences",
              "Dir::Etc::preferencesparts": "/dev/null", "APT::Architecture": arch, "APT::Architectures::": arch,
              "APT::Sandbox::User": getpass.getuser(), "APT::Install-Recommends": "false", "APT::Default-Release": "",
              # A mirror that stands still, as a snapshot does, has valid signatures, too.
              "Acquire::Check-Valid-Until": "false",
              "APT::Update::Error-Mode": "any", "Acquire::Languages": "none", "Acquire::Retries": "3"}
    return ["apt-get", "-q", "-y", *(word for name, value in values.items() for word in ("-o", f"{name}={value}")), *words]


def update(what, arch, suite):
    """Download the lists of packages of an architecture."""
    need_tool("apt-get", "apt; on other systems use TOOLCHAIN=host")
    if not os.access(KEY, os.R_OK):
        raise Refused(f"{KEY} is missing; install the Debian package debian-archive-keyring")
    base, address = CACHE / f"apt/{suite}-{arch}", mirror()
    for name in ("lists/partial", "cache"):
        (base / name).mkdir(parents=True, exist_ok=True)
    (base / "status").write_text("", encoding="ascii")
    # Only the toolchain needs backports.
    names = [suite, f"{suite}-backports"] if (suite, arch) == (SUITE, machine()) else [suite]
    (base / "sources.list").write_text("".join(f"deb [signed-by={KEY}] {address} {name} main\n" for name in names),
                                       encoding="ascii")
    (base / "preferences").write_text(f"Package: {BACKPORTS}\nPin: release n={SUITE}-backports\nPin-Priority: 990\n",
                                      encoding="ascii")
    step.must(f"{what}: package lists", LOG / "package-lists.log", apt(arch, "update", suite=suite),
              "the package lists could not be downloaded; look at the network and call this again")


def fetch(what, arch, packages, folder, without="$^", suite=SUITE):
    """Unpack packages, and all that they depend on, into a new folder.

    what: for the lines of progress; without: a pattern of names of packages that are left out. Raises Refused."""
    debs, log = folder.with_name(f"{folder.name}.debs"), LOG / f"{what.replace(' ', '-')}.log"
    update(what, arch, suite)
    (debs / "partial").mkdir(parents=True, exist_ok=True)
    for word, more in (("autoclean", ()), ("install", ("--download-only", *packages))):
        step.must(f"{what}: download", log, apt(arch, word, *more, suite=suite, archives=debs),
                  "packages could not be downloaded; look at the network and call this again: it goes on from there")
    remove(folder)
    try:
        step.must(f"{what}: unpack", log, bash(UNPACK, debs, folder, without),
                  "packages could not be unpacked; free some disk and call this again")
    finally:
        remove(debs)


def fetch_file(what, arch, package, name, target, hint, suite=SUITE):
    """Download a package and make target the file of that name in it. hint: what to do if that fails. Raises Refused."""
    new = target.with_name(f"{target.name}.new")
    remove(new)
    update(what, arch, suite)
    target.parent.mkdir(parents=True, exist_ok=True)
    command = bash(EXTRACT, new, name, *apt(arch, "download", package, suite=suite))
    try:
        step.must(f"{what}: download", LOG / f"{package}.log", command,
              f"the package {package} could not be downloaded; {hint}")
        (new / "file").replace(target)
    finally:
        remove(new)
