#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs the cases of the instrument "lines", and prints which cache lines move between CPUs: see scripts/lines --help."""

import argparse
import collections
import json
import os
import random
import re
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))

import dwarf
from allocators import Allocator, KINDS
from cases import CASES, Run
from image import Bad, load_image
from machine import load_model
from names import Names

ALLOCATORS = ("rbtree", "rust")


def measure(model, image, types, case, cpus, name, line, seed):
    """Run a case once. Returns its figures per operation, and its worst lines."""
    rng = random.Random(seed)
    allocator = Allocator(name, model, image, types, cpus, line, rng)
    run = Run(allocator, rng)
    CASES[case].run(run)
    kinds, ops = CASES[case].kinds, run.ops
    counts = allocator.machine.emulator.counts()

    def total(field):
        return sum(getattr(counts[kind], field) for kind in kinds) / ops

    figures = {field: total(field) for field in ("insns", "read_misses", "write_misses", "rmw", "barriers", "acquires", "releases", "touched", "written", "locks")}
    figures["misses"] = figures["read_misses"] + figures["write_misses"]
    figures["longest_hold"] = max(counts[kind].hold for kind in kinds)
    lines, fields = collections.Counter(), collections.Counter()
    names = Names(allocator, image, types)
    by_address = collections.defaultdict(collections.Counter)
    for miss in allocator.machine.emulator.misses():
        if miss.kind in kinds:
            by_address[miss.addr][miss.is_write, miss.pc, miss.kind] += 1
    where, functions = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
    in_field = collections.defaultdict(set)
    for address, events in by_address.items():
        thing, field = names.of(address)
        number = sum(events.values())
        lines[address // line] += number
        where[address // line][thing + field] += number
        key = re.sub(r"\[\d+\]", "[]", re.sub(r" of CPU \d+", "", thing + field))
        fields[key] += number
        in_field[key].add(address // line)
        for (is_write, pc, kind), number in events.items():
            functions[key][f"{names.function(image.symbol_at(allocator.machine.text + pc)[0])} ({KINDS[kind]}, {'write' if is_write else 'read'})"] += number
    figures["worst_line"] = max(lines.values(), default=0) / ops
    worst = {
        "fields": [(key, number / ops, len(in_field[key]), [text for text, _ in functions[key].most_common(2)]) for key, number in fields.most_common()],
        "lines": [(number / ops, [text for text, _ in where[at].most_common(4)]) for at, number in lines.most_common(100)]}
    parts = {KINDS[kind]: {"misses": (counts[kind].read_misses + counts[kind].write_misses) / ops, "insns": counts[kind].insns / ops,
                           "ops": counts[kind].ops} for kind in kinds}
    return {"case": case, "cpus": cpus, "allocator": name, "ops": ops, "figures": figures, "worst": worst, "parts": parts}


COLUMNS = (("misses", "misses"), ("read", "read_misses"), ("write", "write_misses"), ("worst line", "worst_line"), ("RMW", "rmw"), ("barriers", "barriers"),
           ("acq", "acquires"), ("rel", "releases"), ("lines", "touched"), ("written", "written"), ("insns", "insns"), ("locks", "locks"), ("hold", "longest_hold"))


def amount(value):
    """A figure with three digits or so."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}".rstrip("0").rstrip(".")


def show(results, worst):
    """Print a table of the figures, and of the worst lines."""
    import table  # only here: what it imports takes longer than a short run
    console = table.make_console()
    table.say(console, "per operation; hold: the longest hold of a spinlock, in instructions", "bold")
    cells = [[one["case"], str(one["cpus"]), one["allocator"], f"{one['ops']:,}", *(amount(one["figures"][key]) for _, key in COLUMNS)] for one in results]
    table.print_table(console, ["case", ">CPUs", "allocator", ">operations", *(">" + name for name, _ in COLUMNS)], cells, [""] * len(cells))
    for one in results if worst else ():
        table.say(console, f"{one['case']}, {one['cpus']} CPUs, {one['allocator']}: misses by part: " +
                  ", ".join(f"{name} {amount(part['misses'])}" for name, part in one["parts"].items()), "bold")
        cells = [[key, amount(number), str(lines), "; ".join(functions)] for key, number, lines, functions in one["worst"]["fields"][:worst]]
        table.print_table(console, ["field", ">misses", ">lines", "missed most in"], cells, [""] * len(cells))
        cells = [[amount(number), ", ".join(things)] for number, things in one["worst"]["lines"][:worst]]
        table.print_table(console, [">misses", "single line"], cells, [""] * len(cells))


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--types")
    parser.add_argument("--vmlinux")
    parser.add_argument("--cases", default="pair,pair_remote")
    parser.add_argument("--cpus", default="8,128")
    parser.add_argument("--allocator", choices=(*ALLOCATORS, "both"), default="both")
    parser.add_argument("--line", type=int, choices=(64, 128), default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worst", type=int, default=10)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    args.cases, args.cpus = args.cases.split(","), args.cpus.split(",")
    for case in args.cases:
        if case not in CASES:
            parser.error(f'unknown case "{case}"; known: {" ".join(CASES)}')
    for cpus in args.cpus:
        if not cpus.isdigit() or not 2 <= int(cpus) <= 256:
            parser.error("--cpus: each must be from 2 to 256")
    return args


def main():
    """Run and print, or say in one line why not."""
    args = parse()
    try:
        model, image, types = load_model(args.model), load_image(args.vmlinux, args.types), dwarf.load(args.types)
        results = [measure(model, image, types, case, int(cpus), name, args.line, args.seed)
                   for case in args.cases for cpus in args.cpus for name in (ALLOCATORS if args.allocator == "both" else (args.allocator,))]
    except Bad as error:
        print(f"lines: error: {error}", file=sys.stderr)
        return 1
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    else:
        show(results, args.worst)
    return 0


if __name__ == "__main__":
    sys.exit(main())
