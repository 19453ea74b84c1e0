# SPDX-License-Identifier: GPL-2.0
"""Dumps that drgn does not open by itself, and the memory of a guest that runs.

QEMU's dump-guest-memory writes physical addresses, and no VMCOREINFO note unless the guest has given it one.
"""

import os
import re
import struct

import drgn

# Where the memory of a guest begins in its file: what is before it is room for the head of a core.
MEMORY_OFFSET = 2 << 20
# Where it begins in the guest (machine virt of arm64, hw/arm/virt.c of QEMU, and any machine of x86_64), by e_machine.
MEMORY_BASE = {183: 0x40000000, 62: 0}
# x86_64 has devices below 4 GiB, and what memory does not fit below them is elsewhere.
MEMORY_MAX = 2 << 30
NOTES_OFFSET = 4096
FIRST_PAGE = 4096
LOAD, NOTE = 1, 4
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")


class Unfit(Exception):
    """A file from which no core can be made; the message says why."""


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


def program_headers(core):
    """Return the ELF header of a dump of a 64-bit machine, and (type, flags, offset, vaddr, paddr, file size, memory size,
    alignment) of each segment."""
    with open(core, "rb") as file:
        header = file.read(64)
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
            raise Unfit(f"{core} is no ELF core of a 64-bit machine")
        offset, = struct.unpack_from("<Q", header, 32)
        size, number = struct.unpack_from("<HH", header, 54)
        file.seek(offset)
        table = file.read(size * number)
    return header, [PROGRAM_HEADER.unpack_from(table, at) for at in range(0, len(table), size)]


def write_head(core, memory):
    """Make the file of a guest's memory a core of the guest, which may run.

    core: a dump of the same boot of the guest. memory: a file of memory-backend-file, in which the memory is behind
    MEMORY_OFFSET bytes. Raises Unfit or OSError."""
    header, segments = program_headers(core)
    machine, = struct.unpack_from("<H", header, 18)
    size = os.path.getsize(memory) - MEMORY_OFFSET
    if machine not in MEMORY_BASE:
        raise Unfit(f"{core} is of machine {machine}; only arm64 and x86_64 are known")
    if not 0 < size <= MEMORY_MAX:
        raise Unfit(f"{memory} must have {MEMORY_OFFSET} bytes more than the guest has memory, which can be {MEMORY_MAX >> 30} GiB at most")
    base, kept, notes = MEMORY_BASE[machine], [], b""
    for kind, flags, offset, vaddr, paddr, *sizes in segments:
        if kind == NOTE:
            with open(core, "rb") as file:
                file.seek(offset)
                notes = file.read(sizes[0])
            kept.append(PROGRAM_HEADER.pack(kind, flags, NOTES_OFFSET, vaddr, paddr, *sizes))
        elif base <= paddr < base + size:
            # drgn takes physical addresses for missing if all are 0, as on x86_64: so the first page is a segment of its own.
            first = min(FIRST_PAGE, sizes[0])
            for at, length in ((0, first), (first, sizes[0] - first)):
                if length:
                    kept.append(PROGRAM_HEADER.pack(kind, flags, MEMORY_OFFSET + paddr - base + at, vaddr + at, paddr + at,
                                                    length, length, sizes[2]))
    head = bytearray(header) + b"".join(kept)
    struct.pack_into("<Q", head, 32, len(header))
    struct.pack_into("<HH", head, 54, PROGRAM_HEADER.size, len(kept))
    if len(kept) < 2 or len(head) > NOTES_OFFSET or NOTES_OFFSET + len(notes) > MEMORY_OFFSET:
        raise Unfit(f"{core} does not have the memory that {memory} has")
    with open(memory, "r+b") as file:
        file.write(head)
        file.seek(NOTES_OFFSET)
        file.write(notes)
