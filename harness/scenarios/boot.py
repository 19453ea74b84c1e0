# SPDX-License-Identifier: GPL-2.0
"""boots once and judges the console log

Last line: PASS or FAIL <reason>. Emulated (TCG) or user-mode Linux.
"""

from ..guest import boot
from ..verdict import Expected

DEFAULTS = {"allocators": ("rbtree", "rust", "none"), "timeout": 300, "totals": False}


def run(args, result):
    """Boot once."""
    boot(result, args, "boot", Expected(args.allocator))
    if result.good:
        print("PASS")
