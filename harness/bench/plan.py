# SPDX-License-Identifier: GPL-2.0
"""What is measured: plans, each of which is one kind of boot that is repeated for both sides."""

import dataclasses
import fnmatch
import os
import re

from ..boot import kernels
from ..boot.guest import NO_TESTS
from ..machine.settings import REPO, Refused

# Cases of the bench: what is measured with each number of CPUs, and what only one worker can do.
BASE = ("area_*,vmalloc_*,stack,align_64k,ioremap_64k,vmap_16,vm_map_ram_16,mixed,percpu,lookup_*,vmap_1m_order0,"
        "vmap_1m_order8,ioremap_mapped_1m")
ONE_WORKER = "purge_512,aliases_0,aliases_1,window_*,vread_*"
# What depends on what other cases have left: in boots of their own.
ALONE = "growth,info_*"
LATENCY = "latency_*"
HOLDS = "area_pair,area_4096,mixed,percpu"
FLUSHES = "area_pair,vmalloc_pair,vm_map_ram_16,aliases_0,aliases_1"
LINES = "area_pair,area_remote,area_4096"
# What the mapping series is about, and what it must not make slower.
MAPPING_8 = "area_pair,vmalloc_*,stack,vmap_16,vm_map_ram_16,vmap_1m_*,ioremap_mapped_1m"
MAPPING = f"{MAPPING_8},vmap_100m_*,huge_1m,map_*"
# The kernel's own tests of vmalloc(), before page_tables is measured: which, threads, and loops of each.
TEST_VMALLOC = "kunit.enable=0 test_vmalloc.run_test_mask={} test_vmalloc.nr_threads={} test_vmalloc.test_loop_count={}"
# Tests of the bench measure in a kernel that other tests boot, too.
ARM64 = os.environ.get("VMAP_RUST_BENCH_KERNEL") or "arm64-bench"
# The side that is the kernel without the patches.
PRISTINE = "pristine"


@dataclasses.dataclass(frozen=True)
class Instrument:
    """A way to measure: a kernel, and how it is booted."""

    kernel: str  # or ""
    what: str
    options: dict  # of harness.guest.Boot
    plugin: str = ""  # of QEMU, a file of bench/plugin; see counts.py
    counts: str = ""  # what counts.py reports of it


ICOUNT = {"accel": "icount"}
INSTRUMENTS = {
    "icount": Instrument(ARM64, "QEMU cortex-a72, -icount: the guest's clock counts instructions; CPUs take "
                         "turns on one host thread", ICOUNT),
    "icount-32": Instrument("arm", "as icount, 32-bit ARM", ICOUNT),
    "holds": Instrument(ARM64, "as icount: instructions for which the allocators hold a spinlock, without "
                        "interrupts, counted by a plugin of QEMU", ICOUNT, "count", "holds"),
    "flushes": Instrument(ARM64, "as icount: TLB flushes and TLBI instructions for 1,000 operations, counted "
                          "by the plugin", ICOUNT, "count", "flushes"),
    "latency": Instrument(ARM64, "as icount: the longest time from the wake-up of a FIFO task to its run, and the longest run of "
                          "softirqs, counted by a plugin", ICOUNT, "softirq", "latency"),
    "latency-kasan": Instrument("arm64-debug", "as latency, with KASAN, lockdep and other checks of the kernel", ICOUNT, "softirq",
                                "latency"),
    "lines": Instrument(ARM64, "QEMU cortex-a72, workers take turns before each call in random order: cache lines that "
                        "move between CPUs, counted by a plugin", {"accel": "threads"}, "lines", "lines"),
    "machine": Instrument("", "tools/vmap-bench: the benchmark on a machine of one's own", {}),
    "native": Instrument("", "scripts/bench native: both allocators in user space on the build host", {}),
    "native-calls": Instrument("", "as native, without CONFIG_RUST_INLINE_HELPERS", {}),
}
# Those whose nanoseconds are no instructions.
CLOCKS = ("native", "native-calls", "machine")


@dataclasses.dataclass(frozen=True)
class Plan:
    """One kind of boot."""

    name: str
    instrument: str
    cpus: int
    repetitions: int
    run: str  # vmap_bench.run=
    threads: tuple = (1,)  # vmap_bench.threads=
    scale: int = 100  # vmap_bench.scale=, percent
    append: str = NO_TESTS  # further kernel arguments
    mem: int = 2048  # MiB


def boots(instrument):
    """Tell whether an instrument boots a kernel."""
    return bool(INSTRUMENTS[instrument].kernel)


def scale_for(cpus):
    """Return the percent with which each case frees enough in a pass for three purges, if it frees 10,000 pages with 100.
    Else a figure would be that of a system that has just booted: a purge is asked for with that many lazy pages
    (lazy_max_pages() in mm/vmalloc.c)."""
    return 100 * 3 * cpus.bit_length() * 8192 // 10000


