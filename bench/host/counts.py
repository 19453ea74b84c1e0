# SPDX-License-Identifier: GPL-2.0
"""What bench/plugin/count.c, a plugin of QEMU, counts in the measured parts of a case."""

import bisect
import re
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from harness.settings import BUILDS, Refused

from .build import PLUGIN

# Functions whose calls are counted, as far as a kernel has them: the flush of the TLBs of all CPUs, and on x86 the
# interrupts by which one CPU has others run a function. On arm64 the flush is inline and sends no interrupt: its TLBI
# instructions are counted.
FLUSH = "flush_tlb_kernel_range"
INTERRUPTS = ("asm_sysvec_call_function", "asm_sysvec_call_function_single")
LOCKS = ("_raw_spin_lock", "_raw_spin_lock_irqsave", "_raw_spin_lock_irq", "_raw_spin_lock_bh", "_raw_spin_trylock")
UNLOCKS = ("_raw_spin_unlock", "_raw_spin_unlock_irqrestore", "_raw_spin_unlock_irq", "_raw_spin_unlock_bh")
# Where an interrupt of an arm64 kernel begins, and where it returns.
IRQ, RET = "el1h_64_irq", "ret_to_kernel"
# Parts of a kernel, and the objects that their functions are in.
PARTS = {"allocator": ("mm/vmap_rust/rust/vmap_rust.o", "mm/vmap_rust/vmap_rust.o"),
         "mm/vmalloc.c": ("mm/vmalloc.o", "mm/vmap_area_ops.o"), "maple tree": ("lib/maple_tree.o",),
         "benchmark": ("mm/vmap_rust/bench/pair.o",)}
REST = "rest of the kernel"
# Kernels of 64 bits begin here.
USER_END = 1 << 63
# What the plugin counts of a block of code: ordered are loads that acquire and stores that release.
COSTS = ("insns", "rmw", "barriers", "ordered", "tlbi")


class Bad(Refused):
    """Counts that cannot be used; the message is one line."""


