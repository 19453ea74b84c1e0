# SPDX-License-Identifier: GPL-2.0
"""What belongs to a figure: the host and the kernels it was taken with."""

import hashlib
import os
import platform
import re
import subprocess

from harness.settings import CACHE, REPO

# Options that change what an area costs.
COSTLY = re.compile(r"CONFIG_(PREEMPT|PREEMPT_LAZY|PREEMPT_RT|HZ|NR_CPUS|SMP|NUMA|ARM64_4K_PAGES|ARM64_VA_BITS|"
                    r"VMAP_\w+|KASAN|KFENCE|LOCKDEP|LOCK_STAT|DEBUG_VM|SLUB_\w+|SLAB_\w+|MEMCG|RUST_INLINE_HELPERS|"
                    r"HARDENED_USERCOPY|INIT_ON_\w+|FTRACE|KUNIT|CFI)")


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
    """Return what the host is, without its name."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        model = re.search(r"^(?:model name|Model|Hardware)\s*: (.*)", file.read(), re.M)
    with open("/proc/meminfo", encoding="ascii") as file:
        total = int(re.search(r"MemTotal: +(\d+)", file.read())[1]) // 1024
    qemu = re.search(r"version (\S+)", _output("qemu-system-aarch64", "--version"))
    return {"cpu": model[1] if model else platform.machine(), "cpus": os.cpu_count(), "mem_mib": total,
            "kernel": platform.release(), "qemu": qemu[1] if qemu else "unknown"}


def kernel(name):
    """Return version, configuration, compilers and sizes (bytes) of a kernel that was built."""
    folder = CACHE / "build" / name
    config = (folder / ".config").read_text(encoding="utf-8")
    version = (folder / "include/config/kernel.release").read_text(encoding="ascii").strip()
    compiler = re.findall(r'CONFIG_(?:CC|RUSTC)_VERSION_TEXT="(.*)"', config)
    image = folder / ("vmlinux" if (folder / "vmlinux").exists() else "linux")
    sizes = _output("llvm-size", image).split("\n")
    text, data, bss = (int(x) for x in sizes[1].split()[:3]) if len(sizes) > 1 else (0, 0, 0)
    options = dict(re.findall(r"^(CONFIG_\w+)=(.*)$", config, re.M))
    return {"version": version, "config_hash": hashlib.sha256(config.encode()).hexdigest()[:16],
            "compiler": "; ".join(compiler), "options": {k: v for k, v in options.items() if COSTLY.fullmatch(k)},
            "text": text, "data": data, "bss": bss}


def kvm_kernel():
    """Return (kernel configuration to boot with KVM, None) or (None, why not)."""
    machine = platform.machine()
    name = {"x86_64": "x86_64-bench", "aarch64": "arm64-bench"}.get(machine)
    if not name:
        return None, f"no configuration for {machine}"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return None, "/dev/kvm cannot be opened"
    qemu = "qemu-system-x86_64 -machine q35" if machine == "x86_64" else "qemu-system-aarch64 -machine virt"
    words = f"{qemu} -accel kvm -cpu host -nodefaults -display none -S -monitor stdio".split()
    try:
        tried = subprocess.run(words, input="quit\n", capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"QEMU does not start with KVM: {type(error).__name__}"
    if tried.returncode:
        said = tried.stderr.strip().split("\n")
        return None, f"QEMU does not start with KVM: {said[0] if said else tried.returncode}"
    return name, None
