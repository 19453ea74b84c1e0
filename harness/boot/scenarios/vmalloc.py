# SPDX-License-Identifier: GPL-2.0
"""runs the kernel's own vmalloc tests, lib/test_vmalloc.c

Twelve cases must pass in each worker; align_shift_alloc requests impossible alignments: its failure is expected.
"""

import re

from ..guest import boot_of
from ...machine.options import whole
from ...machine.table import print_table
from ..verdict import Expected, read_lines

DEFAULTS = {"allocators": ("rbtree", "rust", "none"), "allocator": "rust", "mem": 0}
# In the order of the bits of run_test_mask.
CASES = """fix_size_alloc full_fit_alloc long_busy_list_alloc random_size_alloc fix_align_alloc random_size_align_alloc
    align_shift_alloc pcpu_alloc kvfree_rcu_1_arg_vmalloc kvfree_rcu_2_arg_vmalloc vm_map_ram no_block_alloc
    vrealloc""".split()
EXPECTED_TO_FAIL = {"align_shift_alloc"}
SUMMARY = re.compile(r"Summary: (\w+)_test passed: (\d+) failed: (\d+) xfailed: (\d+) repeat: (\d+) loops: \d+ "
                     r"avg: (\d+) usec")


def options(parser, threads=None):
    """Add the parameters of the tests."""
    parser.add_argument("--threads", type=whole(1, 1024), default=threads, metavar="N",
                        help=f"workers (default: {threads or 'as many as CPUs'})")
    parser.add_argument("--loops", type=whole(1, 100000000), default=1000, metavar="N",
                        help="loops per case (default: %(default)s)")
    parser.add_argument("--mask", type=whole(0x1, 0x1fff, "#x"), default=0x1fff, metavar="M",
                        help="a bit for each case, 0x1 to 0x1fff or a decimal number (default: all)")
    parser.add_argument("--require", action="append", default=[], metavar="RE", help="lines that the log must have")


def check(args):
    """Complete what follows from other options."""
    args.threads = args.threads or args.cpus
    # Each worker holds pages.
    args.mem = args.mem or max(2048, 512 + args.threads * (args.cpus.bit_length() * 64 + 128))
    args.timeout = args.timeout or min(86400, 600 + args.threads * args.loops // 10)


def judge_case(name, workers, threads):
    """Return (verdict, True if the case passed). workers: how many runs passed, failed, failed as expected, and were
    wanted, and the time, for each worker."""
    if len(workers) != threads:
        return f"{len(workers)} of {threads} workers reported", False
    passed, _, xfailed, total, _ = map(sum, zip(*workers))
    bad = total - (xfailed if name in EXPECTED_TO_FAIL else passed)
    return (f"{bad} of {total} runs did not end as they must", False) if bad else (
        "expected failure" if name in EXPECTED_TO_FAIL else "pass", True)


def judge(lines, threads, mask, result, allocator):
    """Count every case of the mask in a console log, and the workers that came to their end; returns (mean time in
    usec or None, verdict, True if it passed) of each case by name."""
    workers, cases = {}, {}
    for name, *numbers in (found.groups() for found in map(SUMMARY.search, lines) if found):
        workers.setdefault(name, []).append(tuple(map(int, numbers)))
    for name in (name for bit, name in enumerate(CASES) if mask >> bit & 1):
        mine = workers.pop(name, [])
        text, good = judge_case(name, mine, threads)
        cases[name] = (sum(one[-1] for one in mine) / len(mine) if mine else None, text, good)
        result.add(good, f"{allocator} {name}", None if good else text)
    for name in workers:
        result.add(False, name, "unknown or unwanted case reported results")
    done = sum(bool(re.search(r"All test took worker\d+=\d+ cycles", line)) for line in lines)
    if done != threads:
        result.add(False, "workers", f"{done} of {threads} came to their end")
    return cases


def show(title, found):
    """Print the cases of each allocator side by side."""
    rows = []
    for name in next(iter(found.values())):
        usec, verdicts, good = zip(*(cases[name] for cases in found.values()))
        ratio = [] if len(found) == 1 else [f"{usec[-1] / usec[0]:.2f}" if all(usec) else "-"]
        bad = [f"{allocator} FAIL: {text}" for allocator, text, fine in zip(found, verdicts, good) if not fine]
        rows.append([name, *("-" if x is None else f"{x:,.0f}" for x in usec), *ratio, "; ".join(bad) or verdicts[0]])
    columns = ["case", *(f">{allocator} (usec)" for allocator in found), *([] if len(found) == 1 else [">ratio"]), "verdict"]
    print_table(title, columns, rows)


def sweep(args, result):
    """Boot each allocator with the parameters of test_vmalloc; returns what judge() does for each."""
    found, other = {}, "-required" if args.require else ""
    for allocator in args.allocators:
        boot = boot_of(
            args, "test_vmalloc", Expected(allocator, require=args.require),
            f"kunit.enable=0 test_vmalloc.run_test_mask={args.mask:#x} test_vmalloc.nr_threads={args.threads} "
            "test_vmalloc.sequential_test_order=1 test_vmalloc.nr_pcpu_objects=1000 "
            f"test_vmalloc.test_loop_count={args.loops}",
            log=args.logs / f"sweep-{args.kernel.name}-{allocator}-{args.cpus}{other}.log")
        boot.run(result)
        found[allocator] = judge(read_lines(boot.log), args.threads, args.mask, result, allocator)
    return found


def run(args, result):
    """Boot each allocator, and compare the times."""
    found = sweep(args, result)
    show(f"test_vmalloc, {args.kernel.name}: CPUs {args.cpus}, workers {args.threads}, loops per case {args.loops}, mask "
         f"{args.mask:#x}", found)
