# SPDX-License-Identifier: GPL-2.0
"""The goals of the project, and what a result says of each: a table for the terminal and for documents."""

from dataclasses import dataclass
import fnmatch
from typing import Callable

from . import stats


@dataclass(frozen=True)
class Goal:
    """One line: which rows of a result it is about, and when one of them reaches it."""

    text: str
    instrument: str
    case: str  # With "*" for any rest; the metric behind a blank, if it is not the cost.
    size: str  # CPUs x threads, or "*".
    goal: str
    reached: Callable  # of a row and of all rows
    others: str = "one"  # "all": every row has to reach it, the worst one is shown.


def at_most(limit):
    """Reached when side B is no more than that."""
    return lambda row, _: row.median_b <= limit


def times(factor):
    """Reached when side B takes that part of side A."""
    return lambda row, _: row.median_a is not None and row.median_b * factor <= row.median_a


def not_slower(row, _):
    """Reached unless the verdict is that it is slower."""
    return row.verdict != "slower"


def no_more(row, _):
    """Reached unless side B has more, by more than a tenth: when purges come, a few in a case, differs a little between the sides."""
    return row.median_a is not None and row.median_b <= 1.1 * row.median_a


# Flushes for 1,000 pairs of an area of one page, with one CPU: its guard page is lazy, too, and a purge begins with 8,192 lazy pages
# (lazy_max_pages() in mm/vmalloc.c). Fewer depend on how long the worker that purges has to wait, while more pages become lazy.
PAIR_FLUSHES = 1000 * 2 / 8192


def no_more_flushes(row, every):
    """The same for flushes, of which a side may always have as many as purges that come on time need."""
    return no_more(row, every) or row.median_a is not None and row.median_b <= PAIR_FLUSHES


def near_one_cpu(factor, size):
    """Reached when side B takes no more than that factor of its value with `size`."""
    def reached(row, every):
        base = [r for r in every if (r.instrument, r.name, r.size) == (row.instrument, row.name, size)]
        return bool(base) and row.median_b <= factor * base[0].median_b
    return reached


def share_of_host(factor, size):
    """Reached when a worker takes at most that factor longer than with `size`, after correction for its smaller share of the host's CPUs."""
    base_workers = int(size.split("x")[1])

    def reached(row, every):
        workers = int(row.size.split("x")[1])
        return near_one_cpu(factor * workers / base_workers, size)(row, every)
    return reached


def flat(row, every):
    """Reached when the last cycle has no more than the second, with 2% for noise, and less than side A."""
    second = [r for r in every if r.instrument == row.instrument and r.case == row.case and r.size == row.size and r.metric == "cycle_2"]
    return bool(second) and row.median_b <= 1.02 * second[0].median_b and row.median_b < row.median_a


# Instructions for which a drain may hold a lock, or keep preemption off: one block or 32 ranges at a time.
BOUND = 50_000

