# SPDX-License-Identifier: GPL-2.0
"""Shows what a case of the benchmark executes for one operation, by function: "scripts/bench profile"."""

import re
from collections import Counter, defaultdict

from harness import initramfs, kernels
from harness.settings import CACHE, say

from . import build, counts, table
from .boot import boot, counts_of
from .plan import INSTRUMENTS, Plan, on_side
from .stats import amount

# Counts and the bench's own figure may differ by so much: the bench reads a clock between its marks.
CLOSE = 0.01
# Instructions of the marks and of reading the clock, for each measured part.
MARKS = 120
# Names of functions of Rust with types may be very long, and would leave no room for figures.
LONGEST_NAME = 100
COLUMNS = ["function", "part", ">instr", ">RMW", ">barriers", ">acq/rel"]
# What bench/init.sh prints of the page tables.
TABLE_LINE = re.compile(r"vmap_bench: table (\S+) 0x(\w+)-0x(\w+)\s+(.*?)\s*$", re.M)


def rows(window, symbols, least):
    """The rows of one window: (cells, style), the costly functions first, then sums."""
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
    return made


def bench_figure(record, window):
    """Return what the bench itself measured for a window, or None: the result with "value", "min" and "max" of its
    passes in ns per operation."""
    for one in record["results"]:
        if one["case"] == window.case and one["metric"] == window.part and one["unit"] == "ns":
            return one
    return None


def show_locks(console, window, symbols):
    """Print how long each lock of the allocators was held."""
    cells = []
    for is_tree, lock, name, hold in counts.locks_of(window, symbols):
        cells.append([f"{lock:#x}" + " (maple tree)" * is_tree, name, symbols.part(name),
                      f"{hold.times / window.ops:.4f}", amount(round(hold.insns / hold.times)), amount(hold.longest)])
    table.say(console, "spinlocks held, in instructions without interrupts, from the return of the function that takes "
                       "it to the call of the one that releases it")
    table.print_table(console, ["lock", "taken in", "part", ">per operation", ">mean", ">longest"], cells)


def show(console, args, side, record, windows, symbols):
    """Print the profile of one boot. Returns 1 if it contradicts the bench's own figure, else 0."""
    code = 0
    for window in windows:
        per_op = window.total["insns"] / window.ops
        own = bench_figure(record, window)
        name = window.case if window.part == "cost" else f"{window.case} {window.part}"
        table.say(console, f"{name}, {side}: per operation, {window.ops:,} operations, {args.threads} workers, "
                           f"{record['cpus']} CPUs {args.cpu or 'cortex-a72'}", "bold")
        made = rows(window, symbols, args.least)
        table.print_table(console, COLUMNS, [cells for cells, _ in made], [style for _, style in made])
        tlbi = window.total["tlbi"]
        if tlbi:
            table.say(console, f"TLB flushes: {window.flushes / window.ops:.4f}, TLBI instructions: "
                               f"{tlbi / window.ops:.4f} per operation")
        for called, times in window.calls.items():
            table.say(console, f"calls of {called}(): {times / window.ops:.4f} per operation")
        if record["cpus"] > 1:
            for cpu, (mine, every) in sorted(window.cpus.items()):
                turns, longest = window.turns.get(cpu, (0, 0))
                table.say(console, f"CPU {cpu}: {mine:,} instructions in its part, {every:,} while any part was open, "
                                   f"in {turns:,} turns, the longest of {longest:,}")
        for function, buckets in window.timed.items():
            marks = ", ".join(f"{text} {amount(counts.percentile(buckets, share))}" for text, share in (
                ("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1)))
            table.say(console, f"calls of {function}(), in instructions of the CPU that runs it: {marks}")
        if args.locks:
            show_locks(console, window, symbols)
        if own is not None and args.threads == 1 and record["cpus"] == 1:
            # The counts are the mean of the passes, which is between the least and the most of them.
            most = own["max"] * (1 + CLOSE) + MARKS * window.passes / window.ops
            is_close = own["min"] * (1 - CLOSE) <= per_op <= most
            table.say(console, f"the bench's own figure: {amount(own['value'])} instructions, {amount(own['min'])} to "
                               f"{amount(own['max'])} in its passes", "" if is_close else "red")
            if not is_close:
                say(f"bench: error: {name}, {side}: counts and the bench's own figure differ")
                code = 1
        table.say(console, "")
    return code


def boot_good(plan, side, kernel, log, archive=None, specify=None):
    """Boot a plan on a side; returns the record. Raises Bad unless the boot counts and skips nothing."""
    allocator, name = on_side(side, kernel)
    record = boot(plan, "a", allocator, 0, 1, name, archive, log, specify)
    if record["status"] != "ok":
        raise counts.Bad(f"{side}: {record['status']}; log: {log}")
    for skip in record["skips"]:
        raise counts.Bad(f"{side}: {skip['case']} with {skip['threads']} workers: {skip['reason']}; log: {log}")
    return record


def profile(args):
    """Boot and show each side; returns the exit code."""
    console = table.make_console()
    options = INSTRUMENTS["holds"].options + (("--cpu", args.cpu) if args.cpu else ())
    code = 0
    for side in args.sides:
        symbols = counts.Symbols(on_side(side, args.kernel)[1])
        plan = Plan("profile", "holds", args.cpus, 1, args.case, (args.threads,), args.scale, timeout=1200,
                    options=options)
        log = f"{CACHE}/log/profile-{args.case}-{side}.log"
        record = boot_good(plan, side, args.kernel, log,
                           specify=lambda _, out, known=symbols: counts.specification(known, out, args.time))
        windows = counts.read(counts_of(log), symbols)
        if not windows:
            raise counts.Bad(f"{args.case} has no measured part that can be counted; log: {log}")
        code |= show(console, args, side, record, windows, symbols)
    table.say(console, "RMW: atomic read-modify-writes; a load-exclusive and store-exclusive pair counts once for each "
                       "attempt to store. acq/rel: loads that acquire and stores that release. Inlined functions count "
                       "as the one around them.")
    return code


def show_tables(args, archives):
    """Print what the page tables have for a mapping on each side, in the lines of the kernel's own dump. Raises Bad
    when there is none. archives: the initramfs of each kernel.

    Addresses count from the start of the first line: where an area lies is up to the allocator.
    """
    console = table.make_console()
    for side in args.sides:
        log = f"{CACHE}/log/tables-{args.case}-{side}.log"
        boot_good(Plan("tables", "icount", 1, 1, args.case, tables=True), side, args.kernel, log,
                  archives[on_side(side, args.kernel)[1]])
        with open(log, encoding="utf-8", errors="replace") as file:
            lines = TABLE_LINE.findall(file.read())
        if not lines:
            raise counts.Bad(f"{side}: {args.case} leaves no mapping; only those of bench/mapping.c do; log: {log}")
        begin = int(lines[0][1], 16)
        table.say(console, f"{lines[0][0]}, {side}", "bold")
        for _, start, end, rest in lines:
            rest = re.sub(" +", " ", rest)
            table.say(console, f"{int(start, 16) - begin:#010x}-{int(end, 16) - begin:#010x}  {rest}")
        table.say(console, "")
    return 0


def main(_name, args, _words):
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
