# SPDX-License-Identifier: GPL-2.0
"""Runs the cases of the instrument "lines", and prints which cache lines move between CPUs: "scripts/bench lines"."""

import collections
import random
import re

from harness import kernels

from .. import build
from ..plan import INSTRUMENTS
from ..stats import amount
from ..table import Table, show
from .allocators import Allocator, KINDS, STRUCTS
from .cases import CASES
from .image import Image, layouts
from .machine import LINE, load_model

# The figures and their units: those of struct counts, for one operation, and the most of any line and of any lock.
COUNTS = {"read_misses": "misses", "write_misses": "misses", "rmw": "RMW", "barriers": "barriers", "lines": "lines",
          "lines_written": "lines", "instructions": "instr", "locks": "locks"}
UNITS = {"misses": "misses", **COUNTS, "worst_line": "misses", "longest_hold": "instr"}
# Places that are listed for each run.
WORST = 10


class Lines:
    """A kernel that was built, in the emulator with the model of caches."""

    def __init__(self, kernel, model=None, types=None):
        """kernel: a configuration; model, types: files, instead of what build.py makes."""
        folder = kernels.get(kernel).folder
        self.vmlinux = folder / "vmlinux"
        self.model, self.image = load_model(model or build.cache_model()), Image(self.vmlinux)
        self.types = layouts(types or build.types_of(folder), STRUCTS)

    def measure(self, case, cpus, name, seed):
        """Run a case once with an allocator. Returns its operations, its figures by UNITS, and where most misses are:
        (misses of an operation, place, function, what it did)."""
        allocator = Allocator(name, self.model, self.image, self.types, cpus, random.Random(seed))
        run, kinds = CASES[case]
        ops = run(allocator)
        counts = [allocator.machine.counts()[kind] for kind in kinds]
        misses = [miss for miss in allocator.machine.misses() if miss.kind in kinds]
        worst = max(collections.Counter(miss.addr // LINE for miss in misses).values(), default=0)
        figures = {"misses": len(misses) / ops, "worst_line": worst / ops,
                   "longest_hold": max(count.hold for count in counts),
                   **{field: sum(getattr(count, field) for count in counts) / ops for field in COUNTS}}
        place, places = allocator.kernel.places(allocator.machine), collections.Counter()
        same = collections.Counter((miss.addr, miss.pc, miss.is_write, miss.kind) for miss in misses)
        for (addr, pc, is_write, kind), number in same.items():
            places[place(addr), self.image.symbol_at(self.image.base + pc)[0],
                   f"{KINDS[kind]}, {'write' if is_write else 'read'}"] += number
        return ops, figures, [(number / ops, *words) for words, number in places.most_common(WORST)]


def demangled(vmlinux):
    """Return a function that returns the short name of a symbol."""
    names = {mangled: text for (*_, mangled), (*_, text)
             in zip(build.symbols(vmlinux), build.symbols(vmlinux, "--demangle"))}
    return lambda text: re.sub(r"\[[0-9a-f]{16}\]|\b(vmap_rust|core|kernel)::", "",
                               re.sub(r"_R\w+", lambda name: names.get(name[0], name[0]), text))[:100]


def main(_name, args):
    """Run the cases on both allocators, and print the figures, and the places with most misses of each run; returns the
    exit code."""
    kernel = INSTRUMENTS["lines"].kernel
    kernels.get(kernel).build()
    lines, rows, tables = Lines(kernel), [], []
    short = demangled(lines.vmlinux)
    for case, cpus, name in ((case, cpus, name) for case in args.cases for cpus in args.cpus
                             for name in ("rbtree", "rust")):
        ops, figures, worst = lines.measure(case, cpus, name, 1)
        rows.append([case, str(cpus), name, f"{ops:,}", *(amount(figures[metric]) for metric in UNITS)])
        tables.append(Table(f"{case}, {cpus} CPUs, {name}", [">misses", "place", "in", "while"],
                            [[amount(number), short(place), short(function), what]
                             for number, place, function, what in worst]))
    show([Table("per operation; longest_hold of a spinlock in instructions",
                ["case", ">CPUs", "allocator", ">operations", *(f">{name}" for name in UNITS)], rows), *tables])
    return 0
