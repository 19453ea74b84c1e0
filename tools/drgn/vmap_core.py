# SPDX-License-Identifier: GPL-2.0
"""Dumps that drgn does not open by itself: QEMU's dump-guest-memory writes physical addresses, and no VMCOREINFO note
unless the guest has given it one."""

import os
import re

import drgn


def scan_vmcoreinfo(path):
    """Return VMCOREINFO, searched in all of a dump: QEMU adds no note of it unless the guest has given it one."""
    with open(path, "rb") as core:
        core.seek(0, os.SEEK_END)
        size, at, step = core.tell(), 0, 1 << 24
        while at < size:
            core.seek(at)
            text = core.read(step + 4096)
            found = text.find(b"OSRELEASE=")
            # The strings of the kernel have this one, too, but without the lines behind it.
            while found >= 0:
                info = text[found:found + 4096].split(b"\0")[0]
                if b"\nPAGESIZE=" in info and b"SYMBOL(" in info:
                    return info
                found = text.find(b"OSRELEASE=", found + 1)
            at += step
    return None


def open_core(path):
    """Return the program in a dump of a kernel."""
    prog = drgn.Program()
    try:
        prog.set_core_dump(path)
        known = prog.flags & drgn.ProgramFlags.IS_LINUX_KERNEL
    except ValueError:
        # On x86_64, drgn refuses a dump of QEMU without the note.
        known = False
    if not known:
        prog = drgn.Program(vmcoreinfo=scan_vmcoreinfo(path))
        prog.set_core_dump(path)
    add_page_tables(prog)
    return prog


def add_page_tables(prog):
    """Let drgn read the top of the kernel's page tables on arm64: QEMU's dumps have physical addresses only."""
    try:
        info = prog["VMCOREINFO"].string_().decode()
    except LookupError:
        return
    offset = re.search(r"^NUMBER\(kimage_voffset\)=(\w+)$", info, re.M)
    table = re.search(r"^SYMBOL\(swapper_pg_dir\)=(\w+)$", info, re.M)
    size = re.search(r"^PAGESIZE=(\d+)$", info, re.M)
    if not (offset and table and size):
        return
    start = int(table[1], 16)
    physical = start - int(offset[1], 16) & (1 << 64) - 1
    prog.add_memory_segment(start, int(size[1]), lambda _address, count, at, _physical: prog.read(physical + at, count, True))
