# SPDX-License-Identifier: GPL-2.0
"""What belongs to a figure: the host and the kernels it was taken with."""

import hashlib
import os
import platform
import re
import subprocess

from harness.settings import BUILDS, REPO


def _output(*command):
    """Return what a command prints, or an empty string."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def commit():
    """Return what is measured: the commit, with "-dirty" when files differ from it."""
    git = ("git", "-c", "safe.directory=*", "-C", str(REPO))
    head = _output(*git, "rev-parse", "HEAD").strip()
    return head + "-dirty" * bool(_output(*git, "status", "--porcelain")) if head else "unknown"


def memory_free():
    """Return MiB of memory that can be had."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return int(re.search(r"MemAvailable: +(\d+)", file.read())[1]) // 1024


def host():
    """Return what the host is, in one line without its name."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        model = re.search(r"^(?:model name|Model|Hardware)\s*: (.*)", file.read(), re.M)
    qemu = re.search(r"version (\S+)", _output("qemu-system-aarch64", "--version"))
    return (f"{model[1] if model else platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, "
            f"QEMU {qemu[1] if qemu else 'unknown'}")


def kernel(name):
    """Return the version, the configuration and the compilers of a kernel that was built, in one line."""
    folder = BUILDS / name
    config = (folder / ".config").read_text(encoding="utf-8")
    version = (folder / "include/config/kernel.release").read_text(encoding="ascii").strip()
    compilers = re.findall(r'CONFIG_(?:CC|RUSTC)_VERSION_TEXT="(.*)"', config)
    return "; ".join([version, *compilers, "configuration " + hashlib.sha256(config.encode()).hexdigest()[:16]])
