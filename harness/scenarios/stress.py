# SPDX-License-Identifier: GPL-2.0
"""loads the guest image with stress-ng, modules, BPF, CPU hotplug, memory groups and suspend

One kind of load after the other for 16 s each: stress-ng (vm, mmap, fork, xattr, iomix, seccomp, module), module and
BPF loops, test_vmalloc, a memory group that runs out of memory, suspend to idle; for the rest of the time all at once.
Meanwhile CPU 1 goes off and on, and readers read /proc/vmallocinfo, /proc/kcore and debugfs. From 15 minutes on (a
soak), memory must stay flat while all run at once, and a figure (.svg) is drawn.
"""

from . import CHECKER
from ..guest import boot_script, invariants
from ..initramfs import make_guest_image
from ..options import whole
from ..run import each_allocator
from ..samples import judge, plot, read_samples
from ..settings import LOGS, say

DEFAULTS = {"kernel": "x86_64-user", "allocators": ("rbtree", "rust", "both"), "allocator": "both", "cpus": 2,
            "mem": 2048, "guest_image": True}
FULL = ("stress", f"--allocator rust {CHECKER}")
USES = ("harness/samples.py",)
# What a guest must report; a check without a report is a failure.
CHECKS = ("vm mmap fork xattr iomix seccomp module-ng modules bpf vmalloc memcg suspend all "
          "info debugfs kcore hotplug areas").split()
SOAK = 15


def options(parser):
    """Add the time of the load."""
    parser.add_argument("--minutes", type=whole(4, 1440), default=5, metavar="N",
                        help=f"minutes of load; from {SOAK} on a soak (default: %(default)s)")


def check(args):
    """Complete what follows from other options."""
    args.timeout = args.timeout or args.minutes * 180 + 600


def run(args, result):
    """Boot each allocator with the load."""
    initramfs, runs = make_guest_image(args.kernel), {}
    for allocator in each_allocator(args):
        log = boot_script(result, args, "stress", allocator, initramfs, f"STRESS_SECONDS={args.minutes * 60}",
                          CHECKS + invariants(args, allocator))
        if args.minutes >= SOAK:
            runs[allocator] = read_samples(log)
            judge(result, allocator, runs[allocator])
    if any(runs.values()):
        picture = LOGS / f"soak-{args.kernel.name}.svg"
        plot(runs, picture)
        say(f"plot: {picture}")
