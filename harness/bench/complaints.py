# SPDX-License-Identifier: GPL-2.0
"""What users complain about, each as a load that both allocators run: "scripts/bench complaints"."""

import dataclasses
import statistics

from ..machine.settings import say
from ..machine.table import markdown, print_table

from . import results, stats
from .plan import COMPLAINTS
from .report import failures


@dataclasses.dataclass(frozen=True)
class Complaint:
    """One row of the table."""

    text: str  # what people say
    source: str  # who said it
    load: str  # what is run
    key: tuple  # of a row of a result; see stats.Row.key
    unit: str
    divisor: float = 1  # A value of the bench divided by this is in the unit.
    more_is_better: bool = False

    @property
    def plan(self):
        """The first of COMPLAINTS that runs it."""
        return next(one for one in COMPLAINTS if (one.instrument, one.cpus) == self.key[:2] and self.key[2] in one.threads
                    and self.key[3] in one.run.split(","))

    def is_worse(self, a, b):
        """Tell whether b is: each boot worse than each of a, and the median by 2% or more."""
        if self.more_is_better:
            a, b = b, a
        return min(b) > max(a) and statistics.median(b) >= (1 + stats.FLOOR) * statistics.median(a)


# In the order of docs/bench.md.
ROWS = [
    Complaint("Hardened copies to user space spend their time on a lock", "daxfs: 82% of a read in locks",
              "check a copy of 64 bytes out of a buffer of 16 MiB, on each of 8 CPUs",
              ("icount", 8, 8, "usercopy", "cost"), "instructions of all CPUs for a copy"),
    Complaint("Copies to user space look addresses up, with one CPU, too", "as above", "the same with one CPU",
              ("icount", 1, 1, "usercopy", "cost"), "instructions for a copy"),
    Complaint("A profiler looks an address up in an interrupt and hangs the machine", "parca-dev/parca-agent#1675",
              "8 CPUs reserve and free; a timer of each looks an address up, and may not wait for a lock",
              ("icount", 8, 8, "irq_lookup", "refused"), "of 1,000 lookups that may not wait are refused"),
    Complaint("Reading /proc/vmallocinfo stops allocations", "openzfs/zfs#2705",
              "CPU 0 reads the file with 100,000 areas; CPU 1 allocates and frees a page meanwhile",
              ("icount", 2, 1, "wait_info", "longest"), "ms, longest vmalloc() and vfree()", 1e6),
    Complaint("Reading /proc/kcore stops allocations", "fs/proc/kcore.c: vmalloc uses spinlocks; osandov/drgn#106",
              "CPU 0 reads a page of each of 100,000 areas, as the file does; CPU 1 allocates and frees a page meanwhile",
              ("icount", 2, 1, "wait_kcore", "longest"), "ms, longest vmalloc() and vfree()", 1e6),
    Complaint("vmalloc() waits while areas are purged", "lkml.iu.edu/2603.2/05161.html",
              "CPU 0 frees 200,000 areas and purges; CPU 1 allocates and frees a page meanwhile",
              ("icount", 2, 1, "wait_purge", "longest"), "ms, longest vmalloc() and vfree()", 1e6),
    Complaint("A purge keeps other tasks off the CPU", "lkml.iu.edu/2603.2/05161.html",
              "200,000 areas are freed and purged; a FIFO task sleeps on each of 8 CPUs",
              ("latency", 8, 1, "latency_1", "wake"), "ms, latest wake-up", 1e6),
    Complaint("A purge makes softirqs long", "lkml.iu.edu/2603.2/05161.html", "200,000 areas are freed and purged, 8 CPUs",
              ("latency", 8, 1, "latency_1", "softirq"), "ms, longest run of softirqs", 1e6),
    Complaint("With KASAN, a purge keeps other tasks off the CPU", "lkml.iu.edu/2603.2/05161.html",
              "20,000 areas are freed and purged, with KASAN and lockdep; a FIFO task sleeps on each of 2 CPUs",
              ("latency-kasan", 2, 1, "latency_1", "wake"), "ms, latest wake-up", 1e6),
    Complaint("With KASAN, a purge makes softirqs long", "lkml.iu.edu/2603.2/05161.html", "the same",
              ("latency-kasan", 2, 1, "latency_1", "softirq"), "ms, longest run of softirqs", 1e6),
    Complaint("Page tables never come back", "lore.kernel.org, nodes of vmalloc, v3, February 2024: up to 5.4 GiB",
              "test_vmalloc with 8 threads on 8 CPUs, mask 127", ("icount", 8, 1, "page_tables", "all"), "tables that stay"),
    Complaint("A BPF arena leaves 8 MiB of page tables", "kernel/bpf/arena.c", "make and close ten, one after the other",
              ("icount", 2, 1, "arena", "page_tables"), "KiB of page tables more"),
    Complaint("Loading BPF programs and modules interrupts isolated CPUs", "lkml.rescloud.iu.edu/2603.3/00632.html",
              "vmalloc(), set_memory_ro(), set_memory_rw(), vfree(), one of 8 CPUs busy",
              ("flushes", 8, 1, "set_memory", "flushes"), "TLB flushes for one", 1000),
    Complaint("set_memory_ro() is slow", "as above", "the same on each of 8 CPUs",
              ("icount", 8, 8, "set_memory", "cost"), "instructions of all CPUs for one"),
    Complaint("CPUs wait for each other", "versity/scoutfs#80: catastrophically CPU bound",
              "vmalloc() and vfree() of a page on each of 64 CPUs", ("icount", 64, 64, "vmalloc_pair", "cost"),
              "instructions of all CPUs for one"),
    Complaint("More threads than CPUs allocate", "versity/scoutfs#80",
              "64 threads on 8 CPUs replace areas of 1 to 16 pages at random, each its own",
              ("icount", 8, 1, "crowd", "cost"), "instructions of all CPUs for vmalloc() and vfree()"),
    Complaint("File systems map pages on all CPUs", "vm_map_ram() of EROFS and XFS",
              "4 to 64 pages on each of 8 CPUs, one in 100 for long",
              ("icount", 8, 8, "ram_mix", "cost"), "instructions of all CPUs for one"),
    Complaint("Module space is full", "Ysurac/openmptcprouter#1256, #1885",
              "replace 20,000 areas of 1 to 64 pages, then fill it", ("icount", 2, 1, "module_space", "reserved"),
              "MiB that could be reserved", 1024, more_is_better=True),
    Complaint("vmap allocation for size N failed: use vmalloc= to increase size", "udmabuf, issue 131",
              "32 bit, vmalloc=128M: replace 20,000 areas of 1 to 64 pages, then fill the space",
              ("icount-32", 2, 1, "vmalloc_space", "reserved"), "MiB that could be reserved", 1024, more_is_better=True),
    Complaint("With one CPU there are no pools", "mm/vmalloc.c, nr_vmap_nodes", "a kernel stack, as fork() allocates it",
              ("icount", 1, 1, "stack", "cost"), "instructions for vmalloc() and vfree()"),
    Complaint("Small machines lose memory", "guests of 256 MiB",
              "fill the 256 MiB of a guest with areas and free them, four times",
              ("icount", 2, 1, "fill_memory", "kept"), "KiB that have not come back"),
    Complaint("A boot leaves more page tables", "phones", "a boot to the end of all initcalls",
              ("icount", 2, 1, "boot", "page_tables"), "KiB of page tables"),
]
COLUMNS = ["complaint", "load", ">rb-trees", ">Rust", ">ratio", "figure"]


