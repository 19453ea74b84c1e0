# SPDX-License-Identifier: GPL-2.0
"""What real programs gain: "scripts/bench programs" and "scripts/bench profile-program"."""

import shutil
import statistics
import subprocess
from collections import defaultdict

from harness import initramfs, kernels
from harness.guest import Boot
from harness.settings import CACHE, REPO, Refused, say
from harness.verdict import Expected, read_lines

from . import build, counts, program_rows as rows, results, stats
from .boot import counts_of, symbols_of
from .profile import functions_table
from .table import Table, show, show_or_put

KERNEL = "arm64-programs"
# Side -> the allocator, and the kernel.
SIDES = {"A": ("rbtree", KERNEL), "B": ("rust", KERNEL), "C": ("none", f"{KERNEL}-pristine")}
# Functions of the kernel behind the file that bench/programs.sh writes and reads around what it measures.
MARKS = ("wq_affn_dfl_set", "wq_affn_dfl_get")
# Boots of each side, and how often more of them are added for a row that spreads more than STEADY.
BOOTS, MORE, STEADY = 3, 2, 0.003
COLUMNS = ["program", "one operation", ">areas", ">A", ">B", ">C", ">B/A", ">B/C", ">spread"]
LATENCY_COLUMNS = ["program", "what runs beside it", ">A", ">B", ">C", ">A, maximum", ">B, maximum", ">C, maximum"]


def make_archive(kernel):
    """Make the archive of a kernel: the guest image, the script, the programs and all modules; returns its path."""
    part = kernel.folder / "programs-part"
    shutil.rmtree(part, ignore_errors=True)
    release = (kernel.folder / "include/config/kernel.release").read_text(encoding="ascii").strip()
    modules = part / "usr/lib/modules" / release
    (modules / "kernel").mkdir(parents=True)
    for name in (kernel.folder / "modules.order").read_text(encoding="ascii").split():
        shutil.copy((kernel.folder / name).with_suffix(".ko"), modules / "kernel")
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(kernel.folder / name, modules)
    shutil.copytree(REPO / "bench/programs", part / "programs")
    shutil.copy(REPO / "bench/programs.sh", part / "init")
    (part / "init").chmod(0o755)
    clang = shutil.which("clang-22") or "clang"
    for command in ([clang, "-target", "bpf", "-O2", "-g", "-DSEC(name)=__attribute__((section(name), used))", "-c",
                     part / "programs/filter.bpf.c", "-o", part / "programs/filter.o"],
                    ["/usr/sbin/depmod", "-b", part / "usr", "-m", "/lib/modules", release]):
        if subprocess.run(command, check=False).returncode:
            raise Refused(f"{command[0]} failed in {part}")
    packed = subprocess.run(["bash", "-o", "pipefail", "-c",
                             "find . -print0 | cpio --quiet -o -0 -H newc -R 0:0 | zstd -q -3"], cwd=part,
                            stdout=subprocess.PIPE, check=True).stdout
    shutil.rmtree(part)
    return initramfs.write(kernel.folder / "initramfs-programs.cpio.zst",
                           (CACHE / "programs-image.cpio.zst").read_bytes() + packed)


def prepare(sides):
    """Build the kernels of some sides; returns the archive of each kernel."""
    archives = {}
    for name in dict.fromkeys(SIDES[side][1] for side in sides):
        kernels.get(name).build()
        archives[name] = make_archive(kernels.get(name))
    return archives


def boot(side, archives, names, log, what, append="", **more):
    """Boot one side for some rows, with 8 CPUs if they are of that guest, else with 2; returns the reasons to fail.
    more: of Boot."""
    allocator, kernel = SIDES[side]
    append += f" printk.devkmsg=on test_vmalloc.run_test_mask=0 nokaslr PROGRAMS={','.join(names)}"
    return Boot(kernels.get(kernel), Expected(allocator, "programs: done"), mem=3072, timeout=3600, log=log, what=what,
                append=append, initramfs=str(archives[kernel]), accel="icount",
                cpus=8 if names[0].endswith(rows.EIGHT) else 2, **more).run()


class Taken:
    """The values of all boots."""

    def __init__(self):
        self.values = defaultdict(lambda: {side: [] for side in SIDES})  # row -> side -> one for each boot
        self.areas = defaultdict(list)
        self.latencies = defaultdict(lambda: {side: [] for side in SIDES})
        self.failures = []

    def add(self, side, lines, totals):
        """Add what a guest printed. totals: the instructions of each row that did not fail."""
        good, failed, latencies = rows.read(lines)
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
    for name, text in rows.texts().items():
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
    for name in (name for name in rows.texts("latency") if name in taken.latencies):
        means, maxima = ([[pair[which] for pair in pairs] for pairs in taken.latencies[name].values()]
                         for which in (0, 1))
        made.append([name, rows.texts("latency")[name], *map(median, means), *map(most, maxima)])
    return Table(title, LATENCY_COLUMNS, made)


def take(archives, taken, names, first=0):
    """Boot all sides BOOTS times, in turns. first: how many boots there were before. A boot that fails does not
    count."""
    eight = [name for name in names if name.endswith(rows.EIGHT)]
    guests = [some for some in ([name for name in names if name not in eight], eight) if some]
    jobs = [(number, some, side) for number in range(first, first + BOOTS) for some in guests
            for side in (SIDES if number % 2 == 0 else [*SIDES][::-1])]
    for done, (number, some, side) in enumerate(jobs, 1):
        log = f"{CACHE}/log/programs-{side}{rows.EIGHT * (some == eight)}-{number}.log"
        addresses = [symbols_of(SIDES[side][1]).addresses[mark] for mark in MARKS]
        plugin = f"{build.plugin('total')},out={counts_of(log)},begin={addresses[0]:x},end={addresses[1]:x}"
        reasons = boot(side, archives, some, log, f"boot {done} of {len(jobs)}:", seed=number + 1, plugin=plugin)
        if reasons:
            taken.failures.append(f"boot of {side}{rows.EIGHT * (some == eight)}: {reasons[0]}; log: {log}")
            say(f"bench: {taken.failures[-1]}")
        else:
            taken.add(side, read_lines(log), totals_of(counts_of(log)))


def totals_of(path):
    """Return what the plugin "total" has counted: the instructions of each row. Refuses a file that is cut off."""
    with open(path, encoding="ascii") as file:
        *lines, last = file.read().split()
    if last != "end":
        raise Refused(f"{path} is cut off")
    return list(map(int, lines))


def profile_program(name):
    """Show the instructions of one row by function with each allocator; returns the exit code."""
    archives = prepare("AB")
    for side in "AB":
        symbols = symbols_of(SIDES[side][1])
        log = f"{CACHE}/log/profile-program-{name}-{side}.log"
        # Only one CPU runs: the plugin shows what the CPU with the marks executes.
        reasons = boot(side, archives, [name], log, "profile:", "maxcpus=1", seed=1,
                       plugin=counts.specification(symbols, counts_of(log), *MARKS))
        good, *_ = rows.read(read_lines(log))
        windows = counts.read(counts_of(log), symbols)
        if reasons or len(good) != 1 or len(windows) != 1:
            raise Refused(f"{side}: {reasons[0] if reasons else 'the program failed'}; log: {log}")
        windows[0].ops = good[0][1]
        show([functions_table(f"{name}, {side}: per operation, {windows[0].ops:,} operations", windows[0], symbols)])
    return 0


def main(name, args):
    """Boot and show; returns the exit code: 1 if a row or a boot failed."""
    if name == "profile-program":
        return profile_program(args.name)
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
