# SPDX-License-Identifier: GPL-2.0
"""What plugins of QEMU, bench/plugin/count.c and lines.c, count in the measured parts of a case."""

import bisect
import functools
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from ..settings import BUILDS, Refused

from . import build

LOCKS = ("_raw_spin_lock", "_raw_spin_lock_irqsave", "_raw_spin_lock_irq", "_raw_spin_lock_bh", "_raw_spin_trylock")
UNLOCKS = ("_raw_spin_unlock", "_raw_spin_unlock_irqrestore", "_raw_spin_unlock_irq", "_raw_spin_unlock_bh")
# Parts of a kernel, and the objects that their functions are in. The rb-trees are a part of mm/vmalloc.c.
PARTS = {"allocator in Rust": ("mm/vmap_rust/rust/vmap_rust.o", "mm/vmap_rust/vmap_rust.o"),
         "mm/vmalloc.c": ("mm/vmalloc.o", "mm/vmap_area_ops.o"), "maple tree": ("lib/maple_tree.o",),
         "benchmark": ("mm/vmap_rust/bench/pair.o",)}
REST = "rest of the kernel"
# Functions at which the workers of a case take turns, so that lines move as often as on CPUs that run at once.
TURNS = ("get_vm_area", "free_vm_area")
LINE = 64
# What the plugin counts of a block of code: ordered are loads that acquire and stores that release.
COSTS = ("insns", "rmw", "barriers", "ordered", "tlbi")


class Symbols:
    """The functions of a kernel that was built."""

    def __init__(self, kernel):
        """kernel: a configuration."""
        folder = BUILDS / kernel
        symbols = build.symbols(folder / "vmlinux", "--demangle")
        self._functions = [(addr, name) for addr, _, kind, name in symbols if kind in "tTwW"]
        self._variables = [(addr, size, name) for addr, size, kind, name in symbols if kind in "bBdD" and size]
        self.addresses = {name: addr for addr, name in reversed(self._functions)}
        self.parts = {name: part for part, objects in PARTS.items() for path in objects if (folder / path).exists()
                      for _, name in build.functions(folder / path)}

    def name(self, addr):
        """Return the function that an address is in. What was inlined belongs to the function around it."""
        at = bisect.bisect_right(self._functions, addr, key=lambda function: function[0]) - 1
        return self._functions[at][1] if at >= 0 else f"{addr:#x}"

    def variable(self, addr):
        """Return the static variable that an address is in, or "" for other memory."""
        at = bisect.bisect_right(self._variables, addr, key=lambda variable: variable[0]) - 1
        start, size, name = self._variables[max(at, 0)]
        return name if start <= addr < start + size else ""

    def part(self, name):
        """Return the part of the kernel that a function belongs to."""
        return self.parts.get(name, REST)


symbols_of = functools.cache(Symbols)


def counts_of(log):
    """Return the file that the plugin writes beside a console log."""
    return f"{log}.counts"


def specification(symbols, log, name="count", seed=1):
    """Return what QEMU's -plugin takes, for counts beside a console log. name: "count" or "lines"; seed: of the order of
    turns. Refuses a kernel without the functions at which a measured part begins and ends."""
    words = [f"{build.plugin(name)}", f"out={counts_of(log)}"]
    # An interrupt of an arm64 kernel begins and returns at "irq" and "ret".
    hooks = {"begin": ["bench_mark_begin"], "end": ["bench_mark_end"], "irq": ["el1h_64_irq"], "ret": ["ret_to_kernel"]}
    if name == "lines":
        words.append(f"seed={seed}")
        hooks |= {"turn": TURNS, "switch": ["cpu_switch_to"]}
    else:
        trees = [name for name, part in symbols.parts.items() if part == "maple tree" and name.startswith("mas_")]
        hooks |= {"lock": LOCKS, "unlock": UNLOCKS, "tree": trees}
    for kind, names in hooks.items():
        found = [f"{kind}={symbols.addresses[name]:x}" for name in names if name in symbols.addresses]
        if kind in ("begin", "end") and not found:
            raise Refused(f"the kernel has no {names[0]}(): it was built without CONFIG_VMAP_RUST_BENCH, or with an "
                          "older bench/")
        words += found
    return ",".join(words)


@dataclass
class Hold:
    """How often and how long, in instructions, one function held a lock; interrupts do not count."""

    times: int = 0
    insns: int = 0
    longest: int = 0
    tree: int = 0  # how often the maple tree was worked on meanwhile

    def add(self, times, insns, longest, tree):
        """Add holds that were counted together."""
        self.times, self.insns, self.tree = self.times + times, self.insns + insns, self.tree + tree
        self.longest = max(self.longest, longest)


