# SPDX-License-Identifier: GPL-2.0
"""One boot of a kernel in QEMU or as user-mode Linux: its command, its time limit, its log and the verdict."""

import dataclasses
import os

from . import step
from .kernels import Kernel
from .settings import LOGS, Refused, say
from .verdict import Expected, judge

ACCELERATORS = {"icount": ["-accel", "tcg", "-icount", "shift=0,sleep=off"], "threads": ["-accel", "tcg,thread=multi"],
                "turns": ["-accel", "tcg,thread=single"], "kvm": ["-accel", "kvm", "-cpu", "host"]}
# Tests that are built in would run before the first process.
NO_TESTS = "kunit.enable=0 test_vmalloc.run_test_mask=0"


@dataclasses.dataclass
class Boot:
    """What to boot. Sizes are in MiB, times in seconds."""

    kernel: Kernel
    expected: Expected
    boot_value: str = ""  # of vmap_allocator=, instead of the expected allocator; "-" passes nothing
    cpus: int = 1
    mem: int = 2048
    nodes: int = 1
    append: str = ""
    own_append: bool = True  # also what the configuration appends
    initramfs: str = ""
    timeout: int = 300
    accel: str = ""
    cpu: str = ""
    plugin: str = ""
    seed: int | None = None
    prealloc: bool = False
    log: str = ""
    what: str = "boot"

    def __post_init__(self):
        self.log = str(self.log)
        if not self.accel:
            # A guest CPU that is preempted while it holds a spinlock stops all others: with more CPUs in the guest than
            # in the build host, a boot can take hours. Taking turns in one thread, the guest CPUs finish in seconds.
            self.accel = "threads" if self.cpus <= os.cpu_count() else "turns"

    def arguments(self):
        """Return the kernel command line."""
        value = self.boot_value or self.expected.allocator
        allocator = "" if value in ("none", "-") else f"vmap_allocator={value}"
        return " ".join(x
                        for x in ("panic=-1 oops=panic", self.kernel.append * self.own_append, allocator, self.append)
                        if x)

    def command(self):
        """Return the words of the command that boots the kernel."""
        kernel, arguments = self.kernel, self.arguments()
        if not kernel.image.is_file():
            raise Refused(f"no kernel at {kernel.image}; run scripts/build {kernel.name}")
        if self.nodes > self.cpus:
            raise Refused(f"--nodes {self.nodes} needs at least as many CPUs, not --cpus {self.cpus}")
        if self.nodes > 1 and self.prealloc:
            raise Refused(f"--prealloc needs one node, not --nodes {self.nodes}")
        if kernel.arch == "um":
            if self.accel == "icount" or self.prealloc or self.nodes > 1:
                raise Refused("user-mode Linux takes neither --icount nor --prealloc nor --nodes")
            # User-mode Linux has more than one CPU in seccomp mode only.
            return [kernel.image, f"mem={self.mem}M", "con0=fd:0,fd:1", "seccomp=on", f"ncpus={self.cpus}",
                    *([f"initrd={self.initramfs}"] if self.initramfs else []), *arguments.split()]
        machine, console = {
            "arm64": (["qemu-system-aarch64", "-machine",
                       ",".join(x for x in ("virt,gic-version=3", kernel.machine) if x),
                       "-cpu", self.cpu or kernel.cpu or "cortex-a72"], "ttyAMA0"),
            # By default the machine has addresses above 4 GiB, which only kernels with LPAE can use.
            "arm": (["qemu-system-arm", "-machine", "virt,highmem=off"], "ttyAMA0"),
            "x86_64": (["qemu-system-x86_64", "-machine", "q35", "-cpu", self.cpu or "max"], "ttyS0"),
        }[kernel.arch]
        return [*machine, "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot", "-m", str(self.mem),
                "-smp", str(self.cpus),
                "-kernel", kernel.image, "-append", f"console={console} {arguments}",
                *(["-initrd", self.initramfs] if self.initramfs else []),
                *([] if self.seed is None else ["-seed", str(self.seed)]),
                *(["-plugin", self.plugin] if self.plugin else []),
                *(["-object", f"memory-backend-ram,id=ram,size={self.mem}M,prealloc=on", "-machine",
                   "memory-backend=ram"]
                  if self.prealloc else []), *self.node_arguments(), *ACCELERATORS[self.accel]]

    def node_arguments(self):
        """Return the words that divide CPUs and memory evenly between NUMA nodes."""
        words, nodes = [], self.nodes
        for i in range(nodes if nodes > 1 else 0):
            size = self.mem * (i + 1) // nodes - self.mem * i // nodes
            words += ["-object", f"memory-backend-ram,id=node{i},size={size}M",
                      "-numa", f"node,memdev=node{i},cpus={self.cpus * i // nodes}-{self.cpus * (i + 1) // nodes - 1}"]
        return words

    def run(self):
        """Boot; returns the reasons to fail. How the emulator ended, if that was wrong, is the first."""
        command = self.command()
        try:
            os.makedirs(os.path.dirname(self.log) or ".", exist_ok=True)
            with open(self.log, "wb"):
                pass
        except OSError:
            raise Refused(f"cannot write the log {self.log}; it must be in the current folder, the repository or the "
                          "cache") from None
        code = step.run(f"{self.what} {self.kernel.name}, {self.expected.allocator}, {self.cpus} CPU", self.log,
                        command, self.timeout)
        expected = dataclasses.replace(self.expected, allow=[*self.expected.allow, *self.kernel.allow])
        reasons = judge(self.log, expected)
        if code is None:
            reasons.insert(0, f"timeout: the guest was still running after {self.timeout} s and was ended")
        elif code and self.kernel.arch != "um":
            reasons.insert(0, f"the emulator ended with exit code {code}")
        say(f"log: {self.log}")
        return reasons


def verdict(reasons):
    """Return the text of a verdict: PASS, or FAIL with up to six reasons."""
    if not reasons:
        return "PASS"
    more = [f"and {len(reasons) - 6} more"] if len(reasons) > 6 else []
    return "\n     ".join([f"FAIL {reasons[0]}", *reasons[1:6], *more])


def boot(result, args, what, expected, append="", **more):
    """Boot once as the options of a scenario say, and count the verdict as one check of the result. Returns the log.

    what: the load, for messages and the log's name; append: kernel arguments before those of the options; more: of
    Boot."""
    log = args.log or LOGS / f"{what}-{args.kernel.name}-{expected.allocator}.log"
    common = {name: getattr(args, name) for name in ("kernel", "cpus", "mem", "nodes", "timeout", "accel")}
    one = Boot(**{**common, "log": log, **more}, expected=expected, what=what, append=f"{append} {args.append}".strip())
    reasons = one.run()
    result.logs.append(one.log)
    result.add(not reasons, f"verdict {os.path.basename(one.log)}", verdict(reasons))
    return one.log


def boot_script(result, args, script, allocator, initramfs, append="", allow=(), **more):
    """Boot once with a script of qemu/ and count the verdict; returns the log. append: what the script and the kernel
    get; allow: expressions of lines that are no failure; more: of Boot."""
    return boot(result, args, script, Expected(allocator, "^guest: done", list(allow)),
                f"{NO_TESTS} GUEST_RUN={script} ALLOCATOR={allocator} {append}".strip(), initramfs=initramfs, **more)
