# SPDX-License-Identifier: GPL-2.0
"""runs KUnit suites, all or those that match a filter

The kernel's own parser reads the results. The log must also be free of warnings and name the right allocator.
"""

import fnmatch
import sys
from pathlib import Path

from ..guest import boot_of
from ...machine.settings import TREE, say
from ..verdict import Expected

DEFAULTS = {"allocators": ("rbtree", "rust", "both"), "allocator": "rust", "cpus": 2, "timeout": 900}
# The only cases of vmap_* that arm64 skips, with the allocator in Rust and two CPUs. arm64-debug runs them.
ONLY_DEBUG = {"vmap_fail_each.vmap_tables", "vmap_fail_each.vmalloc_nofail", "vmap_reclaim.vmap_reclaim_locks"}
# A suite that is not in the kernel must not look like one that passed.
SUITES = ("vmap_find", "vmap_rust_", "rust_maple_tree")
END = r"reboot: (Restarting system|System halted|Power down)"
# Lines that a case is meant to provoke with an allocator, as (SUITE.CASE, expression).
ALLOWED = {
    # Without memory for the second half of a split range, percpu allocation by the rb-tree warns, then recovers.
    "rbtree": [(f"vmap_fail_each.{row}", r"WARNING: mm/vmalloc\.c:[0-9]+ at pcpu_get_vm_areas\+")
               for row in ("percpu_near", "percpu_far")],
    # The case frees areas in states in which the allocator must refuse it. Until the kernel has random numbers, as on x86_64
    # without such a device, no hash of an address is printed.
    "rust": [("vmap_attack.vmap_attack_ops", r"^vmap_rust: refused: a freed area is not unlinked "
              r"\[(0x[^,\]]+, 0x[^,\]]+|\(_+ptrval_+\), \(_+ptrval_+\))\] \[[0-9a-f]+\]$")],
}


def options(parser):
    """Add the filter."""
    parser.add_argument("filter", metavar="FILTER", nargs="?", default="",
                        help="suites to run, a glob: SUITE or SUITE.CASE")
    parser.add_argument("--require", action="append", default=[], metavar="RE", help="lines that the log must have")


def read(log):
    """Return the kernel's own reading of a console log; what it prints goes to a file beside the log."""
    sys.path.insert(0, str(TREE / "tools/testing/kunit"))
    import kunit_parser  # pylint: disable=import-outside-toplevel,import-error
    from kunit_printer import Printer  # pylint: disable=import-outside-toplevel,import-error
    text = Path(log).with_suffix(".kunit")
    with open(log, encoding="utf-8", errors="backslashreplace") as lines, open(text, "w", encoding="utf-8") as out:
        test = kunit_parser.parse_run_tests(lines, Printer(output=out))
        kunit_parser.print_summary_line(test, Printer(output=out))
    say(f"results: {text}")
    return test


def cases(test, *path):
    """Return (path, case) of each case without subtests. path: the names of what it is part of, and its own."""
    return [one for some in test.subtests for one in cases(some, *path, some.name)] if test.subtests else [(path, test)]


def wrongly_skipped(test, kernel, cpus):
    """Return the skipped cases of suites vmap_* that no other kernel of "make test" runs in the place of this one, as
    SUITE.CASE, or CASE.NAME with parameters."""
    may_skip = {"arm64": lambda case: case in ONLY_DEBUG, "arm64-debug": lambda case: case not in ONLY_DEBUG}
    names = [".".join(path[-2:]) for path, case in cases(test)
             if case.status.name == "SKIPPED" and ".".join(path).startswith("vmap_")]
    return [name for name in names if cpus > 1 and kernel in may_skip and not may_skip[kernel](name)]


def run(args, result):
    """Boot each allocator with KUnit."""
    kernel = args.kernel
    for allocator in args.allocators:
        # test_vmalloc is built in: without this mask it would run a million loops before KUnit. Each CPU of the guest is a
        # thread: a race needs CPUs that run at the same time.
        boot = boot_of(
            args, "kunit", Expected(allocator, END, allow_in=ALLOWED[allocator], require=args.require),
            "test_vmalloc.run_test_mask=0 kunit.enable=1 kunit_shutdown="
            + ("halt" if kernel.arch == "um" else "reboot") + (f" kunit.filter_glob={args.filter}" if args.filter else ""),
            nodes=max(kernel.kunit_nodes if args.cpus >= kernel.kunit_nodes else 1, args.nodes),
            accel=args.accel or "threads", own_append=False, cpu="qemu64" if kernel.arch == "x86_64" else "")
        boot.run(result)
        test = read(boot.log)
        counts = test.counts
        print(f"KUnit, {allocator}: {counts.passed} cases passed", flush=True)
        result.passed += counts.passed
        ran = counts.passed + counts.failed + counts.crashed
        # That none ran is one failure; errors of a log that ends with a crash are no more.
        result.failed += counts.failed + counts.crashed + (counts.errors if ran and not counts.crashed else 0)
        result.skipped += counts.skipped
        for path, case in [one for one in cases(test) if not one[1].ok_status()][:20] if ran else ():
            # One that ends the kernel has no name.
            print(f"[{case.status.name.replace('FAILURE', 'FAILED')}] {case.name or f'a case of {path[-2]}'} ({allocator})",
                  *(f"    {line.strip()}" for line in case.log[:20] if line.strip()), sep="\n", flush=True)
        if not ran:
            result.add(False, "KUnit", "no test " + (f"is {args.filter} (SUITE or SUITE.CASE, a glob)" if args.filter else "ran"))
        elif not test.ok_status() and not counts.failed + counts.crashed + counts.errors:
            result.add(False, "KUnit", f"the results end early: {test.status.name}")
        for case in wrongly_skipped(test, args.name, args.cpus) if allocator == "rust" else ():
            result.add(False, case, f"was skipped: {args.name} must run it")
        for suite in SUITES:
            if fnmatch.fnmatchcase(suite, args.filter.partition(".")[0] or "*") and not any(
                    one.name.startswith(suite) and one.subtests for one in test.subtests):
                result.add(False, f"{suite}*", "no such suite ran")
