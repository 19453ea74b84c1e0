# SPDX-License-Identifier: GPL-2.0
"""makes allocations fail while user space loads modules, forks and reads

Of the slab and page allocations of tasks that load modules, fork and read /proc/vmallocinfo, one in 1000, 300, 100, 30,
10, 5 and 2 fails. Then one in 1000, 300 and 100 fails in all tasks. No fault may break an invariant, leak an area or
print a warning.
"""

from ..guest import boot_script, invariants
from ..initramfs import make_busybox
from ...machine.settings import Refused

DEFAULTS = {"allocators": ("rbtree", "rust"), "allocator": "rust", "cpus": 2, "timeout": 1800}
NEEDED = ("FAILSLAB", "FAIL_PAGE_ALLOC", "FAULT_INJECTION_DEBUG_FS", "VMAP_RUST_DEBUG")


def run(args, result):
    """Boot once and count what the guest checked at each rate."""
    kernel, allocator = args.kernel, args.allocator
    for option in NEEDED:
        if not kernel.has(option):
            raise Refused(f"configuration {kernel.name} has no CONFIG_{option}; use arm64-16k or x86_64-user")
    rates = [*(f"marked-{n}" for n in (1000, 300, 100, 30, 10, 5, 2)), *(f"all-{n}" for n in (1000, 300, 100))]
    checks = [*rates, *invariants(args, allocator, [f"-{rate}" for rate in rates]),
              *(["kmemleak"] if kernel.has("DEBUG_KMEMLEAK") else []), "modules-after", "areas"]
    boot_script(result, args, "inject", allocator, make_busybox(kernel), checks=checks)
