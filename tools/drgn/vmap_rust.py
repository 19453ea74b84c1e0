# SPDX-License-Identifier: GPL-2.0
"""
The areas of the allocator in Rust (mm/vmap_rust), for :mod:`vmap`.

The debug information of Rust says where the fields of a type are: the compiler orders them differently in each build. drgn
finds names of Rust as it finds those of C++.
"""

from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from drgn import Language, Object, Program, Type, TypeMember, offsetof, sizeof
from drgn.helpers.linux.mapletree import mt_for_each

from vmap_area import DAMAGE, READS, WITHOUT_TAG, Area, Space, variable

# A damaged chain of tree nodes could lead in a circle.
MAX_ENTRIES = 100_000_000
BITMAPS = ("free", "lazy", "flushing")

# Constants of rust/state, which debug information does not have. index.rs: the tag of a block.
TAG_BITS, BLOCK_TAG = 3, 0b101
# area.rs: states of areas.
STATE_SHIFT, STATE_MASK = 16, 0x7
STATES = {0: "vacant", 1: "busy", 2: "new", 3: "unlinked", 4: "lazy", 5: "flushed", 7: "leaked"}
# class.rs: pages of the smallest block, which an entry of the directory is for.
TABLE_PAGES = 512
# block.rs: values of Place.
PLACES = ("held", "full", "owned", "orphan", "empty")
# objects.rs: words of an area object.
OBJECT_WORDS = 4

# The address of the space.
SPACE = "vmap_rust::kernel_space::SPACE"
# Types of the crate vmap_rust, but for the space, and where in them is what is read here.
FIELDS = {
    "space": ("", {"index": "tree.index.tree", "dir_parts": "blocks.dir.parts", "cpu_first": "blocks.cpus.first",
                   "cpu_others": "blocks.cpus.others.ptr", "cpu_others_len": "blocks.cpus.others.len",
                   "batch_first": "blocks.dir.batches.first", "batch_others": "blocks.dir.batches.others.ptr",
                   "batch_others_len": "blocks.dir.batches.others.len"}),
    "part": ("state::parts::Part<vmap_rust::state::dir::PartBlocks>", {
        "number": "number", "table": "entries", "whole": "more.whole", "dirty": "more.dirty"}),
    "block": ("state::block::Block", {"chunks": "objects.chunks", "place": "links.place", **{
        name: name for name in ("first_page", "slot_pages", "class", *BITMAPS)}}),
    "cpu": ("policy::blocks::Cpu", {"current": "current"}),
    "batch": ("state::batch::Batch", {name: name for name in ("first_pages", "added", "alone", "noted")}),
}


def _find(type_: Type, path: str) -> Tuple[int, Type]:
    """Return the offset and the type of a field of a Rust type, which may be in a field of a field."""
    offset = 0
    for name in path.split("."):
        # A wrapper, such as CacheAligned, has one field without a name.
        while type_.has_member("__0") and not type_.has_member(name):
            offset, type_ = offset + type_.member("__0").bit_offset // 8, type_.member("__0").type
        offset, type_ = offset + type_.member(name).bit_offset // 8, type_.member(name).type
    return offset, type_


def _readable(where: str, lines: Iterator[str]) -> Iterator[str]:
    """Iterate over lines, and add one if what they are about cannot be read."""
    try:
        yield from lines
    except DAMAGE as error:
        yield f"{where}: cannot be read: {error}"


