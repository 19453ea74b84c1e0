# SPDX-License-Identifier: GPL-2.0
"""What is measured: plans, each of which is one kind of boot that is repeated for both sides."""

import dataclasses
import fnmatch
import os
import re

from harness.settings import REPO, Refused

# Cases of bench/*.c, by what they need. One CPU measures all but those that need more, that only test the benchmark, or
# that have plans of their own; the quick set also leaves out the slow ones.
ONE_CPU = ("all,-known,-memory,-cross_cpu,-purge_latency,-pair_latency*,-whole_api*,-vmap_1m_*,-vmap_100m_*,"
           "-ioremap_mapped_*,-huge_*,-map_*")
SLOW = "-lookup_start_100k,-lookup_inner_100k,-drain_*"
PAIRS = ("kmalloc_pair,area_*,vmalloc_*,stack,align_64k,align_2m,ioremap_4k,ioremap_64k,ioremap_1m,vmap_16,"
         "vm_map_ram_16,vm_map_ram_128,burst_*,fragmented_1,fragmented_4,mixed")
LOOKUPS = "lookup_start_10,lookup_inner_10,lookup_start_1k,lookup_inner_1k,lookup_inner_64m"
LARGE_LOOKUPS = "lookup_start_100k,lookup_inner_100k"
PURGES = "purge_1,purge_16,purge_512,aliases_0,aliases_1"
DRAINS = "drain_100k_areas,drain_1m_pages"
MANY = ("kmalloc_pair,area_pair,vmalloc_pair,stack,ioremap_64k,mixed,cross_cpu,lookup_start_1k,lookup_inner_1k,"
        "lookup_inner_64m")
# What is measured on each base: every pair, burst, lookup and mapping, and what only one worker can do.
BASE = (f"{PAIRS},percpu,{LOOKUPS},lookup_image,lookup_module,cross_cpu,vmap_1m_order0,vmap_1m_order8,"
        "ioremap_mapped_1m")
ONE_WORKER = f"{PURGES},give_back"
# What depends on what other cases have left: in boots of their own.
ALONE = "growth,info_*"
HOLDS = "area_pair,area_4096,mixed,burst_order,large_burst,give_back,percpu," + DRAINS
FLUSHES = "area_pair,vmalloc_pair,vm_map_ram_16,aliases_*"
# A load as users make it, without and with readers of /proc. Its passes take a second each, so a boot takes 6 seconds
# longer for each case.
LOAD = "whole_api"
# What readers of the list of all areas delay; they need a CPU beside those of the workers.
READ = "pair_latency,pair_latency_info,pair_latency_map"
LOADS = "whole_api,whole_api_readers"
AREAS = "kmalloc_pair,area_*,ioremap_*,burst_*,fragmented_*,mixed"
# Cases of cachelines/cases.py.
LINES = ("pair", "pair_remote", "find_inner", "area_2048", "mixed", "purge", "purge_empty")
# What the mapping series is about, and what it must not make slower.
MAPPING = ("area_pair,vmalloc_pair,vmalloc_4,vmalloc_16,vmalloc_64,vmalloc_256,stack,vmap_16,vm_map_ram_16,"
           "vm_map_ram_128,vmap_1m_*,vmap_100m_*,ioremap_mapped_*,huge_*,map_*")
MAPPING_8 = MAPPING.replace("vmap_100m_*,ioremap_mapped_*,huge_*,map_*", "ioremap_mapped_1m")
ALL_TESTS = 0x1fff
# What the maple tree series of June 2026 reported on: full_fit_alloc and long_busy_list_alloc, and fix_size_alloc.
THREE_TESTS = 0x7


@dataclasses.dataclass(frozen=True)
class Plan:
    """One kind of boot."""

    name: str
    instrument: str
    cpus: int
    repetitions: int
    run: str = ""  # vmap_bench.run=
    threads: tuple = (1,)  # vmap_bench.threads=
    scale: int = 100  # vmap_bench.scale=, percent
    sweep: tuple = ()  # runs of test_vmalloc: (threads, mask, loops)
    page_tables: bool = False  # read their size after each of those
    tables: bool = False  # leave mappings in place, and print their page tables
    warm_up: bool = False  # a short run before each of them, so that an emulator has translated the code
    mem: int = 2048  # MiB of the guest
    timeout: int = 300  # seconds
    options: tuple | None = None  # of scripts/run boot, instead of those of the instrument

    @property
    def user_space(self):
        """Tell whether the guest has work for user space."""
        return bool(self.sweep) or self.tables


