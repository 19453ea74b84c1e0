# SPDX-License-Identifier: GPL-2.0
"""runs the kernel's own vmalloc tests with each allocator, and compares them in one table: make demo

A guest usec is 1000 instructions (QEMU -icount), so other work on the build host does not matter. Last line: PASS or
FAIL.
"""

from . import vmalloc

# With one CPU, the rb-trees of the kernel have no pools of free ranges: few machines are like that.
DEFAULTS = {"kernel": "arm64", "allocators": (), "cpus": 2, "mem": 0, "totals": False}
check = vmalloc.check


def options(parser):
    """Add the parameters of the tests. More workers than one disturb each other, and a run is hard to repeat."""
    vmalloc.options(parser, threads=1)
    # QEMU counts instructions instead of time: no guest CPU waits for one that the build host has preempted.
    parser.set_defaults(accel="icount")


def run(args, result):
    """Boot both and compare."""
    vmalloc.run(args, result)
    print("A guest usec is 1000 instructions (QEMU -icount), not time on silicon. One run each: a purge at another moment "
          "can change a case by half.")
    print("PASS" if result.good else f"FAIL see {' and '.join(result.logs)}")
