# SPDX-License-Identifier: GPL-2.0
"""What real programs gain: "scripts/bench programs"."""

import re
import statistics

from ..boot import build as builds, initramfs, kernels
from ..boot.guest import Boot
from ..machine.settings import LOGS, REPO, Refused, commit
from ..machine.table import markdown
from ..boot.verdict import Expected, read_lines

from . import counts, stats
from .pictures import BEGIN, END
from .plan import program_texts

KERNEL = "arm64-programs"
# Side -> the allocator, and the kernel.
SIDES = {"A": ("rbtree", KERNEL), "B": ("rust", KERNEL), "C": ("none", f"{KERNEL}-pristine")}
# Functions of the kernel behind the file that bench/programs.sh writes and reads around what it measures.
MARKS = ("wq_affn_dfl_set", "wq_affn_dfl_get")
# Boots of each side.
BOOTS = 5
# What bench/programs.sh prints.
LINE = re.compile(r"^program: (\S+) (?:ops=(\d+) areas=(\d+)|FAIL ?(.*))$")
COLUMNS = ["program", "one operation", ">areas", ">A", ">B", ">C", ">B/A", ">B/C", ">spread"]


def make_archive(kernel):
    """Build a kernel, and make its archive: the guest image, the script, the programs and all modules; returns its
    path."""
    builds.build(kernel)
    modules = (kernel.folder / "modules.order").read_text(encoding="ascii").split()
    files = {"init": REPO / "bench/programs.sh", **initramfs.tree(REPO / "bench/programs", "programs")}
    with initramfs.module_files(kernel, [(kernel.folder / name).with_suffix(".ko") for name in modules]) as more:
        return initramfs.add_to_image("programs-image.cpio.zst", kernel, files | more, "initramfs-programs.cpio.zst")


def read(log):
    """Return the instructions and the areas of one operation of each row by name, from a console log and what the
    plugin "total" has written beside it. Refuses a row that failed, and counts that are cut off or belong to no row."""
    rows = [match.groups() for match in map(LINE.match, read_lines(log)) if match]
    for name, ops, _, error in rows:
        if not ops:
            raise Refused(f"{name}: failed: {error}; log: {log}")
    *totals, last = counts.counts_of(log).read_text(encoding="ascii").split() or [""]
    if last != "end" or len(totals) != len(rows):
        raise Refused(f"{len(rows)} rows, but {len(totals)} pairs of marks; log: {log}")
    return {name: (int(total) / int(ops), int(areas) / int(ops))
            for (name, ops, areas, _), total in zip(rows, totals, strict=True)}


def boot(side, archive, names, number):
    """Boot a side for some rows; returns what read() does. Refuses a boot that fails. archive: of its kernel; number:
    of the boot."""
    allocator, kernel = SIDES[side]
    log = LOGS / f"programs-{side}-{number}.log"
    begin, end = (counts.symbols_of(kernel).addresses[mark] for mark in MARKS)
    reasons = Boot(kernels.get(kernel), Expected(allocator, "programs: done"), cpus=2, mem=3072, timeout=3600, log=log,
                   what=f"boot {number + 1} of {BOOTS}, {side}:", initramfs=str(archive), accel="icount", seed=number + 1,
                   plugin=f"{counts.build_plugin('total')},out={counts.counts_of(log)},begin={begin:x},end={end:x}",
                   append="printk.devkmsg=on test_vmalloc.run_test_mask=0 nokaslr PROGRAMS=" + ",".join(names)).run()
    if reasons:
        raise Refused(f"boot of {side}: {reasons[0]}; log: {log}")
    return read(log)


def row(name, text, boots):
    """Return a row of the table. boots: what read() returns, for each boot of each side."""
    insns = {side: [one[name][0] for one in some] for side, some in boots.items()}
    areas = statistics.median(one[name][1] for one in boots["B"])
    medians = {side: statistics.median(values) for side, values in insns.items()}
    ratios = []
    for base in "AC":
        ratio, low, _ = stats.ratio_and_interval(insns[base], insns["B"])
        # Bold: a loss.
        ratios.append(f"**{stats.ratio_text(ratio)}**" if low and low > 1 else stats.ratio_text(ratio))
    spread = max((max(insns[side]) - min(insns[side])) / medians[side] for side in "AB")
    return [name, text, f"{areas:.2g}" if areas < 10 else f"{areas:,.0f}",
            *(stats.amount(round(median)) for median in medians.values()), *ratios, f"{100 * spread:.2f}%"]


def main(_name, args):
    """Boot all sides in turns, and print the table; returns the exit code. Refuses what boot() does."""
    archives = {kernel: make_archive(kernels.get(kernel)) for kernel in {kernel for _, kernel in SIDES.values()}}
    boots = {side: [] for side in SIDES}
    for number in range(BOOTS):
        for side, (_, kernel) in SIDES.items():
            boots[side].append(boot(side, archives[kernel], args.programs, number))
    rows = [row(name, text, boots) for name, text in program_texts().items() if name in args.programs]
    # For docs/bench.md.
    print(f"{BEGIN.format('programs')}\n`scripts/bench programs`, commit {commit()}, medians of {BOOTS} boots, instructions for one "
          f"operation.\n\n{markdown(COLUMNS, rows)}\n{END}")
    return 0
