# SPDX-License-Identifier: GPL-2.0
"""What stands for the rest of the kernel around the allocators: slab, RCU, the workqueue and code patching.

The accesses that these functions would make themselves are not modelled.
"""

import bisect
import collections

from .image import Bad, NOP
from .machine import HEAP, HEAP_SIZE, PAGE, PERCPU

# Objects whose functions are executed as they are.
REAL_OBJECTS = (
    "mm/vmalloc.o", "mm/vmap_area_ops.o", "mm/vmap_rust/rust/vmap_rust.o", "rust/kernel.o", "lib/maple_tree.o",
    "lib/rbtree.o",
    "lib/find_bit.o", "lib/bitmap.o", "lib/hweight.o",
    "kernel/locking/spinlock.o", "arch/arm64/lib/memcpy.o", "arch/arm64/lib/memset.o")
# These run as they are. Their slow path needs two CPUs at once, so it never runs.
REAL = ("mutex_lock", "mutex_unlock", "__rcu_read_lock", "__rcu_read_unlock")

KMALLOC_SIZES = (8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192)
# Objects that a CPU keeps at most before it gives half of them to the others.
KEPT = 64
HWCACHE_ALIGN = 1 << 4


class Cache:
    """A slab cache: free objects of each CPU, and of all."""

    def __init__(self, name, size, align):
        self.name, self.size = name, -(-size // align) * align
        self.free, self.shared = collections.defaultdict(list), []


class Slab:
    """The slab allocator: a stack of free objects for each CPU. An object that a CPU frees is the next one that it
    gets."""

    def __init__(self):
        self.sizes, self.names = {}, {}  # of each live or freed object, by address: what was asked for, and what it is
        self.live = {}  # address of a live object to its cache, or None
        self.caches, self.large = {}, collections.defaultdict(list)
        self._kmalloc = [Cache(f"kmalloc-{size}", size, size if size & (size - 1) == 0 else 8)
                         for size in KMALLOC_SIZES]
        self._next = HEAP + PAGE
        self.sheaves = {}

    def pages(self, size):
        """Return new memory, aligned like pages of the buddy allocator."""
        align = max(PAGE, min(1 << max(size - 1, 0).bit_length(), 4 << 20))
        base = -(-self._next // align) * align
        self._next = base + -(-size // PAGE) * PAGE
        if self._next > HEAP + HEAP_SIZE:
            raise Bad("no memory left for the slab allocator")
        return base

    def create(self, name, size, align, flags):
        """Return a new cache, as an address that only this class understands."""
        handle = self.pages(8)
        self.caches[handle] = Cache(name, size, max(align, 64 if flags & HWCACHE_ALIGN else 8))
        return handle

    def _take(self, cpu, cache):
        """Return a free object of a cache: of the CPU, else of all, else of a new slab."""
        mine = cache.free[cpu]
        if not mine:
            mine.extend(cache.shared[-KEPT // 2:])
            del cache.shared[-KEPT // 2:]
        if not mine:
            slab = max(PAGE, 8 * cache.size)
            base = self.pages(slab)
            mine.extend(base + at for at in reversed(range(0, slab - cache.size + 1, cache.size)))
        return mine.pop()

    def alloc(self, machine, handle):
        """Return an object of a cache."""
        cache = self.caches[handle]
        base = self._take(machine.cpu, cache)
        self.sizes[base], self.names[base], self.live[base] = cache.size, cache.name, cache
        return base

    def kmalloc(self, machine, size, caller=None):
        """Return memory that is zeroed: nobody asks for less, or looks at it before."""
        cache = next((cache for cache in self._kmalloc if cache.size >= size), None)
        rounded = cache.size if cache else -(-size // PAGE) * PAGE
        if cache:
            base = self._take(machine.cpu, cache)
        else:
            base = self.large[rounded].pop() if self.large[rounded] else self.pages(rounded)
        machine.uc.mem_write(base, bytes(rounded))
        self.sizes[base], self.live[base] = size, cache
        self.names[base] = f"{size} bytes of {caller or machine.caller()}"
        return base

    def free(self, machine, base):
        """Free an object of a cache or of kmalloc()."""
        if not base:
            return
        if base not in self.live:
            raise Bad(f"{machine.caller()} frees {base:#x}, which is no object")
        cache = self.live.pop(base)
        if cache is None:
            self.large[-(-self.sizes[base] // PAGE) * PAGE].append(base)
            return
        mine = cache.free[machine.cpu]
        mine.append(base)
        if len(mine) > KEPT:
            cache.shared.extend(mine[:KEPT // 2])
            del mine[:KEPT // 2]

    def prefill(self, machine, handle, count):
        """Return a sheaf with that many objects."""
        sheaf = self.pages(8)
        self.sheaves[sheaf] = []
        self.refill(machine, handle, sheaf, count)
        return sheaf

    def refill(self, machine, handle, sheaf, count):
        """Fill a sheaf up to that many objects."""
        while len(self.sheaves[sheaf]) < count:
            self.sheaves[sheaf].append(self.alloc(machine, handle))

    def give_back(self, machine, sheaf):
        """Free a sheaf and its objects."""
        for base in self.sheaves.pop(sheaf):
            self.free(machine, base)


class Kernel:
    """The handlers of the stubs, and what waits until no operation runs."""

    def __init__(self):
        self.slab = Slab()
        self.waiting = []  # (CPU, function or None, argument): RCU callbacks, or objects to free
        self.works = []
        self.space = None

    def places(self, machine):
        """Return a function that says what is at an address: a variable, or an object on the heap; and the offset."""
        bases = sorted(self.slab.sizes)

        def place(address):
            if HEAP <= address < HEAP + HEAP_SIZE:
                base = bases[max(bisect.bisect_right(bases, address) - 1, 0)]
                return f"{self.slab.names[base]} +{address - base}"
            if PERCPU <= address < PERCPU + machine.stride * machine.cpus:
                address = machine.image.address("__per_cpu_start") + (address - PERCPU) % machine.stride
            name, offset = machine.image.symbol_at(address)
            return f"{name} +{offset}"

        return place

    def stubs(self):
        """Return the functions that are replaced, with their handlers; None: they do nothing and return 0."""
        slab, zeroed = self.slab, lambda number: lambda m: self.slab.kmalloc(m, m.argument(number))
        return {
            "krealloc_node_align_noprof": self._krealloc,
            "__kmalloc_cache_noprof": zeroed(2),
            "__kmalloc_noprof": zeroed(0),
            "__kmalloc_node_noprof": zeroed(0),
            "kfree": lambda m: slab.free(m, m.argument(0)),
            "kvfree": lambda m: slab.free(m, m.argument(0)),
            "kvfree_call_rcu": lambda m: self.waiting.append((m.cpu, None, m.argument(1))),
            "call_rcu": lambda m: self.waiting.append((m.cpu, m.argument(1), m.argument(0))),
            "__kmem_cache_create_args": lambda m: slab.create(
                m.string(m.argument(0)), m.argument(1) & 0xFFFFFFFF, m.get32(m.argument(2)) if m.argument(2) else 8,
                m.argument(3)),
            "kmem_cache_alloc_noprof": lambda m: slab.alloc(m, m.argument(0)),
            "kmem_cache_alloc_node_noprof": lambda m: slab.alloc(m, m.argument(0)),
            "kmem_cache_free": lambda m: slab.free(m, m.argument(1)),
            "kmem_cache_free_bulk": self._free_bulk,
            "kmem_cache_prefill_sheaf": lambda m: slab.prefill(m, m.argument(0), m.argument(2)),
            "kmem_cache_refill_sheaf": lambda m: slab.refill(m, m.argument(0), m.get64(m.argument(2)), m.argument(3)),
            "kmem_cache_return_sheaf": lambda m: slab.give_back(m, m.argument(2)),
            "kmem_cache_alloc_from_sheaf_noprof": lambda m: slab.sheaves[m.argument(2)].pop(),
            "kmem_cache_sheaf_size": lambda m: len(slab.sheaves[m.argument(0)]),
            "queue_work_on": self._queue_work,
            "static_key_enable": self._enable_key,
            "shrinker_alloc": lambda m: slab.kmalloc(m, 256),
            "shrinker_register": None,
            "_printk": None,
            "__vmalloc_node_range_noprof": self._note_space,
        }

    def _krealloc(self, machine):
        """Stand for krealloc(): new memory with the old content."""
        old, size = machine.argument(0), machine.argument(1)
        new = self.slab.kmalloc(machine, size) if size else 0
        if old and new:
            machine.uc.mem_write(new, bytes(machine.uc.mem_read(old, min(self.slab.sizes[old], size))))
        self.slab.free(machine, old)
        return new

    def _free_bulk(self, machine):
        """Stand for kmem_cache_free_bulk()."""
        for index in range(machine.argument(1)):
            self.slab.free(machine, machine.get64(machine.argument(2) + 8 * index))

    def _queue_work(self, machine):
        """Stand for queue_work_on(): settle() of allocators.py runs it."""
        self.works.append(machine.argument(2))
        return 1

    def _note_space(self, machine):
        """Note the bounds of vmalloc space instead of an allocation."""
        # __vmalloc_node_noprof() passes the bounds of vmalloc space as the third and fourth argument.
        self.space = machine.argument(2), machine.argument(3)
        return 0

    @staticmethod
    def _enable_key(machine):
        """Patch the branches of a static key, as static_key_enable() does."""
        key, image = machine.argument(0), machine.image
        patched = 0
        for entry in range(image.address("__start___jump_table"), image.address("__stop___jump_table"), 16):
            code, target = (value - (1 << 32) * (value >> 31)
                            for value in (machine.get32(entry), machine.get32(entry + 4)))
            base = machine.get64(entry + 8) + entry + 8 & (1 << 64) - 1
            if base & ~3 != key:
                continue
            code, target = entry + code, entry + 4 + target
            # Bit 0: the branch is taken as long as the key is false.
            machine.put32(code, NOP if base & 1 else 0x14000000 | (target - code) // 4 & 0x3FFFFFF)
            patched += 1
        if not patched:
            raise Bad(f"{image.symbol_at(key)[0]} has no branches")
        machine.put32(key, 1)
