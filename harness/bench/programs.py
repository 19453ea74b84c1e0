# SPDX-License-Identifier: GPL-2.0
"""What real programs gain: "scripts/bench programs" and "scripts/bench profile-program"."""

import re
import shutil
import statistics
from collections import defaultdict

from .. import build as builds, initramfs, kernels
from ..guest import Boot
from ..settings import CACHE, REPO, Refused, say
from ..verdict import Expected, read_lines

from . import build, counts, results, stats
from .plan import program_texts
from .profile import functions_table
from .table import Table, show, show_or_put

KERNEL = "arm64-programs"
# Side -> the allocator, and the kernel.
SIDES = {"A": ("rbtree", KERNEL), "B": ("rust", KERNEL), "C": ("none", f"{KERNEL}-pristine")}
# Functions of the kernel behind the file that bench/programs.sh writes and reads around what it measures.
MARKS = ("wq_affn_dfl_set", "wq_affn_dfl_get")
# Boots of each side, and how often more of them are added for a row that spreads more than STEADY.
BOOTS, MORE, STEADY = 3, 2, 0.003
# A row that ends with this belongs to the guest with 8 CPUs.
EIGHT = "-8cpu"
# What bench/programs.sh prints.
LINE = re.compile(r"^program: (\S+) (?:ops=(\d+) areas=(\d+)|FAIL ?(.*))$")
LATENCY = re.compile(r"^latency: (\S+) mean=(\d+) max=(\d+)$")
COLUMNS = ["program", "one operation", ">areas", ">A", ">B", ">C", ">B/A", ">B/C", ">spread"]
LATENCY_COLUMNS = ["program", "what runs beside it", ">A", ">B", ">C", ">A, maximum", ">B, maximum", ">C, maximum"]


def make_archive(kernel):
    """Make the archive of a kernel: the guest image, the script, the programs and all modules; returns its path."""
    filter_object = kernel.folder / "programs-filter.o"
    initramfs.run(shutil.which("clang-22") or "clang", "-target", "bpf", "-O2", "-g",
                  "-DSEC(name)=__attribute__((section(name), used))", "-c", REPO / "bench/programs/filter.bpf.c", "-o",
                  filter_object)
    modules = (kernel.folder / "modules.order").read_text(encoding="ascii").split()
    files = {"init": REPO / "bench/programs.sh", "programs/filter.o": filter_object,
             **initramfs.tree(REPO / "bench/programs", "programs"),
             **initramfs.module_files(kernel, [(kernel.folder / name).with_suffix(".ko") for name in modules])}
    return initramfs.add_to_image("programs-image.cpio.zst", kernel, files, "initramfs-programs.cpio.zst")


def prepare(sides):
    """Build the kernels of some sides; returns the archive of each kernel."""
    archives = {}
    for name in dict.fromkeys(SIDES[side][1] for side in sides):
        builds.build(kernels.get(name))
        archives[name] = make_archive(kernels.get(name))
    return archives


def boot(side, archives, names, log, what, append="", **more):
    """Boot one side for some rows, with 8 CPUs if they are of that guest, else with 2; returns the reasons to fail.
    more: of Boot."""
    allocator, kernel = SIDES[side]
    append += f" printk.devkmsg=on test_vmalloc.run_test_mask=0 nokaslr PROGRAMS={','.join(names)}"
    return Boot(kernels.get(kernel), Expected(allocator, "programs: done"), mem=3072, timeout=3600, log=log, what=what,
                append=append, initramfs=str(archives[kernel]), accel="icount",
                cpus=8 if names[0].endswith(EIGHT) else 2, **more).run()


def read_rows(log):
    """Return what a console log has: (name, operations, areas) of the rows in their order, why rows failed, by name,
    and (mean, maximum) of each latency by name, in instructions."""
    lines = read_lines(log)
    found = [match.groups() for match in map(LINE.match, lines) if match]
    latencies = [match.groups() for match in map(LATENCY.match, lines) if match]
    return ([(name, int(ops), int(areas)) for name, ops, areas, _ in found if ops],
            {name: error or "failed" for name, ops, _, error in found if not ops},
            {name: (int(mean), int(most)) for name, mean, most in latencies})


class Taken:
    """The values of all boots."""

    def __init__(self):
        self.values = defaultdict(lambda: {side: [] for side in SIDES})  # row -> side -> one for each boot
        self.areas = defaultdict(list)
        self.latencies = defaultdict(lambda: {side: [] for side in SIDES})
        self.failures = []

    def add(self, side, log, totals):
        """Add what a guest printed to a log. totals: the instructions of each row that did not fail."""
        good, failed, latencies = read_rows(log)
        if len(totals) != len(good):
            raise Refused(f"{side}: {len(good)} rows, but {len(totals)} pairs of marks")
        for (name, ops, areas), total in zip(good, totals, strict=True):
            self.values[name][side].append(total / ops)
            if side == "B":
                self.areas[name].append(areas / ops)
        self.failures += [f"{name}, {side}: {error}" for name, error in failed.items()]
        for name, pair in latencies.items():
            self.latencies[name][side].append(pair)

    def ratio(self, name, side, base):
        """Return the ratio of the medians of two sides, the spread, and whether they differ by more than that."""
        a, b = self.values[name][base], self.values[name][side]
        if not a or not b:
            return None, None, False
        ratio = statistics.median(b) / statistics.median(a)
        spread = max((max(v) - min(v)) / statistics.median(v) for v in (a, b))
        _, low, high = stats.ratio_and_interval(a, b)
        differs = abs(ratio - 1) > spread or (low is not None and not low <= 1 <= high)
        return ratio, spread, differs

    def unsure(self):
        """Return the rows that need more boots."""
        judged = {name: self.ratio(name, "B", "A") for name in self.values}
        return [name for name, (_, spread, differs) in judged.items() if spread and spread > STEADY and not differs]


