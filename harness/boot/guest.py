# SPDX-License-Identifier: GPL-2.0
"""One boot of a kernel in QEMU or as user-mode Linux: its command, its time limit, its log and the verdict."""

import dataclasses
import os
import signal
import time

from ..machine import step
from .console import count_checks
from .kernels import Kernel
from ..patches.series import read
from ..machine.settings import REPO, Refused, cpus, say
from .verdict import Expected, judge

ACCELERATORS = {"icount": ["-accel", "tcg", "-icount", "shift=0,sleep=off"], "threads": ["-accel", "tcg,thread=multi"],
                "turns": ["-accel", "tcg,thread=single"]}
# A guest whose time is that of a busy build host does everything later. A hang is left to the limit of the run.
PATIENCE = "kunit.timeout=7200 rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60"
# Tests that are built in would run before the first process.
NO_TESTS = "kunit.enable=0 test_vmalloc.run_test_mask=0"


@dataclasses.dataclass
class Boot:
    """What to boot. Sizes are in MiB, times in seconds."""

    kernel: Kernel
    expected: Expected
    cpus: int = 1
    mem: int = 2048
    nodes: int = 1
    append: str = ""
    own_append: bool = True  # also what the configuration appends
    initramfs: str = ""
    timeout: int = 300
    accel: str = ""  # a key of ACCELERATORS
    cpu: str = ""  # of QEMU, instead of the configuration's
    plugin: str = ""  # a file of bench/plugin, and its options
    seed: int | None = None  # of QEMU's random numbers
    log: str = ""
    what: str = "boot"

    def __post_init__(self):
        self.log = str(self.log)
        if not self.accel:
            # A guest CPU that is preempted while it holds a spinlock stops all others: with more CPUs in the guest than
            # in the build host, a boot can take hours. Taking turns in one thread, the guest CPUs finish in seconds.
            self.accel = "threads" if self.cpus <= cpus() else "turns"

    def arguments(self):
        """Return the kernel command line."""
        allocator = self.expected.allocator
        words = ("panic=-1 oops=panic", "" if self.accel == "icount" else PATIENCE, self.kernel.append if self.own_append else "",
                 "" if allocator == "none" else f"vmap_allocator={allocator}", self.append)
        return " ".join(filter(None, words))

    def command(self):
        """Return the words of the command that boots the kernel."""
        kernel, arguments = self.kernel, self.arguments()
        if not kernel.image.is_file():
            raise Refused(f"no kernel at {kernel.image}; run scripts/build {kernel.name}")
        if read(kernel.folder / ".vmap-rust-repo").strip() != str(REPO):
            raise Refused(f"another clone has built {kernel.folder} meanwhile; build it again (scripts/build {kernel.name}), "
                          "or give this clone a cache of its own (VMAP_RUST_CACHE)")
        if kernel.arch == "um":
            if self.accel == "icount" or self.nodes > 1:
                raise Refused("user-mode Linux takes neither --icount nor --nodes")
            # User-mode Linux has more than one CPU in seccomp mode only.
            return [kernel.image, f"mem={self.mem}M", "con0=fd:0,fd:1", "seccomp=on", f"ncpus={self.cpus}",
                    *([f"initrd={self.initramfs}"] if self.initramfs else []), *arguments.split()]
        # By default the machine of 32-bit arm has addresses above 4 GiB, which only kernels with LPAE can use.
        emulator, machine, cpu, console = {
            "arm64": ("aarch64", ",".join(filter(None, ("virt,gic-version=3", kernel.machine))), "cortex-a72", "ttyAMA0"),
            "arm": ("arm", "virt,highmem=off", "cortex-a15", "ttyAMA0"),
            "riscv": ("riscv64", "virt", "max", "ttyS0"),
            "loongarch": ("loongarch64", "virt", "max", "ttyS0"),
            "x86_64": ("x86_64", "q35", "max", "ttyS0")}[kernel.arch]
        optional = {"-initrd": self.initramfs, "-seed": self.seed, "-plugin": self.plugin}
        return [f"qemu-system-{emulator}", "-machine", machine, "-cpu", self.cpu or kernel.cpu or cpu, "-nodefaults",
                "-display", "none", "-serial", "stdio", "-no-reboot", "-m", str(self.mem), "-smp", str(self.cpus),
                "-kernel", kernel.image, "-append", f"console={console} {arguments}",
                *(word for name, value in optional.items() if value not in ("", None) for word in (name, str(value))),
                *self.node_arguments(), *ACCELERATORS[self.accel]]

    def node_arguments(self):
        """Return the words that divide CPUs and memory evenly between NUMA nodes."""
        words, nodes = [], self.nodes
        for i in range(nodes if nodes > 1 else 0):
            size = self.mem * (i + 1) // nodes - self.mem * i // nodes
            words += ["-object", f"memory-backend-ram,id=node{i},size={size}M",
                      "-numa", f"node,memdev=node{i},cpus={self.cpus * i // nodes}-{self.cpus * (i + 1) // nodes - 1}"]
        return words

    def run(self, result=None):
        """Boot; returns the reasons to fail. How the emulator ended, if that was wrong, is the first. result: counts the boot as
        one check."""
        command = self.command()
        expected = dataclasses.replace(self.expected, allow=[*self.expected.allow, *self.kernel.allow])
        start = time.monotonic()
        # A boot without a root file system ends with a panic, which aborts user-mode Linux.
        code = step.Step(f"{self.what} on {self.kernel.name}, {self.expected.allocator}", self.log, command,
                         good=(0, -signal.SIGABRT) if self.kernel.arch == "um" else (0,)).wait(self.timeout)
        reasons = judge(self.log, expected)
        if code is None:
            reasons.insert(0, f"timeout: the guest was ended after {self.timeout} s ({time.monotonic() - start:.0f} s with "
                           "other work on the build host)")
        elif code and self.kernel.arch != "um":
            reasons.insert(0, f"the emulator ended with exit code {code}")
        say(f"log: {self.log}")
        if result:
            rest = [f"and {len(reasons) - 6} more"] if len(reasons) > 6 else []
            result.add(not reasons, os.path.basename(self.log), "\n".join([*reasons[:6], *rest]) or None)
        return reasons


