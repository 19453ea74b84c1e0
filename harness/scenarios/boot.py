# SPDX-License-Identifier: GPL-2.0
"""boots once and judges the console log

Ends with PASS, or with FAIL and the reasons, a line each. Tests that are built in run, too, unless the kernel arguments say
"kunit.enable=0 test_vmalloc.run_test_mask=0".
"""

from ..guest import boot
from ..verdict import Expected

DEFAULTS = {"allocators": ("rbtree", "rust", "none"), "timeout": 300, "totals": False}


def run(args, result):
    """Boot once."""
    boot(result, args, "boot", Expected(args.allocator))
    if result.good:
        print("PASS")
