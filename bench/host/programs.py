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

from . import build, counts, facts, profile, program_rows as rows, stats, table
from .boot import symbols_of

KERNEL = "arm64-programs"
# Side -> the allocator, and the kernel.
SIDES = {"A": ("rbtree", KERNEL), "B": ("rust", KERNEL), "C": ("none", f"{KERNEL}-pristine")}
# Functions of the kernel behind the file that bench/programs.sh writes and reads around what it measures.
MARKS = ("wq_affn_dfl_set", "wq_affn_dfl_get")
TOTAL = CACHE / "build/plugin/total.so"
# Rows that spread less than this need no more boots.
STEADY = 0.003
COLUMNS = ["program", "one operation", ">areas", ">A", ">B", ">C", ">B/A", ">B/C", ">spread"]
LATENCY_COLUMNS = ["program", "what runs beside it", ">A", ">B", ">C", ">A, maximum", ">B, maximum", ">C, maximum"]
DOCUMENT, MARK = REPO / "docs/bench.md", "<!-- written by scripts/bench programs -->\n"


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
    """Build the kernels of some sides, and the plugins; returns the archive of each kernel."""
    build.build_plugin()
    build.build_library(TOTAL, [REPO / "bench/plugin" / name for name in ("total.c", "qemu-plugin.h")])
    archives = {}
    for name in dict.fromkeys(SIDES[side][1] for side in sides):
        kernels.get(name).build()
        archives[name] = make_archive(kernels.get(name))
    return archives


def boot(side, archives, names, log, what, append="", **more):
    """Boot one side for some rows; returns the reasons to fail. more: of Boot."""
    allocator, kernel = SIDES[side]
    append += f" printk.devkmsg=on test_vmalloc.run_test_mask=0 nokaslr PROGRAMS={','.join(names)}"
    return Boot(kernels.get(kernel), Expected(allocator, "programs: done"), mem=3072, timeout=3600, log=log, what=what,
                append=append, initramfs=str(archives[kernel]), accel="icount", **more).run()


class Taken:
    """The values of all boots."""

    def __init__(self):
        self.values = defaultdict(lambda: {side: [] for side in SIDES})  # row -> side -> one for each boot
        self.areas = defaultdict(list)
        self.latencies = defaultdict(lambda: {side: [] for side in SIDES})
        self.failures = []

    def add(self, side, lines, totals):
        """Add what a guest printed. totals: the instructions of each row that did not fail."""
        found, latencies = rows.read(lines)
        good = [row for row in found if row.error is None]
        if len(totals) != len(good):
            raise counts.Bad(f"{side}: {len(good)} rows, but {len(totals)} pairs of marks")
        for row, total in zip(good, totals, strict=True):
            self.values[row.name][side].append(total / row.ops)
            if side == "B":
                self.areas[row.name].append(row.areas / row.ops)
        self.failures += [f"{row.name}, {side}: {row.error or 'failed'}" for row in found if row.error is not None]
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
    """Return the table of programs."""
    made, styles = [], []
    for name, text in rows.texts().items():
        if name not in taken.values and not any(failure.startswith(f"{name},") for failure in taken.failures):
            continue
        sides = taken.values[name]
        ratio, spread, differs = taken.ratio(name, "B", "A")
        other, _, other_differs = taken.ratio(name, "B", "C")
        areas = statistics.median(taken.areas[name]) if taken.areas[name] else 0
        made.append([name, text, f"{areas:.2g}" if areas < 10 else f"{areas:,.0f}",
                     *(median(sides[side]) for side in SIDES), ratio_text(ratio, differs),
                     ratio_text(other, other_differs),
                     "-" if spread is None else f"{100 * spread:.2f}%"])
        styles.append("red" if ratio is None or (differs and ratio > 1) else "green" if differs else "dim")
    return table.Table(title, COLUMNS, made, styles)


def latency_table(taken, title):
    """Return the table of latencies."""
    def most(values):
        return f"{min(values):,} to {max(values):,}" if values else "failed"
    made = [[name, text, *(as_text([pair[which] for pair in taken.latencies[name][side]])
                           for which, as_text in ((0, median), (1, most)) for side in SIDES)]
            for name, text in rows.texts("latency").items() if name in taken.latencies]
    return table.Table(title, LATENCY_COLUMNS, made)


