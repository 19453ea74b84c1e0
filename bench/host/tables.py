# SPDX-License-Identifier: GPL-2.0
"""What the page tables have for a mapping of a case: boots each side once, and prints the lines of the kernel's own dump."""

import os
import re

import table
from boot import boot
from counts import Bad
from plan import PRISTINE, Plan, on_side

LINE = re.compile(r"vmap_bench: table (\S+) 0x(\w+)-0x(\w+)\s+(.*?)\s*$", re.M)


def show(args, initramfs):
    """Print the lines of every side. initramfs: that of each kernel. Raises Bad when a boot fails or its log has no line.

    Addresses count from the start of the first line: where an area lies is up to the allocator.
    """
    console = table.make_console()
    for side in (PRISTINE, "rbtree", "rust"):
        allocator, kernel = on_side(side, args.kernel)
        plan = Plan("tables", "icount", 1, 1, args.case, tables=True)
        log = os.path.join(args.logs, f"tables-{args.case}-{side}.log")
        record = boot(plan, "a", allocator, 0, 1, kernel, initramfs[kernel], log)
        if record["status"] != "ok":
            raise Bad(f"{side}: {record['status']}; log: {log}")
        with open(log, encoding="utf-8", errors="replace") as file:
            lines = LINE.findall(file.read())
        if not lines:
            raise Bad(f"{side}: {args.case} leaves no mapping; only those of bench/mapping.c do; log: {log}")
        begin = int(lines[0][1], 16)
        table.say(console, f"{lines[0][0]}, {side}", "bold")
        for _, start, end, rest in lines:
            table.say(console, f"{int(start, 16) - begin:#010x}-{int(end, 16) - begin:#010x}  {re.sub(r' +', ' ', rest)}")
        table.say(console, "")
