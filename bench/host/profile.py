# SPDX-License-Identifier: GPL-2.0
"""Shows what a case of the benchmark executes for one operation, by function: "scripts/bench profile"."""

import re
from collections import Counter, defaultdict

from harness import initramfs, kernels
from harness.settings import CACHE, say

from . import build, counts
from .boot import boot, counts_of, symbols_of
from .plan import INSTRUMENTS, Plan, on_side
from .stats import amount
from .table import Table, show

# Counts and the bench's own figure may differ by so much: the bench reads a clock between its marks.
CLOSE = 0.01
# Instructions of the marks and of reading the clock, for each measured part.
MARKS = 120
# Names of functions of Rust with types may be very long, and would leave no room for figures.
LONGEST_NAME = 100
COLUMNS = ["function", "part", ">instr", ">RMW", ">barriers", ">acq/rel"]
# What bench/init.sh prints of the page tables.
TABLE_LINE = re.compile(r"vmap_bench: table (\S+) 0x(\w+)-0x(\w+)\s+(.*?)\s*$", re.M)


def functions_table(title, window, symbols, least):
    """Return the table of one window: the costly functions first, then sums."""
    def cells(name, part, cost):
        short = name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "..."
        return [short, part, *(amount(round(cost[field] / window.ops, 2)) for field in counts.COSTS[:4])]

    made, parts, small, few = [], defaultdict(Counter), Counter(), 0
    for name, cost in sorted(window.functions.items(), key=lambda item: -item[1]["insns"]):
        part = symbols.part(name)
        parts[part] += cost
        if cost["insns"] < least * window.ops:
            small += cost
            few += 1
        else:
            made.append((cells(name, part, cost), ""))
    if few:
        made.append((cells(f"{few} functions of less than {least:g} each", "", small), "dim"))
    made += [(cells(f"sum: {part}", part, cost), "bold")
             for part, cost in sorted(parts.items(), key=lambda item: -item[1]["insns"])]
    made.append((cells("total", "", window.total), "bold"))
    return Table(title, COLUMNS, [row for row, _ in made], [style for _, style in made])


def bench_figure(record, window):
    """Return what the bench itself measured for a window, or None: the result with "value", "min" and "max" of its
    passes in ns per operation."""
    for one in record["results"]:
        if one["case"] == window.case and one["metric"] == window.part and one["unit"] == "ns":
            return one
    return None


def locks_table(window, symbols):
    """Return how long each lock of the allocators was held."""
    return Table("spinlocks held, in instructions without interrupts, from the return of the function that takes it to "
                 "the call of the one that releases it",
                 ["lock", "taken in", "part", ">per operation", ">mean", ">longest"],
                 [[f"{lock:#x}" + " (maple tree)" * is_tree, name, symbols.part(name), f"{hold.times / window.ops:.4f}",
                   amount(round(hold.insns / hold.times)), amount(hold.longest)]
                  for is_tree, lock, name, hold in counts.locks_of(window, symbols)])


def show_window(window, symbols, side, least, cpus=1, threads=1, cpu="", locks=False, own=None):
    """Print the profile of one measured part. Returns 1 if it contradicts the bench's own figure, else 0.

    least: functions with fewer instructions are one row; cpus, threads: CPUs of the guest, and workers; cpu: model of the
    CPU; locks: also show locks; own: the result of the benchmark."""
    name = window.case if window.part == "cost" else f"{window.case} {window.part}"
    parts = [functions_table(f"{name}, {side}: per operation, {window.ops:,} operations, {threads} workers, {cpus} CPUs "
                             f"{cpu or 'cortex-a72'}", window, symbols, least)]
    if window.total["tlbi"]:
        parts.append(f"TLB flushes: {window.flushes / window.ops:.4f}, TLBI instructions: "
                     f"{window.total['tlbi'] / window.ops:.4f} per operation")
    parts += [f"calls of {called}(): {times / window.ops:.4f} per operation" for called, times in window.calls.items()]
    if cpus > 1:
        parts += [f"CPU {number}: {mine:,} instructions in its part, {every:,} while any part was open"
                  for number, (mine, every) in sorted(window.cpus.items())]
    if locks:
        parts.append(locks_table(window, symbols))
    is_close = True
    if own is not None and threads == cpus == 1:
        # The counts are the mean of the passes, which is between the least and the most of them.
        most = own["max"] * (1 + CLOSE) + MARKS * window.passes / window.ops
        is_close = own["min"] * (1 - CLOSE) <= window.total["insns"] / window.ops <= most
        parts.append(f"the bench's own figure: {amount(own['value'])} instructions, {amount(own['min'])} to "
                     f"{amount(own['max'])} in its passes")
    show([*parts, ""])
    if not is_close:
        say(f"bench: error: {name}, {side}: counts and the bench's own figure differ")
    return 0 if is_close else 1