QUICK = [
    *(Plan(f"cpus-{n}", "icount", n, 5, f"{BASE},{ONE_WORKER}", scale=scale_for(n)) for n in (1, 2, 8)),
    Plan("workers-8", "icount", 8, 5, BASE, (8,), scale_for(8)),
    Plan("memory", "icount", 1, 5, "memory"),
    *(Plan(f"alone-{n}", "icount", n, 5, ALONE) for n in (1, 2, 8)),
    Plan("worn", "icount", 2, 5, "aliases_0_worn"),
    Plan("live", "icount", 2, 5, "live_1m", scale=scale_for(2)),
    Plan("tables", "icount", 2, 5, "page_tables", append=TEST_VMALLOC.format(0x1fff, 2, 300)),
    *(Plan(f"latency-{n}", "latency", n, 5, LATENCY) for n in (2, 8)),
]
# What the documents quote.
FIGURES = [
    *QUICK,
    Plan("holds", "holds", 2, 5, HOLDS, scale=50),
    Plan("flushes", "flushes", 2, 5, FLUSHES),
    *(Plan(f"lines-{n}", "lines", n, 5, LINES, (n,)) for n in (8, 16)),
]
MAPPING_PLANS = [Plan("mapping-2", "icount", 2, 5, MAPPING), Plan("mapping-8", "icount", 8, 5, MAPPING_8, (8,), scale_for(8))]
# What users complain about; complaints.py has the rows. A load that leaves something behind has boots of its own.
COMPLAINTS = [
    Plan("one", "icount", 1, 3, "usercopy,stack", scale=scale_for(1)),
    Plan("eight", "icount", 8, 3, "usercopy,irq_lookup,set_memory,ram_mix", (8,)),
    Plan("flushes", "flushes", 8, 3, "set_memory"),
    Plan("wait-purge", "icount", 2, 3, "wait_purge"),
    Plan("wait-info", "icount", 2, 3, "wait_info"),
    Plan("wait-kcore", "icount", 2, 3, "wait_kcore"),
    Plan("purge", "latency", 8, 3, "latency_1", scale=333),
    Plan("purge-kasan", "latency-kasan", 2, 3, "latency_1", scale=33),
    Plan("tables", "icount", 8, 3, "page_tables", append=TEST_VMALLOC.format(127, 8, 5), mem=4096),
    Plan("arena", "icount", 2, 3, "arena"),
    Plan("modules", "icount", 2, 3, "module_space"),
    # In the kernel that KUnit boots.
    Plan("space-32", "icount-32", 2, 3, "vmalloc_space", append=f"{NO_TESTS} vmalloc=128M"),
    Plan("sixty-four", "icount", 64, 3, "vmalloc_pair", (64,), scale_for(64)),
    Plan("crowd", "icount", 8, 3, "crowd"),
    Plan("small", "icount", 2, 3, "fill_memory", mem=256),
    Plan("boot", "icount", 2, 3, "boot"),
]
SETS = {"quick": QUICK, "figures": FIGURES, "mapping": MAPPING_PLANS}


def on_side(side, kernel):
    """Return the allocator that is chosen at boot, and the configuration that is booted, for one side."""
    return ("none", kernel + "-pristine") if side == PRISTINE else (side, kernel)


def guest_cases():
    """Return the cases that the kernel knows, and what each measures: the entries of their tables."""
    paths = sorted((REPO / "bench").glob("*.c")) + [REPO / "mapping/bench.c"]
    text = "".join(path.read_text(encoding="utf-8") for path in paths)
    return dict(re.findall(r'^\t(?:[A-Z_]+\(|\{ \.name = )"(\w+)",\s+(?:\.what = )?"([^"]+)"', text, re.M))


def case_list(text):
    """Return the cases of a list that --cases may have. The guest would refuse others too, but only after its kernel is
    built."""
    for case in text.split(","):
        if not fnmatch.filter(guest_cases(), case):
            raise Refused(f'unknown case "{case}"; scripts/bench list prints them')
    return text


def cases_of(text):
    """Return the cases that a list of words names."""
    return {name for name in guest_cases() for word in text.split(",") if fnmatch.fnmatch(name, word)}


def only_cases(plans, text):
    """Return the plans for --cases: one for each number of CPUs and workers of an instrument, that which has such a case,
    or the first one. "latency" has cases of its own."""
    made = {}
    for p in plans:
        made.setdefault((p.instrument, p.cpus, p.threads), []).append(p)
    wished = [next((p for p in some if cases_of(p.run) & cases_of(text)), some[0]) for some in made.values()]
    return [dataclasses.replace(p, run=text) for p in wished if p.instrument != "latency" or cases_of(p.run) & cases_of(text)]


def wanted(args):
    """Return the plans that fit the options of "scripts/bench run"."""
    plans = SETS[args.set]
    if args.instruments:
        plans = [p for p in (plans if args.set == "mapping" else FIGURES) if p.instrument in args.instruments]
    if args.a == PRISTINE:
        plans = [p for p in plans if on_side(PRISTINE, INSTRUMENTS[p.instrument].kernel)[1] in kernels.load()]
    if args.cases:
        plans = only_cases(plans, args.cases)
    if not plans:
        raise Refused("--set, --a, --instruments and --cases leave nothing to measure")
    return plans


def program_texts():
    """Return what one operation of each row of "scripts/bench programs" is, by name, in the order of
    bench/programs.sh."""
    return dict(re.findall(r'^program \d+ (\S+) "([^"]+)"', (REPO / "bench/programs.sh").read_text(encoding="utf-8"), re.M))


def main(_name, _args):
    """Print the cases of the guest, and the instruments; returns the exit code."""
    for title, found in (("cases", guest_cases()), ("instruments", {name: one.what for name, one in INSTRUMENTS.items()})):
        print(f"{title}:", *(f"  {name:<20}{what}" for name, what in found.items()), sep="\n")
    return 0
