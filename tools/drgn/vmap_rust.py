# SPDX-License-Identifier: GPL-2.0
"""
The areas of the allocator in Rust (mm/vmap_rust), for :mod:`vmap`.

Everything here is read through ``struct vmap_rust_debug_info``, which is a C type with offsets of the Rust types: see
include/linux/vmap_rust_debug.h and docs/debugging.md. So this module needs no debug info of Rust.
"""

from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from drgn import FaultError, Object, PlatformFlags, Program, ProgramFlags, offsetof, sizeof
from drgn.helpers.linux.bitops import for_each_set_bit
from drgn.helpers.linux.cpumask import cpu_possible_mask
from drgn.helpers.linux.mapletree import mt_for_each

VERSION = 1
# What reading a damaged structure raises.
DAMAGE = (FaultError, ValueError, OverflowError, LookupError, NotImplementedError)
# A damaged chain of tree nodes could lead in a circle.
MAX_ENTRIES = 100_000_000
# How often the index of a running kernel is read, at most.
READS = 10


class Area(NamedTuple):
    """A reserved range: its bounds, its state, and its ``struct vmap_area *``."""

    start: int
    end: int
    state: str
    va: Object


class AreaObject(NamedTuple):
    """An area object of a block: its number, its address, and its fields."""

    index: int
    address: int
    start: int
    end: int
    vm: int
    state: str


def bits(bitmap: int) -> Iterator[int]:
    """Iterate over the numbers of the set bits."""
    while bitmap:
        low = bitmap & -bitmap
        yield low.bit_length() - 1
        bitmap ^= low


class Block:
    """A block as it was at one time: bounds, bitmaps (bit n is unit n) and area objects."""

    def __init__(self, rust: "RustVmap", node: int):
        info, word = rust.info, rust.word_size
        self.rust, self.node = rust, node
        size = max(value for name, value in info.items() if name.startswith("block_")) + info["map_size"]
        memory = rust.prog.read(node, size)

        def number(name: str, length: int = word) -> int:
            at = info["block_" + name]
            return int.from_bytes(memory[at:at + length], rust.byteorder)

        self.band = number("band", 1)
        self.unit_shift = number("unit_shift", 4)
        self.group_shift = number("group_shift", 4)
        self.start = number("first_unit") << min(self.unit_shift, 63)
        self.is_coarse = self.band >= info["coarse_bands"]
        self.size = info["coarse_size"] if self.is_coarse else info["fine_size"]
        self.reach = number("reach")
        self.owner = number("owner")
        self.units = info["units"]
        map_bytes = self.units // 8
        self.free, self.lazy, self.flushing = (
            rust.bitmap(memory[info[name]:info[name] + map_bytes]) for name in ("block_free", "block_lazy", "block_flushing"))
        self._chunks = info["block_chunks"], info["chunk_stride"]

    @property
    def end(self) -> int:
        """The first address behind the block."""
        return self.start + self.size

    def units_of(self, size: int) -> int:
        """Return how many units an area of ``size`` bytes takes."""
        return max(-(-size >> self.unit_shift), 2)

    def unit_of(self, address: int) -> int:
        """Return the number of the unit at ``address``, which may be out of the block."""
        return (address - self.start) >> self.unit_shift

    def objects(self) -> Iterator[AreaObject]:
        """Iterate over all area objects, also those that nobody uses."""
        rust, info = self.rust, self.rust.info
        at, stride = self._chunks
        left, index, size = self.units >> self.group_shift, 0, info["object_size"]
        while left > 0:
            count = min(left, info["chunk_objects"])
            chunk = rust.prog.read_word(self.node + at)
            memory = rust.prog.read(chunk, count * size)
            for i in range(count):
                yield rust.area_object(index, chunk + i * size, memory[i * size:(i + 1) * size])
                index += 1
            left -= count
            at += stride

    def areas(self) -> Iterator[AreaObject]:
        """Iterate over the objects of areas that are busy, unlinked or lazy; the state of a lazy one is ``lazy``."""
        end, waiting = self.start, self.lazy | self.flushing
        for item in self.objects():
            unit = self.unit_of(item.start)
            inside = self.start <= item.start < item.end <= self.end and unit >> self.group_shift == item.index
            if item.state in ("vacant", "new"):
                # Objects keep their bounds after their units became free.
                if not inside or item.start < end or not waiting >> unit & 1:
                    continue
                item = item._replace(state="lazy")
            elif not inside and item.state != "busy":
                continue
            yield item
            end = max(end, item.start + (self.units_of(item.end - item.start) << self.unit_shift))


