# SPDX-License-Identifier: GPL-2.0
"""The two allocators of a kernel image, started as vmalloc_init() starts them, and their operations."""

import struct

from harness.settings import Refused

from .machine import MASK, Machine, PAGE
from .stand_ins import Kernel, REAL, REAL_OBJECTS

# Kinds of operations, in the order of model.c's counts.
KINDS = ("boot", "alloc", "unlink", "retire", "purge", "callback")
BOOT, ALLOC, UNLINK, RETIRE, PURGE, CALLBACK = range(len(KINDS))
# Those of which layouts() of image.py is needed.
STRUCTS = ("vm_struct", "vmap_area", "vmap_area_request", "vmap_area_ops")
# The functions that mm/vmalloc.c calls by name. Rust's purge, and its alloc for an area that the one here does not
# serve, are in a table.
FUNCTIONS = {
    "rbtree": {ALLOC: "alloc_vmap_area_rbtree", UNLINK: "find_unlink_vmap_area_rbtree",
               RETIRE: "free_vmap_area_noflush_rbtree", PURGE: "__purge_vmap_area_lazy"},
    "rust": {ALLOC: "vmap_rust_alloc", UNLINK: "vmap_rust_unlink", RETIRE: "vmap_rust_retire"}}
GFP_KERNEL = 0xCC0
NO_NODE = MASK


class Allocator:
    """An allocator with its machine. Purges and RCU callbacks run between operations, when settle() is called."""

    def __init__(self, name, model, image, types, cpus, rng):
        self.name, self.types, self.cpus, self.rng = name, types, cpus, rng
        self.purges, self.is_purge_due, self._asked = 0, False, {}  # CPU to the size in its request
        self.kernel = Kernel()
        real, stubs = image.real_functions(REAL_OBJECTS) | set(REAL), self.kernel.stubs()
        self.machine = Machine(model, image, cpus, real - stubs.keys(), stubs)
        self._functions = {kind: image.address(function) for kind, function in FUNCTIONS[name].items()}
        self._boot(image)

    def _boot(self, image):
        """Start the allocator as a boot does, and find its operations."""
        machine, call = self.machine, lambda name, *args: self.machine.call(0, BOOT, image.address(name), *args)
        call("maple_tree_init")
        # As at a real boot, an area for the image of the kernel exists before.
        vm = self.kernel.slab.kmalloc(machine, self.types["vm_struct"][1], "vm_area_add_early")
        machine.put(vm + self.types["vm_struct.addr"][0], image.address("_text"))
        machine.put(vm + self.types["vm_struct.size"][0], image.address("_end") - image.address("_text"))
        machine.put(image.address("vmlist"), vm)
        machine.uc.mem_write(image.address("vmap_area_ops_chosen"), bytes([self.name == "rust"]))
        call("vmalloc_init")
        # The bounds of vmalloc space are a constant and a variable.
        call("__vmalloc_node_noprof", PAGE, 1, GFP_KERNEL, NO_NODE, 0)
        if not self.kernel.space:
            raise Refused("__vmalloc_node_noprof() does not call __vmalloc_node_range_noprof()")
        self._lazy_max = self.cpus.bit_length() * (32 << 20) // PAGE
        if self.name == "rust":
            table = image.address("vmap_rust_ops")
            if machine.get(image.address("vmap_area_ops")) != table:
                raise Refused("the allocator in Rust did not start")
            self._functions[PURGE] = machine.get(table + self.types["vmap_area_ops.purge"][0])
            self._slow_alloc = machine.get(table + self.types["vmap_area_ops.alloc"][0])

    def start(self):
        """Forget what was counted so far: what follows is measured."""
        self.machine.model.model_reset()

    def _run(self, cpu, kind, *args):
        """Let a CPU call the function of this kind of operation; returns its result."""
        return self.machine.call(cpu, kind, self._functions[kind], *args)

    def alloc(self, cpu, pages):
        """Reserve an area of that many pages, guard page included. Returns its first address."""
        size = pages * PAGE
        if self.name == "rust":
            area = self._run(cpu, ALLOC, size, 1, 0) or self._alloc_slowly(cpu, size)
        else:
            area = self._run(cpu, ALLOC, size, 1, *self.kernel.space, NO_NODE, GFP_KERNEL, 0, 0)
        if area >= MASK - 4095 or not area:
            raise Refused(f"{self.name}: an area of {pages} pages is refused with {area - MASK - 1}")
        return self.machine.get(area + self.types["vmap_area.va_start"][0])

    def _alloc_slowly(self, cpu, size):
        """Ask the allocator in Rust for an area of that many bytes as vmap_area_ops does, with a request in memory."""
        address, (vstart, vend) = self.machine.arguments_at(cpu), self.kernel.space
        if self._asked.get(cpu) != size:
            self._asked[cpu] = size
            request = bytearray(self.types["vmap_area_request"][1])
            for member, value in (("size", size), ("align", 1), ("vstart", vstart), ("vend", vend), ("gfp", GFP_KERNEL),
                                  ("node", NO_NODE)):
                offset, width = self.types[f"vmap_area_request.{member}"]
                request[offset:offset + width] = struct.pack("<Q", value)[:width]
            self.machine.uc.mem_write(address, bytes(request))
        return self.machine.call(cpu, ALLOC, self._slow_alloc, address)

    def unlink(self, cpu, address):
        """Unlink the area at an address. Returns the area."""
        area = self._run(cpu, UNLINK, address)
        if not area:
            raise Refused(f"{self.name}: no area at {address:#x} to unlink")
        return area

    def retire(self, cpu, area):
        """Free an area lazily."""
        lazy = self._run(cpu, RETIRE, area)
        if self.name == "rust":
            self.is_purge_due |= lazy > self._lazy_max  # note_lazy_area()
        elif self.kernel.works:
            self.kernel.works.clear()
            self.is_purge_due = True

    def purge(self, cpu):
        """Flush and free everything lazy."""
        self._run(cpu, PURGE, MASK, 0, 0)
        self.is_purge_due = False
        self.purges += 1
        if self.kernel.works:
            raise Refused("a purge asks for helpers on other CPUs: too many lazy pages")

    def settle(self):
        """Run what waits for the end of an operation: a purge that is due, on any CPU, and RCU callbacks on theirs."""
        if self.is_purge_due:
            self.purge(self.rng.randrange(self.cpus))
        waiting, self.kernel.waiting = self.kernel.waiting, []
        for cpu, function, argument in waiting:
            if function:
                self.machine.call(cpu, CALLBACK, function, argument)
            else:
                self.machine.cpu = cpu
                self.kernel.slab.free(self.machine, argument)
