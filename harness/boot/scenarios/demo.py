# SPDX-License-Identifier: GPL-2.0
"""shows that it works, and what it is good for, with each allocator: make demo

First measures both allocators in user space, in nanoseconds (scripts/bench native). With QEMU, boots the benchmark of the
kernel twice for each allocator and prints the medians, in instructions for one operation (-icount), on which other work of the
build host has no influence. With user-mode Linux (uml), which is quicker, runs KUnit instead. Then runs the kernel's own
vmalloc tests, which pass or fail. Then says PASS or FAIL.
"""

import statistics
import subprocess
import sys

from . import kunit, vmalloc
from .. import build, kernels
from ...bench.boots import boot_all
from ...bench.plan import Plan, guest_cases, scale_for
from ...machine.settings import REPO, Refused, cpus
from ...machine.table import print_table

# With one CPU, the rb-trees of the kernel have no pools of free ranges: few machines are like that.
DEFAULTS = {"kernel": "arm64", "allocators": (), "cpus": 2, "mem": 0}
CASES = "area_pair area_4 area_4096 percpu mixed vmalloc_pair stack lookup_inner_1k aliases_1".split()
SEEDS = 1, 2
# What is measured while nothing is built yet; all of it takes minutes.
NATIVE = "native --cases area_pair,find_1k --threads 1 --passes 5"


def options(parser):
    """Add the parameters of the tests. More workers than one disturb each other."""
    vmalloc.options(parser, threads=1)
    parser.set_defaults(loops=100, filter="")


def check(args):
    """Complete what follows from other options. QEMU counts instructions instead of time: no guest CPU waits for one that
    the build host has preempted."""
    args.accel = "" if args.kernel.arch == "um" else "icount"
    vmalloc.check(args)


def bench_of(args):
    """Return the kernel with the benchmark, or None: user-mode Linux does not count instructions."""
    return kernels.load().get(f"{args.kernel.name}-bench") if args.accel else None


def build_all(args):
    """Measure natively, which a build beside it would disturb, then build what run() boots. Raises Refused if that fails."""
    sys.stdout.flush()
    if subprocess.run([REPO / "scripts/bench", *NATIVE.split()], check=False).returncode:
        raise Refused(f"scripts/bench {NATIVE} failed; call it alone")
    for kernel in filter(None, (args.kernel, bench_of(args))):
        build.build(kernel)


def show_bench(args, result):
    """Boot the benchmark with each allocator and seed, and print the medians."""
    plan = Plan("demo", "icount", args.cpus, len(SEEDS), ",".join(CASES), scale=scale_for(args.cpus))
    jobs = [(plan, side, allocator, seed, seed, bench_of(args).name, str(args.logs / f"bench-{allocator}-{seed}.log"))
            for seed in SEEDS for side, allocator in zip("ab", args.allocators)]
    values = {}
    for job, record in zip(jobs, boot_all(jobs, cpus())):
        good = record["status"] == "ok" and not record["skips"]
        result.add(good, f"bench, {job[2]}", None if good else f"{record['status']} {record['skips']}")
        for one in record["results"]:
            values.setdefault((one["case"], one["metric"]), {}).setdefault(job[2], []).append(one["value"])
    rows = []
    for case in CASES:
        medians = [statistics.median(values.get((case, "cost"), {}).get(allocator, [0])) for allocator in args.allocators]
        result.add(all(medians), f"bench, {case}", None if all(medians) else "no result")
        ratio = f"{medians[1] / medians[0]:.2f}" if all(medians) else "-"
        rows.append([case, *(f"{median:,.0f}" for median in medians), ratio, guest_cases()[case]])
    print_table(f"instructions for one operation, {args.kernel.name}, {args.cpus} CPUs; medians of {len(SEEDS)} boots",
                ["case", *(f">{allocator}" for allocator in args.allocators), ">ratio", "one operation"], rows)


def run(args, result):
    """Measure or run KUnit, then run test_vmalloc on both."""
    (show_bench if bench_of(args) else kunit.run)(args, result)
    found = vmalloc.sweep(args, result)
    print_table(f"test_vmalloc, {args.kernel.name}: {args.loops} loops for each case", ["case", *found],
                [[name, *(cases[name][1] for cases in found.values())] for name in found["rust"]])
    print("PASS" if result.good else "FAIL")
