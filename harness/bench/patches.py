# SPDX-License-Identifier: GPL-2.0
"""What each patch of the series fixes and mapping changes in a kernel without the allocator: "scripts/bench patches";
and what the hook of the series area costs the rb-trees: "scripts/bench hook"."""

import os
import statistics

from .. import build as builds, kernels, series, step
from ..lock import locked
from ..settings import SERIES, Refused, linux, say

from . import build, stats
from .boots import boot_all
from .plan import PRISTINE, Plan, on_side
from .table import Table, show_or_put

BASES = ("arm64-bench", "x86_64-bench")
PATCHES_PLANS = (
    Plan("patches-1", "icount", 1, 1, "area_pair,area_4,mixed"),
    Plan("patches-2", "icount", 2, 1,
         "area_pair,vmalloc_*,stack,vmap_16,vm_map_ram_16,vmap_1m_order0,vmap_1m_order8,vmap_100m_order8,"
         "vmap_100m_order9,ioremap_mapped_1m,huge_1m,map_1m,map_2m,aliases_0,info_1200"),
    Plan("patches-8", "icount", 8, 1, "aliases_0,vmalloc_pair"),
)
# info_10k walks over 10,000 areas.
HOOK_PLAN = Plan("hook", "icount", 2, 5, "area_pair,vmalloc_pair,vm_map_ram_16,lookup_inner_1k,info_10k")
# The text of these files, in bytes, is a row of the table of the hook.
OBJECTS = ("mm/vmalloc.o", "mm/vmap_area_ops.o")
# A difference that is shown, as a part of the figure before. Boots of one kernel differ by 2%, some cases by more.
SHOWN = 0.05


def patches():
    """Return the patches in order, as "fixes 1" and so on."""
    return [f"{path.parent.name} {int(path.name[:4])}" for path in series.patches(linux(SERIES), ("fixes", "mapping"))]


def measure(kernel, allocator, some, logs, label, count=0, combine=statistics.median):
    """Build a kernel and boot it with some plans. Returns what combine makes of the boots for each (case, size).
    Refuses a boot that does not count. label: of this state, in names of logs; count: of patches of a kernel
    without the allocator."""
    builds.build(kernels.get(kernel), count)
    values = {}
    jobs = [(plan, "a", allocator, number, number + 1, kernel, f"{logs}/{plan.name}-{label}-{number}.log")
            for plan in some for number in range(plan.repetitions)]
    for record in boot_all(jobs, os.cpu_count()):
        if record["status"] != "ok" or record["skips"]:
            raise Refused(f"{record['plan']}, {label}: {record['status']} {record['skips']}; logs: {logs}")
        # Where a mapping is, and so how many tables it has, says nothing of a patch.
        for result in (result for result in record["results"] if result["metric"] != "tables"):
            key = result["case"] + f" {result['metric']}".removesuffix(" cost"), f"{record['cpus']}x{result['threads']}"
            values.setdefault(key, []).append(result["value"])
    say(f"bench: {label}: measured")
    return {key: combine(found) for key, found in values.items()}


def patches_rows(base, names, medians):
    """Yield the rows of the table, one for each case of an architecture: what each series changes, and each patch, if
    by SHOWN or more. medians: by number of patches; some states may be left out."""
    parts = {name: [at for at, patch in enumerate(names) if patch.startswith(name)] for name in ("fixes", "mapping")}

    def change(key, first, last):
        # The ratio is None if the difference is not shown.
        if not {first, last} <= medians.keys():
            return None, None, None
        before, after = medians[first][key], medians[last][key]
        return before, after, after / before if before and abs(after / before - 1) >= SHOWN else None

    for key in sorted(set.intersection(*map(set, medians.values()))):
        totals = [change(key, own[0], own[-1] + 1) for own in parts.values()]
        ratios = [(name, change(key, at, at + 1)[2]) for at, name in enumerate(names)]
        single = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios if ratio)
        if single or any(ratio for *_, ratio in totals):
            yield [base.partition("-")[0], *key,
                   *(f"{stats.amount(before)} -> {stats.amount(after)} ({ratio:.2f})" if ratio else ""
                     for before, after, ratio in totals), single]


def patches_states(base, names, logs):
    """Measure an architecture: the first one with the first 0, 1, 2 ... patches, others with those of whole series.
    Returns the medians by number of patches."""
    allocator, kernel = on_side(PRISTINE, base)
    whole, medians = (0, sum(name.startswith("fixes") for name in names), len(names)), {}
    for count in range(len(names) + 1) if base == BASES[0] else whole:
        medians[count] = measure(kernel, allocator, PATCHES_PLANS, logs, f"{kernel}-{count}", count)
    return medians


def hook_states(base, logs):
    """Measure the three kernels of an architecture. Yields for each its lowest figures by case, the size of its text as
    one of them."""
    # A kernel without area cannot have later.
    os.environ["VMAP_RUST_SERIES"] = " ".join(name for name in series.ALL if name != "later")
    for allocator, kernel in on_side(PRISTINE, base), ("none", f"{base}-off"), ("rbtree", base):
        found = measure(kernel, allocator, [HOOK_PLAN], logs, kernel, len(patches()), min)
        folder = kernels.get(kernel).folder
        sizes = build.output("llvm-size", *(folder / name for name in OBJECTS if (folder / name).exists()))
        yield {"text, bytes": sum(int(line.split()[0]) for line in sizes.splitlines()[1:]),
               **{case: value for (case, _), value in found.items()}}


def hook_rows(base, found):
    """Yield the rows of the table: a case of an architecture each."""
    without, off, on = found
    for case in sorted(without.keys() & off.keys() & on.keys()):
        one, two, three = without[case], off[case], on[case]
        shown = [stats.amount(value) for value in (one, two, three)]
        yield [base.partition("-")[0], case, shown[0], shown[1], f"{two / one:.3f}", shown[2], f"{three / one:.3f}"]


def main(name, args):
    """Measure patches or the hook, and show the table or write it into its document; returns the exit code."""
    # Another run would build the kernel that it boots with other patches.
    with locked(f"bench {name}"):
        logs, names = step.new_logs("bench", 5), patches()
        if name == "patches":
            title, columns = "what each patch changes", ["arch", "case", "NxM", ">fixes", ">mapping", "each patch"]
            rows = [row for base in BASES for row in patches_rows(base, names, patches_states(base, names, logs))]
        else:
            title, columns = "what the hook costs the rb-trees", ["arch", "case", ">without area", ">option off", ">ratio",
                                                                  ">rb-trees chosen", ">ratio"]
            rows = [row for base in BASES for row in hook_rows(base, hook_states(base, logs))]
        show_or_put([Table(title, columns, rows)], name, args.write)
    return 0
