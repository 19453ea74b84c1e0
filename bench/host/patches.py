# SPDX-License-Identifier: GPL-2.0
"""What each patch of the series fixes and mapping changes: the kernel with the patches up to it, without the allocator."""

import concurrent.futures
import contextlib
import os
import statistics
from pathlib import Path

from harness import kernels
from harness.checks.series import Series
from harness.settings import REPO, Refused, say

from . import build, markdown, plan as plans, take
from .boot import boot, end_all

ALLOCATOR, KERNEL = plans.on_side(plans.PRISTINE, plans.INSTRUMENTS["icount"].kernel)
PAGE, MARK = REPO / "docs/mapping.md", "<!-- written by scripts/bench patches -->\n"
PLANS = (
    plans.Plan("patches-1", "icount", 1, 1, "area_pair,area_4,mixed"),
    plans.Plan("patches-2", "icount", 2, 1,
               "area_pair,vmalloc_pair,vmalloc_4,vmalloc_16,vmalloc_256,stack,vmap_16,vm_map_ram_16,vmap_1m_order0,"
               "vmap_1m_order8,vmap_100m_order8,vmap_100m_order9,ioremap_mapped_1m,huge_1m,map_1m,map_2m,aliases_0,"
               "info_1200"),
    plans.Plan("patches-8", "icount", 8, 1, "aliases_0,vmalloc_pair", timeout=600),
)
# A difference that is shown, as a part of the figure before. Boots of one kernel differ by 2%, some cases by more.
SHOWN = 0.05
COLUMNS = ["case", "NxM", ">fixes", ">mapping", "each patch"]


def patches():
    """Return the patches in order, as "fixes 1" and so on."""
    return [f"{path.parent} {int(path.name[:4])}" for path in map(Path, Series("fixes", "mapping").names)]


@contextlib.contextmanager
def first_patches(count):
    """Within, the kernel without patches is built with the first of them."""
    os.environ["VMAP_RUST_PATCHES"] = str(count)
    try:
        yield
    finally:
        del os.environ["VMAP_RUST_PATCHES"]


def measure(kernel, allocator, some, args, logs, label, of=statistics.median):
    """Build a kernel and boot it with some plans. Returns for each (case, size) the median of the boots, or what of makes
    of them. Raises Refused if a boot does not count. label: of this state, in names of logs."""
    kernels.get(kernel).build()
    values = {}

    def one(job):
        number, plan = job
        return plan, boot(plan, "a", allocator, number, args.seed + number, kernel, None,
                          f"{logs}/{plan.name}-{label}-{number}.log")

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            done = list(pool.map(one, [(n, plan) for n in range(args.boots) for plan in some]))
        except BaseException:
            end_all()
            raise
    for plan, record in done:
        if record["status"] != "ok" or record["skips"]:
            raise Refused(f"{plan.name}, {label}: {record['status']} {record['skips']}; logs: {logs}")
        # Where a mapping is, and so how many tables it has, says nothing of a patch.
        for result in (result for result in record["results"] if result["metric"] != "tables"):
            key = result["case"] + f" {result['metric']}".removesuffix(" cost"), f"{plan.cpus}x{result['threads']}"
            values.setdefault(key, []).append(result["value"])
    return {key: of(found) for key, found in values.items()}


def rows(names, medians):
    """Yield the rows of the table, one for each case: what each series changes, and each patch, if by SHOWN or more."""
    series = {name: [at for at, patch in enumerate(names) if patch.startswith(name)] for name in ("fixes", "mapping")}

    def change(key, first, last):
        # The ratio is None if the difference is not shown.
        before, after = medians[first][key], medians[last][key]
        return before, after, after / before if before and abs(after / before - 1) >= SHOWN else None

    for key in sorted(set.intersection(*map(set, medians))):
        totals = [change(key, own[0], own[-1] + 1) for own in series.values()]
        ratios = [(name, change(key, at, at + 1)[2]) for at, name in enumerate(names)]
        single = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios if ratio)
        if single or any(ratio for *_, ratio in totals):
            yield [*key, *(f"{before:,.0f} -> {after:,.0f} ({ratio:.2f})" if ratio else ""
                           for before, after, ratio in totals), single]


def main(_name, args, _words):
    """Measure all, and show the table or write it into the page."""
    names, medians = patches(), []
    build.build_plugin()
    logs = take.new_logs(take.stamp())
    for count in range(len(names) + 1):
        with first_patches(count):
            medians.append(measure(KERNEL, ALLOCATOR, PLANS, args, logs, count))
        say(f"bench: {names[count - 1] if count else 'no patch'}: measured, {count} of {len(names)}")
    cells = list(rows(names, medians))
    markdown.show(PAGE, MARK, COLUMNS, cells, args.write)
    return 0
