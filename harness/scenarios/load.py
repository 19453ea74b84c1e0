# SPDX-License-Identifier: GPL-2.0
"""loads and unloads a module, forks, and reads /proc/vmallocinfo, /proc/kcore and debugfs at the same time

Of debugfs, it reads stats and map. The text format of /proc/vmallocinfo must be equal for both allocators.
"""

from . import CHECKER
from ..guest import boot, count_checks
from ..initramfs import make_busybox
from ..options import whole
from ..run import each_allocator
from ..verdict import Expected
from ..vmallocinfo import judge

DEFAULTS = {"allocator": "both", "cpus": 2, "timeout": 600}
MAKE_TEST = {
    "load-debug-rust": (335, f"arm64-debug --allocator rust {CHECKER} --loops 15 --timeout 1200"),
    "load-debug-rbtree": (427, "arm64-debug --allocator rbtree --loops 1 --timeout 1200"),
    "load-arm64": (101, "arm64"), "load-x86_64-rust": (250, "x86_64 --allocator rust --loops 30"),
}
FULL = ("load", f"--allocator rust {CHECKER}")
# What a guest must report as "user load: ok NAME"; a check without a report is a failure.
CHECKS = ("modules", "info-shape", "info-reads", "forks", "areas", "debugfs-before", "debugfs-after")


def options(parser):
    """Add the number of loads."""
    parser.add_argument("--loops", type=whole(1, 99999), default=200, metavar="N",
                        help="module loads (default: %(default)s)")


def checks_for(args, allocator):
    """Return the names of the checks that a guest of this kernel must report."""
    kernel, rust, leak = args.kernel, allocator == "rust", args.kernel.has("VMAP_RUST_LEAK_TEST", "m")
    # Not all machines of 32-bit arm can take a CPU offline.
    hotplug = kernel.arch in ("arm64", "x86_64") and args.cpus > 1 and kernel.has("HOTPLUG_CPU")
    debug = rust and kernel.has("VMAP_RUST_DEBUG")
    groups = (
        (True, CHECKS),
        # Only arm64 has the kernel image in vmalloc space.
        (kernel.arch == "arm64", ("kcore-banner",)),
        (hotplug, ("hotplug",)),
        (rust, ("stats-before", "stats-after", "map-shape", "map-reads")),
        (kernel.has("PROC_KCORE"), ("kcore-bytes", "kcore-segments", "kcore-stacks")),
        (kernel.has("PTDUMP_DEBUGFS"), ("ptdump",)),
        (kernel.has("DEBUG_KMEMLEAK"), ("kmemleak",)),
        (leak, ("kmemleak-lost", "kmemleak-others")),
        (debug, ("validate",)),
        (debug and "vmap_rust.check=1" in args.append, ("checker",)))
    return [name for wanted, names in groups if wanted for name in names]


def run(args, result):
    """Boot each allocator with the load, then compare what they print."""
    kernel, logs = args.kernel, []
    initramfs = make_busybox(kernel)
    leak = kernel.has("VMAP_RUST_LEAK_TEST", "m")
    for allocator in each_allocator(args):
        # The checks kmemleak and kmemleak-others say whether that is all.
        expected = Expected(allocator, "^user load: done", ["kmemleak: [0-9]+ new suspected memory leaks"] * leak)
        # Stale content of memory that is not initialized would be a reference to a lost area.
        log = boot(result, args, "load", expected,
                   f"kunit.enable=0 test_vmalloc.run_test_mask=0 LOAD_ALLOCATOR={allocator} "
                   f"LOAD_LOOPS={args.loops}" + " init_on_alloc=1" * leak, initramfs=initramfs)
        count_checks(result, allocator, "user load", log, checks_for(args, allocator))
        logs.append(log)
    judge(result, logs, with_fixed=kernel.arch != "um")