def median(values):
    """Return the text of a median, or of nothing."""
    return stats.amount(round(statistics.median(values))) if values else "failed"


def ratio_text(ratio, differs):
    """Return the text of a ratio, bold for a loss."""
    text = stats.ratio_text(ratio)
    return f"**{text}**" if differs and ratio > 1 else text


def programs_table(taken, title):
    """Return the table of programs: of each row that was taken, or has failed."""
    made, failed = [], {failure.partition(",")[0] for failure in taken.failures}
    for name, text in program_texts().items():
        if name not in taken.values and name not in failed:
            continue
        sides = taken.values[name]
        ratio, spread, differs = taken.ratio(name, "B", "A")
        other, _, other_differs = taken.ratio(name, "B", "C")
        areas = statistics.median(taken.areas[name]) if taken.areas[name] else 0
        made.append([name, text, f"{areas:.2g}" if areas < 10 else f"{areas:,.0f}",
                     *(median(sides[side]) for side in SIDES), ratio_text(ratio, differs),
                     ratio_text(other, other_differs), "-" if spread is None else f"{100 * spread:.2f}%"])
    return Table(title, COLUMNS, made)


def latency_table(taken, title):
    """Return the table of latencies: for each side the mean, then the lowest and the highest maximum of the boots."""
    def most(values):
        return f"{min(values):,} to {max(values):,}" if values else "failed"

    made = []
    for name in (name for name in program_texts("latency") if name in taken.latencies):
        means, maxima = ([[pair[which] for pair in pairs] for pairs in taken.latencies[name].values()]
                         for which in (0, 1))
        made.append([name, program_texts("latency")[name], *map(median, means), *map(most, maxima)])
    return Table(title, LATENCY_COLUMNS, made)


def take(archives, taken, names, first=0):
    """Boot all sides BOOTS times, in turns. first: how many boots there were before. A boot that fails does not
    count."""
    eight = [name for name in names if name.endswith(EIGHT)]
    guests = [some for some in ([name for name in names if name not in eight], eight) if some]
    jobs = [(number, some, side) for number in range(first, first + BOOTS) for some in guests
            for side in (SIDES if number % 2 == 0 else [*SIDES][::-1])]
    for done, (number, some, side) in enumerate(jobs, 1):
        log = f"{CACHE}/log/programs-{side}{EIGHT * (some == eight)}-{number}.log"
        addresses = [counts.symbols_of(SIDES[side][1]).addresses[mark] for mark in MARKS]
        plugin = f"{build.plugin('total')},out={counts.counts_of(log)},begin={addresses[0]:x},end={addresses[1]:x}"
        reasons = boot(side, archives, some, log, f"boot {done} of {len(jobs)}:", seed=number + 1, plugin=plugin)
        if reasons:
            taken.failures.append(f"boot of {side}{EIGHT * (some == eight)}: {reasons[0]}; log: {log}")
            say(f"bench: {taken.failures[-1]}")
        else:
            taken.add(side, log, totals_of(counts.counts_of(log)))


def totals_of(path):
    """Return what the plugin "total" has counted: the instructions of each row. Refuses a file that is cut off."""
    with open(path, encoding="ascii") as file:
        *lines, last = file.read().split() or [""]
    if last != "end":
        raise Refused(f"{path} is cut off")
    return list(map(int, lines))


def profile_program(name):
    """Show the instructions of one row by function with each allocator."""
    archives = prepare("AB")
    for side in "AB":
        symbols = counts.symbols_of(SIDES[side][1])
        log = f"{CACHE}/log/profile-program-{name}-{side}.log"
        # Only one CPU runs: the plugin shows what the CPU with the marks executes.
        reasons = boot(side, archives, [name], log, "profile:", "maxcpus=1", seed=1,
                       plugin=counts.specification(symbols, log, *MARKS))
        good, *_ = read_rows(log)
        windows = counts.read(log, symbols)
        if reasons or len(good) != 1 or len(windows) != 1:
            raise Refused(f"{side}: {reasons[0] if reasons else 'the program failed'}; log: {log}")
        windows[0].ops = good[0][1]
        show([functions_table(f"{name}, {side}: per operation, {windows[0].ops:,} operations", windows[0], symbols)])


def main(name, args):
    """Boot and show; returns the exit code: 1 if a row or a boot failed."""
    if name == "profile-program":
        for one in args.names:
            profile_program(one)
        return 0
    archives, taken = prepare(SIDES), Taken()
    take(archives, taken, args.names)
    for more in range(MORE):
        if not taken.failures and (unsure := taken.unsure()):
            take(archives, taken, unsure, BOOTS * (more + 1))
    boots = [len(values) for sides in taken.values.values() for values in sides.values()]
    number = " to ".join(dict.fromkeys(map(str, (min(boots, default=0), max(boots, default=0)))))
    head = (f"`scripts/bench programs`, commit {results.commit()[:12]}, medians of {number} boots, instructions for "
            "one operation.")
    tables = [programs_table(taken, head), latency_table(taken, "latencies, in instructions")]
    show_or_put([one for one in tables if one.rows], name, args.write, head)
    for failure in dict.fromkeys(taken.failures):
        say(f"bench: failed: {failure}")
    return 1 if taken.failures else 0