def boot_good(plan, side, kernel, log, archive=None):
    """Boot a plan on a side; returns the record. Raises Bad unless the boot counts and skips nothing."""
    allocator, name = on_side(side, kernel)
    record = boot(plan, "a", allocator, 0, 1, name, log, archive)
    if record["status"] != "ok":
        raise counts.Bad(f"{side}: {record['status']}; log: {log}")
    for skip in record["skips"]:
        raise counts.Bad(f"{side}: {skip['case']} with {skip['threads']} workers: {skip['reason']}; log: {log}")
    return record


def profile(args):
    """Boot and show each side; returns the exit code."""
    options = INSTRUMENTS["holds"].options + (("--cpu", args.cpu) if args.cpu else ())
    code = 0
    for side in args.sides:
        symbols = symbols_of(on_side(side, args.kernel)[1])
        plan = Plan("profile", "holds", args.threads, 1, args.case, (args.threads,), timeout=1200, options=options)
        log = f"{CACHE}/log/profile-{args.case}-{side}.log"
        record = boot_good(plan, side, args.kernel, log)
        windows = counts.read(counts_of(log), symbols)
        if not windows:
            raise counts.Bad(f"{args.case} has no measured part that can be counted; log: {log}")
        for window in windows:
            code |= show_window(window, symbols, side, args.least, record["cpus"], args.threads, args.cpu, args.locks,
                                bench_figure(record, window))
    show(["RMW: atomic read-modify-writes; a load-exclusive and store-exclusive pair counts once for each attempt to "
          "store. acq/rel: loads that acquire and stores that release. Inlined functions count as the one around "
          "them."])
    return code


def show_tables(args, archives):
    """Print what the page tables have for a mapping on each side, in the lines of the kernel's own dump. Raises Bad
    when there is none. archives: the initramfs of each kernel.

    Addresses count from the start of the first line: where an area lies is up to the allocator.
    """
    for side in args.sides:
        log = f"{CACHE}/log/tables-{args.case}-{side}.log"
        boot_good(Plan("tables", "icount", 1, 1, args.case, tables=True), side, args.kernel, log,
                  archives[on_side(side, args.kernel)[1]])
        with open(log, encoding="utf-8", errors="replace") as file:
            lines = TABLE_LINE.findall(file.read())
        if not lines:
            raise counts.Bad(f"{side}: {args.case} leaves no mapping; only those of bench/mapping.c do; log: {log}")
        begin = int(lines[0][1], 16)
        show([f"{lines[0][0]}, {side}", *(
            f"{int(start, 16) - begin:#010x}-{int(end, 16) - begin:#010x}  {re.sub(' +', ' ', rest)}"
            for _, start, end, rest in lines), ""])
    return 0


def main(args):
    """Build what is needed and show a profile, or page tables; returns the exit code."""
    archives = {}
    for name in dict.fromkeys(on_side(side, args.kernel)[1] for side in args.sides):
        kernel = kernels.get(name)
        kernel.build()
        archives[name] = initramfs.make_busybox(kernel, bench=True) if args.tables else None
    if args.tables:
        return show_tables(args, archives)
    build.build_plugin()
    return profile(args)
