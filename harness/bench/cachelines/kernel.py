# SPDX-License-Identifier: GPL-2.0
"""The allocators of a kernel image with their operations, and what stands for the rest of the kernel: slab, RCU, the
workqueue and code patching. The accesses to memory that those would make themselves are not modelled."""

import bisect
import collections
import dataclasses
import struct

import drgn

from ...settings import Refused
from .machine import ARGUMENTS, HEAP_SIZE, MASK, NOP, PAGE, PRIVATE, PRIVATE_SIZE, Machine

# Objects whose functions are executed as they are, and more functions. The slow path of the latter needs two CPUs at
# once, so it never runs.
REAL_OBJECTS = ("mm/vmalloc.o", "mm/vmap_area_ops.o", "mm/vmap_rust/rust/vmap_rust.o", "rust/kernel.o",
                "lib/maple_tree.o", "lib/rbtree.o", "lib/find_bit.o", "lib/bitmap.o", "lib/hweight.o",
                "kernel/locking/spinlock.o", "arch/arm64/lib/memcpy.o", "arch/arm64/lib/memset.o")
REAL = ("mutex_lock", "mutex_unlock", "__rcu_read_lock", "__rcu_read_unlock")
# Kinds of operations, in the order of model.c's counts.
KINDS = ("boot", "alloc", "unlink", "retire", "purge", "callback")
BOOT, ALLOC, UNLINK, RETIRE, PURGE, CALLBACK = range(len(KINDS))
# The functions that mm/vmalloc.c calls by name. Rust's purge, and its alloc for an area that the one here does not
# serve, are in a table.
FUNCTIONS = {
    "rbtree": {ALLOC: "alloc_vmap_area_rbtree", UNLINK: "find_unlink_vmap_area_rbtree",
               RETIRE: "free_vmap_area_noflush_rbtree", PURGE: "__purge_vmap_area_lazy"},
    "rust": {ALLOC: "vmap_rust_alloc", UNLINK: "vmap_rust_unlink", RETIRE: "vmap_rust_retire"}}
GFP_KERNEL, NO_NODE, HWCACHE_ALIGN = 0xCC0, MASK, 1 << 4
KMALLOC_SIZES = (8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192)
# Objects that a CPU keeps at most before it gives half of them to the others.
KEPT = 64


@dataclasses.dataclass
class Cache:
    """A slab cache: free objects of each CPU, and of all."""

    name: str
    size: int
    free: dict = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    shared: list = dataclasses.field(default_factory=list)


