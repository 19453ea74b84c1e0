# SPDX-License-Identifier: GPL-2.0
"""
Vmap areas: the ranges behind vmalloc(), vmap() and ioremap(), of either allocator
---------------------------------------------------------------------------------

:func:`vmap_allocator` returns what reads the areas of the allocator that was chosen at boot, in a running kernel or in
a dump: the rb-trees of mm/vmalloc.c, or mm/vmap_rust. A damaged structure raises :data:`vmap_area.DAMAGE`, except in
``validate()``, which returns a line for each.
"""

import functools
import mmap
import re
from typing import Dict, Iterable, Iterator, Set, Union

from drgn import Object, Program, ProgramFlags, sizeof
from drgn.helpers.common.prog import takes_program_or_default
from drgn.helpers.linux.list import validate_list_for_each_entry

from vmap_area import DAMAGE, WITHOUT_TAG, Area, Space, read_to_end, variable
from vmap_rust import RustVmap

# Macros of include/linux/vmalloc.h, in the order of /proc/vmallocinfo.
_VM_FLAGS = ((0x1, "ioremap"), (0x1000, "sparse"), (0x2, "vmalloc"), (0x4, "vmap"), (0x8, "user"), (0x10, "dma-coherent"))
_VM_UNINITIALIZED = 0x20
_VMAP_RAM = 0x1


class RbtreeVmap(Space):
    """The areas of the rb-trees in mm/vmalloc.c (``vmap_nodes``)."""

    name = "rbtree"

    def areas(self) -> Iterator[Area]:
        """Iterate over all busy areas, node by node, then over the lazy ones, then over those kept for reuse."""
        first = variable(self.prog, "vmap_nodes")
        nodes = [first[i] for i in range(self.prog["nr_vmap_nodes"].value_())]
        lists = [("busy", node.busy.head) for node in nodes]
        for node in nodes:
            lists.append(("lazy", node.lazy.head))
            # The first purge sets it up.
            lists += [("flushed", node.purge_list)] if node.purge_list.next else []
        lists += [("cached", pool.head) for node in nodes for pool in node.pool if pool.len]
        for state, head in lists:
            yield from read_to_end(self.live, functools.partial(self._read_list, state, head.address_of_()))

    @staticmethod
    def _read_list(state: str, head: Object) -> Iterable[Area]:
        """Return the areas of a list.

        :raises ValueError: if it never comes back to its head: an area that is moved to another list meanwhile leads there
        """
        found: Dict[int, Area] = {}
        for va in validate_list_for_each_entry("struct vmap_area", head, "list"):
            if va.value_() in found:
                raise ValueError(f"the list of {state} areas has no end")
            copy = va[0].read_()
            found[va.value_()] = Area(copy.va_start.value_(), copy.va_end.value_(), state, va)
        return found.values()

    def validate(self) -> Iterator[str]:
        """Iterate over what is wrong, one line at most: a list that cannot be read to its end."""
        try:
            list(self.areas())
        except DAMAGE as error:
            yield f"areas: cannot be read: {error}"


@takes_program_or_default
def vmap_allocator(prog: Program) -> Union[RbtreeVmap, RustVmap]:
    """
    Return what reads the active allocator. Its attribute ``name`` is the value of ``vmap_allocator=``. Its methods are
    ``areas()``, ``find(address)``, ``stats()`` and ``validate()``. With mm/vmap_rust, only ``va_start``,
    ``va_end``, ``vm`` and ``flags`` of a ``struct vmap_area`` exist.

    :raises ValueError: if there is no debug information of the allocator, or that of another version
    """
    if "vmap_rust_key" not in prog or not prog["vmap_rust_key"].key.enabled.counter:
        return RbtreeVmap(prog)
    return RustVmap(prog)


def caller(prog: Program, address: int) -> str:
    """Return a code address as symbol, offset and size, or as a number if there is no symbol."""
    try:
        symbol = prog.symbol(address)
    except LookupError:
        return f"{address:#x}"
    return f"{symbol.name}+{address - symbol.address:#x}/{symbol.size:#x}"


