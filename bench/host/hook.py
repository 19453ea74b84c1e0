# SPDX-License-Identifier: GPL-2.0
"""What the hook of the series area costs the rb-trees: without the series, with its option off, and with it on."""

import subprocess

from harness import kernels
from harness.settings import REPO, say

from . import build, markdown, patches, plan as plans, stats, take

PAGE, MARK = REPO / "docs/measurements.md", "<!-- written by scripts/bench hook -->\n"
# find is lookup_inner_1k; info_10k walks over 10,000 areas.
PLAN = plans.Plan("hook", "icount", 2, 1, "area_pair,vmalloc_pair,vm_map_ram_16,lookup_inner_1k,info_10k")
COLUMNS = ["kernel", "case", ">without area", ">option off", ">ratio", ">rb-trees chosen", ">ratio"]
# The text of these files, in bytes.
OBJECTS = ("mm/vmalloc.o", "mm/vmap_area_ops.o")


def text_size(kernel):
    """Return the bytes of text of OBJECTS in a kernel that was built."""
    files = [str(path) for path in (kernels.get(kernel).folder / name for name in OBJECTS) if path.exists()]
    lines = subprocess.run(["llvm-size", *files], capture_output=True, text=True, check=True).stdout.splitlines()
    return sum(int(line.split()[0]) for line in lines[1:])


def states(base, args, logs):
    """Measure the three kernels. Yields for each its figures by case, the size of its text as one of them."""
    for allocator, kernel in plans.on_side(plans.PRISTINE, base), ("none", f"{base}-off"), ("rbtree", base):
        with patches.first_patches(len(patches.patches())):
            found = patches.measure(kernel, allocator, [PLAN], args, logs, kernel, min)
        say(f"bench: {kernel}: measured")
        yield {"text, bytes": text_size(kernel), **{case: value for (case, _), value in found.items()}}


def rows(base, found):
    """Yield the rows of the table of a kernel: a case each."""
    without, off, on = found
    for case in sorted(without.keys() & off.keys() & on.keys()):
        one, two, three = without[case], off[case], on[case]
        shown = [stats.amount(value, "") for value in (one, two, three)]
        yield [base, case, shown[0], shown[1], f"{two / one:.3f}", shown[2], f"{three / one:.3f}"]


def main(_name, args, _words):
    """Measure all, and show the table or write it into the page."""
    build.build_plugin()
    logs = take.new_logs(take.stamp())
    cells = [row for base in args.kernels for row in rows(base, list(states(base, args, logs)))]
    markdown.show(PAGE, MARK, COLUMNS, cells, args.write)
    return 0
