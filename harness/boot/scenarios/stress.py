# SPDX-License-Identifier: GPL-2.0
"""loads the guest image with stress-ng, modules, BPF, CPU hotplug and memory groups, all at the same time

stress-ng (vm, mmap, fork, vfork, xattr, iomix, seccomp), module and BPF loops, test_vmalloc, a memory group that runs out
of memory. Meanwhile CPU 1 goes off and on, and readers read /proc/vmallocinfo, /proc/kcore and debugfs. From 15 minutes
on (a soak), memory must stay flat, and drgn reads the kernel before and after.
"""

import re
import statistics

from ..console import read_text
from ..guest import boot_script, invariants
from ..initramfs import make_guest_image
from ...machine.options import whole
from ...machine.settings import Refused

DEFAULTS = {"kernel": "x86_64-user", "allocators": ("rbtree", "rust", "both"), "allocator": "both", "cpus": 2,
            "mem": 2048, "guest_image": True}
# What a guest must report; a check without a report is a failure.
CHECKS = "stress modules bpf memcg vmalloc info debugfs kcore hotplug areas".split()
SOAK = 15
ROUND = re.compile(r"^.*guest: round \d+: \d+ programs, the slowest took (\d+) us", re.M)
SAMPLE = re.compile(r"^.*sample: ((?:\w+=\d+ ?)+)$", re.M)
# Values of a sample: how much the median of the last quarter may be above that of the second one, as a part of it and in
# units (kB, pages or pieces). Free memory may be as much below.
BOUNDS = {"PageTables": (0.10, 1024), "VmallocUsed": (0.10, 2048), "SUnreclaim": (0.10, 4096), "MemFree": (-0.05, -16384),
          "areas": (0.10, 32), "stuck": (0.25, 32), "lazy_pages": (0.25, 8192), "blocks": (0.25, 8)}
OURS = ("stuck", "lazy_pages", "blocks")
# Fewer samples have no quarters worth comparing.
FEWEST = 12


def options(parser):
    """Add the time of the load."""
    parser.add_argument("--minutes", type=whole(1, 1440), default=3, metavar="N",
                        help=f"minutes of load; from {SOAK} on a soak (default: %(default)s)")


def check(args):
    """Complete what follows from other options. Raise Refused without the guest image."""
    if not args.kernel.guest_image:
        raise Refused(f"configuration {args.kernel.name} has no guest image, with the programs of this load; use x86_64-user")
    args.timeout = args.timeout or args.minutes * 180 + 600
    if args.minutes >= SOAK:
        # With the debug info of the kernel.
        args.mem = max(args.mem, 3072)


def judge(result, allocator, log):
    """Count one check for each value of the samples in a log. The first quarter is for warming up."""
    samples = [{name: int(value) for name, value in (word.split("=") for word in words.split())}
               for words in SAMPLE.findall(read_text(log))]
    if len(samples) < FEWEST:
        result.add(False, f"{allocator} samples", f"{len(samples)}; {FEWEST} are the fewest that can be judged")
        return
    size = len(samples) // 4
    slowest = [int(us) / 1000 for us in ROUND.findall(read_text(log))]
    half = len(slowest) // 2
    result.add(half > 0, f"{allocator} slowest load of a BPF program",
               f"{max(slowest[:half], default=0):,.0f} ms in the first half, {max(slowest[half:], default=0):,.0f} in the second")
    for name, (part, units) in BOUNDS.items():
        values = [sample[name] for sample in samples if name in sample]
        if len(values) < len(samples):
            # The rb-trees have no counters.
            if allocator == "rust" or name not in OURS:
                result.add(False, f"{allocator} {name}", "not in each sample")
            continue
        second, last = statistics.median(values[size:2 * size]), statistics.median(values[-size:])
        limit = second + part * second + units
        flat = last >= limit if units < 0 else last <= limit
        result.add(flat, f"{allocator} {name}", f"quarters 2 and 4: {second:,.0f}, {last:,.0f}, "
                   f"{'at least' if units < 0 else 'at most'} {limit:,.0f}")


def run(args, result):
    """Boot each allocator with the load."""
    is_soak = args.minutes >= SOAK
    initramfs = make_guest_image(args.kernel, debuggers=is_soak)
    more = ["drgn-before", "drgn"] if is_soak else []
    for allocator in args.allocators:
        log = boot_script(result, args, "stress", allocator, initramfs, f"STRESS_SECONDS={args.minutes * 60}",
                          CHECKS + more + invariants(args, allocator, ("-before", "")))
        if is_soak:
            judge(result, allocator, log)
