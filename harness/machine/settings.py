# SPDX-License-Identifier: GPL-2.0
"""Folders, the kernel that is used, messages, and what is wrong use.

In the environment: VMAP_RUST_CACHE, TOOLCHAIN=host|root, KERNEL=SERIES, VMAP_RUST_LOGS."""

import dataclasses
import functools
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


class Refused(Exception):
    """Wrong use, or something is missing; the message is one line that says what to do. Exit code 1."""


class Skipped(Exception):
    """This machine cannot run it; the message says why. Exit code 4."""


def cpus():
    """Return how many CPUs this process may use, of which taskset leaves some."""
    return len(os.sched_getaffinity(0))


def say(text):
    """Print one line for the user to stderr, behind what was printed to stdout."""
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)


REPO = Path(__file__).resolve().parents[2]
CACHE = Path(os.path.realpath(os.environ.get("VMAP_RUST_CACHE")
                              or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vmap-rust"))
# Logs go to the folder of a whole test run, or to the cache's.
LOGS = Path(os.environ.get("VMAP_RUST_LOGS") or CACHE / "log")
# "root": the toolchain root that this makes; "host": the tools of the build host.
TOOLCHAIN = os.environ.get("TOOLCHAIN") or "root"
# Whether this process is in the toolchain root itself.
INSIDE = os.environ.get("VMAP_RUST_IN_ROOT") == "1"
# The toolchain root has the source of this series.
ROOT_KERNEL = "7.3"
# The series of Linux that the user has chosen. Make would take KERNEL for a variable of its own.
SERIES = os.environ.pop("KERNEL", "") or os.environ.get("VMAP_RUST_KERNEL") or ROOT_KERNEL
os.environ["VMAP_RUST_KERNEL"] = SERIES
# The source with the patches, and the folder that has a folder for each configuration.
TREE, BUILDS = CACHE / f"tree/v{SERIES}", CACHE / "build" / ("" if SERIES == ROOT_KERNEL else f"v{SERIES}")
# What kbuild gets, so that it takes clang and its tools.
LLVM = "LLVM=-22" if TOOLCHAIN == "root" else f"LLVM={os.environ.get('LLVM') or 1}"

# It is for this Python only, not for those of the commands that this one starts.
os.environ.pop("PYTHONHOME", None)


@dataclasses.dataclass(frozen=True)
class Linux:
    """A series of Linux for which there are patches."""

    series: str  # 7.3
    tested: str  # 7.3.4: what every suite ran on
    base: str  # the series whose patches it takes where it has none of its own, or ""

    @property
    def patches(self):
        """The folder of its patches."""
        return REPO / f"kernel-patches/v{self.series}"

    @property
    def tree(self):
        """The source with the patches."""
        return CACHE / f"tree/v{self.series}"


@functools.cache
def linux(series):
    """Return a series of Linux. Raises Refused if there are no patches for it."""
    meta = REPO / f"kernel-patches/v{series}/META"
    if not meta.is_file():
        known = sorted(path.parent.name[1:] for path in REPO.glob("kernel-patches/v*/META"))
        raise Refused(f"KERNEL={series} is unknown; there are patches for Linux {' '.join(known)}")
    values = dict(re.findall(r"^([A-Z][\w-]*):\s*(.*)$", meta.read_text(encoding="utf-8"), re.M))
    return Linux(values["Linux-Series"], values["Linux-Tested"], values.get("Based-On", ""))


def check_settings():
    """Raise Refused if kbuild cannot work with a path, or if TOOLCHAIN, KERNEL or JOBS is wrong."""
    if re.search(r"[\s:]", f"{CACHE}{REPO}"):
        raise Refused(f"kbuild cannot work in a path with spaces or colons: cache {CACHE}, repository {REPO}; move the "
                      "repository or set VMAP_RUST_CACHE")
    if TOOLCHAIN not in ("root", "host"):
        raise Refused(f"TOOLCHAIN={TOOLCHAIN} is unknown; use TOOLCHAIN=root (the default) or TOOLCHAIN=host")
    if not re.fullmatch(r"0*[1-9]\d{0,5}", os.environ.get("JOBS") or "1"):
        raise Refused(f"JOBS={os.environ['JOBS']} must be a whole number from 1, how many jobs a build runs at a time")
    linux(SERIES)


def make_cache():
    """Create the cache folder. Raises Refused if that is not possible, or if nothing can be written there."""
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=CACHE):
            pass
    except OSError as error:
        raise Refused(f"cannot write to the cache folder {CACHE} ({error}); set VMAP_RUST_CACHE to another one") from None


def remove(folder):
    """Remove a file or a folder, but nothing that is mounted in it. Raises Refused if that is not possible."""
    # It holds the locks (harness/machine/lock.py) if this program is killed.
    if subprocess.run(["rm", "-rf", "--one-file-system", folder], check=False, close_fds=False).returncode:
        raise Refused(f"{folder} cannot be removed")


def write(path, content):
    """Write a file, text or bytes, in one step: it always is the old one or the whole new one, also when several runs
    write it. Returns its path. Raises Refused if it cannot be written."""
    # Not by the number of the process: each entry to the toolchain root counts its own.
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        new.write_bytes(content.encode() if isinstance(content, str) else content)
        new.replace(path)
    except OSError as error:
        raise Refused(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        new.unlink(missing_ok=True)
    return path


def need_tool(tool, package=""):
    """Raise Refused unless a tool is in PATH. package: the Debian package that has it, if its name is another one."""
    if not shutil.which(tool):
        raise Refused(f"{tool} is missing; install it (Debian package {package or tool})")


def need_space(mib, what):
    """Raise Refused unless the disk of the cache has mib mebibytes free for something."""
    free = shutil.disk_usage(CACHE).free >> 20
    if free < mib:
        raise Refused(f"{what} needs {mib} MiB of disk, {CACHE} has {free} MiB free; free some, or set VMAP_RUST_CACHE to a "
                      "folder on a larger disk")


def git(folder, *words, check=True):
    """Return what git prints about a repository. check: raise CalledProcessError if it fails."""
    return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=check).stdout


def commit():
    """Return what is measured or tested: the commit, with "-dirty" when files differ from it, or "" without git."""
    return git(REPO, "-c", "safe.directory=*", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*",
               check=False).strip()


def kernel_version(folder):
    """Return the version of the kernel source in a folder (7.3.4, or 7.3 if SUBLEVEL is 0), or ""."""
    file = Path(folder) / "Makefile"
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    found = re.search(r"^VERSION = (\d+)\nPATCHLEVEL = (\d+)\nSUBLEVEL = (\d*)$", text, re.M)
    return ".".join(found.groups()).removesuffix(".0").removesuffix(".") if found else ""


def check_version(series, version, what, hint=""):
    """Raise Refused, with the hint, unless a kernel is of a series; say so if it is not the release that was tested."""
    if not f"{version}.".startswith(f"{series.series}."):
        raise Refused(f"Linux {version} is not supported: the patches are for {series.series} (tested with "
                      f"{series.tested}){hint}")
    if version != series.tested:
        say(f"note: {what} is {version}; the patches were tested with {series.tested}")
