# SPDX-License-Identifier: GPL-2.0
"""Shows what a case of the benchmark executes for one operation, by function: "scripts/bench profile"."""

from collections import Counter, defaultdict

from .. import build as builds, kernels
from ..settings import CACHE, Refused, say

from . import counts
from .boots import run_guest
from .plan import INSTRUMENTS, Plan
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
# Places that --lines prints.
MOST_PLACES = 20


def functions_table(title, window, symbols):
    """Return the table of one window: the costly functions first."""
    def cells(name, part, cost):
        short = name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "..."
        return [short, part, *(amount(round(cost[field] / window.ops, 2)) for field in counts.COSTS[:4])]

    ordered = sorted(window.functions.items(), key=lambda item: -item[1]["insns"])
    small = [cost for _, cost in ordered if cost["insns"] < LEAST * window.ops]
    return Table(title, ["function", "part", ">instr", ">RMW", ">barriers", ">acq/rel"],
                 [*(cells(name, symbols.part(name), cost) for name, cost in ordered[:len(ordered) - len(small)]),
                  cells(f"{len(small)} functions of less than {LEAST} each", "", sum(small, Counter())),
                  cells("total", "", window.total)])


def locks_table(window, symbols):
    """Return how long each lock of the allocators was held."""
    return Table("spinlocks held, in instructions without interrupts, from the return of the function that takes it to "
                 "the call of the one that releases it",
                 ["lock", "taken in", "part", ">per operation", ">mean", ">longest"],
                 [[f"{lock:#x}" + " (maple tree)" * is_tree, name, symbols.part(name), f"{hold.times / window.ops:.4f}",
                   amount(round(hold.insns / hold.times)), amount(hold.longest)]
                  for is_tree, lock, name, hold in counts.locks_of(window, symbols)])


def lines_table(title, window, symbols):
    """Return where most cache lines move: the function and what it accessed. Variables of the kernel have names."""
    places = Counter()
    for (pc, addr, is_write), times in counts.misses_of(window, symbols).items():
        places[symbols.name(pc)[:LONGEST_NAME], "write" if is_write else "read", symbols.variable(addr)] += times
    return Table(title, ["function", "access", "variable", ">misses"],
                 [[*place, f"{times / window.ops:.3f}"] for place, times in places.most_common(MOST_PLACES)])


def is_close(window, results):
    """Tell whether a window agrees with what the bench itself measured with one CPU: results of the guest, in ns, which
    are instructions. The counts are the mean of the passes, which is between the least and the most of them."""
    own = [one for one in results
           if (one["case"], one["metric"], one["unit"]) == (window.case, window.part, "ns")]
    counted, marks = window.total["insns"] / window.ops, MARKS * window.passes / window.ops
    return all(one["min"] * (1 - CLOSE) <= counted <= one["max"] * (1 + CLOSE) + marks for one in own)


def profile(args, side, sums):
    """Boot and show one side; returns 1 if counts contradict the bench's own figure, else 0. sums: gets the instructions
    for one operation of each part of the kernel: {(case, part): {side: number}}."""
    symbols, code = counts.symbols_of(KERNEL), 0
    plan = Plan("profile", "lines" if args.lines else "holds", args.threads, 1, args.case, (args.threads,))
    log = f"{CACHE}/log/profile-{args.case}-{side}.log"
    status, guest = run_guest(plan, side, 1, KERNEL, log)
    if status != "ok" or guest.skips:
        raise Refused(f"{side}: {guest.skips[0]['reason'] if status == 'ok' else status}; log: {log}")
    if not (windows := counts.read(log, symbols)):
        raise Refused(f"{args.case} has no measured part that can be counted; log: {log}")
    for window in windows:
        if args.lines:
            show([lines_table(f"{window.name}, {side}, {args.threads} CPUs: cache lines that move, for one operation", window,
                              symbols)])
            continue
        for name, cost in window.functions.items():
            sums[window.name, symbols.part(name)][side] += cost["insns"] / window.ops
        show([functions_table(f"{window.name}, {side}: per operation, {window.ops:,} operations, NxM {args.threads}x"
                              f"{args.threads}", window, symbols),
              f"TLB flushes: {window.flushes / window.ops:.4f}, TLBI instructions: "
              f"{window.total['tlbi'] / window.ops:.4f} per operation",
              locks_table(window, symbols), ""])
        if args.threads == 1 and not is_close(window, guest.results):
            say(f"bench: error: {window.name}, {side}: counts and the bench's own figure differ; log: {log}")
            code = 1
    return code


def main(_name, args):
    """Build what is needed and show a profile; returns the exit code."""
    builds.build(kernels.get(KERNEL))
    sums, sides = defaultdict(Counter), ("rbtree", "rust")
    codes = [profile(args, side, sums) for side in sides]
    if args.lines:
        return max(codes)
    show([Table("parts of the kernel, instructions for one operation", ["case", "part", *(f">{side}" for side in sides)],
                [[*key, *(amount(round(part[side], 2)) for side in sides)] for key, part in sums.items()])])
    print("RMW: atomic read-modify-writes; a load-exclusive and store-exclusive pair counts once for each attempt to "
          "store. acq/rel: loads that acquire and stores that release. Inlined functions count as the one around them.")
    return max(codes)