class Slab:
    """The slab allocator: a stack of free objects for each CPU. An object that a CPU frees is the next one that it
    gets. Caches and sheaves are known by addresses that only this class understands."""

    def __init__(self, machine):
        self.machine = machine
        self.objects = {}  # of each live or freed object, by address: the bytes that were asked for, and what it is
        self.live = {}  # address of a live object to its cache
        self.caches = {}  # by handle, and those of kmalloc() by size
        self.sheaves = {}  # by handle: objects
        self._next = machine.heap + PAGE

    def pages(self, size):
        """Return new memory of that many bytes, aligned like pages of the buddy allocator."""
        align = max(PAGE, min(1 << max(size - 1, 0).bit_length(), 4 << 20))
        base = -(-self._next // align) * align
        self._next = base + -(-size // PAGE) * PAGE
        if self._next > self.machine.heap + HEAP_SIZE:
            raise Refused("no memory left for the slab allocator")
        return base

    def create(self, name, size, args, flags):
        """Stand for __kmem_cache_create_args()."""
        size, align = size & 0xFFFFFFFF, max(self.machine.get(args, 4) if args else 8, 64 if flags & HWCACHE_ALIGN else 8)
        text = bytes(self.machine.uc.mem_read(name, 64)).split(b"\0")[0].decode(errors="replace")
        handle = self.pages(8)
        self.caches[handle] = Cache(text, -(-size // align) * align)
        return handle

    def take(self, cache, size, what):
        """Return a free object of a cache: of the CPU, else of all, else of a new slab."""
        mine = cache.free[self.machine.cpu]
        if not mine:
            mine.extend(cache.shared[-KEPT // 2:])
            del cache.shared[-KEPT // 2:]
        if not mine:
            slab = cache.size if cache.size > KMALLOC_SIZES[-1] else max(PAGE, 8 * cache.size)
            base = self.pages(slab)
            mine.extend(base + at for at in reversed(range(0, slab - cache.size + 1, cache.size)))
        base = mine.pop()
        self.objects[base], self.live[base] = (size, what), cache
        return base

    def alloc(self, handle, *_):
        """Return an object of a cache."""
        cache = self.caches[handle]
        return self.take(cache, cache.size, cache.name)

    def kmalloc(self, size, *_):
        """Return memory of that many bytes that is zeroed: nobody asks for less, or looks at it before."""
        rounded = next((one for one in KMALLOC_SIZES if one >= size), -(-size // PAGE) * PAGE)
        cache = self.caches.setdefault(rounded, Cache("kmalloc", rounded))
        base = self.take(cache, size, f"{size} bytes of {self.machine.caller()}")
        self.machine.uc.mem_write(base, bytes(rounded))
        return base

    def krealloc(self, old, size, *_):
        """Return new memory with the old content."""
        new = self.kmalloc(size) if size else 0
        if old and new:
            self.machine.uc.mem_write(new, bytes(self.machine.uc.mem_read(old, min(self.objects[old][0], size))))
        self.free(old)
        return new

    def free(self, base, *_):
        """Free an object of a cache or of kmalloc()."""
        if not base:
            return
        if base not in self.live:
            raise Refused(f"{self.machine.caller()} frees {base:#x}, which is no object")
        cache = self.live.pop(base)
        mine = cache.free[self.machine.cpu]
        mine.append(base)
        if len(mine) > KEPT:
            cache.shared.extend(mine[:KEPT // 2])
            del mine[:KEPT // 2]

    def free_bulk(self, number, objects):
        """Free many objects, whose addresses are in memory."""
        for index in range(number):
            self.free(self.machine.get(objects + 8 * index))

    def fill(self, handle, sheaf, count):
        """Fill a sheaf, or a new one for 0, up to that many objects of a cache; returns it."""
        sheaf = sheaf or self.pages(8)
        objects = self.sheaves.setdefault(sheaf, [])
        objects += [self.alloc(handle) for _ in range(count - len(objects))]
        return sheaf

    def place(self, address, bases):
        """Return what is at an address: a variable, or an object on the heap; and the offset. bases: of all objects,
        sorted."""
        machine = self.machine
        if address >= machine.heap:
            base = bases[max(bisect.bisect_right(bases, address) - 1, 0)]
            return f"{self.objects[base][1]} +{address - base}"
        if address >= machine.percpu:
            address = machine.image.address("__per_cpu_start") + (address - machine.percpu) % machine.stride
        return "{} +{}".format(*machine.image.symbol_at(address))


class Allocator:
    """An allocator, started as vmalloc_init() starts it. Purges and RCU callbacks run between operations, when settle()
    is called. types: a program of drgn; rng: decides which CPU purges."""

    def __init__(self, name, library, image, types, cpus, rng):
        self.name, self.types, self.cpus, self.rng = name, types, cpus, rng
        self.purges, self.is_purge_due = 0, False
        self.waiting = []  # (CPU, function or None, argument): RCU callbacks, or objects to free
        self.works, self.space = [], None
        stubs = self._stubs()
        self.machine = Machine(library, image, cpus, image.functions_of(REAL_OBJECTS).union(REAL) - stubs.keys(), stubs)
        self.slab = Slab(self.machine)
        self._functions = {kind: image.address(function) for kind, function in FUNCTIONS[name].items()}
        self._boot(image)

    def _stubs(self):
        """Return the functions that are replaced, with what stands for each; None: they do nothing."""
        def slab(name):
            # The slab allocator needs the machine, which needs the stubs.
            return lambda *args: getattr(self.slab, name)(*args)

        return {
            **dict.fromkeys(("__kmalloc_noprof", "__kmalloc_node_noprof"), slab("kmalloc")),
            **dict.fromkeys(("kfree", "kvfree"), slab("free")),
            **dict.fromkeys(("kmem_cache_alloc_noprof", "kmem_cache_alloc_node_noprof"), slab("alloc")),
            **dict.fromkeys(("shrinker_register", "_printk")),
            "__kmalloc_cache_noprof": lambda _cache, _gfp, size, _: self.slab.kmalloc(size),
            "krealloc_node_align_noprof": slab("krealloc"),
            "kvfree_call_rcu": lambda _head, base, *_: self.waiting.append((self.machine.cpu, None, base)),
            "call_rcu": lambda head, function, *_: self.waiting.append((self.machine.cpu, function, head)),
            "__kmem_cache_create_args": slab("create"),
            "kmem_cache_free": lambda _cache, base, *_: self.slab.free(base),
            "kmem_cache_free_bulk": lambda _cache, number, objects, _: self.slab.free_bulk(number, objects),
            "kmem_cache_prefill_sheaf": lambda cache, _gfp, count, _: self.slab.fill(cache, 0, count),
            "kmem_cache_refill_sheaf": lambda cache, _gfp, place, count: self.slab.fill(
                cache, self.machine.get(place), count) and 0,
            "kmem_cache_return_sheaf": lambda _cache, _gfp, sheaf, _: list(
                map(self.slab.free, self.slab.sheaves.pop(sheaf))) and 0,
            "kmem_cache_alloc_from_sheaf_noprof": lambda _cache, _gfp, sheaf, _: self.slab.sheaves[sheaf].pop(),
            "kmem_cache_sheaf_size": lambda sheaf, *_: len(self.slab.sheaves[sheaf]),
            "queue_work_on": lambda _cpu, _queue, work, _: self.works.append(work) or 1,
            "static_key_enable": self._enable_key,
            "shrinker_alloc": lambda *_: self.slab.kmalloc(256),
            # __vmalloc_node_noprof() passes the bounds of vmalloc space, a constant and a variable.
            "__vmalloc_node_range_noprof": lambda _size, _align, *bounds: setattr(self, "space", bounds)}

    def _enable_key(self, key, *_):
        """Patch the branches of a static key, as static_key_enable() does."""
        machine, image, patched = self.machine, self.machine.image, 0
        for entry in range(image.address("__start___jump_table"), image.address("__stop___jump_table"), 16):
            # The distances of the branch, of its target and of the key from where they are stored.
            code, target, base = struct.unpack("<iiq", machine.uc.mem_read(entry, 16))
            code, target, base = code + entry, target + entry + 4, base + entry + 8 & MASK
            if base & ~3 == key:
                # Bit 0: the branch is taken as long as the key is false.
                machine.put(code, NOP if base & 1 else 0x14000000 | (target - code) // 4 & 0x3FFFFFF, 4)
                patched += 1
        if not patched:
            raise Refused(f"{image.symbol_at(key)[0]} has no branches")
        machine.put(key, 1, 4)

    def offset(self, kind, member):
        """Return the offset of a member of a struct, in bytes."""
        return drgn.offsetof(self.types.type(f"struct {kind}"), member)

    def _boot(self, image):
        """Start the allocator as a boot does, and find its operations."""
        machine, call = self.machine, lambda name, *args: self.machine.call(0, BOOT, image.address(name), *args)
        call("maple_tree_init")
        # As at a real boot, an area for the image of the kernel exists before.
        vm = self.slab.kmalloc(drgn.sizeof(self.types.type("struct vm_struct")))
        machine.put(vm + self.offset("vm_struct", "addr"), image.base)
        machine.put(vm + self.offset("vm_struct", "size"), image.size)
        machine.put(image.address("vmlist"), vm)
        machine.put(image.address("vmap_area_ops_chosen"), self.name == "rust", 1)
        call("vmalloc_init")
        call("__vmalloc_node_noprof", PAGE, 1, GFP_KERNEL, NO_NODE, 0)
        if not self.space:
            raise Refused("__vmalloc_node_noprof() does not call __vmalloc_node_range_noprof()")
        self._va_start = self.offset("vmap_area", "va_start")
        self._lazy_max = self.cpus.bit_length() * (32 << 20) // PAGE
        if self.name == "rust":
            table = image.address("vmap_rust_ops")
            if machine.get(image.address("vmap_area_ops")) != table:
                raise Refused("the allocator in Rust did not start")
            self._functions[PURGE] = machine.get(table + self.offset("vmap_area_ops", "purge"))
            self._slow_alloc = machine.get(table + self.offset("vmap_area_ops", "alloc"))

    def _run(self, cpu, kind, *args):
        """Let a CPU call the function of this kind of operation; returns its result."""
        return self.machine.call(cpu, kind, self._functions[kind], *args)

    def alloc(self, cpu, pages):
        """Reserve an area of that many pages, guard page included. Returns its first address."""
        size = pages * PAGE
        if self.name == "rust":
            area = self._run(cpu, ALLOC, size, 1, 0) or self._alloc_slowly(cpu, size)
        else:
            area = self._run(cpu, ALLOC, size, 1, *self.space, NO_NODE, GFP_KERNEL, 0, 0)
        if area >= MASK - 4095 or not area:
            raise Refused(f"{self.name}: an area of {pages} pages is refused with {area - MASK - 1}")
        return self.machine.get(area + self._va_start)

    def _alloc_slowly(self, cpu, size):
        """Ask the allocator in Rust for an area of that many bytes as vmap_area_ops does, with a request in memory."""
        address = PRIVATE + PRIVATE_SIZE * cpu + ARGUMENTS
        request = {"size": size, "align": 1, "vstart": self.space[0], "vend": self.space[1], "gfp": GFP_KERNEL, "node": -1}
        self.machine.uc.mem_write(address, drgn.Object(self.types, "struct vmap_area_request", request).to_bytes_())
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
        # In Rust, note_lazy_area() of mm/vmalloc.c asks for the purge.
        self.is_purge_due |= lazy > self._lazy_max if self.name == "rust" else bool(self.works)
        self.works.clear()

    def purge(self, cpu):
        """Flush and free everything lazy."""
        self._run(cpu, PURGE, MASK, 0, 0)
        self.is_purge_due = False
        self.purges += 1
        if self.works:
            raise Refused("a purge asks for helpers on other CPUs: too many lazy pages")

    def settle(self):
        """Run what waits for the end of an operation: a purge that is due, on any CPU, and RCU callbacks on theirs."""
        if self.is_purge_due:
            self.purge(self.rng.randrange(self.cpus))
        waiting, self.waiting = self.waiting, []
        for cpu, function, argument in waiting:
            if function:
                self.machine.call(cpu, CALLBACK, function, argument)
            else:
                self.machine.cpu = cpu
                self.slab.free(argument)