@dataclass
class Window:
    """One part of a case."""

    case: str
    part: str
    ops: int
    passes: int
    functions: dict = field(default_factory=lambda: defaultdict(Counter))  # function -> amounts by COSTS
    holds: dict = field(default_factory=lambda: defaultdict(Hold))  # (lock, function that took it) ->
    flushes: int = 0  # of the TLBs by TLBI instructions, each up to a DSB
    misses: Counter = field(default_factory=Counter)  # (address of the instruction, of the memory, is it a write?) ->

    @property
    def total(self):
        """The sum of all functions."""
        return sum(self.functions.values(), Counter())

    @property
    def name(self):
        """The case, with the part when that is not its cost."""
        return self.case if self.part == "cost" else f"{self.case} {self.part}"


def read(log, symbols):
    """Return the windows that the plugin has written beside a console log. Refuses a file that is not complete."""
    path, windows = counts_of(log), []
    try:
        lines = Path(path).read_text(encoding="ascii").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: the plugin wrote nothing: {error}") from None
    if lines[-2:] != ["end", ""]:
        raise Refused(f"{path}: is cut off")
    try:
        for line in lines[:-2]:
            kind, number, *words = line.split(" ")
            if kind == "window":
                windows.append(Window(words[0], words[1], int(words[2]), int(words[3])))
                continue
            window = windows[int(number)]
            if kind == "block":
                *amounts, times = map(int, words[1:])
                window.functions[symbols.name(int(words[0], 16))].update(
                    {name: amount * times for name, amount in zip(COSTS, amounts, strict=True)})
            elif kind == "hold":
                # The first instruction after the call, so one before it is in the function for sure.
                window.holds[int(words[0], 16), symbols.name(int(words[1], 16) - 1)].add(*map(int, words[2:]))
            elif kind == "miss":
                window.misses[int(words[0], 16), int(words[1], 16), words[2] == "1"] += int(words[3])
            elif kind == "flush":
                window.flushes = int(words[0])
            else:
                raise ValueError(kind)
    except (ValueError, IndexError, TypeError):
        raise Refused(f"{path}: cannot read the line: {line}") from None
    return windows


def locks_of(window, symbols):
    """Return the holds of the spinlocks of the allocators: (the tree's lock?, lock, function that took it, Hold),
    longest first."""
    ours = [(lock, name, hold) for (lock, name), hold in window.holds.items()
            if symbols.part(name) in ("allocator in Rust", "mm/vmalloc.c", "benchmark")]
    trees = {lock for lock, _, hold in ours if hold.tree}
    return sorted(((lock in trees, lock, name, hold) for lock, name, hold in ours), key=lambda one: -one[3].longest)


def misses_of(window, symbols):
    """Return the misses of cache lines without those of the benchmark itself, as Window.misses."""
    return Counter({key: times for key, times in window.misses.items()
                    if symbols.part(symbols.name(key[0])) != "benchmark"})


def lines_figures(window, symbols):
    """Return how many cache lines move between CPUs for one operation, and how often the one that moves most."""
    lines, writes = Counter(), 0
    for (_, addr, is_write), times in misses_of(window, symbols).items():
        lines[addr // LINE] += times
        writes += is_write * times
    return {"misses": lines.total(), "read_misses": lines.total() - writes, "write_misses": writes,
            "worst_line": max(lines.values(), default=0)}


def figures(window, instrument, symbols):
    """Return what an instrument reports of a window: (metric, unit, value) of each."""
    if instrument == "lines":
        return [(metric, "misses", number / window.ops) for metric, number in lines_figures(window, symbols).items()]
    if instrument == "holds":
        longest = defaultdict(int)
        for is_tree, _, _, hold in locks_of(window, symbols):
            for metric in ("longest_hold", "tree_hold" if is_tree else "other_hold"):
                longest[metric] = max(longest[metric], hold.longest)
        return [(metric, "instr", value) for metric, value in longest.items()]
    found = {"flushes": window.flushes, "tlbi": window.total["tlbi"]}
    return [(metric, "per 1,000", number * 1000 / window.ops) for metric, number in found.items()]


def results(log, instrument, symbols, threads):
    """Return what an instrument reports of a boot, as results of the benchmark. threads: workers."""
    return [{"case": window.case, "metric": ("" if window.part == "cost" else f"{window.part}_") + metric,
             "unit": unit, "threads": threads, "value": value}
            for window in read(log, symbols) for metric, unit, value in figures(window, instrument, symbols)]