def take(archives, taken, boots, names, first=0):
    """Boot all sides in turns. first: how many boots there were before. A boot that fails does not count."""
    many = [name for name in names if name.endswith(rows.EIGHT)]
    few = [name for name in names if name not in many]
    cpus_of = [(cpus, some) for cpus, some in ((2, few), (8, many)) if some]
    jobs = [(number, cpus, some, side) for number in range(first, first + boots) for cpus, some in cpus_of
            for side in (SIDES if number % 2 == 0 else [*SIDES][::-1])]
    for done, (number, cpus, some, side) in enumerate(jobs):
        log = CACHE / f"log/programs-{side}-{cpus}-{number}.log"
        reasons = boot(side, archives, some, log, f"boot {done + 1} of {len(jobs)}:", cpus=cpus, seed=number + 1,
                       plugin=specification(side, log))
        if reasons:
            taken.failures.append(f"boot of {side}, {cpus} CPUs: {reasons[0]}; log: {log}")
            say(f"bench: {taken.failures[-1]}")
            continue
        taken.add(side, read_lines(log), totals_of(log))


def specification(side, log):
    """Return what the emulator takes as the plugin that counts all instructions."""
    known = symbols_of(SIDES[side][1])
    begin, end = (known.address(name) for name in MARKS)
    return f"{TOTAL},out={log}.counts,begin={begin:x},end={end:x}"


def totals_of(log):
    """Return what that plugin has counted."""
    with open(f"{log}.counts", encoding="ascii") as file:
        *lines, last = file.read().split()
    if last != "end":
        raise counts.Bad(f"{log}.counts is cut off")
    return list(map(int, lines))


def show(args, taken):
    """Print the tables, or write them into the document."""
    boots = [len(values) for sides in taken.values.values() for values in sides.values()]
    number = " to ".join(dict.fromkeys(map(str, (min(boots, default=0), max(boots, default=0)))))
    head = (f"`scripts/bench programs`, commit {facts.commit()[:12]}, medians of {number} boots, instructions for one "
            "operation.")
    tables = [programs_table(taken, head.replace("`", "")), latency_table(taken, "latencies, in instructions")]
    if args.write:
        table.put(DOCUMENT, MARK, head + "\n\n" + "\n".join(table.markdown(one) for one in tables if one.rows))
    else:
        table.show([one for one in tables if one.rows])


def profile_program(args):
    """Show the instructions of one row by function on each side; returns the exit code."""
    archives = prepare(args.sides)
    for side in args.sides:
        symbols = symbols_of(SIDES[side][1])
        log = CACHE / f"log/profile-program-{args.name}-{side}.log"
        cpus = 8 if args.name.endswith(rows.EIGHT) else 2
        # Only one CPU runs: the plugin shows what the CPU with the marks executes.
        reasons = boot(side, archives, [args.name], log, "profile:", "maxcpus=1", cpus=cpus, seed=1,
                       plugin=counts.specification(symbols, f"{log}.counts", marks=MARKS))
        found = rows.read(read_lines(log))[0]
        windows = counts.read(f"{log}.counts", symbols)
        if reasons or len(found) != 1 or found[0].error is not None or len(windows) != 1:
            raise counts.Bad(f"{side}: {reasons[0] if reasons else 'the program failed'}; log: {log}")
        windows[0].ops, windows[0].part = found[0].ops, "cost"
        profile.show_window(windows[0], symbols, side, args.least)
    return 0


def main(name, args):
    """Boot and show; returns the exit code: 1 if a row or a boot failed."""
    if name == "profile-program":
        return profile_program(args)
    archives, taken = prepare(SIDES), Taken()
    take(archives, taken, args.boots, args.names)
    for more in range(2):
        unsure = taken.unsure()
        if unsure and not taken.failures:
            take(archives, taken, args.boots, unsure, args.boots * (more + 1))
    show(args, taken)
    for failure in dict.fromkeys(taken.failures):
        say(f"bench: failed: {failure}")
    return 1 if taken.failures else 0
