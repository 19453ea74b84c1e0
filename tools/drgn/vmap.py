# SPDX-License-Identifier: GPL-2.0
"""
Vmap areas: the ranges behind vmalloc(), vmap() and ioremap(), of either allocator
---------------------------------------------------------------------------------

:func:`vmap_allocator` returns what reads the areas of the allocator that was chosen at boot, in a running kernel or in
a dump: the rb-trees of mm/vmalloc.c, or mm/vmap_rust. A damaged structure raises :class:`drgn.FaultError` or
:class:`ValueError`, except in ``validate()``, which returns a line for each.
"""

from typing import Union

from drgn import Program, sizeof
from drgn.helpers.common.prog import takes_program_or_default

from vmap_rbtree import RbtreeVmap
from vmap_rust import Area, RustVmap

# Macros of include/linux/vmalloc.h, in the order of /proc/vmallocinfo.
_VM_FLAGS = ((0x1, "ioremap"), (0x1000, "sparse"), (0x2, "vmalloc"), (0x4, "vmap"), (0x8, "user"), (0x10, "dma-coherent"))
_VM_UNINITIALIZED = 0x20
_VMAP_RAM = 0x1


@takes_program_or_default
def vmap_allocator(prog: Program) -> Union[RbtreeVmap, RustVmap]:
    """
    Return what reads the active allocator. Its attribute ``name`` is the value of ``vmap_allocator=``. Its methods are
    ``areas()``, ``find(address)``, ``gaps()``, ``stats()`` and ``validate()``. With mm/vmap_rust, only ``va_start``,
    ``va_end``, ``vm`` and ``flags`` of a ``struct vmap_area`` exist.

    :raises ValueError: if the allocator does not describe its areas, or in a version that this module does not know
    """
    try:
        ops = prog["vmap_area_ops"]
    except KeyError:
        return RbtreeVmap(prog)
    if not ops:
        return RbtreeVmap(prog)
    if not ops.debug:
        raise ValueError("the active allocator does not describe its areas: vmap_area_ops->debug is NULL")
    return RustVmap(prog, ops.debug)


def caller(prog: Program, address: int) -> str:
    """Return a code address as symbol, offset and size, or as a number if there is no symbol."""
    try:
        symbol = prog.symbol(address)
    except LookupError:
        return f"{address:#x}"
    return f"{symbol.name}+{address - symbol.address:#x}/{symbol.size:#x}"


def vmallocinfo_line(area: Area, is_vmalloc) -> str:
    """
    Return the line of /proc/vmallocinfo for an area, without the counts of NUMA nodes. Empty if it has none.

    :param is_vmalloc: Function that says whether an address is in vmalloc space.
    """
    if area.state in ("unlinked", "lazy"):
        return f"0x{area.start:016x}-0x{area.end:016x} {area.end - area.start:7d} unpurged vm_area"
    if area.state != "busy":
        return ""
    vm = area.va.vm
    if not vm:
        is_ram = area.va.flags.value_() & _VMAP_RAM
        return f"0x{area.start:016x}-0x{area.end:016x} {area.end - area.start:7d} vm_map_ram" if is_ram else ""
    vm = vm[0].read_()
    flags = vm.flags.value_()
    if flags & _VM_UNINITIALIZED:
        return ""
    start, size = vm.addr.value_(), vm.size.value_()
    line = f"0x{start:016x}-0x{start + size:016x} {size:7d}"
    if vm.caller:
        line += " " + caller(area.va.prog_, vm.caller.value_())
    if vm.nr_pages:
        line += f" pages={vm.nr_pages.value_()}"
    if vm.phys_addr:
        line += f" phys=0x{vm.phys_addr.value_():0{2 * sizeof(vm.phys_addr)}x}"
    line += "".join(f" {name}" for flag, name in _VM_FLAGS if flags & flag)
    if is_vmalloc(vm.pages.value_()):
        line += " vpages"
    return line