def boot_of(args, what, expected, append="", **more):
    """Return the Boot that the options of a scenario ask for.

    what: the load, for messages and the log's name: a second boot with the same words needs another one (log=); append:
    kernel arguments before those of the options; more: of Boot."""
    log = args.logs / f"{what}-{args.kernel.name}-{expected.allocator}.log"
    common = {name: value for name in ("kernel", "cpus", "mem", "nodes", "timeout", "accel")
              if (value := getattr(args, name)) is not None}
    return Boot(**{**common, "log": log, **more}, expected=expected, what=what, append=f"{append} {args.append}".strip())


def boot_script(result, args, script, allocator, initramfs, append="", checks=(), allow=(), label="", **more):
    """Boot once with a script of qemu/, count the verdict and the checks that the guest must report; returns the log.

    append: what the script and the kernel get; allow: expressions of lines that are no failure; label: what the checks are
    counted for, if it is not the allocator; more: of Boot."""
    boot = boot_of(args, script, Expected(allocator, "^guest: done", list(allow)),
                   f"{NO_TESTS} GUEST_RUN={script} ALLOCATOR={allocator} {append}".strip(), initramfs=initramfs, **more)
    boot.run(result)
    count_checks(result, label or allocator, boot.log, checks)
    return boot.log


def invariants(args, allocator, suffixes=("",)):
    """Return the names of the checks that invariants_check of qemu/functions.sh reports. suffixes: one for each call."""
    if allocator != "rust" or not args.kernel.has("VMAP_RUST_DEBUG"):
        return []
    names = ["validate", "checker"] if "vmap_rust.check=1" in args.append else ["validate"]
    return [name + suffix for suffix in suffixes for name in names]