class Block:
    """A block as it was at one time: bounds, bitmaps (bit n is slot n) and area objects."""

    def __init__(self, rust: "RustVmap", node: int, size: int, dirty: int):
        fields = rust.read("block", node)
        self.rust, self.node, self.size, self.dirty, self.chunks = rust, node, size, dirty, fields["chunks"]
        self.start = fields["first_page"] << rust.page_shift
        self.end = self.start + size
        self.number, self.slot_pages = fields["class"], fields["slot_pages"]
        self.place = dict(enumerate(PLACES)).get(fields["place"], f"place {fields['place']}")
        # Without a division by zero if it is damaged.
        self.slot_size = max(self.slot_pages, 1) << rust.page_shift
        self.slots = min(max(size // self.slot_size, 1), rust.map_bits)
        self.free, self.lazy, self.flushing = (rust.bitmap(fields[name]) for name in BITMAPS)
        pages = range(fields["first_page"], fields["first_page"] + self.slots * self.slot_pages)
        self.batched = sum(1 << pages.index(page) // self.slot_pages for page in rust.batched() if page in pages)

    def counts(self) -> Dict[str, int]:
        """Return how many slots each bitmap has, and how many lazy ones are in batches of CPUs."""
        return {name: getattr(self, name).bit_count() for name in (*BITMAPS, "batched")}

    def objects(self) -> Iterator[Area]:
        """Iterate over the area objects of all slots, also those that nobody uses."""
        count, size = self.rust.chunk_objects, self.rust.object_size
        for first in range(0, self.slots, count):
            chunk = self.chunks[first // count]
            for number, head in enumerate(self.rust.read("object", chunk, min(count, self.slots - first))):
                yield self.rust.area(chunk + number * size, head, first + number)

    def has(self, area: Area) -> bool:
        """Tell whether an area is in its slot."""
        slot = self.start + area.index * self.slot_size
        return slot == area.start < area.end <= slot + self.slot_size

    def areas(self) -> Iterator[Area]:
        """Iterate over the areas that are busy, unlinked or lazy."""
        # One of a batch may be free by now.
        waiting = self.lazy | self.flushing | self.batched & ~self.free
        for area in self.objects():
            # The object of a lazy slot is vacant, and keeps the bounds of its last area.
            if area.state == "vacant" and waiting >> area.index & 1:
                area = area._replace(state="lazy")
            if area.state == "busy" or area.state in ("unlinked", "lazy") and self.has(area):
                yield area


class RustVmap(Space):
    """The space of the allocator in Rust."""

    name = "rust"

    def __init__(self, prog: Program):
        super().__init__(prog)
        self._batched: Optional[Set[int]] = None
        self.page_shift = prog["PAGE_SHIFT"].value_()
        self._va, self._word = prog.type("struct vmap_area *"), prog.type("unsigned long")
        self._word_bits = 8 * sizeof(self._word)
        self._space = variable(prog, SPACE)
        # An atomic has the type of its value as parameter.
        types = {"space": self._space.type_.template_parameters[0].argument.type}
        try:
            types |= {kind: self._rust_type(name) for kind, (name, _) in FIELDS.items() if name}
            fields = {kind: dict(paths) for kind, (_, paths) in FIELDS.items()}
            counters = [member.name for member in _find(types["cpu"], "counters")[1].members]
            fields["cpu"] |= {f"count_{name}": f"counters.{name}" for name in counters}
            members = {kind: [self._member(types[kind], name, path) for name, path in paths.items()]
                       for kind, paths in fields.items()}
            # The directory points to what is in front of a block.
            self.block_offset = _find(self._rust_type("sys::grace::Node<vmap_rust::state::block::Block>"), "value")[0]
        except LookupError as error:
            raise ValueError(f"this module is for another version of mm/vmap_rust than this kernel has: {error}") from None
        # Only what is in front of rb_node exists of the C type.
        members["object"] = [TypeMember(self._word, name, 8 * offsetof(self._va.type, name))
                             for name in ("va_start", "va_end", "flags")]
        self.object_size = OBJECT_WORDS * sizeof(self._word)
        sizes = {"object": self.object_size, **{kind: sizeof(type_) for kind, type_ in types.items()}}
        self.types = {kind: prog.struct_type("vmap_rust_" + kind, sizes[kind], every) for kind, every in members.items()}
        block, cpu = self.types["block"], self.types["cpu"]
        self.classes, self.map_bits = cpu.member("current").type.length, 8 * sizeof(block.member("free").type)
        self.chunk_objects = self.map_bits // block.member("chunks").type.length
        self.entry_size = TABLE_PAGES << self.page_shift

    def _rust_type(self, name: str) -> Type:
        """Return a type of the crate. To drgn, its name is one of C++."""
        before, self.prog.language = self.prog.language, Language.CPP
        try:
            return self.prog.type(f"struct vmap_rust::{name}")
        finally:
            self.prog.language = before

    def _member(self, type_: Type, name: str, path: str) -> TypeMember:
        """Return a field of a Rust type, as a byte, a word, or several of them: that is what its wrappers have in them."""
        offset, found = _find(type_, path)
        size, word = sizeof(found), sizeof(self._word)
        plain = self._word if size == word else self.prog.array_type(self._word, size // word)
        return TypeMember(self.prog.type("unsigned char") if size == 1 else plain, name, 8 * offset)

    # Memory.

    def read(self, kind: str, address: int, count: Optional[int] = None) -> Any:
        """Return a structure of Rust, or a list of ``count`` of them: numbers, and lists of numbers, by field."""
        one = self.types[kind]
        return Object(self.prog, one if count is None else self.prog.array_type(one, count), address=address).value_()

    def words(self, address: int, count: int) -> List[int]:
        """Read ``count`` words."""
        return Object(self.prog, self.prog.array_type(self._word, count), address=address).value_()

    def bitmap(self, words: List[int]) -> int:
        """Return a bitmap as one number."""
        return sum(word << number * self._word_bits for number, word in enumerate(words))

    def area(self, address: int, head: Optional[Dict[str, int]] = None, index: int = 0) -> Area:
        """Return the area of an area object, of which ``head`` may have been read."""
        head = head or self.read("object", address)
        code = head["flags"] >> STATE_SHIFT & STATE_MASK
        va = Object(self.prog, self._va, value=address)
        return Area(head["va_start"], head["va_end"], STATES.get(code, f"state {code}"), va, index)

    def space(self) -> Dict[str, int]:
        """Return the fields of the space."""
        return self.read("space", self.prog.read_word(self._space.address_))

    # The index and the directory.

    def entries(self) -> Iterator[Tuple[int, int, Optional[int]]]:
        """
        Iterate over the index: start, end, and the address of the area object, or ``None`` for a block.

        A running kernel may replace a node of the tree while it is read, and what is behind it would be missing. So its
        index is read until two reads agree.

        :raises ValueError: if no two reads agree, or an entry is damaged
        """
        self._batched = None
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
        tree = Object(self.prog, "struct maple_tree *", value=self.space()["index"])
        for count, (first, last, entry) in enumerate(mt_for_each(tree)):
            if count > MAX_ENTRIES:
                raise ValueError("the index has no end")
            value = entry.value_()
            if value & (1 << TAG_BITS) - 1 != BLOCK_TAG:
                yield first, last + 1, value
                continue
            start = (value >> TAG_BITS) << self.page_shift
            if start != first:
                raise ValueError(f"index: the block at {first:#x} has the entry of {start:#x}")
            yield first, last + 1, None

    def parts(self) -> List[int]:
        """Return the places of the directory: addresses of parts, or 0."""
        return self.words(self.space()["dir_parts"], self.map_bits)

    def table(self, part: Dict[str, Any]) -> List[int]:
        """Return the entries of a part: addresses of nodes, or 0."""
        return self.words(part["table"], self.map_bits)

    def place_of(self, address: int) -> Tuple[Optional[Dict[str, Any]], int]:
        """Return the part of the directory that has ``address``, or ``None``, and the number of the entry in it."""
        number, index = divmod(address // self.entry_size, self.map_bits)
        place = self.parts()[number % self.map_bits]
        part = self.read("part", place) if place else None
        return part if part and part["number"] == number else None, index

    def block_at(self, address: int) -> Optional[Block]:
        """Return the block that contains ``address``. Its size is that of the entries that lead to it."""
        part, index = self.place_of(address)
        if not part:
            return None
        table = self.table(part)
        node, first, entries = table[index], table.index(table[index]), table.count(table[index])
        if not node:
            node, first, entries = part["whole"], 0, len(table)
        dirty = self.bitmap(part["dirty"]) >> first & 1
        return Block(self, node + self.block_offset, entries * self.entry_size, dirty) if node else None

    def blocks(self) -> Iterator[Block]:
        """Iterate over all blocks in the order of addresses."""
        for start, _, area in self.entries():
            block = self.block_at(start) if area is None else None
            if block:
                yield block

    def cpus(self) -> Iterator[Dict[str, List[int]]]:
        """Iterate over the states of all CPUs that there can be."""
        return self._per_cpu("cpu")

    def batches(self) -> Iterator[Dict[str, Any]]:
        """Iterate over the batches of all CPUs that there can be."""
        return self._per_cpu("batch")

    def _per_cpu(self, kind: str) -> Iterator[Dict[str, Any]]:
        """Iterate over the values of a ``PerCpu``, whose fields in the space have the name of the kind."""
        space = self.space()
        for value in [space[f"{kind}_first"], *self.words(space[f"{kind}_others"], space[f"{kind}_others_len"])]:
            yield self.read(kind, value)

    def batched(self) -> Set[int]:
        """Return the numbers of the first pages of slots in batches, as they were when the index was last read."""
        if self._batched is None:
            self._batched = set()
            for batch in self.batches():
                pages, added, noted = batch["first_pages"], batch["added"], batch["noted"]
                self._batched.update(pages[nth % len(pages)] for nth in range(max(noted, added - len(pages)), added))
        return self._batched

    # What users ask.

    def areas(self) -> Iterator[Area]:
        """Iterate over all areas in the order of addresses, also unlinked and lazy ones."""
        for start, end, address in self.entries():
            if address is not None:
                yield self.area(address)._replace(start=start, end=end)
                continue
            block = self.block_at(start)
            if block is None:
                raise ValueError(f"block {start:#x}: in the index, but not in the directory")
            yield from block.areas()

    def stats(self) -> Dict[str, int]:
        """Return numbers: areas and bytes by state, blocks and their slots, and the counters of all CPUs."""
        numbers = super().stats()
        for block in self.blocks():
            numbers["blocks"] += 1
            numbers["blocks_" + block.place] += 1
            numbers["blocks_dirty"] += block.dirty
            for name, count in block.counts().items():
                numbers["slots_" + name] += count
                numbers[f"slots_{name}_bytes"] += count * block.slot_size
        for state in self.cpus():
            for name in state.keys() - {"current"}:
                numbers[name] += state[name]
        numbers["count_retire_block"] = sum(batch["added"] + batch["alone"] for batch in self.batches())
        return numbers

    # Checks.

    def validate(self) -> Iterator[str]:
        """Iterate over what is wrong, one line each."""
        return _readable("index", self._validate_index())

    def _validate_index(self) -> Iterator[str]:
        seen: Set[int] = set()
        for start, end, address in self.entries():
            if address is None:
                seen.update(range(start, end, self.entry_size))
                yield from _readable(f"block {start:#x}-{end:#x}", self._validate_block(start, end))
            else:
                yield from _readable(f"area {start:#x}-{end:#x}", self._validate_area(start, end, address))
        yield from _readable("directory", self._validate_directory(seen))

    def _validate_area(self, start: int, end: int, address: int) -> Iterator[str]:
        area = self.area(address)
        where = f"area {start:#x}-{end:#x}"
        if area.state not in ("busy", "unlinked", "lazy", "flushed", "new"):
            yield f"{where}: {area.state}"
        if (area.start, area.end) != (start, end):
            yield f"{where}: its object says {area.start:#x}-{area.end:#x}"
        elif area.state == "busy":
            yield from self._validate_vm(where, area)

    @staticmethod
    def _validate_vm(where: str, area: Area) -> Iterator[str]:
        vm = area.va.vm
        if vm:
            if (vm.addr.value_() ^ area.start) & WITHOUT_TAG or vm.size.value_() != area.end - area.start:
                yield f"{where}: its vm_struct says {vm.addr.value_():#x}, {vm.size.value_()} bytes"

    def _validate_block(self, start: int, end: int) -> Iterator[str]:
        where = f"block {start:#x}"
        block = self.block_at(start)
        if not block:
            yield f"{where}: in the index, but not in the directory"
            return
        pages, most = block.size >> self.page_shift, self.map_bits
        if (block.number >= self.classes or not pages <= block.slot_pages * most <= pages * most
                or block.place not in PLACES or (block.start, block.end) != (start, end)):
            yield (f"{where}: its description is damaged: class {block.number}, slots of {block.slot_pages} pages, "
                   f"{block.place}, {block.start:#x}-{block.end:#x}; the index has {start:#x}-{end:#x}")
            return
        yield from self._validate_slots(where, block)

    def _validate_slots(self, where: str, block: Block) -> Iterator[str]:
        """A slot is free, lazy, taken by a purge, in a batch, or an area's. One that is none of these was claimed a moment ago."""
        waiting = block.lazy | block.flushing
        for name, wrong in (("free and lazy", block.free & block.lazy),
                            ("free and taken by a purge", block.free & block.flushing),
                            ("lazy and taken by a purge", block.lazy & block.flushing),
                            ("behind the last one", (block.free | waiting) >> block.slots << block.slots)):
            if wrong:
                slots = [slot for slot in range(wrong.bit_length()) if wrong >> slot & 1]
                yield f"{where}: slots {slots[:8]} are {name}"
        for area in block.objects():
            # Objects of other states belong to a request that is under way, or to nobody.
            if area.state not in ("busy", "unlinked"):
                if area.state not in ("vacant", "new"):
                    yield f"{where}: object {area.index} is {area.state}"
                continue
            text = f"{where}: area {area.start:#x}-{area.end:#x}"
            if not block.has(area):
                yield f"{text} is not in its slot {area.index}"
                continue
            for name, bitmap in (("is free", block.free), ("waits for a purge", waiting)):
                if bitmap >> area.index & 1:
                    yield f"{text} is {area.state}, but slot {area.index} {name}"
            if area.state == "busy":
                yield from self._validate_vm(text, area)

    def _validate_directory(self, seen: Set[int]) -> Iterator[str]:
        """Each entry of the directory is a block of the index."""
        for part in (self.read("part", address) for address in self.parts() if address):
            first = part["number"] * self.map_bits
            for entry, node in [*enumerate(self.table(part), first), (first, part["whole"])]:
                address = entry * self.entry_size
                if node and address not in seen:
                    yield f"block {address:#x}: in the directory, but not in the index"
