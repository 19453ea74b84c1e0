# SPDX-License-Identifier: GPL-2.0
"""runs the kernel's own vmalloc tests with each allocator, and compares them in one table: make demo

A guest usec is 1000 instructions (QEMU -icount), so other work on the build host does not matter. Last line: PASS or
FAIL.
"""

import argparse

from . import vmalloc
from ..result import Result
from ..settings import CACHE
from ..table import print_table

# With one CPU, the rb-trees of the kernel have no pools of free ranges: few machines are like that.
DEFAULTS = {"kernel": "arm64", "allocators": (), "cpus": 2, "mem": 0, "totals": False}
check = vmalloc.check


def options(parser):
    """Add the parameters of the tests. More workers than one disturb each other, and a run is hard to repeat."""
    vmalloc.options(parser, threads=1)


def number(value):
    """Format microseconds with thousands separators; None as a dash."""
    return "-" if value is None else f"{value:,.0f}"


def compare(rbtree, rust):
    """Print the two results side by side."""
    rows, styles = [], []
    for one, two in zip(rbtree.data["cases"], rust.data["cases"], strict=True):
        bad = [f"{name} {case['verdict']}" for name, case in (("rbtree", one), ("rust", two)) if not case["good"]]
        ratio = f"{two['usec'] / one['usec']:.2f}" if one["usec"] and two["usec"] is not None else "-"
        rows.append([one["case"], number(one["usec"]), number(two["usec"]), ratio, "; ".join(bad) or one["verdict"]])
        styles.append("bold red" if bad else "")
    data = rust.data
    title = "test_vmalloc, {kernel}: CPUs {cpus}, workers {threads}, loops per case {loops}, mask {mask}"
    print_table(title.format(**data),
                ["case", ">rbtree (usec)", ">rust (usec)", ">ratio", "verdict"], rows, styles)
    for name, result in (("rbtree", rbtree), ("rust", rust)):
        print(f"boot {name:<7} {result.data['line'] or 'no allocator line'}")
    print("A guest usec is 1000 instructions (QEMU -icount), not time on silicon. One run each: a purge at another moment "
          "can change a case by half.")


def run(args, result):
    """Boot both and compare."""
    results = {}
    for allocator in ("rbtree", "rust"):
        log = str(CACHE / f"log/demo-{args.kernel.name}/{allocator}.log")
        # QEMU counts instructions instead of time: no guest CPU waits for one that the build host has preempted.
        one = argparse.Namespace(**{**vars(args), "allocator": allocator, "accel": "icount", "log": log})
        results[allocator] = Result(quiet=True)
        vmalloc.run(one, results[allocator])
        result.add(results[allocator].good, allocator)
        result.logs += results[allocator].logs
        print(*results[allocator].lines, sep="\n", end="\n" * bool(results[allocator].lines))
    compare(*results.values())
    print("PASS" if result.good else f"FAIL see {' and '.join(result.logs)}")
