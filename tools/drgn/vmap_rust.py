# SPDX-License-Identifier: GPL-2.0
"""
The areas of the allocator in Rust (mm/vmap_rust), for :mod:`vmap`.

Everything here is read through ``struct vmap_rust_debug_info``, which is a C type with offsets of the Rust types: see
include/linux/vmap_rust_debug.h and docs/debugging.md. So this module needs no debug info of Rust.
"""

from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from drgn import FaultError, Object, PlatformFlags, Program, ProgramFlags, offsetof, sizeof
from drgn.helpers.linux.bitops import for_each_set_bit
from drgn.helpers.linux.cpumask import cpu_possible_mask
from drgn.helpers.linux.mapletree import mt_for_each

VERSION = 1
# What reading a damaged structure raises.
DAMAGE = (FaultError, ValueError, OverflowError, LookupError, NotImplementedError)
# A damaged chain of tree nodes could lead in a circle.
MAX_ENTRIES = 100_000_000
# Values of block_place.
PLACES = ("held", "full", "owned", "orphan", "empty")
# How often the index of a running kernel is read, at most.
READS = 10


class Area(NamedTuple):
    """A reserved range: its bounds, its state, and its ``struct vmap_area *``."""

    start: int
    end: int
    state: str
    va: Object


class AreaObject(NamedTuple):
    """An area object of a block: the number of its slot, its address, and its fields."""

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
    """A block as it was at one time: bounds, bitmaps (bit n is slot n) and area objects."""

    def __init__(self, rust: "RustVmap", node: int, size: int):
        info, word = rust.info, rust.word_size
        self.rust, self.node, self.size = rust, node, size
        map_bytes = info["map_bits"] // 8
        memory = rust.prog.read(node, max(value for name, value in info.items() if name.startswith("block_")) + map_bytes)

        def number(name: str, length: int = word) -> int:
            at = info["block_" + name]
            return int.from_bytes(memory[at:at + length], rust.byteorder)

        self.number = number("class", 1)
        self.start = number("first_page") << rust.page_shift
        self.slot_pages, self.owner, place = number("slot_pages"), number("owner"), number("place")
        self.place = PLACES[place] if place < len(PLACES) else f"place {place}"
        # Without a division by zero if it is damaged.
        self.slot_size = max(self.slot_pages, 1) << rust.page_shift
        self.slots = min(max(size // self.slot_size, 1), info["map_bits"])
        self.free, self.lazy, self.flushing = (
            rust.bitmap(memory[info[name]:info[name] + map_bytes]) for name in ("block_free", "block_lazy", "block_flushing"))

    @property
    def end(self) -> int:
        """The first address behind the block."""
        return self.start + self.size

    def objects(self) -> Iterator[AreaObject]:
        """Iterate over the area objects of all slots, also those that nobody uses."""
        rust, info = self.rust, self.rust.info
        count, size = info["chunk_objects"], info["object_size"]
        for first in range(0, self.slots, count):
            chunk = rust.word(self.node + info["block_chunks"] + first // count * rust.word_size)
            memory = rust.prog.read(chunk, min(count, self.slots - first) * size)
            for at in range(0, len(memory), size):
                yield rust.area_object(first + at // size, chunk + at, memory[at:at + size])

    def has(self, item: AreaObject) -> bool:
        """Tell whether the area of an object is in the slot of the object."""
        slot = self.start + item.index * self.slot_size
        return slot == item.start < item.end <= slot + self.slot_size

    def areas(self) -> Iterator[AreaObject]:
        """Iterate over the objects of areas that are busy, unlinked or lazy; the state of a lazy one is ``lazy``."""
        waiting = self.lazy | self.flushing
        for item in self.objects():
            # The object of a lazy slot is vacant, and keeps the bounds of its last area.
            if item.state == "vacant" and waiting >> item.index & 1:
                item = item._replace(state="lazy")
            if item.state == "busy" or item.state in ("unlinked", "lazy") and self.has(item):
                yield item


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
                        ("vacant", "busy", "new", "unlinked", "lazy", "flushed", "leaked")}

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
        places = self.word(self.space + self.info["space_dir_parts"])
        part = self.word(places + number % self.info["dir_places"] * self.word_size)
        return part if part and self.word(part + self.info["part_number"]) == number else 0

    def place_of(self, address: int) -> Tuple[int, int]:
        """Return the address of the part of the directory that has ``address``, or 0, and the number of the entry in it."""
        number, index = divmod(address // self.info["entry_size"], self.info["part_entries"])
        return self.part(number), index

    def table(self, part: int) -> List[int]:
        """Return the entries of a part: addresses of nodes, or 0."""
        return self.words(self.word(part + self.info["part_table"]), self.info["part_entries"])

    def parts(self) -> Iterator[Tuple[int, int]]:
        """Iterate over the parts of the directory: first address of its range, and address of the part."""
        size = self.info["entry_size"] * self.info["part_entries"]
        for part in self.words(self.word(self.space + self.info["space_dir_parts"]), self.info["dir_places"]):
            if part:
                yield self.word(part + self.info["part_number"]) * size, part

    def block_at(self, address: int) -> Optional[Block]:
        """Return the block that contains ``address``. Its size is that of the entries that lead to it."""
        part, index = self.place_of(address)
        if not part:
            return None
        table = self.table(part)
        node, entries = table[index], table.count(table[index])
        if not node:
            node, entries = self.word(part + self.info["part_whole"]), len(table)
        return Block(self, node, entries * self.info["entry_size"]) if node else None

    def blocks(self) -> Iterator[Block]:
        """Iterate over all blocks in the order of addresses."""
        for start, _, area in self.entries():
            block = self.block_at(start) if area is None else None
            if block:
                yield block

    def is_dirty(self, block: Block) -> bool:
        """Tell whether the directory has noted that a block may have lazy slots."""
        part, index = self.place_of(block.start)
        size = 8 * self.word_size
        return bool(part and self.word(part + self.info["part_dirty"] + index // size * self.word_size) >> index % size & 1)

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

    def current(self) -> Dict[int, int]:
        """Map the addresses of current blocks to the CPU that allocates from them, or the first one of a group."""
        found, info = {}, self.info
        for cpu, state in self.cpus():
            for block in filter(None, self.words(state + info["cpu_current"], info["classes"])):
                found[self.word(block - info["block_start"] + info["block_first_page"]) << self.page_shift] = cpu
        return found

    # What users ask.

    def areas(self) -> Iterator[Area]:
        """Iterate over all areas in the order of addresses, also unlinked and lazy ones."""
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
        """Return numbers: ranges and bytes by state, blocks and their slots, and the counters of all CPUs."""
        numbers: Dict[str, int] = {}

        def add(name: str, value: int = 1) -> None:
            numbers[name] = numbers.get(name, 0) + value

        for start, end, state, _ in self.areas():
            add(state)
            add(state + "_bytes", end - start)
        for block in self.blocks():
            add("blocks")
            add("blocks_" + block.place)
            add("blocks_dirty", self.is_dirty(block))
            for name in ("free", "lazy", "flushing"):
                count = bin(getattr(block, name)).count("1")
                add("slots_" + name, count)
                add(f"slots_{name}_bytes", count * block.slot_size)
        for _, state in self.cpus():
            for name, value in zip(self.counter_names, self.words(state + self.info["cpu_counters"], len(self.counter_names))):
                add("count_" + name, value)
        return numbers

    # Checks.

    def validate(self) -> Iterator[str]:
        """Iterate over what is wrong, one line each."""
        seen: Set[int] = set()
        try:
            for start, end, address in self.entries():
                try:
                    if address is None:
                        seen.update(range(start, end, self.info["entry_size"]))
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
        if item.state not in ("busy", "unlinked", "lazy", "flushed", "new"):
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
        block = self.block_at(start)
        if not block:
            yield f"{where}: in the index, but not in the directory"
            return
        pages, bits_of_map = block.size >> self.page_shift, self.info["map_bits"]
        if (block.number >= self.info["classes"] or not pages <= block.slot_pages * bits_of_map <= pages * bits_of_map
                or block.place not in PLACES or (block.start, block.end) != (start, end)):
            yield (f"{where}: its description is damaged: class {block.number}, slots of {block.slot_pages} pages, {block.place}, "
                   f"{block.start:#x}-{block.end:#x}; the index has {start:#x}-{end:#x}")
            return
        yield from self._validate_slots(where, block)

    def _validate_slots(self, where: str, block: Block) -> Iterator[str]:
        """A slot is free, lazy, taken by a purge, or that of an area. One that is none of these was claimed a moment ago."""
        waiting = block.lazy | block.flushing
        for name, wrong in (("free and lazy", block.free & block.lazy), ("free and taken by a purge", block.free & block.flushing),
                            ("lazy and taken by a purge", block.lazy & block.flushing),
                            ("behind the last one", (block.free | waiting) >> block.slots << block.slots)):
            if wrong:
                yield f"{where}: slots {list(bits(wrong))[:8]} are {name}"
        for item in block.objects():
            # Objects of other states belong to a request that is under way, or to nobody.
            if item.state not in ("busy", "unlinked"):
                if item.state not in ("vacant", "new"):
                    yield f"{where}: object {item.index} is {item.state}"
                continue
            area = f"{where}: area {item.start:#x}-{item.end:#x}"
            if not block.has(item):
                yield f"{area} is not in its slot {item.index}"
                continue
            for name, bitmap in (("is free", block.free), ("waits for a purge", waiting)):
                if bitmap >> item.index & 1:
                    yield f"{area} is {item.state}, but slot {item.index} {name}"
            if item.state == "busy":
                yield from self._validate_vm(area, item)

    def _validate_directory(self, seen: Set[int]) -> Iterator[str]:
        """Each entry of the directory is a block of the index."""
        for first, part in self.parts():
            nodes = enumerate(self.table(part))
            entries = [first + index * self.info["entry_size"] for index, node in nodes if node]
            if self.word(part + self.info["part_whole"]):
                entries.append(first)
            for address in entries:
                if address not in seen:
                    yield f"block {address:#x}: in the directory, but not in the index"
