# SPDX-License-Identifier: GPL-2.0
"""What stands for the rest of the kernel around the allocators: slab, RCU, the workqueue and code patching.

The accesses that these functions would make themselves are not modelled.
"""

import bisect
import collections
import struct

from harness.settings import Refused

from .image import NOP
from .machine import HEAP, HEAP_SIZE, MASK, PAGE, PERCPU

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

    def __init__(self, name, size, align=1):
        self.name, self.size = name, -(-size // align) * align
        self.free, self.shared = collections.defaultdict(list), []


class Slab:
    """The slab allocator: a stack of free objects for each CPU. An object that a CPU frees is the next one that it
    gets."""

    def __init__(self):
        self.objects = {}  # of each live or freed object, by address: the bytes that were asked for, and what it is
        self.live = {}  # address of a live object to its cache
        self.caches = {}  # by handle, and those of kmalloc() by size
        self.sheaves = {}  # by handle: objects
        self._next = HEAP + PAGE

    def pages(self, size):
        """Return new memory of that many bytes, aligned like pages of the buddy allocator."""
        align = max(PAGE, min(1 << max(size - 1, 0).bit_length(), 4 << 20))
        base = -(-self._next // align) * align
        self._next = base + -(-size // PAGE) * PAGE
        if self._next > HEAP + HEAP_SIZE:
            raise Refused("no memory left for the slab allocator")
        return base

    def create(self, name, size, align, flags):
        """Return a new cache, as an address that only this class understands."""
        handle = self.pages(8)
        self.caches[handle] = Cache(name, size, max(align, 64 if flags & HWCACHE_ALIGN else 8))
        return handle

    def _take(self, cpu, cache, size, what):
        """Return a free object of a cache: of the CPU, else of all, else of a new slab."""
        mine = cache.free[cpu]
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

    def alloc(self, machine, handle):
        """Return an object of a cache."""
        cache = self.caches[handle]
        return self._take(machine.cpu, cache, cache.size, cache.name)

    def kmalloc(self, machine, size, caller=None):
        """Return memory of that many bytes that is zeroed: nobody asks for less, or looks at it before."""
        rounded = next((one for one in KMALLOC_SIZES if one >= size), -(-size // PAGE) * PAGE)
        cache = self.caches.setdefault(rounded, Cache("kmalloc", rounded))
        base = self._take(machine.cpu, cache, size, f"{size} bytes of {caller or machine.caller()}")
        machine.uc.mem_write(base, bytes(rounded))
        return base

    def free(self, machine, base):
        """Free an object of a cache or of kmalloc()."""
        if not base:
            return
        if base not in self.live:
            raise Refused(f"{machine.caller()} frees {base:#x}, which is no object")
        cache = self.live.pop(base)
        mine = cache.free[machine.cpu]
        mine.append(base)
        if len(mine) > KEPT:
            cache.shared.extend(mine[:KEPT // 2])
            del mine[:KEPT // 2]

    def prefill(self, machine, handle, count):
        """Return a new sheaf with that many objects of a cache."""
        sheaf = self.pages(8)
        self.sheaves[sheaf] = []
        self.refill(machine, handle, sheaf, count)
        return sheaf

    def refill(self, machine, handle, sheaf, count):
        """Fill a sheaf up to that many objects of a cache."""
        objects = self.sheaves[sheaf]
        objects += [self.alloc(machine, handle) for _ in range(count - len(objects))]

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
        bases = sorted(self.slab.objects)

        def place(address):
            if HEAP <= address < HEAP + HEAP_SIZE:
                base = bases[max(bisect.bisect_right(bases, address) - 1, 0)]
                return f"{self.slab.objects[base][1]} +{address - base}"
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
                m.string(m.argument(0)), m.argument(1) & 0xFFFFFFFF, m.get(m.argument(2), 4) if m.argument(2) else 8,
                m.argument(3)),
            "kmem_cache_alloc_noprof": lambda m: slab.alloc(m, m.argument(0)),
            "kmem_cache_alloc_node_noprof": lambda m: slab.alloc(m, m.argument(0)),
            "kmem_cache_free": lambda m: slab.free(m, m.argument(1)),
            "kmem_cache_free_bulk": self._free_bulk,
            "kmem_cache_prefill_sheaf": lambda m: slab.prefill(m, m.argument(0), m.argument(2)),
            "kmem_cache_refill_sheaf": lambda m: slab.refill(m, m.argument(0), m.get(m.argument(2)), m.argument(3)),
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
            machine.uc.mem_write(new, bytes(machine.uc.mem_read(old, min(self.slab.objects[old][0], size))))
        self.slab.free(machine, old)
        return new

    def _free_bulk(self, machine):
        """Stand for kmem_cache_free_bulk()."""
        for index in range(machine.argument(1)):
            self.slab.free(machine, machine.get(machine.argument(2) + 8 * index))

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
        key, image, patched = machine.argument(0), machine.image, 0
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
