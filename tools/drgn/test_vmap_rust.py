# SPDX-License-Identifier: GPL-2.0
"""Tests vmap_rust.py, and how vmap.py finds it, on a small space that is made by hand, in a second and without a kernel.

Needs pytest, drgn, a C compiler, and include/linux/vmap_rust_debug.h of the patched kernel tree.
"""

import os
import struct
import subprocess
import tempfile
import unittest

import drgn

from harness.settings import TREE
from vmap import vmap_allocator
from vmap_rust import DAMAGE, RustVmap

BASE = 0xffff888000000000
HOME = 0xffffc90000000000
ENTRY, PART = 2 << 20, 1 << 30
STATES = ("vacant", "busy", "new", "unlinked", "lazy", "flushed", "leaked")
TYPES = """
typedef unsigned int u32;
HEADER
enum constants { PAGE_SHIFT = 12 } constants;
struct cpumask { unsigned long bits[2]; } cpumask;
struct vmap_area_ops { const char *name; const struct vmap_rust_debug_info *debug; } ops;
struct vm_struct { void *addr; unsigned long size; };
struct vmap_area { unsigned long va_start, va_end; struct vm_struct *vm; unsigned long flags; } area;
struct maple_range_64 { void *parent; unsigned long pivot[15]; union { void *slot[16]; struct { void *pad[15]; struct { unsigned char end, gap; } meta; }; }; };
struct maple_arange_64 { void *parent; unsigned long pivot[9]; void *slot[10]; unsigned long gap[10]; struct { unsigned char end, gap; } meta; };
struct maple_node { union { struct maple_range_64 mr64; struct maple_arange_64 ma64; }; } node;
struct maple_tree { unsigned int lock; unsigned int ma_flags; void *ma_root; } tree;
struct vmap_rust_debug_info info;
"""


