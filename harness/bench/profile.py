# SPDX-License-Identifier: GPL-2.0
"""Shows what a case of the benchmark executes for one operation, by function: "scripts/bench profile"."""

from collections import Counter, defaultdict

from ..boot import build as builds, kernels
from ..machine import step
from ..machine.settings import Refused, say
from ..machine.table import print_table

from . import counts
from .boots import run_guest
from .plan import INSTRUMENTS, Plan
from .stats import amount

KERNEL = INSTRUMENTS["holds"].kernel
# Counts and the bench's own figure may differ by so much: the bench reads a clock between its marks.
CLOSE = 0.01
# Instructions of the marks and of reading the clock, for each measured part.
MARKS = 120
# Names of functions of Rust with types may be very long, and would leave no room for figures.
LONGEST_NAME = 100
# Places that --lines prints.
MOST_PLACES = 20


def show_functions(title, window, symbols):
    """Print functions with an instruction or more for each operation, costly ones first, and the holds of locks."""
    def cells(name, part, cost):
        return [name[:LONGEST_NAME], part, *(amount(round(cost[field] / window.ops, 2)) for field in counts.COSTS[:4])]

    ordered = sorted(window.functions.items(), key=lambda item: -item[1]["insns"])
    print_table(title, ["function", "part", ">instr", ">RMW", ">barriers", ">acq/rel"],
                [*(cells(name, symbols.part(name), cost) for name, cost in ordered if cost["insns"] >= window.ops),
                 cells("total, with those of less than 1", "", window.total)])
    print(f"TLB flushes: {window.flushes / window.ops:.4f}, TLBI instructions: {window.total['tlbi'] / window.ops:.4f} "
          "per operation")
    print_table("spinlocks held, in instructions without interrupts, from the return of the function that takes it to the call of "
                "the one that releases it", ["lock", "taken in", "part", ">per operation", ">mean", ">longest"],
                [[f"{lock:#x}", name, symbols.part(name), f"{times / window.ops:.4f}", amount(round(insns / times)),
                  amount(longest)] for (lock, name), (times, insns, longest) in counts.locks_of(window, symbols).items()])


def show_lines(title, window, symbols):
    """Print where most cache lines move."""
    places = Counter()
    for (pc, _, is_write), times in counts.misses_of(window, symbols).items():
        places[symbols.name(pc)[:LONGEST_NAME], "write" if is_write else "read"] += times
    print_table(title, ["function", "access", ">misses"],
                [[*place, f"{times / window.ops:.3f}"] for place, times in places.most_common(MOST_PLACES)])


def is_close(window, results):
    """Tell whether a window agrees with what the bench itself measured with one CPU: results of the guest, in ns, which
    are instructions. The counts are the mean of the passes, which is between the least and the most of them."""
    own = [one for one in results
           if (one["case"], one["metric"], one["unit"]) == (window.case, window.part, "ns")]
    counted, marks = window.total["insns"] / window.ops, MARKS * window.passes / window.ops
    return all(one["min"] * (1 - CLOSE) <= counted <= one["max"] * (1 + CLOSE) + marks for one in own)


def profile(args, side, sums, logs):
    """Boot and show one side; returns 1 if counts contradict the bench's own figure, else 0. sums: gets the instructions
    for one operation of each part of the kernel: {(case, part): {side: number}}; logs: a folder."""
    symbols, code = counts.symbols_of(KERNEL), 0
    plan = Plan("profile", "lines" if args.lines else "holds", args.threads, 1, args.case, (args.threads,))
    log = logs / f"profile-{side}.log"
    status, results, skips = run_guest(plan, side, 1, KERNEL, log)
    if status != "ok" or skips:
        raise Refused(f"{side}: {skips[0]['reason'] if skips else status}; log: {log}")
    windows = counts.read(log, symbols)
    if not windows:
        raise Refused(f"{args.case} marks nothing that can be profiled (bench_mark_begin() in bench/*.c)")
    for window in windows:
        title = f"{window.name}, {side}: for one of {window.ops:,} operations, {args.threads} workers"
        if args.lines:
            show_lines(f"{title}: cache lines that move", window, symbols)
            continue
        for name, cost in window.functions.items():
            sums[window.name, symbols.part(name)][side] += cost["insns"] / window.ops
        show_functions(title, window, symbols)
        if args.threads == 1 and not is_close(window, results):
            say(f"bench: error: {window.name}, {side}: counts and the bench's own figure differ; log: {log}")
            code = 1
    return code


def main(_name, args):
    """Build what is needed and show a profile; returns the exit code."""
    builds.build(kernels.get(KERNEL))
    sums, sides, logs = defaultdict(Counter), ("rbtree", "rust"), step.new_logs("bench", 5)
    codes = [profile(args, side, sums, logs) for side in sides]
    if not args.lines:
        print_table("parts of the kernel, instructions for one operation", ["case", "part", *(f">{side}" for side in sides)],
                    [[*key, *(amount(round(part[side], 2)) for side in sides)] for key, part in sums.items()])
        print("RMW: atomic read-modify-writes; a load-exclusive and store-exclusive pair counts once for each attempt to "
              "store. acq/rel: loads that acquire and stores that release. Inlined functions count as the one around them.")
    return max(codes)
