# SPDX-License-Identifier: GPL-2.0
"""The cases, what they count, and "scripts/bench lines". The CPUs of a case take turns in a random order of the seed;
each turn is one whole operation."""

import collections
import random
import re

import drgn

from ... import build as builds, kernels
from ...settings import Refused
from .. import build
from ..plan import INSTRUMENTS
from ..stats import amount
from ..table import Table, show
from .kernel import ALLOC, CALLBACK, KINDS, PURGE, RETIRE, UNLINK, Allocator
from .machine import LINE, Image

# Whole cycles, from one purge to the next, before and while it is measured: a purge belongs to the pairs that caused
# it.
WARM_UP, MEASURED = 6, 2
# Most areas that wait for the CPU that frees them, and most pairs between two purges.
QUEUE, LIMIT = 16, 1 << 20
# The figures and their units: those of struct counts, for one operation, and the most of any line.
COUNTS = {"read_misses": "misses", "write_misses": "misses", "rmw": "RMW", "barriers": "barriers", "lines": "lines",
          "lines_written": "lines", "instructions": "instr", "locks": "locks"}
UNITS = {"misses": "misses", **COUNTS, "worst_line": "misses"}
# Places that are listed for each run.
WORST = 10


def pairs(allocator, pages, other=False, warm_up=WARM_UP, measured=MEASURED):
    """Reserve an area and free it: on the same CPU, or if other, on any other one. Returns the pairs that count."""
    rng, cpus = allocator.rng, allocator.cpus
    reserved, unlinked = [[] for _ in range(cpus)], [[] for _ in range(cpus)]

    def turn(cpu):
        if unlinked[cpu]:
            allocator.retire(cpu, unlinked[cpu].pop())
            return 1
        if reserved[cpu]:
            unlinked[cpu].append(allocator.unlink(cpu, reserved[cpu].pop(0)))
            return 0
        owner = (cpu + rng.randrange(1, cpus)) % cpus if other else cpu
        # With two CPUs, one would only reserve, faster than the other one frees.
        if len(reserved[owner]) < QUEUE:
            reserved[owner].append(allocator.alloc(cpu, pages))
        return 0

    done = 0
    for count in (warm_up, measured):
        allocator.machine.model.reset()
        until, done = allocator.purges + count, 0
        while allocator.purges < until:
            done += turn(int(rng.random() * cpus))
            allocator.settle()
            if done > LIMIT:
                raise Refused(f"{allocator.name}: no purge after {LIMIT} pairs")
    return done


def area_2048(allocator):
    """2048 pages and a guard page: a purge after every 4 * CPUs pairs at most."""
    cycles = max(8, 32 * allocator.cpus * 2049 * 4096 // (allocator.cpus.bit_length() * (32 << 20)))
    return pairs(allocator, 2049, False, cycles // 4, cycles)


def purge_empty(allocator):
    """A purge when nothing is lazy, after two that found something."""
    for number in range(2 + 16):
        for size in (2, 33, 2049) if number < 2 else ():
            for cpu in allocator.rng.sample(range(allocator.cpus), allocator.cpus):
                allocator.retire(cpu, allocator.unlink(cpu, allocator.alloc(cpu, size)))
                allocator.settle()
        if number == 2:
            allocator.machine.model.reset()
        allocator.purge(allocator.rng.randrange(allocator.cpus))
        allocator.settle()
    return 16


# What runs an allocator and returns the operations that count, and the kinds of operations that belong to it.
PAIR = (ALLOC, UNLINK, RETIRE, PURGE, CALLBACK)
CASES = {"pair": (lambda allocator: pairs(allocator, 2), PAIR),
         "pair_remote": (lambda allocator: pairs(allocator, 2, True), PAIR),
         "area_2048": (area_2048, PAIR), "purge_empty": (purge_empty, (PURGE, CALLBACK))}


class Lines:
    """A kernel that was built, in the emulator with the model of caches."""

    def __init__(self, kernel):
        """kernel: a configuration."""
        folder, self.types = kernels.get(kernel).folder, drgn.Program()
        self.library, self.image = build.cache_model(), Image(folder / "vmlinux")
        self.types.extra_module("types", create=True).try_file(build.types_of(folder), force=True)

    def measure(self, case, cpus, name, seed):
        """Run a case once with an allocator. Returns its operations, its figures by UNITS, and where most misses are:
        (misses of an operation, place, function, what it did)."""
        allocator = Allocator(name, self.library, self.image, self.types, cpus, random.Random(seed))
        run, kinds = CASES[case]
        ops = run(allocator)
        counts = [allocator.machine.model.counts[kind] for kind in kinds]
        misses = [miss for miss in allocator.machine.misses() if miss.kind in kinds]
        worst = max(collections.Counter(miss.addr // LINE for miss in misses).values(), default=0)
        figures = {"misses": len(misses) / ops, "worst_line": worst / ops,
                   **{field: sum(getattr(count, field) for count in counts) / ops for field in COUNTS}}
        places, bases = collections.Counter(), sorted(allocator.slab.objects)
        same = collections.Counter((miss.addr, miss.pc, miss.is_write, miss.kind) for miss in misses)
        for (addr, pc, is_write, kind), number in same.items():
            places[allocator.slab.place(addr, bases), self.image.symbol_at(self.image.base + pc)[0],
                   f"{KINDS[kind]}, {'write' if is_write else 'read'}"] += number
        return ops, figures, [(number / ops, *words) for words, number in places.most_common(WORST)]


def main(_name, args):
    """Run the cases on both allocators, and print the figures, and the places with most misses of each run; returns the
    exit code."""
    kernel = kernels.get(INSTRUMENTS["lines"].kernel)
    builds.build(kernel)
    lines, rows, tables = Lines(kernel.name), [], []
    symbols = [build.symbols(kernel.folder / "vmlinux", *more) for more in ((), ("--demangle",))]
    names = {mangled: text for (*_, mangled), (*_, text) in zip(*symbols)}

    def short(text):
        return re.sub(r"\[[0-9a-f]{16}\]|\b(vmap_rust|core|kernel)::", "",
                      re.sub(r"_R\w+", lambda name: names.get(name[0], name[0]), text))[:100]

    for case, cpus, name in ((case, cpus, name) for case in args.cases for cpus in args.cpus
                             for name in ("rbtree", "rust")):
        ops, figures, worst = lines.measure(case, cpus, name, 1)
        rows.append([case, str(cpus), name, f"{ops:,}", *(amount(figures[metric]) for metric in UNITS)])
        tables.append(Table(f"{case}, {cpus} CPUs, {name}", [">misses", "place", "in", "while"],
                            [[amount(number), short(place), short(function), what]
                             for number, place, function, what in worst]))
    show([Table("per operation", ["case", ">CPUs", "allocator", ">operations", *(f">{name}" for name in UNITS)], rows),
          *tables])
    return 0