class Space:
    """A space with an area and a lazy one, a block of 256 slots with four areas, and one that fills a part, with 12 slots and a rest."""

    def __init__(self, library):
        self.memory, self.used = bytearray(1 << 20), 256
        self.prog = drgn.Program(drgn.Platform(drgn.Architecture.X86_64))
        self.prog.extra_module(library, create=True).try_file(library)
        self.prog.add_memory_segment(BASE, len(self.memory), self.read)
        self.variables = {"nr_cpu_ids": ("unsigned int", self.new(4))}
        self.prog.register_object_finder("variables", self.variable, enable_index=0)
        struct.pack_into("<I", self.memory, self.variables["nr_cpu_ids"][1] - BASE, 2)
        self.fill()
        self.vmap = RustVmap(self.prog, drgn.Object(self.prog, "struct vmap_rust_debug_info *", value=self.info))

    def read(self, address, count, offset, _physical):
        """Give drgn some of the memory."""
        return bytes(self.memory[offset:offset + count])

    def variable(self, prog, name, _flags, _filename):
        """Return a variable of the kernel."""
        kind, address = self.variables.get(name, (None, 0))
        return kind and drgn.Object(prog, kind, address=address)

    def new(self, size):
        """Return the address of ``size`` new bytes."""
        self.used = (self.used + 255) & ~255
        self.used += size
        return BASE + self.used - size

    def put(self, address, *words):
        """Write words."""
        struct.pack_into(f"<{len(words)}Q", self.memory, address - BASE, *(word & (1 << 64) - 1 for word in words))

    def get(self, address):
        """Read a word."""
        return struct.unpack_from("<Q", self.memory, address - BASE)[0]

    def fill(self):
        """Make the space. All offsets are multiples of 8 that differ, so that no two fields can be confused."""
        kind = self.prog.type("struct vmap_rust_debug_info")
        numbers = {"version": 1, "size": kind.size, "entry_size": ENTRY, "classes": 64, "dir_places": 512, "part_entries": 512, "map_bits": 512,
                   "chunk_objects": 64, "object_size": 32,
                   "tag_mask": 7, "tag_block": 5, "tag_shift": 3, "state_shift": 16, "state_mask": 7 << 16, "flag_in_block": 1 << 19}
        numbers.update({"state_" + name: code for code, name in enumerate(STATES)})
        names = [member.name for member in kind.members]
        for group, step in (("space_", 8), ("part_", 1024), ("block_", 128), ("cpu_", 1024)):
            for number, name in enumerate(name for name in names if name.startswith(group) and name != "part_entries"):
                numbers[name] = number * step
        self.numbers = numbers
        self.info = self.new(kind.size)
        pointer, space = self.new(8), self.new(256)
        text = self.new(64)
        self.memory[text - BASE:text - BASE + 11] = b"hit refill\0"
        for member in kind.members:
            at = self.info + member.bit_offset // 8
            if member.name in ("space", "counter_names"):
                self.put(at, pointer if member.name == "space" else text)
            else:
                struct.pack_into("<I", self.memory, at - BASE, numbers[member.name])
        self.put(pointer, space)

        # A block of slots of two pages: busy areas in slots 0 and 2, a lazy slot 1, an unlinked area in slot 3.
        self.start = HOME + (64 << 20)
        self.block, self.at, self.objects = self.new_block(self.start, 1, 2, 256)
        self.put(self.at["place"], 2)
        self.put(self.at["free"], (1 << 64) - 1 & ~0b1111)
        self.put(self.at["lazy"], 0b10)
        vm = self.new(16)
        self.put(vm, self.start, 0x2000)
        for slot, state, size, struct_ in ((0, "busy", 0x2000, vm), (1, "vacant", 0x1000, 0), (2, "busy", 0x2000, 0),
                                           (3, "unlinked", 0x2000, 0)):
            first = self.start + slot * 0x2000
            self.put(self.objects + slot * 32, first, first + size, struct_, STATES.index(state) << 16 | 1 << 19)

        # A block that fills a part, with slots of 80 MiB: a busy area in the last one.
        self.whole = HOME + PART
        block, at, objects = self.new_block(self.whole, 40, 20 << 10, 12)
        self.put(at["place"], 0)
        self.put(at["free"], (1 << 11) - 1)
        self.last = self.whole + 11 * (80 << 20)
        self.put(objects + 11 * 32, self.last, self.last + (70 << 20), 0, STATES.index("busy") << 16 | 1 << 19)

        # The directory. The blocks are in parts that follow each other.
        table, places = self.new(512 * 8), self.new(512 * 8)
        self.entry = table + (self.start - HOME) // ENTRY * 8
        self.put(self.entry, self.block)
        for number, (entries, whole) in enumerate(((table, 0), (self.new(512 * 8), block)), HOME // PART):
            part = self.new(16384)
            self.put(part + numbers["part_number"], number)
            self.put(part + numbers["part_table"], entries)
            self.put(part + numbers["part_whole"], whole)
            self.put(places + number % 512 * 8, part)
            if not whole:
                self.put(part + numbers["part_dirty"], 1 << (self.start - HOME) // ENTRY)

        # The index: an area, a lazy one, the blocks.
        self.large, lazy = self.new(32), self.new(32)
        ranges = [(HOME, HOME + 0x800000, self.large, "busy"), (HOME + 0x900000, HOME + 0xa00000, lazy, "lazy")]
        for first, end, area, state in ranges:
            self.put(area, first, end, 0, STATES.index(state) << 16)
        node, tree = self.new(256), self.new(16)
        pivots, slot = [], []
        position = 0
        for first, end, area in [(first, end, area) for first, end, area, _ in ranges] + [
                (start, start + size, (start >> 12) << 3 | 5) for start, size in ((self.start, ENTRY), (self.whole, PART))]:
            if first > position:
                pivots.append(first - 1)
                slot.append(0)
            pivots.append(end - 1)
            slot.append(area)
            position = end
        self.put(node, 0, *(pivots + [0] * (15 - len(pivots))), *(slot + [0] * (15 - len(slot))), len(pivots))
        self.put(tree, 0, node | 1 << 3 | 2)

        cpus = [self.new(4096), self.new(4096)]
        self.put(cpus[1] + numbers["cpu_current"] + 40 * 8, block + numbers["block_start"])
        self.put(cpus[0] + numbers["cpu_counters"], 7, 1)
        self.put(cpus[1] + numbers["cpu_counters"], 5, 2)
        others = self.new(8)
        self.put(others, cpus[1])
        for name, value in (("index", tree), ("home_first", HOME), ("home_last", HOME + (1 << 40) - 1), ("dir_parts", places),
                            ("cpu_first", cpus[0]), ("cpu_others", others)):
            self.put(space + numbers["space_" + name], value)

    def new_block(self, start, number, pages, slots):
        """Make a block of class ``number`` whose slots are free and have ``pages`` pages. Return the addresses of its node, of its
        fields, and of the objects of its first slots."""
        node, objects = self.new(4096), [self.new(64 * 32) for _ in range(-(-slots // 64))]
        at = {name[6:]: node + value for name, value in self.numbers.items() if name.startswith("block_")}
        self.put(at["first_page"], start >> 12)
        self.put(at["class"], number)
        self.put(at["slot_pages"], pages)
        # Places without objects of their own have the first ones.
        self.put(at["chunks"], *objects, *objects[:1] * (8 - len(objects)))
        self.put(at["free"], *[(1 << 64) - 1] * (slots // 64))
        return node, at, objects[0]


class VmapTest(unittest.TestCase):
    """Each test has a space of its own."""

    @classmethod
    def setUpClass(cls):
        """Compile the types, for their debug information."""
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.library = os.path.join(folder, "types.so")
        lines = (TREE / "include/linux/vmap_rust_debug.h").read_text(encoding="utf-8").splitlines(True)
        header = "".join(line for line in lines if "linux/types.h" not in line)
        subprocess.run(["gcc", "-g", "-shared", "-fPIC", "-x", "c", "-o", cls.library, "-"], input=TYPES.replace("HEADER", header),
                       text=True, check=True)

    def setUp(self):
        self.space = Space(self.library)
        self.vmap = self.space.vmap

    def damaged(self, expected, address, *words):
        """Write words, and expect these lines of validate."""
        self.space.put(address, *words)
        found = list(self.vmap.validate())
        self.assertEqual(len(found), len(expected), found)
        for line, part in zip(found, expected):
            self.assertIn(part, line)

    def test_areas(self):
        """All areas with their states, in the order of addresses."""
        start, last = self.space.start, self.space.last
        self.assertEqual([(area.start, area.end, area.state) for area in self.vmap.areas()], [
            (HOME, HOME + 0x800000, "busy"), (HOME + 0x900000, HOME + 0xa00000, "lazy"), (start, start + 0x2000, "busy"),
            (start + 0x2000, start + 0x3000, "lazy"), (start + 0x4000, start + 0x6000, "busy"), (start + 0x6000, start + 0x8000, "unlinked"),
            (last, last + (70 << 20), "busy")])

    def test_find(self):
        """Inner addresses lead to their area, those behind it in its slot and behind the last slot to none."""
        start, last = self.space.start, self.space.last
        for address, wanted in ((HOME + 0x7fffff, HOME), (HOME + 0x800000, None), (start + 0x5fff, start + 0x4000), (start + 0x3000, None),
                                (start + 0x8000, None), (start + ENTRY, None), (start + 512 * PART, None), (0, None), ((1 << 64) - 1, None),
                                (last - 1, None), (last + (70 << 20) - 1, last), (last + (70 << 20), None), (self.space.whole + PART - 1, None)):
            area = self.vmap.find(address)
            self.assertEqual(area and area.start, wanted, hex(address))

    def test_gaps(self):
        """What no entry has, inside of vmalloc space."""
        self.assertEqual([end - start for start, end in self.vmap.gaps()][:2], [0x100000, (64 << 20) - 0xa00000])
        self.assertEqual(sum(end - start for start, end in self.vmap.gaps()), (1 << 40) - 0x800000 - 0x100000 - ENTRY - PART)

    def test_stats(self):
        """Numbers of areas, slots and counters."""
        stats = self.vmap.stats()
        wanted = {"busy": 4, "lazy": 2, "unlinked": 1, "blocks": 2, "blocks_held": 1, "blocks_owned": 1, "blocks_dirty": 1,
                  "slots_free": 252 + 11, "slots_free_bytes": 252 * 0x2000 + 11 * (80 << 20), "slots_lazy": 1, "count_hit": 12,
                  "count_refill": 3, "busy_bytes": 0x804000 + (70 << 20)}
        self.assertEqual({name: stats.get(name) for name in wanted}, wanted)
        self.assertEqual(self.vmap.current(), {self.space.whole: 1})

    def test_fixed_number_of_cpus(self):
        """Where nr_cpu_ids is a macro, the possible CPUs say how many there are."""
        del self.space.variables["nr_cpu_ids"]
        mask = self.space.new(16)
        self.space.variables["__cpu_possible_mask"] = "struct cpumask", mask
        for bits, wanted in ((0b11, 12), (0b1, 7), (0, 7)):
            self.space.put(mask, bits, 0)
            self.assertEqual(self.vmap.stats()["count_hit"], wanted)

    def test_allocator(self):
        """An allocator without a description is refused, and so is one that cannot be read."""
        ops, pointer = self.space.new(16), self.space.new(8)
        self.space.variables["vmap_area_ops"] = "struct vmap_area_ops *", pointer
        for address, debug, wanted in ((ops, self.space.info, None), (ops, 0, "debug is NULL"),
                                       (ops, 0x1234, "could not find"), (0x1234, 0, "could not find")):
            self.space.put(pointer, address)
            self.space.put(ops, 0, debug)
            if not wanted:
                self.assertEqual(len(list(vmap_allocator(self.space.prog).areas())), 7)
                continue
            with self.assertRaisesRegex(DAMAGE, wanted):
                vmap_allocator(self.space.prog)

    def test_sound(self):
        """Nothing is wrong."""
        self.assertEqual(list(self.vmap.validate()), [])

    def test_bits(self):
        """The slot of a busy area that is free, or that of an unlinked one that is lazy."""
        self.damaged(["is busy, but slot 2 is free"], self.space.at["free"], (1 << 64) - 1 & ~0b1011)
        self.setUp()
        self.damaged(["is unlinked, but slot 3 waits for a purge"], self.space.at["flushing"], 0b1000)

    def test_two_states(self):
        """A slot that is free and lazy, and one that the block does not have."""
        self.damaged(["slots [4] are free and lazy"], self.space.at["lazy"], 0b10010)
        self.setUp()
        self.damaged(["slots [256] are behind the last one"], self.space.at["lazy"] + 32, 1)

    def test_outside(self):
        """An area that ends behind its slot, and one that begins in another slot."""
        self.damaged(["is not in its slot 2"], self.space.objects + 2 * 32 + 8, self.space.start + 0x6001)
        self.setUp()
        self.damaged(["is not in its slot 2"], self.space.objects + 2 * 32, self.space.start + 0x3000)

    def test_description(self):
        """A class, a size of slots, a place, an address that cannot be."""
        for name, value in (("class", 99), ("slot_pages", 0), ("slot_pages", 513), ("place", 5), ("first_page", 1)):
            self.setUp()
            self.damaged(["its description is damaged"], self.space.at[name], value)

    def test_pointers(self):
        """Pointers to nowhere are a line, not an exception."""
        self.damaged(["cannot be read"], self.space.entry, 0x1234)
        self.setUp()
        self.damaged(["cannot be read"], self.space.at["chunks"], 0x1234)

    def test_directory(self):
        """A block that is missing in the directory, and one that is missing in the index."""
        self.damaged(["in the index, but not in the directory"], self.space.entry, 0)
        self.setUp()
        self.damaged(["in the directory, but not in the index"], self.space.entry + 8 * 64, self.space.block + 8)

    def test_large(self):
        """An area whose object does not agree with its entry."""
        self.damaged(["its object says"], self.space.large, HOME + 0x1000)

    def test_vm(self):
        """An area whose vm_struct is another one's."""
        self.damaged(["its vm_struct says 0x0"], self.space.large + 16, BASE)

    def test_live(self):
        """In a running kernel, an index whose end was missing once is read again; one that never stays the same is refused."""
        wanted, whole = list(self.vmap.areas()), self.vmap._read_entries  # pylint: disable=protected-access
        reads = [0]

        def changing(until):
            reads[0] += 1
            return list(whole())[:-1 if reads[0] < until and reads[0] % 2 else None]

        self.vmap.live = True
        self.vmap._read_entries = lambda: changing(4)  # pylint: disable=protected-access
        self.assertEqual(list(self.vmap.areas()), wanted)
        self.assertEqual(reads[0], 5)
        self.vmap._read_entries = lambda: changing(1000)  # pylint: disable=protected-access
        with self.assertRaisesRegex(ValueError, "changes while it is read"):
            list(self.vmap.areas())

    def test_version(self):
        """A version that this module does not know is refused."""
        struct.pack_into("<I", self.space.memory, self.space.info - BASE, 2)
        with self.assertRaisesRegex(ValueError, "version 2; this module knows version 1"):
            RustVmap(self.space.prog, drgn.Object(self.space.prog, "struct vmap_rust_debug_info *", value=self.space.info))
