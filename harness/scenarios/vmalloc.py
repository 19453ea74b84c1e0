# SPDX-License-Identifier: GPL-2.0
"""runs the kernel's own vmalloc tests, lib/test_vmalloc.c

Twelve cases must pass in each worker; align_shift_alloc requests impossible alignments: its failure is expected.
"""

from . import CHECKER
from ..guest import boot
from ..options import whole
from ..settings import LOGS, Refused
from ..sweep_log import CASES, EXPECTED_TO_FAIL, read_results
from ..verdict import Expected, read_lines

DEFAULTS = {"allocators": ("rbtree", "rust", "none"), "mem": 0}
MAKE_TEST = {
    "sweep-arm64-rbtree-1": (11, "arm64 --allocator rbtree"), "sweep-arm64-rust-1": (9, "arm64 --allocator rust"),
    "sweep-arm64-rbtree-4": (16, "arm64 --allocator rbtree --cpus 4"),
    "sweep-arm64-rust-4": (14, "arm64 --allocator rust --cpus 4"),
    "sweep-arm64-rust-2": (11, "arm64 --allocator rust --cpus 2"),
    "sweep-x86_64-rust-1": (12, "x86_64 --allocator rust"),
    "sweep-x86_64-rust-4": (17, "x86_64 --allocator rust --cpus 4"),
    "sweep-debug-rust-1": (51, f"arm64-debug --allocator rust {CHECKER} --loops 100"),
    "sweep-debug-rust-2": (24, f"arm64-debug --allocator rust {CHECKER} --cpus 2 --loops 200 --mask 0x1ff9"),
    # What is chosen at boot, and what happens if that cannot be.
    "unknown-value": (9, "arm64 --allocator rbtree --boot-value foo --loops 100 --require "
                         "'^vmap allocator: unknown value \"foo\", use \"rbtree\" or \"rust\"; using rbtree$'"),
    "init-fails": (41,
                   "arm64-debug --allocator rbtree --boot-value rust --append vmap_rust.fail_init=1 --loops 50 "
                       r"--require '^vmap allocator: rust failed to start \(-12\), using rbtree$'"),
}
FULL = ("test_vmalloc", f"--allocator rust --cpus 2 {CHECKER}")


def options(parser, threads=None):
    """Add the parameters of the tests."""
    parser.add_argument("--threads", type=whole(1, 1024), default=threads, metavar="N",
                        help=f"workers (default: {threads or 'as many as CPUs'})")
    parser.add_argument("--loops", type=whole(1, 100000000), default=1000, metavar="N",
                        help="loops per case (default: %(default)s)")
    parser.add_argument("--mask", type=whole(0x1, 0x1fff), default=0x1fff, metavar="M",
                        help="cases, 0x1 to 0x1fff (default: all)")
    parser.add_argument("--boot-value", default="", metavar="V", help="pass vmap_allocator=V instead of the allocator")
    parser.add_argument("--require", action="append", default=[], metavar="RE", help="lines that the log must have")


def check(args):
    """Complete what follows from other options, and refuse a guest that is too large."""
    args.threads = args.threads or args.cpus
    # Each worker holds pages.
    args.mem = args.mem or max(2048, 512 + args.threads * (args.cpus.bit_length() * 64 + 128))
    args.timeout = args.timeout or min(86400, 600 + args.threads * args.loops // 10)
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) // 1024 for line in file if line.startswith("MemAvailable"))
    if args.mem > free:
        raise Refused(f"{args.cpus} CPUs and {args.threads} workers need a guest of {args.mem} MiB, this machine has "
                      f"{free} MiB free; use fewer")


def judge_case(name, results, threads):
    """Return (verdict, True if the case passed)."""
    if len(results) != threads:
        return f"FAIL: {len(results)} of {threads} workers reported", False
    wrong, xfailed, total = (sum(r[what] for r in results) for what in ("failed", "xfailed", "repeat"))
    if name in EXPECTED_TO_FAIL:
        if xfailed == total and not wrong:
            return "expected failure", True
        return f"FAIL: {total - xfailed} of {total} runs did not fail as they must", False
    if wrong or xfailed or sum(r["passed"] for r in results) != total:
        return f"FAIL: {wrong + xfailed} of {total} runs failed", False
    return "pass", True


def judge(lines, threads, mask, result):
    """Count every case of the mask in a console log, and the workers that came to their end; keeps the cases in
    result.data."""
    workers, done = read_results(lines)
    cases = result.data["cases"] = []
    for bit, name in enumerate(CASES):
        if not mask >> bit & 1:
            continue
        results = workers.pop(name, [])
        text, good = judge_case(name, results, threads)
        usec = [r["usec"] for r in results]
        mean = sum(usec) / len(usec) if usec else None
        cases.append({"case": name, "verdict": text, "good": good, "usec": mean})
        result.add(good, name, f"{name:<26} {'-' if mean is None else format(mean, ',.0f'):>14} usec  {text}")
    for name in workers:
        result.add(False, name, f"FAIL: unknown or unwanted case {name}_test reported results")
    if done != threads:
        result.add(False, "workers", f"FAIL: {done} of {threads} workers came to their end")


def run(args, result):
    """Boot once with the parameters of test_vmalloc."""
    log = args.log or LOGS / f"sweep-{args.kernel.name}-{args.allocator}-{args.cpus}.log"
    boot(result, args, "test_vmalloc", Expected(args.allocator, require=args.require),
         f"kunit.enable=0 test_vmalloc.run_test_mask={args.mask:#x} test_vmalloc.nr_threads={args.threads} "
         "test_vmalloc.sequential_test_order=1 test_vmalloc.nr_pcpu_objects=1000 "
         f"test_vmalloc.test_loop_count={args.loops}", boot_value=args.boot_value, log=log)
    lines = read_lines(log)
    result.data.update(kernel=args.kernel.name, allocator=args.allocator, cpus=args.cpus, threads=args.threads,
                       loops=args.loops,
                       mask=hex(args.mask), line=([x for x in lines if x.startswith("vmap allocator: r")] or [""])[-1])
    judge(lines, args.threads, args.mask, result)