class RustVmap:
    """The space of the allocator in Rust."""

    name = "rust"

    def __init__(self, prog: Program, info: Object):
        self.prog, self.live = prog, bool(prog.flags & ProgramFlags.IS_LIVE)
        version = info.version.value_()
        if version != VERSION:
            raise ValueError(f"mm/vmap_rust describes its areas in version {version}; this module knows version {VERSION}")
        self.info: Dict[str, int] = {
            member.name: info.member_(member.name).value_()
            for member in info.type_.type.members
            if member.name not in ("space", "counter_names")
        }
        self.space = info.space[0].value_()
        self.counter_names = info.counter_names.string_().decode().split()
        self.word_size = prog.type("unsigned long").size
        self.byteorder = "little" if prog.platform.flags & PlatformFlags.IS_LITTLE_ENDIAN else "big"
        area = prog.type("struct vmap_area")
        self._fields = [offsetof(area, name) for name in ("va_start", "va_end", "vm", "flags")]
        self.page_shift = prog["PAGE_SHIFT"].value_()
        self._states = {self.info["state_" + name]: name for name in
                        ("vacant", "busy", "new", "unlinked", "lazy", "flushed", "cached", "leaked")}

    # Memory.

    def word(self, address: int) -> int:
        """Read an ``unsigned long``."""
        return self.prog.read_word(address)

    def words(self, address: int, count: int) -> List[int]:
        """Read ``count`` words."""
        size = self.word_size
        memory = self.prog.read(address, count * size)
        return [int.from_bytes(memory[i:i + size], self.byteorder) for i in range(0, count * size, size)]

    def bitmap(self, memory: bytes) -> int:
        """Return a bitmap of words as one number."""
        if self.byteorder == "little":
            return int.from_bytes(memory, "little")
        size = self.word_size
        return int.from_bytes(b"".join(memory[i:i + size][::-1] for i in range(0, len(memory), size)), "little")

    def read_map(self, address: int) -> int:
        """Read a bitmap."""
        return self.bitmap(self.prog.read(address, self.info["units"] // 8))

    def area_object(self, index: int, address: int, memory: bytes) -> AreaObject:
        """Return the area object that ``memory`` has."""
        start, end, vm, flags = (int.from_bytes(memory[at:at + self.word_size], self.byteorder) for at in self._fields)
        return AreaObject(index, address, start, end, vm, self.state(flags))

    def state(self, flags: int) -> str:
        """Return the name of the state in ``vmap_area.flags``."""
        code = (flags & self.info["state_mask"]) >> self.info["state_shift"]
        return self._states.get(code, f"state {code}")

    def va(self, address: int) -> Object:
        """Return the ``struct vmap_area *`` at ``address``; only its head exists (``VMAP_AREA_HEAD``)."""
        return Object(self.prog, "struct vmap_area *", value=address)

    # The index and the directory.

    def home(self) -> Tuple[int, int]:
        """Return the bounds of vmalloc space."""
        return self.word(self.space + self.info["space_home_first"]), self.word(self.space + self.info["space_home_last"]) + 1

    def entries(self) -> Iterator[Tuple[int, int, Optional[int]]]:
        """
        Iterate over the index: start, end, and the address of the area object, or ``None`` for a block.

        A running kernel may replace a node of the tree while it is read, and what is behind it would be missing. So its index
        is read until two reads agree.

        :raises ValueError: if no two reads agree, or an entry is damaged
        """
        if not self.live:
            yield from self._read_entries()
            return
        found: Optional[List[Tuple[int, int, Optional[int]]]] = None
        for _ in range(READS):
            before, found = found, list(self._read_entries())
            if found == before:
                yield from found
                return
        raise ValueError("the index changes while it is read")

    def _read_entries(self) -> Iterator[Tuple[int, int, Optional[int]]]:
        """Iterate over the index once."""
        tree = Object(self.prog, "struct maple_tree *", value=self.word(self.space + self.info["space_index"]))
        for count, (first, last, entry) in enumerate(mt_for_each(tree)):
            if count > MAX_ENTRIES:
                raise ValueError("the index has no end")
            value = entry.value_()
            if value & self.info["tag_mask"] == self.info["tag_block"]:
                start = (value >> self.info["tag_shift"]) << self.page_shift
                if start != first:
                    raise ValueError(f"index: the block at {first:#x} has the entry of {start:#x}")
                yield first, last + 1, None
            else:
                yield first, last + 1, value

    def part(self, number: int) -> int:
        """Return the address of part ``number`` of the directory, or 0."""
        slots = self.word(self.space + self.info["space_dir_parts"])
        part = self.word(slots + number % self.info["dir_slots"] * self.word_size)
        return part if part and self.word(part + self.info["part_number"]) == number else 0

    def entry_of(self, address: int) -> int:
        """Return the number of the directory entry for ``address``, which may be negative."""
        return address // self.info["fine_size"] - self.word(self.space + self.info["space_dir_first"])

    def node_at(self, address: int) -> int:
        """Return the address of the node of the block at ``address``, or 0."""
        entry = self.entry_of(address)
        if not 0 <= entry < self.word(self.space + self.info["space_dir_capacity"]):
            return 0
        number, index = divmod(entry, self.info["part_entries"])
        part = self.part(number)
        return self.word(self.word(part + self.info["part_table"]) + index * self.word_size) if part else 0

    def parts(self) -> Iterator[Tuple[int, int]]:
        """Iterate over the parts of the directory: number and address."""
        slots = self.word(self.space + self.info["space_dir_parts"])
        count = min(self.word(self.space + self.info["space_dir_slots_end"]), self.info["dir_slots"])
        for part in self.words(slots, count):
            if part:
                yield self.word(part + self.info["part_number"]), part

    def block_at(self, address: int) -> Optional[Block]:
        """Return the block that contains ``address``."""
        node = self.node_at(address)
        return Block(self, node) if node else None

    def blocks(self) -> Iterator[Block]:
        """Iterate over all blocks in the order of addresses."""
        for start, _, area in self.entries():
            block = self.block_at(start) if area is None else None
            if block:
                yield block

    def marks(self, block: Block) -> List[str]:
        """Return what the directory has noted of a block."""
        number, index = divmod(self.entry_of(block.start), self.info["part_entries"])
        part = self.part(number)
        if not part:
            return []
        info, found = self.info, []
        for name in ("held", "empty", "dirty", "flushing"):
            if self.read_map(part + info["part_" + name]) >> index & 1:
                found.append(name)
        if block.band < info["bands"] and self.read_map(part + info["part_partial"] + block.band * info["map_size"]) >> index & 1:
            found.append("partial")
        return found

    def cpu_count(self) -> int:
        """Return how many CPUs there can be, at most that for which the allocator has a state."""
        try:
            return self.prog["nr_cpu_ids"].value_()
        except KeyError:
            # With CONFIG_FORCE_NR_CPUS, or for one CPU, it is a macro. drgn's for_each_possible_cpu() takes it for 1 then.
            mask = cpu_possible_mask(self.prog).bits
            return max(for_each_set_bit(mask, 8 * sizeof(mask)), default=0) + 1

    def cpus(self) -> Iterator[Tuple[int, int]]:
        """Iterate over the CPUs: number, and address of the state."""
        yield 0, self.word(self.space + self.info["space_cpu_first"])
        others = self.word(self.space + self.info["space_cpu_others"])
        for cpu, state in enumerate(self.words(others, self.cpu_count() - 1), 1):
            yield cpu, state

    def current(self) -> Dict[int, Tuple[int, int]]:
        """Map the addresses of current blocks to their CPU and band."""
        found, first = {}, self.word(self.space + self.info["space_dir_first"])
        for cpu, state in self.cpus():
            for band, entry in enumerate(self.words(state + self.info["cpu_current"], self.info["bands"])):
                if entry:
                    found[(first + entry - 1) * self.info["fine_size"]] = cpu, band
        return found

    # What users ask.

    def areas(self) -> Iterator[Area]:
        """Iterate over all areas in the order of addresses, also unlinked, lazy and cached ones."""
        for start, end, address in self.entries():
            if address is not None:
                va = self.va(address)
                yield Area(start, end, self.state(va.flags.value_()), va)
                continue
            block = self.block_at(start)
            if block is None:
                raise ValueError(f"block {start:#x}: in the index, but not in the directory")
            for item in block.areas():
                yield Area(item.start, item.end, item.state, self.va(item.address))

    def find(self, address: int) -> Optional[Area]:
        """Return the area that contains ``address``, in whatever state it is."""
        block = self.block_at(address)
        if block:
            found = (item for item in block.areas() if item.start <= address < item.end)
            return next((Area(item.start, item.end, item.state, self.va(item.address)) for item in found), None)
        for start, end, area in self.entries():
            if start <= address < end and area is not None:
                va = self.va(area)
                return Area(start, end, self.state(va.flags.value_()), va)
            if start > address:
                break
        return None

    def gaps(self) -> Iterator[Tuple[int, int]]:
        """Iterate over the ranges of vmalloc space that are in no entry of the index."""
        at, end = self.home()
        for first, behind, _ in self.entries():
            if first >= end:
                break
            if first > at:
                yield at, first
            at = max(at, behind)
        if at < end:
            yield at, end

    def stats(self) -> Dict[str, int]:
        """Return numbers: ranges and bytes by state, blocks and their units, and the counters of all CPUs."""
        numbers: Dict[str, int] = {}

        def add(name: str, value: int = 1) -> None:
            numbers[name] = numbers.get(name, 0) + value

        for start, end, state, _ in self.areas():
            add(state)
            add(state + "_bytes", end - start)
        for block in self.blocks():
            kind = "coarse" if block.is_coarse else "fine"
            add("blocks_" + kind)
            for mark in self.marks(block):
                add("blocks_" + mark)
            for name in ("free", "lazy", "flushing"):
                add(f"units_{name}_{kind}", bin(getattr(block, name)).count("1"))
        for _, state in self.cpus():
            for name, value in zip(self.counter_names, self.words(state + self.info["cpu_counters"], len(self.counter_names))):
                add("count_" + name, value)
        return numbers

    # Checks.

    def validate(self) -> Iterator[str]:
        """Iterate over what is wrong, one line each."""
        seen = set()
        try:
            for start, end, address in self.entries():
                try:
                    if address is None:
                        seen.add(start)
                        yield from self._validate_block(start, end)
                    else:
                        yield from self._validate_area(start, end, address)
                except DAMAGE as error:
                    yield f"{'block' if address is None else 'area'} {start:#x}-{end:#x}: cannot be read: {error}"
        except DAMAGE as error:
            yield f"index: cannot be read: {error}"
            return
        try:
            yield from self._validate_directory(seen)
        except DAMAGE as error:
            yield f"directory: cannot be read: {error}"

    def _validate_area(self, start: int, end: int, address: int) -> Iterator[str]:
        item = self.area_object(0, address, self.prog.read(address, self.info["object_size"]))
        where = f"area {start:#x}-{end:#x}"
        if item.state not in ("busy", "unlinked", "lazy", "flushed", "cached", "new"):
            yield f"{where}: {item.state}"
        if (item.start, item.end) != (start, end):
            yield f"{where}: its object says {item.start:#x}-{item.end:#x}"
        elif item.state == "busy":
            yield from self._validate_vm(where, item)

    def _validate_vm(self, where: str, item: AreaObject) -> Iterator[str]:
        if item.vm:
            vm = Object(self.prog, "struct vm_struct *", value=item.vm)
            mask = (1 << 56) - 1
            if vm.addr.value_() & mask != item.start & mask or vm.size.value_() != item.end - item.start:
                yield f"{where}: its vm_struct says {vm.addr.value_():#x}, {vm.size.value_()} bytes"

    def _validate_block(self, start: int, end: int) -> Iterator[str]:
        where = f"block {start:#x}"
        node = self.node_at(start)
        if not node:
            yield f"{where}: in the index, but not in the directory"
            return
        block = Block(self, node)
        # A unit is a page in a fine block, and has as many more pages in a coarse one as the block is larger.
        shift = self.page_shift + (block.size // self.info["fine_size"]).bit_length() - 1
        if block.band >= self.info["bands"] or block.unit_shift != shift or (block.start, block.end) != (start, end):
            yield (f"{where}: its description is damaged: band {block.band}, units of 1 << {block.unit_shift} bytes, "
                   f"at {block.start:#x}; the index has {start:#x}-{end:#x}")
            return
        if not 1 <= block.group_shift < self.units_bits():
            yield f"{where}: groups of 1 << {block.group_shift} units"
            return
        for at in range(start, end, self.info["fine_size"]):
            if self.node_at(at) != node:
                yield f"{where}: another block in the directory at {at:#x}"
        yield from self._validate_units(where, block)

    def units_bits(self) -> int:
        """Return the number of bits of the number of a unit."""
        return (self.info["units"] - 1).bit_length()

    def _validate_units(self, where: str, block: Block) -> Iterator[str]:
        """A unit is free, lazy, taken by a purge, or part of an area. One that is none of these was claimed a moment ago."""
        waiting = block.lazy | block.flushing
        for name, both in (("free and lazy", block.free & block.lazy), ("free and taken by a purge", block.free & block.flushing),
                           ("lazy and taken by a purge", block.lazy & block.flushing)):
            if both:
                yield f"{where}: units {list(bits(both))[:8]} are {name}"
        used = 0
        for item in block.objects():
            # Objects of other states belong to a request or to a purge that is under way, or to nobody.
            if item.state not in ("busy", "unlinked"):
                if item.state not in ("vacant", "new"):
                    yield f"{where}: object {item.index} is {item.state}"
                continue
            area = f"{where}: area {item.start:#x}-{item.end:#x}"
            if not block.start <= item.start < item.end <= block.end:
                yield f"{area} of object {item.index} is not in it"
                continue
            unit, count = block.unit_of(item.start), block.units_of(item.end - item.start)
            mask = (1 << count) - 1 << unit
            if unit >> block.group_shift != item.index:
                yield f"{area} is at object {item.index}, not {unit >> block.group_shift}"
            if unit + count > block.units:
                yield f"{area} ends behind the last unit"
            if mask & used:
                yield f"{area} overlaps another one"
            if mask & block.free:
                yield f"{area} is {item.state}, but units {list(bits(mask & block.free))[:8]} are free"
            if mask & waiting:
                yield f"{area} is {item.state}, but units {list(bits(mask & waiting))[:8]} wait for a purge"
            if count > block.reach:
                yield f"{area} has {count} units; lookups reach {block.reach}"
            used |= mask
            if item.state == "busy":
                yield from self._validate_vm(area, item)

    def _validate_directory(self, starts) -> Iterator[str]:
        """Each entry of the directory is a block of the index."""
        fine, first = self.info["fine_size"], self.word(self.space + self.info["space_dir_first"])
        for number, part in self.parts():
            table = self.words(self.word(part + self.info["part_table"]), self.info["part_entries"])
            for index, node in enumerate(table):
                address = (first + number * len(table) + index) * fine
                if node and address // self.info["coarse_size"] * self.info["coarse_size"] not in starts and address not in starts:
                    yield f"block {address:#x}: in the directory, but not in the index"
