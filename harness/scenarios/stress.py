# SPDX-License-Identifier: GPL-2.0
"""loads the guest image with stress-ng, modules, BPF, CPU hotplug, memory groups and suspend

The loads: stress-ng (vm, mmap, fork, xattr, iomix, seccomp, module), module and BPF loops, test_vmalloc, CPU 1 off and
on, a memory group that runs out of memory, suspend to idle. Meanwhile readers read /proc/vmallocinfo, /proc/kcore and
debugfs.
"""

from . import CHECKER
from ..guest import boot, count_checks
from ..initramfs import make_guest_image
from ..options import whole
from ..run import each_allocator
from ..settings import LOGS, say
from ..soak import judge_logs
from ..verdict import Expected

DEFAULTS = {"kernel": "x86_64-user", "allocators": ("rbtree", "rust", "both"), "allocator": "both", "cpus": 2,
            "prepare": ["guest-image"]}
FULL = ("stress", f"--allocator rust {CHECKER}")
# What a guest must report as "stress: ok|FAIL|skip NAME"; a check without a report is a failure.
WATCHED = "info-shape info-reads kcore-bytes kcore-segments debugfs hotplug".split()
PHASES = "vm mmap fork xattr iomix seccomp module-ng modules bpf vmalloc memcg suspend all".split()
PHASES += WATCHED + ["areas"]
SOAKED = "stress-ng modules bpf vmalloc memcg suspend".split() + WATCHED


def options(parser):
    """Add the time of the load."""
    parser.add_argument("--soak", action="store_true",
                        help="all loads at the same time, sampled every 10 s: memory must stay flat; plots the samples")
    parser.add_argument("--minutes", type=whole(1, 1440), metavar="N",
                        help="minutes of load (default: 4, with --soak 30)")


def check(args):
    """Complete what follows from other options."""
    args.minutes = args.minutes or (30 if args.soak else 4)
    args.timeout = args.timeout or args.minutes * 180 + 600


def run(args, result):
    """Boot each allocator with the load."""
    kernel, script, logs = args.kernel, "soak" if args.soak else "stress", []
    initramfs = make_guest_image(kernel)
    for allocator in each_allocator(args):
        log = boot(result, args, script, Expected(allocator, "^stress: done"),
                   f"kunit.enable=0 tsc=reliable GUEST_RUN={script} "
                   f"STRESS_SECONDS={args.minutes * 60}", initramfs=initramfs)
        checks = list(SOAKED if args.soak else PHASES)
        if allocator == "rust":
            checks += ["validate"] + ["checker"] * ("vmap_rust.check=1" in args.append)
        count_checks(result, allocator, "stress", log, checks)
        logs.append(log)
    if args.soak:
        picture = LOGS / f"soak-{kernel.name}.png"
        judge_logs(result, logs, str(picture))
        say(f"plot: {picture}")
