# SPDX-License-Identifier: GPL-2.0
"""Runs the cases of the instrument "lines", and prints which cache lines move between CPUs: "scripts/bench lines"."""

import collections
import json
import random
import re

from harness import kernels

from .. import build
from ..stats import amount
from ..table import Table, show
from .allocators import Allocator, KINDS, STRUCTS
from .cases import CASES
from .image import Image, layouts, symbols_of
from .machine import LINE, load_model

# What of struct counts is a figure, for one operation.
COUNTS = ("read_misses", "write_misses", "rmw", "barriers", "lines", "lines_written", "instructions", "locks")
FIGURES = ("misses", *COUNTS, "worst_line", "longest_hold")
# Places that are listed for each run.
WORST = 10


def measure(model, image, types, case, cpus, name, seed):
    """Run a case once; returns its figures for one operation, and where most misses are: (misses, place, function)."""
    allocator = Allocator(name, model, image, types, cpus, random.Random(seed))
    run, kinds = CASES[case]
    ops = run(allocator)
    counts, misses = allocator.machine.counts(), [miss for miss in allocator.machine.misses() if miss.kind in kinds]
    figures = {field: sum(getattr(counts[kind], field) for kind in kinds) / ops for field in COUNTS}
    figures["misses"] = len(misses) / ops
    figures["worst_line"] = max(collections.Counter(miss.addr // LINE for miss in misses).values(), default=0) / ops
    figures["longest_hold"] = max(counts[kind].hold for kind in kinds)
    place, places = allocator.kernel.places(allocator.machine), collections.Counter()
    for (addr, pc, is_write, kind), number in collections.Counter(miss[:4] for miss in misses).items():
        places[place(addr), image.symbol_at(image.base + pc)[0],
               f"{KINDS[kind]}, {'write' if is_write else 'read'}"] += number
    return {"case": case, "cpus": cpus, "allocator": name, "ops": ops, "figures": figures,
            "worst": [[number / ops, *words] for words, number in places.most_common(WORST)]}


def demangled(vmlinux):
    """Return a function that returns the short name of a symbol."""
    names = {mangled: text for (*_, mangled), (*_, text) in zip(symbols_of(vmlinux), symbols_of(vmlinux, "--demangle"))}
    return lambda text: re.sub(r"\[[0-9a-f]{16}\]|\b(vmap_rust|core|kernel)::", "",
                               re.sub(r"_R\w+", lambda name: names.get(name[0], name[0]), text))[:100]


def tables(results, short):
    """Return the table of the figures, and one of the places with most misses for each run."""
    yield Table("per operation; longest_hold of a spinlock in instructions",
                ["case", ">CPUs", "allocator", ">operations", *(f">{name}" for name in FIGURES)],
                [[one["case"], str(one["cpus"]), one["allocator"], f"{one['ops']:,}",
                  *(amount(one["figures"][name]) for name in FIGURES)] for one in results])
    for one in results:
        yield Table(f"{one['case']}, {one['cpus']} CPUs, {one['allocator']}", [">misses", "place", "in", "while"],
                    [[amount(number), short(place), short(function), what]
                     for number, place, function, what in one["worst"]])


def main(args):
    """Run the cases, and print or write the figures; returns the exit code."""
    kernel = kernels.get(args.kernel)
    if not args.built:
        kernel.build()
    build.build_model()
    vmlinux = kernel.folder / "vmlinux"
    model, image = load_model(build.MODEL), Image(vmlinux)
    types = layouts(build.types_of(kernel.folder), STRUCTS)
    results = [measure(model, image, types, case, cpus, name, args.seed) for case in args.cases for cpus in args.cpus
               for name in (("rbtree", "rust") if args.allocator == "both" else (args.allocator,))]
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    else:
        show(tables(results, demangled(vmlinux)))
    return 0
