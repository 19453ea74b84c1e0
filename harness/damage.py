# SPDX-License-Identifier: GPL-2.0
"""Damages a guest, or a dump of it, and tells what "tools/vmap validate" must print about it."""

import collections
import struct
import sys

from .settings import REPO

MODULES = REPO / "tools/drgn"
# A pointer to where nothing is mapped.
BAD = 0x1234567800


def read_core(vmlinux, core):
    """Return what reads the allocator in a dump."""
    # Only the toolchain root has drgn, which these need.
    if str(MODULES) not in sys.path:
        sys.path.insert(0, str(MODULES))
    import vmap  # pylint: disable=import-outside-toplevel,import-error
    import vmap_core  # pylint: disable=import-outside-toplevel,import-error
    prog = vmap_core.open_core(core)
    prog.load_debug_info([str(vmlinux)])
    return vmap.vmap_allocator(prog)


def entry_address(vmap, block):
    """Return the address of the directory entry of a block, which does not fill a part."""
    part, index = vmap.place_of(block.start)
    return vmap.word(part + vmap.info["part_table"]) + index * 8


def trap(vmlinux, core):
    """Return the address of a pointer that the next requests follow, and the line of validate if it is BAD."""
    vmap = read_core(vmlinux, core)
    if vmap.name == "rbtree":
        return vmap.nodes[0].busy.root.rb_node.address_of_().value_(), r"node 0, busy tree: cannot be read"
    current, blocks = vmap.current(), list(vmap.blocks())
    # The stacks of the sleepers are in more blocks of their class than anything else, and the next forks want their class.
    stacks = collections.Counter()
    for block in blocks:
        stacks[block.number] += sum(item.state == "busy" for item in block.objects())
    number = max(stacks, key=stacks.get)
    block = next(block for block in blocks if block.start in current and block.number == number)
    return entry_address(vmap, block), rf"block {block.start:#x}.*: cannot be read"


def damages(vmlinux, core):
    """Return (name, regular expression of the line, changes) of each damage; a change is an offset in the file and
    bytes."""
    # Only the toolchain root has drgn.
    import drgn  # pylint: disable=import-outside-toplevel
    from drgn.helpers.linux.mm import follow_phys  # pylint: disable=import-outside-toplevel
    vmap = read_core(vmlinux, core)
    # read_core() has made it importable.
    import vmap_core  # pylint: disable=import-outside-toplevel,import-error
    prog, segments = vmap.prog, vmap_core.program_headers(core)[1]

    def offset(address):
        physical = follow_phys(prog["init_mm"].address_of_(), address).value_()
        return next(at + physical - start for kind, _, at, _, start, size, *_ in segments
                    if kind == vmap_core.LOAD and start <= physical < start + size)

    def word(value):
        return struct.pack("<Q", value & (1 << 64) - 1)

    if vmap.name == "rbtree":
        first = next(area for area in vmap.areas() if area.state == "busy" and area.end - area.start < 1 << 20)
        va = first.va
        end, node = va.va_end.address_of_().value_(), va.rb_node.address_of_().value_()
        vm = va.vm.addr.address_of_().value_()
        return [
            ("end of an area", rf"{first.start:#x}-.*overlap", [(offset(end), word(first.end + (1 << 30)))]),
            ("node of the tree", r"cannot be read", [(offset(node + 8), word(BAD))]),
            ("vm_struct", rf"{first.start:#x}-.*vm_struct says 0x1000", [(offset(vm), word(0x1000))]),
        ]
    info = vmap.info
    block = next(block for block in vmap.blocks() if sum(item.state == "busy" for item in block.objects()) > 8)
    item = next(item for item in block.objects() if item.state == "busy")
    byte = block.node + info["block_free"] + item.index // 8
    fields = prog.type("struct vmap_area")
    end = item.address + drgn.offsetof(fields, "va_end")
    flags = item.address + drgn.offsetof(fields, "flags")
    entry = entry_address(vmap, block)
    where = rf"block {block.start:#x}"
    old = prog.read_word(flags)
    return [
        ("bit of a busy slot", rf"{where}: area {item.start:#x}-.* is busy, but slot {item.index} is free",
         [(offset(byte), bytes([prog.read_u8(byte) | 1 << item.index % 8]))]),
        ("end of an area", rf"{where}: area {item.start:#x}-.* is not in its slot {item.index}",
         [(offset(end), word(block.end + 0x1000))]),
        ("class of a block", rf"{where}: its description is damaged: class 99",
         [(offset(block.node + info["block_class"]), bytes([99]))]),
        ("slots of a block", rf"{where}: its description is damaged: class {block.number}, slots of 0 pages",
         [(offset(block.node + info["block_slot_pages"]), word(0))]),
        ("pointer to the objects", rf"{where}.*: cannot be read",
         [(offset(block.node + info["block_chunks"]), word(BAD))]),
        ("pointer to a block", rf"{where}.*: cannot be read", [(offset(entry), word(BAD))]),
        ("missing block", rf"{where}: in the index, but not in the directory", [(offset(entry), word(0))]),
        ("state of an area", rf"{where}: object {item.index} is leaked",
         [(offset(flags), word(old | info["state_mask"]))]),
    ]


def exchange(core, changes):
    """Write bytes at offsets of a dump; returns what was there, as changes."""
    undo = []
    with open(core, "r+b") as file:
        for offset, data in changes:
            file.seek(offset)
            undo.append((offset, file.read(len(data))))
            file.seek(offset)
            file.write(data)
    return undo
