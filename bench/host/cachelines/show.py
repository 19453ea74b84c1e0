# SPDX-License-Identifier: GPL-2.0
"""Runs the cases of the instrument "lines", and prints which cache lines move between CPUs: "scripts/bench lines"."""

import collections
import json
import random
import re

from harness import kernels

from .. import build
from . import dwarf
from .allocators import Allocator, KINDS
from .cases import CASES, Run
from .image import load_image
from .machine import load_model
from .names import Names


def worst_of(names, at, line, ops):
    """Return the fields and the lines with most misses for one operation. at: numbers of misses by (address, is a
    write, pc, kind).

    A field has its name, misses, how many lines it is in, and the functions that missed it most; a line its misses and
    fields.
    """
    Counter = collections.Counter
    lines, fields = Counter(), Counter()
    inside, around, functions = (collections.defaultdict(kind) for kind in (Counter, set, Counter))
    for (address, is_write, pc, kind), number in at.items():
        where = "".join(names.of(address))
        key = re.sub(r"\[\d+\]", "[]", re.sub(r" of CPU \d+", "", where))
        lines[address // line] += number
        inside[address // line][where] += number
        fields[key] += number
        around[key].add(address // line)
        functions[key][f"{names.function_at(pc)} ({KINDS[kind]}, {'write' if is_write else 'read'})"] += number
    return {"fields": [(key, number / ops, len(around[key]), [text for text, _ in functions[key].most_common(2)])
                       for key, number in fields.most_common()],
            "lines": [(number / ops, [text for text, _ in inside[where].most_common(4)])
                      for where, number in lines.most_common(100)]}


def measure(model, image, types, case, cpus, name, line, seed, named):
    """Run a case once. Returns its figures per operation, and if named, its worst lines."""
    rng = random.Random(seed)
    allocator = Allocator(name, model, image, types, cpus, line, rng)
    run = Run(allocator, rng)
    CASES[case].run(run)
    kinds, ops = CASES[case].kinds, run.ops
    counts = allocator.machine.emulator.counts()

    def total(field):
        return sum(getattr(counts[kind], field) for kind in kinds) / ops

    fields = ("insns", "read_misses", "write_misses", "rmw", "barriers", "acquires", "releases", "touched", "written",
              "locks")
    figures = {field: total(field) for field in fields}
    figures["misses"] = figures["read_misses"] + figures["write_misses"]
    figures["longest_hold"] = max(counts[kind].hold for kind in kinds)
    at = collections.Counter((addr, is_write, pc, kind)
                             for addr, pc, is_write, kind, _ in allocator.machine.emulator.misses() if kind in kinds)
    lines = collections.Counter()
    for (address, *_), number in at.items():
        lines[address // line] += number
    figures["worst_line"] = max(lines.values(), default=0) / ops
    worst = worst_of(Names(allocator, image, types), at, line, ops) if named else None
    parts = {KINDS[kind]: {"misses": (counts[kind].read_misses + counts[kind].write_misses) / ops,
                           "insns": counts[kind].insns / ops, "ops": counts[kind].ops} for kind in kinds}
    return {"case": case, "cpus": cpus, "allocator": name, "ops": ops, "figures": figures, "worst": worst,
            "parts": parts}


COLUMNS = (("misses", "misses"), ("read", "read_misses"), ("write", "write_misses"), ("worst line", "worst_line"),
           ("RMW", "rmw"), ("barriers", "barriers"), ("acq", "acquires"), ("rel", "releases"), ("lines", "touched"),
           ("written", "written"), ("insns", "insns"), ("locks", "locks"), ("hold", "longest_hold"))


def amount(value):
    """A figure with three digits or so."""
    if value >= 10:
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
    return f"{value:.3f}".rstrip("0").rstrip(".")


def show(results, worst):
    """Print a table of the figures, and of the worst lines."""
    from .. import table  # pylint: disable=import-outside-toplevel # it takes longer to import than a short run
    console = table.make_console()
    table.say(console, "per operation; hold: the longest hold of a spinlock, in instructions", "bold")
    cells = [[one["case"], str(one["cpus"]), one["allocator"], f"{one['ops']:,}",
              *(amount(one["figures"][key]) for _, key in COLUMNS)] for one in results]
    table.print_table(console, ["case", ">CPUs", "allocator", ">operations", *(f">{name}" for name, _ in COLUMNS)],
                      cells)
    for one in results if worst else ():
        parts = ", ".join(f"{name} {amount(part['misses'])}" for name, part in one["parts"].items())
        table.say(console, f"{one['case']}, {one['cpus']} CPUs, {one['allocator']}: misses by part: {parts}", "bold")
        table.print_table(console, ["field", ">misses", ">lines", "missed most in"],
                          [[key, amount(number), str(lines), "; ".join(functions)]
                           for key, number, lines, functions in one["worst"]["fields"][:worst]])
        table.print_table(console, [">misses", "single line"],
                          [[amount(number), ", ".join(things)] for number, things in one["worst"]["lines"][:worst]])


def main(_name, args, _words):
    """Run the cases, and print or write the figures; returns the exit code."""
    vmlinux = args.vmlinux
    if not vmlinux:
        kernels.get("arm64-bench").build()
        vmlinux = kernels.get("arm64-bench").folder / "vmlinux"
    build.build_model()
    folder = build.build_types(vmlinux)
    model, image, types = load_model(build.MODEL), load_image(vmlinux, folder), dwarf.load(folder)
    results = [measure(model, image, types, case, cpus, name, args.line, args.seed, args.worst > 0)
               for case in args.cases for cpus in args.cpus
               for name in (("rbtree", "rust") if args.allocator == "both" else (args.allocator,))]
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    else:
        show(results, args.worst)
    return 0
