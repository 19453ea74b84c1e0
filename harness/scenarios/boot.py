# SPDX-License-Identifier: GPL-2.0
"""boots once and judges the console log

Last line: PASS or FAIL <reason>. Emulated (TCG) or user-mode Linux; nothing but --accel kvm needs /dev/kvm.
"""

import os
import re

from ..guest import ACCELERATORS, boot
from ..options import whole
from ..settings import Refused
from ..verdict import END_OF_BOOT, Expected

DEFAULTS = {"allocators": ("rbtree", "rust", "none"), "timeout": 300, "totals": False}


def options(parser):
    """Add what only a boot of one's own needs."""
    parser.set_defaults(no_build=True)
    parser.add_argument("--boot-value", default="", metavar="V",
                        help='pass vmap_allocator=V instead (V may be a wrong value; "-" passes nothing)')
    parser.add_argument("--initramfs", default="", metavar="FILE", help="initial root file system (a cpio archive)")
    parser.add_argument("--accel", choices=ACCELERATORS, help="as QEMU has it; turns: all guest CPUs in one thread")
    parser.add_argument("--cpu", default="", metavar="MODEL", help="the CPU of the guest, as QEMU calls it")
    parser.add_argument("--plugin", default="", metavar="SPEC", help="plugin of QEMU: FILE,ARGUMENT=VALUE,...")
    parser.add_argument("--seed", type=whole(0, 999999999), metavar="N", help="seed of QEMU's random numbers")
    parser.add_argument("--prealloc", action="store_true", help="allocate all memory of the guest before it boots")
    parser.add_argument("--end-marker", default=END_OF_BOOT, metavar="RE",
                        help="a line that shows that the boot has done its work")
    parser.add_argument("--require", action="append", default=[], metavar="RE",
                        help="lines that must be there, and are allowed")
    parser.add_argument("--allow", action="append", default=[], metavar="RE",
                        help="lines that a test is meant to provoke")


def check(args):
    """Refuse files that are not there."""
    for what, file in (("initramfs", args.initramfs), ("plugin", args.plugin.split(",")[0])):
        if file and not os.access(file, os.R_OK):
            raise Refused(f"cannot read the {what} {file}")
    for pattern in [args.end_marker, *args.require, *args.allow]:
        try:
            re.compile(pattern)
        except re.error as error:
            raise Refused(f"not a regular expression: {pattern}: {error}") from None


def run(args, result):
    """Boot once."""
    boot(result, args, "boot", Expected(args.allocator, args.end_marker, args.allow, (), args.require),
         **{x: getattr(args, x) for x in ("boot_value", "initramfs", "cpu", "plugin", "seed", "prealloc")})
