# SPDX-License-Identifier: GPL-2.0
"""The two allocators of a kernel image, started as vmalloc_init() starts them, and their operations."""

import struct

from .image import Bad
from .kernel import Kernel, REAL, REAL_OBJECTS
from .machine import Machine, PAGE

# Kinds of operations, in the order of model.c's counts.
KINDS = ("boot", "alloc", "unlink", "retire", "purge", "find", "callback")
BOOT, ALLOC, UNLINK, RETIRE, PURGE, FIND, CALLBACK = range(len(KINDS))

GFP_KERNEL = 0xCC0
NO_NODE = (1 << 64) - 1
ULONG_MAX = (1 << 64) - 1


class Allocator:
    """An allocator with its machine. Purges and RCU callbacks run between operations, when settle() is called."""

    def __init__(self, name, model, image, types, cpus, line, rng):
        self.name, self.rng, self.cpus = name, rng, cpus
        self.kernel = Kernel()
        real = image.real_functions(REAL_OBJECTS) | set(REAL)
        self.machine = Machine(model, image, cpus, line, real - self.kernel.stubs().keys(), self.kernel.stubs())
        self._boot(image, types)
        self.purges = self.purged = 0
        self.is_purge_due = False
        self._asked = {}  # CPU to the size in its request

    def _boot(self, image, types):
        machine, call = self.machine, lambda name, *args: self.machine.call(0, BOOT, image.address(name), *args)
        call("maple_tree_init")
        # As at a real boot, an area for the image of the kernel exists before.
        vm = self.kernel.slab.kmalloc(machine, types.size("vm_struct"), "vm_area_add_early")
        machine.put64(vm + types.offset("vm_struct", "addr"), image.address("_text"))
        machine.put64(vm + types.offset("vm_struct", "size"), image.address("_end") - image.address("_text"))
        machine.put64(image.address("vmlist"), vm)
        machine.uc.mem_write(image.address("vmap_area_ops_chosen"), bytes([self.name == "rust"]))
        call("vmalloc_init")
        # The bounds of vmalloc space are a constant and a variable.
        call("__vmalloc_node_noprof", PAGE, 1, GFP_KERNEL, NO_NODE, 0)
        if not self.kernel.space:
            raise Bad("__vmalloc_node_noprof() does not call __vmalloc_node_range_noprof()")
        self._vstart, self._vend = self.kernel.space
        self._lazy_max = self.cpus.bit_length() * (32 << 20) // PAGE
        self._va_start = types.offset("vmap_area", "va_start")
        if self.name == "rust":
            if machine.get64(image.address("vmap_area_ops")) != image.address("vmap_rust_ops"):
                raise Bad("the allocator in Rust did not start")
            table = image.address("vmap_rust_ops")
            # mm/vmalloc.c calls what is common by name, and asks the table for an area that the first call does not serve.
            names = {ALLOC: image.address("vmap_rust_alloc"), UNLINK: image.address("vmap_rust_unlink"),
                     RETIRE: image.address("vmap_rust_retire"), FIND: image.address("vmap_rust_find"),
                     PURGE: machine.get64(table + types.offset("vmap_area_ops", "purge"))}
            self._slow_alloc = machine.get64(table + types.offset("vmap_area_ops", "alloc"))
            self._request = [(types.offset("vmap_area_request", name), types.member_size("vmap_area_request", name))
                             for name in ("size", "align", "vstart", "vend", "va_flags", "vm", "gfp", "node")]
            self._request_size = types.size("vmap_area_request")
        else:
            names = {ALLOC: "alloc_vmap_area_rbtree", UNLINK: "find_unlink_vmap_area_rbtree", RETIRE: "free_vmap_area_noflush_rbtree",
                     PURGE: "__purge_vmap_area_lazy", FIND: "find_vmap_area"}
            names = {kind: image.address(name) for kind, name in names.items()}
            self._request = None
        self._functions = names

    def _run(self, cpu, kind, *args):
        return self.machine.call(cpu, kind, self._functions[kind], *args)

    def alloc(self, cpu, pages):
        """Reserve an area of that many pages, guard page included. Returns its first address."""
        size = pages * PAGE
        if self._request:
            area = self._run(cpu, ALLOC, size, 1, 0) or self._alloc_slowly(cpu, size)
        else:
            area = self._run(cpu, ALLOC, size, 1, self._vstart, self._vend, NO_NODE, GFP_KERNEL, 0, 0)
        if area >= ULONG_MAX - 4095 or not area:
            raise Bad(f"{self.name}: an area of {pages} pages is refused with {area - ULONG_MAX - 1}")
        return self.machine.get64(area + self._va_start)

    def _alloc_slowly(self, cpu, size):
        address = self.machine.arguments_at(cpu)
        if self._asked.get(cpu) != size:
            self._asked[cpu] = size
            self._write_request(address, size)
        return self.machine.call(cpu, ALLOC, self._slow_alloc, address)

    def _write_request(self, address, size):
        request = bytearray(self._request_size)
        for (offset, width), value in zip(self._request, (size, 1, self._vstart, self._vend, 0, 0, GFP_KERNEL, NO_NODE)):
            request[offset:offset + width] = struct.pack("<Q", value)[:width]
        self.machine.uc.mem_write(address, bytes(request))

    def unlink(self, cpu, address):
        """Unlink the area at an address. Returns the area."""
        area = self._run(cpu, UNLINK, address)
        if not area:
            raise Bad(f"{self.name}: no area at {address:#x} to unlink")
        return area

    def retire(self, cpu, area):
        """Free an area lazily."""
        lazy = self._run(cpu, RETIRE, area)
        if self._request:
            self.is_purge_due |= lazy > self._lazy_max  # note_lazy_area()
        elif self.kernel.works:
            self.kernel.works.clear()
            self.is_purge_due = True

    def find(self, cpu, address):
        """Look an address up."""
        if not self._run(cpu, FIND, address):
            raise Bad(f"{self.name}: no area at {address:#x}")

    def purge(self, cpu):
        """Flush and free everything lazy."""
        self._run(cpu, PURGE, ULONG_MAX, 0, 0)
        self.is_purge_due = False
        self.purges += 1
        if self.kernel.works:
            raise Bad("a purge asks for helpers on other CPUs: too many lazy pages")

    def settle(self):
        """Run what waits for the end of an operation: a purge that is due, on any CPU, and RCU callbacks on theirs."""
        if self.is_purge_due:
            self.purge(self.rng.randrange(self.cpus))
        if not self.kernel.waiting:
            return
        waiting, self.kernel.waiting = self.kernel.waiting, []
        for cpu, function, argument in waiting:
            if function:
                self.machine.call(cpu, CALLBACK, function, argument)
            else:
                self.machine.cpu = cpu
                self.kernel.slab.free(self.machine, argument)
