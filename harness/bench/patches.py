# SPDX-License-Identifier: GPL-2.0
"""What each patch of the series first, vmalloc and mapping changes in a kernel without the allocator: "scripts/bench patches";
and what the hook of the series area costs the rb-trees: "scripts/bench hook"."""

import itertools
import statistics
import subprocess

from ..boot import build as builds, kernels
from ..patches import series
from ..machine import step
from ..machine.settings import SERIES, Refused, commit, cpus, linux, say
from ..machine.table import markdown

from .boots import boot_all
from .plan import PRISTINE, Plan, on_side
from .stats import amount

BASES = ("arm64-bench", "x86_64-bench")
PATCHES_PLANS = (
    Plan("patches-1", "icount", 1, 1, "area_pair,area_4,mixed"),
    Plan("patches-2", "icount", 2, 1,
         "area_pair,vmalloc_*,stack,vmap_16,vm_map_ram_16,vmap_1m_order0,vmap_1m_order8,vmap_100m_order8,"
         "ioremap_mapped_1m,huge_1m,map_1m,map_2m,aliases_0,vread_page,info_1200"),
    Plan("patches-8", "icount", 8, 1, "aliases_0,vread_page,vmalloc_pair"),
    # Tables of other cases would be in the way of its PMD entries.
    Plan("patches-alone", "icount", 2, 1, "vmap_100m_order9"),
)
# info_10k walks over 10,000 areas.
HOOK_PLAN = Plan("hook", "icount", 2, 5, "area_pair,vmalloc_pair,vm_map_ram_16,lookup_inner_1k,info_10k")
# The text of these files, in bytes, is a row of the table of the hook.
OBJECTS = ("mm/vmalloc.o", "mm/vmap_rust.o")
# A difference that is shown, as a part of the figure before. Boots of one kernel differ by 2%, some cases by more.
SHOWN = 0.05


def patches():
    """Return the patches in order, as "first 1" and so on."""
    return [f"{path.parent.name} {int(path.name[:4])}" for path in series.patches(linux(SERIES), series.WITHOUT)]


def ends(names):
    """Return how many patches there are before each series, and behind the last one."""
    folders = [name.partition(" ")[0] for name in names]
    return [0, *(max(n for n, folder in enumerate(folders, 1) if folder == name) for name in series.WITHOUT)]


def measure(kernel, allocator, some, logs, label, count, combine=statistics.median):
    """Build a kernel and boot it with some plans. Returns what combine makes of the boots for each (case, size).
    Refuses a boot that does not count. label: of this state, in names of logs; count: of patches of a kernel
    without the allocator."""
    builds.build(kernels.get(kernel), count)
    values = {}
    jobs = [(plan, "a", allocator, number, number + 1, kernel, f"{logs}/{plan.name}-{label}-{number}.log")
            for plan in some for number in range(plan.repetitions)]
    for record in boot_all(jobs, cpus()):
        if record["status"] != "ok" or record["skips"]:
            raise Refused(f"{record['plan']}, {label}: {record['status']} {record['skips']}; logs: {logs}")
        for result in record["results"]:
            # Where a mapping is, and so how many tables it has, says nothing of a patch.
            if result["metric"] != "tables":
                name = result["case"] + f" {result['metric']}".removesuffix(" cost")
                values.setdefault((name, f"{record['cpus']}x{result['threads']}"), []).append(result["value"])
    say(f"bench: {label}: measured")
    return {key: combine(found) for key, found in values.items()}


def patches_rows(base, names, medians):
    """Yield the rows of the table, one for each case of an architecture: what each series changes, and each patch, if
    by SHOWN or more. medians: by number of patches; states between those of whole series may be left out."""
    for key in sorted(set.intersection(*map(set, medians.values()))):
        def change(first, last, form, key=key):
            before, after = medians[first][key], medians[last][key]
            shown = before and abs(after / before - 1) >= SHOWN
            return form.format(amount(before), amount(after), after / before) if shown else ""

        totals = [change(first, last, "{} -> {} ({:.2f})") for first, last in itertools.pairwise(ends(names))]
        single = [change(at, at + 1, f"{name} {{2:.2f}}") for at, name in enumerate(names)
                  if {at, at + 1} <= medians.keys()]
        if any(totals + single):
            yield [base.partition("-")[0], *key, *totals, ", ".join(filter(None, single))]


def measure_patches(base, names, logs):
    """Measure an architecture: the first one with the first 0, 1, 2 ... patches, others with those of whole series.
    Returns the rows of the table."""
    allocator, kernel = on_side(PRISTINE, base)
    states = range(len(names) + 1) if base == BASES[0] else ends(names)
    return patches_rows(base, names, {count: measure(kernel, allocator, PATCHES_PLANS, logs, f"{kernel}-{count}", count)
                                      for count in states})


def measure_hook(base, names, logs):
    """Measure the three kernels of an architecture: the lowest figures by case, and the size of the text. Yields the
    rows of the table, one for each case."""
    found = []
    for allocator, kernel in on_side(PRISTINE, base), ("none", f"{base}-off"), ("rbtree", base):
        lowest = measure(kernel, allocator, [HOOK_PLAN], logs, kernel, len(names), min)
        paths = [path for path in map(kernels.get(kernel).folder.joinpath, OBJECTS) if path.exists()]
        sizes = subprocess.check_output(["llvm-size", *paths], text=True).splitlines()[1:]
        found.append({"text, bytes": sum(int(line.split()[0]) for line in sizes),
                      **{case: value for (case, _), value in lowest.items()}})
    for case in sorted(set.intersection(*map(set, found))):
        without, off, on = (one[case] for one in found)
        yield [base.partition("-")[0], case, amount(without), amount(off), f"{off / without:.3f}", amount(on),
               f"{on / without:.3f}"]


COMMANDS = {"patches": (measure_patches, ["arch", "case", "NxM", *(f">{name}" for name in series.WITHOUT), "each patch"]),
            "hook": (measure_hook,
                     ["arch", "case", ">without area", ">option off", ">ratio", ">rb-trees chosen", ">ratio"])}


def main(name, _args):
    """Measure patches or the hook, and print the table; returns the exit code."""
    # Another run would build the kernel that it boots with other patches.
    with builds.alone([base + more for base in BASES for more in ("", "-off", "-pristine")], f"bench {name}"):
        measured, columns = COMMANDS[name]
        logs, names = step.new_logs("bench", 5), patches()
        table = markdown(columns, [row for base in BASES for row in measured(base, names, logs)])
    print(f"`scripts/bench {name}`, commit {commit()}.\n\n{table}")
    return 0