def vmallocinfo_line(area: Area, starts: Set[int]) -> str:
    """
    Return the line of /proc/vmallocinfo for an area, without the counts of NUMA nodes. Empty if it has none, or if a running
    kernel has freed the area meanwhile.

    :param starts: Addresses of all busy areas. A list of pages that is in vmalloc space begins at one of them.
    """
    if area.state in ("unlinked", "lazy"):
        return area.line("unpurged vm_area")
    if area.state != "busy":
        return ""
    try:
        return _busy_line(area, starts)
    except DAMAGE:
        if not _is_live(area):
            raise
        return ""


def _is_live(area: Area) -> bool:
    """Tell whether the kernel of an area is running: its ``struct vm_struct`` may be another area's, or no more, by now."""
    return bool(area.va.prog_.flags & ProgramFlags.IS_LIVE)


def _busy_line(area: Area, starts: Set[int]) -> str:
    """Return the line of a busy area, or an empty one."""
    if _is_live(area) and area.va.va_start.value_() != area.start:
        return ""
    if not area.va.vm:
        return area.line("vm_map_ram") if area.va.flags.value_() & _VMAP_RAM else ""
    vm = area.va.vm[0].read_()
    flags = vm.flags.value_()
    if flags & _VM_UNINITIALIZED:
        return ""
    start, size = vm.addr.value_(), vm.size.value_()
    if _is_live(area) and ((start ^ area.start) & WITHOUT_TAG or size != area.end - area.start):
        return ""
    line = f"0x{start:016x}-0x{start + size:016x} {size:7d}"
    if vm.caller:
        line += " " + caller(area.va.prog_, vm.caller.value_())
    if vm.nr_pages:
        line += f" pages={vm.nr_pages.value_()}"
    if vm.phys_addr:
        line += f" phys=0x{vm.phys_addr.value_():0{2 * sizeof(vm.phys_addr)}x}"
    line += "".join(f" {name}" for flag, name in _VM_FLAGS if flags & flag)
    return f"{line} vpages" if vm.pages.value_() in starts else line


# Dumps of QEMU: they have physical addresses, and no VMCOREINFO note unless the guest has given QEMU one.


def open_core(path: str) -> Program:
    """Return the program in a dump of a kernel, of kdump or of QEMU."""
    prog = Program()
    try:
        prog.set_core_dump(path)
        known = prog.flags & ProgramFlags.IS_LINUX_KERNEL
    except ValueError:
        # On x86_64, drgn refuses a dump of QEMU without the note.
        known = False
    if not known:
        prog = Program(vmcoreinfo=_scan_vmcoreinfo(path))
        prog.set_core_dump(path)
    _add_page_tables(prog)
    return prog


def _scan_vmcoreinfo(path):
    """Return VMCOREINFO, searched in all of a dump."""
    with open(path, "rb") as core, mmap.mmap(core.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        for found in re.finditer(rb"OSRELEASE=[^\0]{,4086}", memory):
            # The strings of the kernel have this one, too, but without the lines behind it.
            if b"\nPAGESIZE=" in found[0] and b"SYMBOL(" in found[0]:
                return found[0]
    return None


def _add_page_tables(prog: Program) -> None:
    """Let drgn read the top of the kernel's page tables on arm64."""
    try:
        info = prog["VMCOREINFO"].string_().decode()
    except LookupError:
        return
    found = dict(re.findall(r"^(?:\w+\()?(\w+)\)?=(\w+)$", info, re.M))
    if "kimage_voffset" not in found:
        return
    start, size = int(found["swapper_pg_dir"], 16), int(found["PAGESIZE"])
    physical = start - int(found["kimage_voffset"], 16) & (1 << 64) - 1
    prog.add_memory_segment(start, size, lambda _start, count, at, _physical: prog.read(physical + at, count, True))