def _functions(path):
    """(address, name) of each function of a program or an object, in the order of addresses."""
    done = subprocess.run(["llvm-nm", "--demangle", "--numeric-sort", "--defined-only", path], capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise Bad(f"cannot read the symbols of {path}: {done.stderr.strip() or 'llvm-nm failed'}")
    return [(int(addr, 16), name) for addr, name in re.findall(r"^([0-9a-f]+) [tTwW] (.*)$", done.stdout, re.M)]


class Symbols:
    """The functions of a kernel that was built."""

    def __init__(self, kernel):
        """kernel: a configuration."""
        folder = BUILDS / kernel
        functions = _functions(folder / "vmlinux")
        self._starts = [addr for addr, _ in functions]
        self._names = [name for _, name in functions]
        self._addresses = {name: addr for addr, name in reversed(functions)}
        self._parts = {name: part for part, objects in PARTS.items() for path in objects if (folder / path).exists()
                       for _, name in _functions(folder / path)}

    def address(self, name):
        """Return where a function begins, or None."""
        return self._addresses.get(name)

    def name(self, addr):
        """Return the function that an address is in. What was inlined belongs to the function around it. Programs are
        one function."""
        if addr < USER_END:
            return "(user space)"
        at = bisect.bisect_right(self._starts, addr) - 1
        return self._names[at] if at >= 0 else f"{addr:#x}"

    def functions(self, part):
        """Return the functions of a part of the kernel."""
        return [name for name, of in self._parts.items() if of == part]

    def part(self, name):
        """Return the part of the kernel that a function belongs to."""
        return self._parts.get(name, REST)


def specification(symbols, out, marks=("bench_mark_begin", "bench_mark_end")):
    """Return what --plugin of scripts/run boot takes, for counts that go to the file out. marks: functions at which a
    measured part begins and ends."""
    words = [f"{PLUGIN}", f"out={out}"]
    # A kernel for arm64 may have a copy of the inline function that most callers do not use.
    calls = [FLUSH, *INTERRUPTS] if symbols.address(INTERRUPTS[0]) else []
    trees = [name for name in symbols.functions("maple tree") if name.startswith("mas_")]
    for kind, names, must in (("begin", marks[:1], True), ("end", marks[1:], True),
                              ("call", calls, False), ("lock", LOCKS, False), ("unlock", UNLOCKS, False),
                              ("tree", trees, False), ("irq", [IRQ], False), ("ret", [RET], False)):
        for name in names:
            addr = symbols.address(name)
            if addr:
                words.append(f"{kind}={addr:x}")
            elif must:
                raise Bad(f"the kernel has no {name}(): it was built without CONFIG_VMAP_RUST_BENCH, or with an older "
                          "bench/")
    return ",".join(words)


@dataclass
class Hold:
    """How often and how long one function held a lock; interrupts do not count."""

    times: int = 0
    insns: int = 0
    longest: int = 0
    tree: int = 0  # how often the maple tree was worked on meanwhile

    def add(self, times, insns, longest, tree):
        """Add holds that were counted together."""
        self.times += times
        self.insns += insns
        self.longest = max(self.longest, longest)
        self.tree += tree


@dataclass
class Window:
    """One part of a case."""

    case: str
    part: str
    ops: int
    passes: int
    cpus: dict = field(default_factory=dict)  # CPU -> (instructions in its parts, instructions while any part was open)
    functions: dict = field(default_factory=lambda: defaultdict(Counter))  # function -> amounts by COSTS
    calls: Counter = field(default_factory=Counter)
    holds: dict = field(default_factory=lambda: defaultdict(Hold))  # (lock, function that took it) ->
    flushes: int = 0  # of the TLBs by TLBI instructions, each up to a DSB

    @property
    def total(self):
        """The sum of all functions."""
        return sum(self.functions.values(), Counter())


def read(path, symbols):
    """Return the windows of a file of the plugin. Raises Bad if it is not complete."""
    try:
        with open(path, encoding="ascii") as file:
            lines = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Bad(f"{path}: the plugin wrote nothing: {error}") from None
    if lines[-2:] != ["end", ""]:
        raise Bad(f"{path}: is cut off")
    windows = []
    try:
        for line in lines[:-2]:
            kind, number, *words = line.split(" ")
            if kind == "window":
                windows.append(Window(words[0], words[1], int(words[2]), int(words[3])))
                continue
            window = windows[int(number)]
            if kind == "cpu":
                window.cpus[int(words[0])] = (int(words[1]), int(words[2]))
            elif kind == "block":
                *amounts, times = map(int, words[1:])
                window.functions[symbols.name(int(words[0], 16))].update(
                    {name: amount * times for name, amount in zip(COSTS, amounts, strict=True)})
            elif kind == "call":
                window.calls[symbols.name(int(words[0], 16))] += int(words[1])
            elif kind == "hold":
                # The first instruction after the call, so one before it is in the function for sure.
                window.holds[int(words[0], 16), symbols.name(int(words[1], 16) - 1)].add(*map(int, words[2:]))
            elif kind == "flush":
                window.flushes = int(words[0])
            else:
                raise ValueError(kind)
    except (ValueError, IndexError, TypeError) as error:
        raise Bad(f"{path}: cannot read the line: {line}") from error
    return windows


def locks_of(window, symbols):
    """Return the holds of the spinlocks of the allocators: (the tree's lock?, lock, function that took it, Hold),
    longest first."""
    ours = [(lock, name, hold) for (lock, name), hold in window.holds.items()
            if symbols.part(name) in ("allocator", "mm/vmalloc.c", "benchmark")]
    trees = {lock for lock, _, hold in ours if hold.tree}
    return sorted(((lock in trees, lock, name, hold) for lock, name, hold in ours), key=lambda one: -one[3].longest)


def results(windows, instrument, symbols, threads):
    """Return what an instrument reports of a boot, as results of the benchmark."""
    made = []
    for window in windows:
        figures = []
        if instrument == "holds":
            locks = locks_of(window, symbols)
            figures = [(name, "instr", max(hold.longest for is_tree, _, _, hold in locks if is_tree in which))
                       for name, which in (("longest_hold", (True, False)), ("tree_hold", (True,)),
                                           ("other_hold", (False,)))
                       if any(is_tree in which for is_tree, *_ in locks)]
        else:
            calls = sum(window.calls[name] for name in INTERRUPTS)
            x86 = FLUSH in window.calls
            flushes = window.calls[FLUSH] if x86 else window.flushes
            figures = [("flushes", "per 1,000", flushes * 1000 / window.ops),
                       ("interrupts", "per 1,000", calls * 1000 / window.ops) if x86 else
                       ("tlbi", "per 1,000", window.total["tlbi"] * 1000 / window.ops)]
        prefix = "" if window.part == "cost" else f"{window.part}_"
        made += [{"case": window.case, "metric": prefix + metric, "unit": unit, "threads": threads, "value": value}
                 for metric, unit, value in figures]
    return made
