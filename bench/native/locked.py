# SPDX-License-Identifier: GPL-2.0
"""Counts the locked instructions of a pair of get_vm_area() and free_vm_area() of one page, by single steps of gdb:

    gdb -batch -nx -x bench/native/locked.py PROGRAM >/dev/null

PROGRAM is the path that "scripts/bench native --build" prints. A second of pairs comes before. What gdb says of each step goes to
the standard output, the figures to the standard error."""

import os
import signal
import sys
import threading
from collections import Counter

import gdb  # pylint: disable=import-error # this runs in gdb

STEPS = 120000
LOOP = "mean_area_pair"


def is_locked(address):
    """Tell whether the instruction at an address is locked: an exchange with memory is, without the prefix."""
    words = gdb.selected_frame().architecture().disassemble(address)[0]["asm"]
    return words.startswith("lock ") or words.startswith("xchg") and "(" in words


def count(side):
    """Return the instructions of a pair of a side, and the locked ones."""
    gdb.execute(f"break {LOOP}", to_string=True)
    gdb.execute(f"run --cases area_pair --threads 1 --passes 1 --ms 100000 --side {side} --output /dev/null", to_string=True)
    gdb.execute("delete", to_string=True)
    threading.Timer(1, os.kill, (gdb.selected_inferior().pid, signal.SIGUSR1)).start()
    gdb.execute("continue", to_string=True)
    visits, loop = Counter(), Counter()
    for _ in range(STEPS):
        gdb.execute("stepi", to_string=True)
        frame = gdb.selected_frame()
        visits[frame.pc()] += 1
        loop[frame.pc()] += frame.name() == LOOP
    pairs = max(loop.values())
    locked = sum(times for address, times in visits.items() if is_locked(address))
    return STEPS / pairs, locked / pairs


for text in ("confirm off", "print symbol-loading off", "debuginfod enabled off"):
    gdb.execute(f"set {text}")
gdb.execute("handle SIGUSR1 stop nopass", to_string=True)
for name in ("rbtree", "rust", "calls"):
    print("{}: {:.0f} instructions of a pair, {:.2f} locked".format(name, *count(name)), file=sys.stderr)
    gdb.execute("kill", to_string=True)