@dataclasses.dataclass(frozen=True)
class Instrument:
    """A way to measure: a kernel, how it is booted, and what may be said of the figures."""

    kernel: str
    what: str
    unit: str
    absolute: bool  # figures of two days can be compared as they are
    options: tuple  # of scripts/run boot
    parallel: bool = False  # boots do not disturb each other
    counted: bool = False  # by a plugin of QEMU, see counts.py
    emulated: bool = False  # nothing is booted, see emulate() of boot.py


# The side that is the kernel without the patches.
PRISTINE = "pristine"


def on_side(side, kernel):
    """Return the allocator that scripts/run boot is to choose, and the configuration that is booted, for one side."""
    return ("none", kernel + "-pristine") if side == PRISTINE else (side, kernel)


# The macros of bench/*.c that make an entry of a table, and what they put in front of its label.
MACROS = {"AREA": "area_", "VMALLOC": "vmalloc_", "IOREMAP": "ioremap_", "ALIASES": "aliases_", "LOOKUP": "lookup_",
          "FRAGMENTED": "fragmented_", "BURST": "", "CASE_VMAP": "", "CASE_IOREMAP": "", "CASE_HUGE": "",
          "CASE_MAP": ""}


def guest_cases():
    """Return the names of the cases that the kernel knows."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((REPO / "bench").glob("*.c")))
    entries = re.findall(rf'^\t({"|".join(MACROS)})\("?(\w+)|\.name = "([a-z]\w*[a-z0-9])"', text, re.M)
    return [name or MACROS[macro] + label for macro, label, name in entries]


def case_list(text):
    """Return the cases of a list that --cases may have. The guest would refuse others too, but only after its kernel is
    built."""
    names = ["all", *guest_cases()]
    for word in text.split(","):
        # "-" in front leaves a case out; "*" at the end is any rest.
        start = word.removeprefix("-")
        known = any(name.startswith(start[:-1]) if start.endswith("*") else name == start for name in names)
        if word not in LINES and not known:
            raise Refused(f'unknown case "{start}"; scripts/bench list prints them')
    return text.split(",")


def kernel_of(instrument, args):
    """Return the configuration that an instrument boots with the options of "scripts/bench run"."""
    return args.kernel if args.kernel and instrument not in ("uml", "kvm") else INSTRUMENTS[instrument].kernel


# Built and weighed, not booted: the image without the allocator.
WITHOUT = {"arm64-bench": "arm64-bench-off"}

# How QEMU is booted to count instructions, and to take the time of emulation.
ICOUNT, THREADS = ("--icount",), ("--accel", "threads", "--prealloc")
INSTRUMENTS = {
    "icount": Instrument("arm64-bench", "QEMU cortex-a72, -icount shift=0,sleep=off: a guest nanosecond is an "
                         "instruction; CPUs take turns on one host thread", "instructions", True, ICOUNT, True),
    "neoverse": Instrument("arm64-bench", "as icount, with neoverse-n1 instead of cortex-a72", "instructions", True,
                           (*ICOUNT, "--cpu", "neoverse-n1"), True),
    "holds": Instrument("arm64-bench", "as icount: how long the allocators hold a spinlock, interrupts left out, "
                        "counted by a plugin of QEMU", "instructions", True, ICOUNT, True, True),
    "flushes": Instrument("arm64-bench", "as icount: TLB flushes and TLBI instructions for 1,000 operations, counted "
                          "by a plugin of QEMU", "flushes", True, ICOUNT, True, True),
    "interrupts": Instrument("x86_64-bench", "QEMU x86_64, -icount: calls of flush_tlb_kernel_range() and interrupts "
                             "by which a CPU has others run a function, for 1,000 operations, counted by a plugin of "
                             "QEMU", "flushes", True, ICOUNT, True, True),
    "lines": Instrument("arm64-bench", "functions of the kernel in an emulator, on CPUs that take turns after whole "
                        "operations: cache lines that move between CPUs, and what else an operation does", "misses",
                        True, (), True, emulated=True),
    "wall": Instrument("arm64-bench", "QEMU cortex-a72, -accel tcg,thread=multi: wall clock of emulation, sides in "
                       "turns", "nanoseconds", False, THREADS),
    "overcommit": Instrument("arm64-bench", "as wall, with more guest CPUs than the host has", "nanoseconds", False,
                             THREADS),
    "uml": Instrument("uml-bench", "user-mode Linux, seccomp mode: wall clock at native speed, sides in turns",
                      "nanoseconds", False, ()),
    "kvm": Instrument("x86_64-bench", "QEMU with KVM: wall clock of the host's CPUs, sides in turns", "nanoseconds",
                      False, ("--accel", "kvm", "--prealloc")),
}


def lines(cases):
    """Return the plans of the instrument "lines": a dict of numbers of CPUs to cases, see cachelines/cases.py."""
    return [Plan(f"lines-{cpus}", "lines", cpus, 5, run, (cpus,), mem=256) for cpus, run in cases.items()]


def one_by_one(workers, mask, loops):
    """Return a run of test_vmalloc for each test of the mask. In one run for all, workers that are through with a test
    begin the next one, and how many still disturb each other there depends on the tests before. Also, the console
    prints the intended failure of align_shift_alloc during the test after it, or the next but one."""
    return tuple((workers, 1 << bit, loops) for bit in range(mask.bit_length()) if mask >> bit & 1)


def memory_for(cpus, workers):
    """Return MiB of guest memory for test_vmalloc: two of its tests fill 64 MiB for each worker and each bit of the
    CPUs."""
    return max(2048, 512 + workers * (cpus.bit_length() * 64 + 128))


def page_tables(cpus, workers, times, timeout=300):
    """Return the plan that reads the size of page tables after each of some runs of test_vmalloc."""
    return Plan("page-tables", "icount", cpus, 5, sweep=((workers, THREE_TESTS, 1),) * times, page_tables=True,
                mem=memory_for(cpus, workers), timeout=timeout)


def overcommit(cases):
    """Return the plans with up to 8 guest CPUs."""
    return [Plan(f"overcommit-{guest}", "overcommit", guest, 5, cases, (guest,), 2) for guest in (2, 4, 8)]


def bases():
    """Return the plans of the figures of the documents, with 1, 2 and 8 CPUs."""
    return [
        Plan("one-cpu", "icount", 1, 5, f"{BASE},{ONE_WORKER}", scale=50),
        Plan("two-cpus", "icount", 2, 5, f"{BASE},{ONE_WORKER}", scale=50),
        Plan("eight-cpus-1", "icount", 8, 5, f"{BASE},{ONE_WORKER}", scale=50, timeout=600),
        Plan("eight-cpus-8", "icount", 8, 5, BASE, (8,), 25, timeout=600),
        Plan("memory", "icount", 1, 5, "memory"),
        *(Plan(f"alone-{cpus}", "icount", cpus, 5, ALONE) for cpus in (1, 2, 8)),
    ]


def quick(cpus):
    """Return the plans of the quick set for a host with that many CPUs."""
    two, workers = min(cpus, 2), (1, 2)[:cpus]
    return bases() + [
        Plan("latency", "icount", 8, 5, "purge_latency", (8,), 25),
        Plan("tests-1", "icount", 1, 5, sweep=one_by_one(1, ALL_TESTS, 1000)),
        Plan("tests-4x4", "icount", 4, 5, sweep=one_by_one(4, THREE_TESTS, 1000), mem=memory_for(4, 4)),
        Plan("flushes", "flushes", 1, 5, FLUSHES),
        *lines({8: "pair,pair_remote", 32: "find_inner", 64: "area_2048", 128: "pair,purge_empty"}),
        page_tables(2, 4, 2),
        Plan("cpus", "wall", two, 15, f"{MANY},area_512,burst_random,fragmented_1,purge_latency", workers, 25),
        Plan("native", "uml", two, 15, f"{AREAS},{LOOKUPS}", workers, 50, mem=1024),
        Plan("native", "kvm", two, 15, f"{PAIRS},{LOOKUPS},cross_cpu", workers),
    ]


def full(cpus):
    """Return the plans of the full set for a host with that many CPUs: under an hour."""
    two, workers = min(cpus, 2), (1, 2)[:cpus]
    plans = [
        Plan("one-cpu", "icount", 1, 7, ONE_CPU),
        Plan("memory", "icount", 1, 7, "memory"),
        Plan("sixteen-cpus", "icount", 16, 5, f"{MANY},{LARGE_LOOKUPS},purge_latency", (1, 2, 4, 8, 16), 50,
             timeout=900),
        Plan("readers", "icount", 9, 5, READ, (8,)),
        page_tables(4, 8, 6, 1200),
        Plan("holds", "holds", 1, 5, HOLDS, scale=50, timeout=600),
        Plan("flushes", "flushes", 1, 5, FLUSHES),
        Plan("interrupts", "interrupts", 4, 5, FLUSHES, scale=200, timeout=600),
        *lines({cpus: ",".join(LINES) for cpus in (2, 8, 32, 128, 256)}),
        *lines({64: "area_2048"}),
        Plan("cpus", "wall", two, 21, f"{PAIRS},cross_cpu,{LOOKUPS},{LARGE_LOOKUPS},{PURGES},purge_latency,{LOAD}",
             workers, 50, sweep=((1, ALL_TESTS, 50), *one_by_one(two, ALL_TESTS, 50)), warm_up=True),
        Plan("native", "uml", two, 21, f"{PAIRS},cross_cpu,{LOOKUPS},{LARGE_LOOKUPS}", workers, mem=2048),
        Plan("native", "kvm", two, 21, f"{PAIRS},{LOOKUPS},{LARGE_LOOKUPS},cross_cpu", workers),
    ]
    for guest in (1, 2, 4, 8, 16):
        counts = [n for n in (1, 2, 4, 8, 16) if n <= guest]
        # A boot for each number of workers: what one leaves is not the next one's cost.
        for number in counts:
            points = one_by_one(number, THREE_TESTS, 1000) + one_by_one(number, ALL_TESTS & ~THREE_TESTS, 200)
            plans.append(Plan(f"tests-{guest}x{number}", "icount", guest, 5, sweep=points,
                              mem=memory_for(guest, number), timeout=1200))
    return plans + overcommit(f"kmalloc_pair,area_pair,{LOADS}")


def figures(cpus):
    """Return the plans of the figures that the documents quote."""
    two, workers = min(cpus, 2), (1, 2)[:cpus]
    return bases() + [
        Plan("holds", "holds", 2, 5, HOLDS.replace("," + DRAINS, ""), scale=50, timeout=600),
        Plan("flushes", "flushes", 2, 5, FLUSHES),
        *lines({8: "pair,pair_remote", 64: "area_2048", 128: "pair,purge_empty"}),
        page_tables(4, 8, 4, 900),
        Plan("native", "uml", two, 15, "area_pair,area_4", workers, mem=1024),
    ]


def sides(cpus):
    """Return the plans of the table with three sides, the pristine kernel being one: about five minutes for each
    comparison."""
    return [
        Plan("mapping-2", "icount", 2, 5, MAPPING),
        Plan("mapping-8", "icount", 8, 5, MAPPING_8, (8,), 25, timeout=600),
    ]


def selected(plans, instruments, cases):
    """Return the plans of the named instruments (None: all); with cases, those instead of theirs, and no
    test_vmalloc."""
    plans = [p for p in plans if instruments is None or p.instrument in instruments]
    if cases is None:
        return plans
    # The emulator has cases of its own; only "mixed" is one of the guest too.
    own = ",".join(name for name in LINES if any(fnmatch.fnmatch(name, case) for case in cases))
    booted = ",".join(case for case in cases if case not in LINES or case == "mixed")
    made = []
    for p in plans:
        emulated = INSTRUMENTS[p.instrument].emulated
        run = own if emulated else booted
        if p.run and run and (emulated or (p.run == "memory") == fnmatch.fnmatch("memory", booted)):
            made.append(dataclasses.replace(p, run=run, sweep=(), page_tables=False))
    return made


def wanted(args):
    """Return the plans that fit the options of "scripts/bench run"; refuses if there is none."""
    sets = {"quick": quick, "full": full, "figures": figures, "sides": sides}
    plans = selected(sets[args.set](os.cpu_count() or 1), args.instruments, args.cases)
    if args.threads:
        plans = [dataclasses.replace(p, threads=args.threads, cpus=max(p.cpus, *args.threads))
                 for p in plans if p.run and not INSTRUMENTS[p.instrument].emulated]
    if not plans:
        raise Refused("nothing to measure: no plan of this set fits --instruments and --cases")
    return plans
