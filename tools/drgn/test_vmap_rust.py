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
from vmap import vmap_validate
from vmap_rust import RustVmap

BASE = 0xffff888000000000
HOME = 0xffffc90000000000
FINE, COARSE = 2 << 20, 64 << 20
STATES = ("vacant", "busy", "new", "unlinked", "lazy", "flushed", "cached", "leaked")
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
    """A space with a large area, a cached range, and a fine block of band 0 with three areas."""

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
        numbers = {"version": 1, "size": kind.size, "fine_size": FINE, "coarse_size": COARSE, "bands": 11, "coarse_bands": 5, "units": 512,
                   "dir_slots": 512, "part_entries": 512, "map_size": 64, "chunk_stride": 24, "chunk_objects": 64, "object_size": 32,
                   "tag_mask": 7, "tag_block": 5, "tag_shift": 3, "state_shift": 16, "state_mask": 7 << 16, "flag_in_block": 1 << 19}
        numbers.update({"state_" + name: code for code, name in enumerate(STATES)})
        names = [member.name for member in kind.members]
        for group, step in (("space_", 8), ("part_", 1024), ("block_", 128), ("cpu_", 128)):
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

        # The block: areas of 2 units at units 0 and 4, lazy units 2 and 3, and an unlinked area at unit 6.
        self.start = HOME + COARSE
        self.block = self.new(4096)
        at = {name[6:]: self.block + value for name, value in numbers.items() if name.startswith("block_")}
        self.at = at
        self.put(at["first_unit"], self.start >> 12)
        self.put(at["band"], 0)
        self.put(at["unit_shift"], 12)
        self.put(at["group_shift"], 1)
        self.put(at["reach"], 3)
        self.objects = [self.new(64 * 32) for _ in range(4)]
        for number, chunk in enumerate(self.objects):
            self.put(at["chunks"] + 24 * number, chunk)
        self.put(at["free"], *[(1 << 64) - 1 & ~0xff] + [(1 << 64) - 1] * 7)
        self.put(at["lazy"], 0b1100)
        vm = self.new(16)
        self.put(vm, self.start, 0x2000)
        for unit, state, struct_ in ((0, "busy", vm), (2, "vacant", 0), (4, "busy", 0), (6, "unlinked", 0)):
            first = self.start + unit * 4096
            self.put(self.objects[0] + unit // 2 * 32, first, first + 0x2000, struct_, STATES.index(state) << 16 | 1 << 19)

        # The directory begins at the second multiple of the size of a coarse block.
        table, part, slots = self.new(512 * 8), self.new(16384), self.new(512 * 8)
        self.entry = table
        self.put(self.entry, self.block)
        self.put(part + numbers["part_number"], 0)
        self.put(part + numbers["part_table"], table)
        self.put(part + numbers["part_held"], 1)
        self.put(slots, part)

        # The index: a large area, a cached range, the block.
        self.large, cached = self.new(32), self.new(32)
        ranges = [(HOME, HOME + 0x800000, self.large, "busy"), (HOME + 0x900000, HOME + 0xa00000, cached, "cached")]
        for first, end, area, state in ranges:
            self.put(area, first, end, 0, STATES.index(state) << 16)
        node, tree = self.new(256), self.new(16)
        pivots, slot = [], []
        position = 0
        for first, end, area in [(first, end, area) for first, end, area, _ in ranges] + [
                (self.start, self.start + FINE, (self.start >> 12) << 3 | 5)]:
            if first > position:
                pivots.append(first - 1)
                slot.append(0)
            pivots.append(end - 1)
            slot.append(area)
            position = end
        self.put(node, 0, *(pivots + [0] * (15 - len(pivots))), *(slot + [0] * (15 - len(slot))), len(pivots))
        self.put(tree, 0, node | 1 << 3 | 2)

        cpus = [self.new(1024), self.new(1024)]
        self.put(cpus[1] + numbers["cpu_current"], 1)
        self.put(cpus[0] + numbers["cpu_counters"], 7, 1)
        self.put(cpus[1] + numbers["cpu_counters"], 5, 2)
        others = self.new(8)
        self.put(others, cpus[1])
        for name, value in (("index", tree), ("home_first", HOME), ("home_last", HOME + (1 << 40) - 1), ("dir_first", self.start // FINE),
                            ("dir_capacity", 1 << 18), ("dir_parts", slots), ("dir_slots_end", 1), ("cpu_first", cpus[0]),
                            ("cpu_others", others)):
            self.put(space + numbers["space_" + name], value)


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
        start = self.space.start
        self.assertEqual([(area.start, area.end, area.state) for area in self.vmap.areas()], [
            (HOME, HOME + 0x800000, "busy"), (HOME + 0x900000, HOME + 0xa00000, "cached"), (start, start + 0x2000, "busy"),
            (start + 0x2000, start + 0x4000, "lazy"), (start + 0x4000, start + 0x6000, "busy"), (start + 0x6000, start + 0x8000, "unlinked")])

    def test_find(self):
        """Inner addresses lead to their area."""
        start = self.space.start
        for address, wanted in ((HOME + 0x7fffff, HOME), (HOME + 0x800000, None), (start + 0x5fff, start + 0x4000), (start + 0x8000, None),
                                (start + FINE, None), (0, None), ((1 << 64) - 1, None)):
            area = self.vmap.find(address)
            self.assertEqual(area and area.start, wanted, hex(address))

    def test_gaps(self):
        """What no entry has, inside of vmalloc space."""
        self.assertEqual([end - start for start, end in self.vmap.gaps()][:2], [0x100000, COARSE - 0xa00000])
        self.assertEqual(sum(end - start for start, end in self.vmap.gaps()), (1 << 40) - 0x800000 - 0x100000 - FINE)

    def test_stats(self):
        """Numbers of areas, units and counters."""
        stats = self.vmap.stats()
        wanted = {"busy": 3, "cached": 1, "lazy": 1, "unlinked": 1, "blocks_fine": 1, "blocks_held": 1, "units_free_fine": 504,
                  "units_lazy_fine": 2, "count_hit": 12, "count_refill": 3, "busy_bytes": 0x804000}
        self.assertEqual({name: stats.get(name) for name in wanted}, wanted)
        self.assertEqual(self.vmap.current(), {self.space.start: (1, 0)})

    def test_fixed_number_of_cpus(self):
        """Where nr_cpu_ids is a macro, the possible CPUs say how many there are."""
        del self.space.variables["nr_cpu_ids"]
        mask = self.space.new(16)
        self.space.variables["__cpu_possible_mask"] = "struct cpumask", mask
        for bits, wanted in ((0b11, 12), (0b1, 7), (0, 7)):
            self.space.put(mask, bits, 0)
            self.assertEqual(self.vmap.stats()["count_hit"], wanted)

    def test_allocator(self):
        """What cannot be read before the areas is a line, too."""
        ops, pointer = self.space.new(16), self.space.new(8)
        self.space.variables["vmap_area_ops"] = "struct vmap_area_ops *", pointer
        for address, debug, wanted in ((ops, self.space.info, []), (ops, 0, ["debug is NULL"]), (ops, 0x1234, ["cannot be read"]),
                                       (0x1234, 0, ["cannot be read"])):
            self.space.put(pointer, address)
            self.space.put(ops, 0, debug)
            found = vmap_validate(self.space.prog)
            self.assertEqual(len(found), len(wanted), found)
            for line, part in zip(found, wanted):
                self.assertIn(part, line)

    def test_sound(self):
        """Nothing is wrong."""
        self.assertEqual(list(self.vmap.validate()), [])

    def test_bits(self):
        """A unit of a busy area that is free, or lazy."""
        self.damaged(["is busy, but units [4] are free"], self.space.at["free"], ((1 << 64) - 1 & ~0xff) | 0x10)

    def test_two_states(self):
        """A unit that is free and lazy."""
        self.damaged(["units [8] are free and lazy"], self.space.at["lazy"], 0b100001100)

    def test_end(self):
        """An area that ends in units that are lazy."""
        self.damaged(["units [2] wait for a purge", "its vm_struct says"], self.space.objects[0] + 8, self.space.start + 0x3000)

    def test_overlap(self):
        """Two areas with the same units."""
        self.damaged(["overlaps another one"], self.space.objects[0] + 2 * 32 + 8, self.space.start + 0x7000)

    def test_outside(self):
        """An area that ends behind the block."""
        self.damaged(["of object 2 is not in it"], self.space.objects[0] + 2 * 32 + 8, self.space.start + FINE + 0x1000)

    def test_description(self):
        """A band, a size of units, an address that cannot be."""
        for name, value in (("band", 99), ("unit_shift", 70), ("first_unit", 1)):
            self.setUp()
            self.damaged(["its description is damaged"], self.space.at[name], value)

    def test_groups(self):
        """Groups that are larger than the block."""
        self.damaged(["groups of 1 << 40 units"], self.space.at["group_shift"], 40)

    def test_pointers(self):
        """Pointers to nowhere are a line, not an exception."""
        self.damaged(["cannot be read"], self.space.entry, 0x1234)
        self.setUp()
        self.damaged(["cannot be read"], self.space.at["chunks"], 0x1234)

    def test_directory(self):
        """A block that is missing in the directory, and one that is missing in the index."""
        self.damaged(["in the index, but not in the directory"], self.space.entry, 0)
        self.setUp()
        self.damaged(["in the directory, but not in the index"], self.space.entry + 8 * 64, self.space.block)

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