def measured(result):
    """Return the rows of which both sides have values: {row: (those of the rb-trees, those of Rust)}, one for each boot."""
    samples = stats.samples(result)
    sides = {row: samples[row.key][1] for row in ROWS if row.key in samples}
    return {row: tuple([value / row.divisor for value in one[side]] for side in "ab")
            for row, one in sides.items() if one["a"] and one["b"]}


def cells(row, a, b):
    """Return the cells of a row without marks. a, b: its values of both sides."""
    before, after = statistics.median(a), statistics.median(b)
    texts = [stats.amount(round(value, 3) if value < 10 else round(value)) for value in (before, after)]
    return [row.text, row.load, *texts, stats.ratio_text(after / before if before else None), row.unit]


def marked(row, a, b):
    """Return cells() for a document: ** marks a loss."""
    made = cells(row, a, b)
    if row.is_worse(a, b):
        made[3] = f"**{made[3]}**"
    return made


def gain(row, a, b):
    """Return what sorts rows from the best for Rust to the worst."""
    before, after = (statistics.median(values) or 1e-9 for values in (a, b))
    return before / after if row.more_is_better else after / before


def tables(result):
    """Return the tables of docs/bench.md, with sources, and of README.md, which has the three best rows and the two worst ones."""
    found = [(row, *sides) for row, sides in measured(result).items()]
    ranked = sorted(found, key=lambda one: gain(*one))
    return {"complaints": markdown([*COLUMNS, "source"], [[*marked(*one), one[0].source] for one in found]),
            "readme-complaints": markdown(COLUMNS, [marked(*one) for one in [*ranked[:3], *ranked[-2:]]])}


def main(_name, args):
    """Boot the loads on both sides, store the result, and print the table; returns the exit code: 1 if a boot or a row
    failed."""
    args.plans = [one for one in COMPLAINTS if not args.only or one.name in args.only]
    args.a, args.b = "rbtree", "rust"
    result = results.measure(args, " ".join(["scripts/bench complaints", *args.words]))
    output = results.store(result)
    wanted, found = [row for row in ROWS if row.plan in args.plans], measured(result)
    missing = [row.text for row in wanted if row not in found]
    print_table(f"what users complain about; rb-trees, and the allocator in Rust of commit {result['commit']}; QEMU, arm64",
                ["~complaint", "~load", *COLUMNS[2:5], "~figure", "verdict"],
                [[*cells(row, *found[row]), "slower" if row.is_worse(*found[row]) else ""] for row in wanted if row in found])
    print(*failures(result), *(f"no value: {text}" for text in missing), sep="\n")
    print("Medians of boots. ms are of the guest's clock, in which an instruction of any CPU takes 1 ns. Reported by:",
          *(f"  {row.text}: {row.source}" for row in wanted if row.source != "as above"), sep="\n")
    say(f"result: {output}")
    return int(bool(missing) or results.has_failed(result))
