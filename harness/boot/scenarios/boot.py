# SPDX-License-Identifier: GPL-2.0
"""boots once and judges the console log

Tests that are built in do not run, as they take minutes, unless --append turns them on: "kunit.enable=1",
"test_vmalloc.run_test_mask=0x1fff".
"""

from ..guest import NO_TESTS, boot_of
from ..verdict import Expected

DEFAULTS = {"allocators": ("rbtree", "rust", "none"), "allocator": "rust", "timeout": 300}


def run(args, result):
    """Boot once."""
    boot_of(args, "boot", Expected(args.allocator), NO_TESTS).run(result)
