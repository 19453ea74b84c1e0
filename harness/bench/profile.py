# SPDX-License-Identifier: GPL-2.0
"""Shows what a case of the benchmark executes for one operation, by function: "scripts/bench profile"."""

import re
from collections import Counter, defaultdict

from .. import build as builds, initramfs, kernels
from ..console import read_text
from ..settings import CACHE, Refused, say

from . import counts
from .boots import run_guest
from .plan import INSTRUMENTS, PRISTINE, Plan, on_side
from .stats import amount
from .table import Table, show

KERNEL = INSTRUMENTS["holds"].kernel
# Functions that take fewer instructions for one operation are one row.
LEAST = 1
# Counts and the bench's own figure may differ by so much: the bench reads a clock between its marks.
CLOSE = 0.01
# Instructions of the marks and of reading the clock, for each measured part.
MARKS = 120
# Names of functions of Rust with types may be very long, and would leave no room for figures.
LONGEST_NAME = 100
# What bench/init.sh prints of the page tables.
TABLE_LINE = re.compile(r"vmap_bench: table (\S+) 0x(\w+)-0x(\w+)\s+(.*?)\s*$", re.M)


def functions_table(title, window, symbols):
    """Return the table of one window: the costly functions first, then sums."""
    def cells(name, part, cost):
        short = name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "..."
        return [short, part, *(amount(round(cost[field] / window.ops, 2)) for field in counts.COSTS[:4])]

    made, parts, small, few = [], defaultdict(Counter), Counter(), 0
    for name, cost in sorted(window.functions.items(), key=lambda item: -item[1]["insns"]):
        parts[symbols.part(name)] += cost
        if cost["insns"] < LEAST * window.ops:
            small += cost
            few += 1
        else:
            made.append(cells(name, symbols.part(name), cost))
    made.append(cells(f"{few} functions of less than {LEAST} each", "", small))
    made += [cells(f"sum: {part}", part, cost)
             for part, cost in sorted(parts.items(), key=lambda item: -item[1]["insns"])]
    return Table(title, ["function", "part", ">instr", ">RMW", ">barriers", ">acq/rel"],
                 [*made, cells("total", "", window.total)])


def locks_table(window, symbols):
    """Return how long each lock of the allocators was held."""
    return Table("spinlocks held, in instructions without interrupts, from the return of the function that takes it to "
                 "the call of the one that releases it",
                 ["lock", "taken in", "part", ">per operation", ">mean", ">longest"],
                 [[f"{lock:#x}" + " (maple tree)" * is_tree, name, symbols.part(name), f"{hold.times / window.ops:.4f}",
                   amount(round(hold.insns / hold.times)), amount(hold.longest)]
                  for is_tree, lock, name, hold in counts.locks_of(window, symbols)])


def is_close(window, results):
    """Tell whether a window agrees with what the bench itself measured with one CPU: results of the guest, in ns, which
    are instructions. The counts are the mean of the passes, which is between the least and the most of them."""
    own = [one for one in results
           if (one["case"], one["metric"], one["unit"]) == (window.case, window.part, "ns")]
    counted, marks = window.total["insns"] / window.ops, MARKS * window.passes / window.ops
    return all(one["min"] * (1 - CLOSE) <= counted <= one["max"] * (1 + CLOSE) + marks for one in own)


def boot_good(plan, side, log, **more):
    """Boot a plan on a side; returns what the guest printed. Refuses unless the boot counts and skips nothing. more: of
    boots.run_guest()."""
    allocator, kernel = on_side(side, KERNEL)
    status, guest = run_guest(plan, allocator, 1, kernel, log, **more)
    if status != "ok":
        raise Refused(f"{side}: {status}; log: {log}")
    for skip in guest.skips:
        raise Refused(f"{side}: {skip['case']} with {skip['threads']} workers: {skip['reason']}; log: {log}")
    return guest


def profile(args, side, sums):
    """Boot and show one side; returns 1 if counts contradict the bench's own figure, else 0. sums: gets the instructions
    for one operation of each part of the kernel: {(case, part): {side: number}}."""
    symbols, code = counts.symbols_of(KERNEL), 0
    plan = Plan("profile", "holds", args.threads, 1, args.case, (args.threads,))
    log = f"{CACHE}/log/profile-{args.case}-{side}.log"
    guest = boot_good(plan, side, log, cpu=args.cpu)
    windows = counts.read(log, symbols)
    if not windows:
        raise Refused(f"{args.case} has no measured part that can be counted; log: {log}")
    for window in windows:
        for name, cost in window.functions.items():
            sums[window.name, symbols.part(name)][side] += cost["insns"] / window.ops
        show([functions_table(f"{window.name}, {side}: per operation, {window.ops:,} operations, NxM {args.threads}x"
                              f"{args.threads}, {args.cpu}", window, symbols),
              f"TLB flushes: {window.flushes / window.ops:.4f}, TLBI instructions: "
              f"{window.total['tlbi'] / window.ops:.4f} per operation",
              *([locks_table(window, symbols)] if args.locks else []), ""])
        if args.threads == 1 and not is_close(window, guest.results):
            say(f"bench: error: {window.name}, {side}: counts and the bench's own figure differ; log: {log}")
            code = 1
    return code


def show_tables(case, side):
    """Print what the page tables have for a mapping on a side, in the lines of the kernel's own dump; returns 0.
    Refuses a case that leaves none. Addresses count from the start of the first line: where an area lies is up to the
    allocator."""
    archive = initramfs.make_busybox(kernels.get(on_side(side, KERNEL)[1]), bench=True)
    log = f"{CACHE}/log/tables-{case}-{side}.log"
    # printk.devkmsg: all of what init writes to /dev/kmsg.
    boot_good(Plan("tables", "icount", 1, 1, case), side, log, append="vmap_bench.keep=1 printk.devkmsg=on",
              end="vmap_bench: guest end", initramfs=str(archive))
    lines = TABLE_LINE.findall(read_text(log))
    if not lines:
        raise Refused(f"{side}: {case} leaves no mapping; only those of bench/mapping.c do; log: {log}")
    begin = int(lines[0][1], 16)
    show([f"{lines[0][0]}, {side}", *(
        f"{int(start, 16) - begin:#010x}-{int(end, 16) - begin:#010x}  {re.sub(' +', ' ', rest)}"
        for _, start, end, rest in lines), ""])
    return 0


def main(_name, args):
    """Build what is needed and show a profile, or page tables; returns the exit code."""
    sides = (PRISTINE, "rbtree", "rust") if args.tables else ("rbtree", "rust")
    for kernel in dict.fromkeys(on_side(side, KERNEL)[1] for side in sides):
        builds.build(kernels.get(kernel))
    sums = defaultdict(Counter)
    codes = [show_tables(args.case, side) if args.tables else profile(args, side, sums) for side in sides]
    if not args.tables:
        show([Table("parts of the kernel, instructions for one operation", ["case", "part", *(f">{side}" for side in sides)],
                    [[*key, *(amount(round(part[side], 2)) for side in sides)] for key, part in sums.items()])])
        print("RMW: atomic read-modify-writes; a load-exclusive and store-exclusive pair counts once for each attempt to "
              "store. acq/rel: loads that acquire and stores that release. Inlined functions count as the one around "
              "them.")
    return max(codes)
