# SPDX-License-Identifier: GPL-2.0
"""Measures with the program of native.py and shows it: "scripts/bench native". The result is stored as others are, each
pass of a side as a boot, so that scripts/bench show and figures read it."""

import datetime
from collections import defaultdict

import numpy as np

from ..machine import step
from ..machine.settings import LOGS, say
from ..machine.table import print_table

from . import results, stats
from .native import SIDES, build, read
from .stats import amount

INSTRUMENTS = {"native": "rust", "native-calls": "calls"}
# Two CPUs are far from each other if a line needs this many times the time to the other one and back that it needs in the
# quickest tenth of passes.
FAR = 1.8
DIFFERENCES = """\
What differs from a kernel: user space, without its mitigations in code (return thunks); no page tables, TLB flushes are counted;
slab is the two sheaves of each CPU and a list behind a lock; no interrupts: RCU asks for a report of each CPU after
an operation, and there a purge runs, too, which a kernel does in a worker; mutexes spin. Spinlocks, RCU read locks, slab
and their counters of preemption are functions, as in a kernel that can be preempted."""


def places(raw):
    """Sort the passes of all tests by how far the CPUs were apart. raw: what the program printed.

    Returns {(case, threads, place): {side: passes}}, and the number of passes that other programs disturbed. Place: ""
    for one thread, else near or far; a pass whose CPUs moved in between is in neither. Disturbed passes count only where
    fewer than stats.FEW others of a side are left."""
    def is_good(one):
        return one["had_cpu"] >= raw["had_cpu"]

    tests, least, found, disturbed = raw["tests"], {}, defaultdict(lambda: defaultdict(list)), 0
    for test in tests:
        least.setdefault(test["threads"], []).extend(ping for one in test["passes"] for ping in one.get("ping", []))
    # Not the very shortest, for which two CPUs may have been one core for a moment.
    least = {threads: np.percentile(pings, 10) for threads, pings in least.items() if pings}
    for test in tests:
        disturbed += sum(not is_good(one) for one in test["passes"])
        for side in SIDES:
            mine = [one for one in test["passes"] if one["side"] == side]
            good = [one for one in mine if is_good(one)]
            for one in good if len(good) >= stats.FEW else mine:
                far = {ping > FAR * least[test["threads"]] for ping in one.get("ping", [])}
                if len(far) < 2:
                    place = {frozenset(): "", frozenset([False]): "near", frozenset([True]): "far"}[frozenset(far)]
                    found[test["case"], test["threads"], place][side].append(one)
    return {key: sides for key, sides in found.items() if len(sides) == len(SIDES)}, disturbed


def pings(sides):
    """Return how long a cache line took to another CPU and back, in ns, before and after each pass. sides: of places()."""
    return [ping for passes in sides.values() for one in passes for ping in one.get("ping", [])]


def as_result(raw, sides_by_row, command):
    """Return a result that the other commands of scripts/bench read. raw: what the program printed; sides_by_row: of
    places(). Each pass of a side is a boot there."""
    boots = []
    for (case, threads, place), sides in sides_by_row.items():
        for instrument, other in INSTRUMENTS.items():
            for side, passes in (("a", sides["rbtree"]), ("b", sides[other])):
                for number, one in enumerate(passes):
                    boots.append({
                        "instrument": instrument, "plan": "native", "side": side, "allocator": ("rbtree", "rust")[side == "b"],
                        "repetition": number, "cpus": raw["machine"]["cores"], "status": "ok", "skips": [],
                        "results": [{"case": case, "threads": threads, "unit": "ns", "value": one[metric],
                                     "metric": f"{metric} {place}".strip().replace(" near", "").replace("cost far", "far")}
                                    for metric in ("cost", "p50", "p99.9", "max", "writer") if metric in one]})
    started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")
    return {"kind": results.KIND, "started": started, "command": command, "commit": raw["commit"],
            "sides": {"a": "rbtree", "b": "rust"}, "instruments": list(INSTRUMENTS), "boots": boots, "native": raw,
            "kernels": {"of the rb-trees": f"Linux {raw['linux']}, in user space on {raw['machine']['cpu']}"}}


def show_native(raw, sides_by_row, disturbed):
    """Print what was measured, and on what."""
    def median(passes, key="cost"):
        return float(np.median([one[key] for one in passes]))

    def ratio(sides, side):
        value, low, high = stats.ratio_and_interval(*([one["cost"] for one in sides[name]] for name in ("rbtree", side)))
        return f"{value:.2f}" + (f" ({low:.2f} to {high:.2f})" if low is not None else "")

    def where(key, sides):
        times = pings(sides)
        return f"{key[2]}, {np.median(times):.0f} ns" if times else ""

    machine, rows, tails = raw["machine"], [], []
    for key, sides in sides_by_row.items():
        rows.append([key[0], str(key[1]), where(key, sides), *(f"{median(sides[side]):,.1f}" for side in SIDES),
                     ratio(sides, "rust"), ratio(sides, "calls"),
                     *(f"{median(sides[side], 'rate') / 1e6:.2f}" for side in ("rbtree", "rust"))])
        tails.append([key[0], str(key[1]), key[2], *(
            amount(round(text)) for side in ("rbtree", "rust") for text in (
                median(sides[side], "p50"), median(sides[side], "p99.9"), max(one["max"] for one in sides[side])))])
    siblings = f", of which {machine['siblings']} share a core" if machine["siblings"] != "0" else ""
    virtual = " of a virtual machine" if machine["hypervisor"] else ""
    print(f"{machine['cpu']}, {machine['cores']} CPUs{siblings}{virtual}; commit {raw['commit']}; "
          f"rb-trees of Linux {raw['linux']}; {raw['compilers']}", "mitigations: " + "; ".join(
              f"{name}: {text}" for name, text in sorted(machine["mitigations"].items()) if "Not affected" not in text), sep="\n")
    print_table("ns of CPU time for one operation, medians; ratios with 95% intervals; M/s: million operations of all threads a "
                "second",
                ["case", ">threads", "CPUs", *(f">{name}" for name in SIDES.values()), ">Rust / rb-trees", ">Rust, calls / rb-trees",
                 ">rb-trees, M/s", ">Rust, M/s"], rows)
    print_table("ns of single operations between two fences: medians over passes, and the longest of a million",
                ["case", ">threads", "CPUs",
                 *(f">{name} {part}" for name in ("rb-trees", "Rust") for part in ("p50", "p99.9", "max"))],
                tails)
    print('"Rust, calls": each helper of C that Rust uses is a function, as without CONFIG_RUST_INLINE_HELPERS. near, far: a '
          "cache line goes to another CPU and back in this time.", DIFFERENCES, sep="\n")
    if disturbed:
        say(f"native: note: other programs had the CPUs during {disturbed} of {sum(len(t['passes']) for t in raw['tests'])} passes; "
            "for better figures, measure on a quiet machine")


def main(_name, args):
    """Measure and show, or only one of this; returns the exit code."""
    if args.build:
        print(build())
        return 0
    raw = args.file
    if not raw:
        program, output = build(), LOGS / "native.json"
        words = [word for name in ("cases", "threads", "passes") if getattr(args, name) for word in (
            f"--{name}", getattr(args, name))]
        step.must("native: measure", LOGS / "native.log", [program, *words, "--output", output],
                  "the program failed; see its log")
        raw = read(output)
    rows, disturbed = places(raw)
    result = as_result(raw, rows, " ".join(["scripts/bench native", *args.words]))
    path = results.store(result, "-native")
    show_native(raw, rows, disturbed)
    say(f"result: {path}")
    return 0