GOALS = [
    Goal("area pair, 1 page, 1 CPU", "icount", "area_pair", "1x1", "700 or fewer", at_most(700)),
    Goal("vmalloc pair, 1 page, 1 CPU", "icount", "vmalloc_pair", "1x1", "2,500 or fewer", at_most(2500)),
    Goal("area pair, 8 CPUs x 8 threads", "icount", "area_pair", "8x8", "at most 1.5 x its own with 1 CPU", near_one_cpu(1.5, "1x1")),
    Goal("full_fit_alloc, 8 threads", "icount", "test:full_fit_alloc loops_100", "8x8", "5 times faster", times(5)),
    Goal("long_busy_list_alloc, 8 threads", "icount", "test:long_busy_list_alloc loops_100", "8x8", "5 times faster", times(5)),
    Goal("each case of test_vmalloc, 1 CPU", "icount", "test:*", "1x1", "none slower", not_slower, "all"),
    Goal("wall clock: area pair, 1 CPU", "wall", "area_pair", "2x1", "2.5 times faster", times(2.5)),
    Goal("wall clock: area pair, 2 CPUs", "wall", "area_pair", "2x2", "2.5 times faster", times(2.5)),
    Goal("wall clock: each case of test_vmalloc", "wall", "test:*", "2x1", "none slower", not_slower, "all"),
    Goal("overcommitted: area pair, 4 guest CPUs", "overcommit", "area_pair", "4x4", "at most 1.5 x 2 x that of 2 CPUs", share_of_host(1.5, "2x2")),
    Goal("overcommitted: area pair, 8 guest CPUs", "overcommit", "area_pair", "8x8", "at most 1.5 x 4 x that of 2 CPUs", share_of_host(1.5, "2x2")),
    Goal("the same against the rb-trees", "overcommit", "area_pair", "8x8", "100 times faster", times(100)),
    Goal("overcommitted: load of the whole API, 2 guest CPUs", "overcommit", "whole_api", "2x2", "1.2 times faster", times(1.2)),
    Goal("overcommitted: load of the whole API, 8 guest CPUs", "overcommit", "whole_api", "8x8", "4 times faster", times(4)),
    Goal("native (UML): area pair, 1 CPU", "uml", "area_pair", "2x1", "2.5 times faster", times(2.5)),
    Goal("native (UML): area pair, 2 CPUs", "uml", "area_pair", "2x2", "2.5 times faster", times(2.5)),
    Goal("lookup of an inner address, 64 MiB, 8 readers", "icount", "lookup_inner_64m", "8x8", "as one reader", near_one_cpu(1.1, "8x1")),
    Goal("purge, per page", "icount", "purge_1 per_page", "1x1", "10 times fewer", times(10)),
    Goal("longest section without preemption, drain of 1M pages", "icount", "drain_1m_pages preempt_off", "1x1", f"{BOUND:,} or fewer", at_most(BOUND)),
    Goal("longest hold of the tree's lock", "holds", "*tree_hold", "*", "5,000 or fewer", at_most(5000), "all"),
    Goal("longest hold of the pool's lock, area pair", "holds", "area_pair other_hold", "1x1", "500 or fewer", at_most(500)),
    Goal("vm_unmap_aliases(), nothing freed, 1 CPU", "icount", "aliases_0", "1x1", "1,000 or fewer", at_most(1000)),
    Goal("vm_unmap_aliases(), one area freed, 1 CPU", "icount", "aliases_1", "1x1", "2,000 or fewer", at_most(2000)),
    Goal("TLB flushes, arm64", "flushes", "*", "*", "no more", no_more_flushes, "all"),
    Goal("TLB flushes and interrupts, x86_64", "interrupts", "*", "*", "no more", no_more, "all"),
    Goal("cache misses per area pair, 8 CPUs", "lines", "pair misses", "8x8", "0.1 or fewer", at_most(0.1)),
    Goal("cache misses per area pair, 128 CPUs", "lines", "pair misses", "128x128", "0.25 or fewer", at_most(0.25)),
    Goal("cache misses per area pair, 256 CPUs", "lines", "pair misses", "256x256", "0.25 or fewer", at_most(0.25)),
    Goal("cache misses per area pair, worst single line, 128 CPUs", "lines", "pair worst_line", "128x128", "0.05 or fewer", at_most(0.05)),
    Goal("cache misses per area pair, freed elsewhere, 8 CPUs", "lines", "pair_remote misses", "8x8", "3 or fewer", at_most(3)),
    Goal("cache misses per area pair, freed elsewhere, 32 CPUs", "lines", "pair_remote misses", "32x32", "3 or fewer", at_most(3)),
    Goal("cache misses per lookup of an inner address, 128 CPUs", "lines", "find_inner misses", "128x128", "0.1 or fewer", at_most(0.1)),
    Goal("cache misses per pair of 8 MiB, 64 CPUs", "lines", "area_2048 misses", "64x64", "10 or fewer", at_most(10)),
    Goal("instructions of a purge, nothing freed, 128 CPUs", "lines", "purge_empty instructions", "128x128", "2,000 or fewer", at_most(2000)),
    Goal("metadata per one-page area, 16k areas", "icount", "memory slabs_16000", "1x1", "fewer", times(1.0)),
    Goal("page tables after mask 7, repeated", "icount", "page_tables cycle_4", "4x8", "fewer, and flat", flat),
]


def rows_of(goal, every):
    """The rows of a result that a goal is about."""
    return [row for row in every if row.instrument == goal.instrument and row.median_b is not None and
            fnmatch.fnmatchcase(row.name, goal.case) and goal.size in ("*", row.size)]


def lines(result):
    """Per goal: what, side A, side B, how many times faster, the goal, and whether it was reached."""
    every = stats.rows(result)
    made = []
    for goal in GOALS:
        rows = rows_of(goal, every)
        if not rows:
            made.append([goal.text, "-", "-", "-", goal.goal, "not measured"])
            continue
        worst = max(rows, key=lambda row: (not goal.reached(row, every), row.ratio or 0, row.median_b))
        missed = sum(not goal.reached(row, every) for row in rows)
        said = "yes" if not missed else "**no**" if len(rows) == 1 else f"**no**: {missed} of {len(rows)}"
        name = goal.text if goal.others == "one" else f"{goal.text}; worst of {len(rows)}: {worst.name}"
        faster = "-" if not worst.median_a or not worst.median_b else f"{worst.median_a / worst.median_b:.2f}"
        made.append([name, stats.amount(worst.median_a, worst.unit), stats.amount(worst.median_b, worst.unit), faster, goal.goal, said])
    return made


def cells(result):
    """Return the columns, a row of text per goal, and its style."""
    made = lines(result)
    styles = [{"y": "green", "*": "red"}.get(line[-1][0], "dim") for line in made]
    return ["figure", *(f">{result['sides'][side]}" for side in "ab"), ">times faster", "goal", "reached"], made, styles
