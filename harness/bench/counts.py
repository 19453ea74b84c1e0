# SPDX-License-Identifier: GPL-2.0
"""What plugins of QEMU, count.c, lines.c and softirq.c of bench/plugin, count in the measured parts of a case."""

import bisect
import functools
import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from ..machine.settings import BUILDS, CACHE, REPO, Refused

GCC = ("gcc", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-fPIC", "-shared")
LOCKS = ("_raw_spin_lock", "_raw_spin_lock_irqsave", "_raw_spin_lock_irq", "_raw_spin_lock_bh", "_raw_spin_trylock")
UNLOCKS = ("_raw_spin_unlock", "_raw_spin_unlock_irqrestore", "_raw_spin_unlock_irq", "_raw_spin_unlock_bh")
# Functions of which QEMU's plugins must know the addresses. An interrupt of an arm64 kernel begins and returns at "irq" and
# "ret". Workers of a case take turns at "turn", so that lines move as often as on CPUs that run at once.
HOOKS = {"begin": ("bench_mark_begin",), "end": ("bench_mark_end",)}
IRQ_HOOKS = {"irq": ("el1h_64_irq",), "ret": ("ret_to_kernel",)}
MORE_HOOKS = {"count": {**IRQ_HOOKS, "lock": LOCKS, "unlock": UNLOCKS}, "softirq": {"softirq": ("handle_softirqs",)},
              "lines": {**IRQ_HOOKS, "turn": ("get_vm_area", "free_vm_area"), "switch": ("cpu_switch_to",)}}
# Parts of a kernel, and the objects that their functions are in. The rb-trees are a part of mm/vmalloc.c.
PARTS = {"allocator in Rust": ("mm/vmap_rust/rust/vmap_rust.o", "mm/vmap_rust/vmap_rust.o"),
         "mm/vmalloc.c": ("mm/vmalloc.o", "mm/vmap_rust.o"), "maple tree": ("lib/maple_tree.o",),
         "benchmark": ("mm/vmap_rust/bench/pair.o",)}
REST = "rest of the kernel"
LINE = 64
# What the plugin counts of a block of code: ordered are loads that acquire and stores that release.
COSTS = ("insns", "rmw", "barriers", "ordered", "tlbi")


def build_plugin(name):
    """Build a plugin of QEMU, "count", "lines", "softirq" or "total", unless it is newer than all sources; returns its path. Refuses
    what gcc refuses."""
    out, sources = CACHE / f"build/plugin/{name}.so", (REPO / "bench/plugin").glob("*.[ch]")
    if out.exists() and all(source.stat().st_mtime_ns < out.stat().st_mtime_ns for source in sources):
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    # A guest that runs with the former one keeps it.
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        new = Path(folder) / out.name
        if subprocess.run([*GCC, REPO / f"bench/plugin/{name}.c", "-o", new], check=False).returncode:
            raise Refused(f"{out} cannot be built")
        return new.replace(out)


def functions_of(path):
    """Return (address, name) of each function of a program or an object, in the order of addresses."""
    lines = subprocess.check_output(["llvm-nm", "--numeric-sort", "--defined-only", "--demangle", path], text=True)
    return [(int(addr, 16), name) for addr, name in re.findall(r"^(\w{16}) [tTwW] (.*)$", lines, re.M)]


class Symbols:
    """The functions of a kernel that was built."""

    def __init__(self, kernel):
        """kernel: a configuration."""
        folder = BUILDS / kernel
        self._functions = functions_of(folder / "vmlinux")
        self.addresses = {name: addr for addr, name in reversed(self._functions)}
        self._parts = {name: part for part, objects in PARTS.items() for path in objects if (folder / path).exists()
                       for _, name in functions_of(folder / path)}

    def name(self, addr):
        """Return the function that an address is in. What was inlined belongs to the function around it."""
        at = bisect.bisect_right(self._functions, addr, key=lambda function: function[0]) - 1
        return self._functions[at][1] if at >= 0 else f"{addr:#x}"

    def part(self, name):
        """Return the part of the kernel that a function belongs to."""
        return self._parts.get(name, REST)


symbols_of = functools.cache(Symbols)


def counts_of(log):
    """Return the file that the plugin writes beside a console log."""
    return Path(f"{log}.counts")


def specification(symbols, log, name, seed, workers):
    """Return what QEMU's -plugin takes, for counts beside a console log. name: "count", "lines" or "softirq"; seed: of
    the order of turns; workers: how many take turns."""
    words = [f"{build_plugin(name)}", f"out={counts_of(log)}"]
    words += [f"seed={seed}", f"workers={workers}"] if name == "lines" else []
    for kind, names in (HOOKS | MORE_HOOKS[name]).items():
        # Functions of locks may be inlined, depending on the configuration.
        words += [f"{kind}={symbols.addresses[function]:x}" for function in names
                  if function in symbols.addresses or kind not in ("lock", "unlock")]
    return ",".join(words)


@dataclass
class Window:
    """One part of a case."""

    case: str
    part: str
    ops: int
    passes: int
    functions: dict = field(default_factory=lambda: defaultdict(Counter))  # function -> amounts by COSTS
    # (address of a lock, function that took it) -> times, instructions of all, of the longest; without interrupts
    holds: dict = field(default_factory=lambda: defaultdict(lambda: (0, 0, 0)))
    flushes: int = 0  # of the TLBs by TLBI instructions, each up to a DSB
    softirq: int = 0  # instructions of a CPU in its longest run of softirqs
    # (address of the instruction, of the memory, is it a write?) -> times
    misses: Counter = field(default_factory=Counter)
    # As misses, and turns of workers: with a fair choice of the CPU that goes on.
    fair_misses: Counter = field(default_factory=Counter)
    fair_turns: int = 0

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
        *lines, last, after = path.read_text(encoding="ascii").split("\n")
        if (last, after) != ("end", ""):
            raise ValueError("is cut off")
        for line in lines:
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
                key = int(words[0], 16), symbols.name(int(words[1], 16) - 1)
                (times, insns, longest), (more, added, other) = window.holds[key], map(int, words[2:])
                window.holds[key] = times + more, insns + added, max(longest, other)
            elif kind == "miss":
                key = int(words[0], 16), int(words[1], 16), words[2] == "1"
                window.misses[key] += int(words[3])
                window.fair_misses[key] += int(words[4])
            elif kind == "turns":
                window.fair_turns = int(words[0])
            elif kind == "flush":
                window.flushes = int(words[0])
            elif kind == "softirq":
                window.softirq = int(words[0])
            else:
                raise ValueError(f"cannot read the line: {line}")
    except (OSError, ValueError, IndexError) as error:
        raise Refused(f"{path}: {error}") from None
    return windows


def locks_of(window, symbols):
    """Return the holds of the allocators' spinlocks as Window.holds, longest first."""
    ours = {key: hold for key, hold in window.holds.items()
            if symbols.part(key[1]) in ("allocator in Rust", "mm/vmalloc.c", "benchmark")}
    return dict(sorted(ours.items(), key=lambda item: -item[1][2]))


def misses_of(window, symbols):
    """Return the misses of cache lines without those of the benchmark itself, as Window.misses."""
    return Counter({key: times for key, times in window.misses.items()
                    if symbols.part(symbols.name(key[0])) != "benchmark"})


def figures(window, instrument, symbols):
    """Return what an instrument reports of a window: the unit, and values by metric."""
    if instrument == "holds":
        return "instr", {"longest_hold": longest for _, _, longest in list(locks_of(window, symbols).values())[:1]}
    if instrument == "flushes":
        found = {"flushes": window.flushes, "tlbi": window.total["tlbi"]}
        return "per 1,000", {metric: number * 1000 / window.ops for metric, number in found.items()}
    if instrument == "latency":
        return "instr", {"softirq": window.softirq}
    lines, kinds = Counter(), Counter()
    for (_, addr, is_write), times in misses_of(window, symbols).items():
        lines[addr // LINE] += times / window.ops
        kinds[is_write] += times / window.ops
    return "misses", {"misses": lines.total(), "read_misses": kinds[False], "write_misses": kinds[True],
                      "worst_line": max(lines.values(), default=0)}


def results(log, instrument, symbols, threads):
    """Return what an instrument reports of a boot, as results of the benchmark. threads: workers."""
    made = []
    for window in read(log, symbols):
        unit, values = figures(window, instrument, symbols)
        part = "" if window.part == "cost" else f"{window.part}_"
        made += [{"case": window.case, "metric": part + metric, "unit": unit, "threads": threads, "value": value}
                 for metric, value in values.items()]
    return made
