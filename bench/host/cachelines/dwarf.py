# SPDX-License-Identifier: GPL-2.0
"""The layout of types: read from the debug information of object files once, and kept beside them."""

import os

from elftools.elf.elffile import ELFFile

from .image import Bad, kept

POINTERS = ("DW_TAG_pointer_type", "DW_TAG_reference_type")
PLAIN = ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_restrict_type", "DW_TAG_atomic_type")


def _text(die, name):
    return die.attributes[name].value.decode() if name in die.attributes else None


def _number(die, name, default=0):
    value = die.attributes[name].value if name in die.attributes else default
    return value if isinstance(value, int) else default


class _Reader:
    """Collects the types and variables of one object file."""

    def __init__(self, path, prefix, types, variables):
        self.prefix, self.types, self.variables = prefix, types, variables
        with open(path, "rb") as file:
            for unit in ELFFile(file).get_dwarf_info().iter_CUs():
                self._unit = unit
                self._scope(unit.get_top_DIE(), [])

    def _key(self, offset):
        return f"{self.prefix}{offset:x}"

    def _type_of(self, die):
        if "DW_AT_type" not in die.attributes:
            return None
        return self._key(die.attributes["DW_AT_type"].value + self._unit.cu_offset)

    def _scope(self, die, path):
        for child in die.iter_children():
            name = _text(child, "DW_AT_name")
            tag = child.tag
            if tag == "DW_TAG_namespace":
                self._scope(child, path + [name or ""])
            elif tag in ("DW_TAG_structure_type", "DW_TAG_union_type"):
                self._structure(child, path, name)
            elif tag in POINTERS:
                self.types[self._key(child.offset)] = ("pointer", 8, self._type_of(child))
            elif tag == "DW_TAG_array_type":
                count = 0
                for part in child.iter_children():
                    count = _number(part, "DW_AT_count", _number(part, "DW_AT_upper_bound", -1) + 1)
                self.types[self._key(child.offset)] = ("array", count, self._type_of(child))
            elif tag in PLAIN:
                self.types[self._key(child.offset)] = ("alias", 0, self._type_of(child))
            elif tag in ("DW_TAG_base_type", "DW_TAG_enumeration_type"):
                self.types[self._key(child.offset)] = ("plain", _number(child, "DW_AT_byte_size"), None)
            elif tag == "DW_TAG_variable":
                target = self._type_of(child)
                for known in (_text(child, "DW_AT_linkage_name"), name):
                    if known and target:
                        self.variables.setdefault(known, target)
            elif tag in ("DW_TAG_subprogram", "DW_TAG_lexical_block") and child.has_children:
                self._scope(child, path)  # static variables and types of functions

    def _structure(self, die, path, name):
        full = "::".join(path + [name or ""])
        members = []
        self._members(die, members)
        self._scope(die, path + [name or ""])
        self.types[self._key(die.offset)] = ("struct", _number(die, "DW_AT_byte_size"), full, members)

    def _members(self, die, members):
        for child in die.iter_children():
            if child.tag == "DW_TAG_member" and "DW_AT_type" in child.attributes:
                members.append((_text(child, "DW_AT_name") or "", _number(child, "DW_AT_data_member_location"), self._type_of(child)))
            elif child.tag in ("DW_TAG_variant_part", "DW_TAG_variant"):
                self._members(child, members)


class Types:
    """All types of some object files, and the types of variables."""

    def __init__(self, types, variables):
        self.types, self.variables = types, variables
        self._sizes = {}
        self.named = {}
        for key, kind in types.items():
            if kind[0] == "struct" and kind[1]:
                self.named.setdefault(kind[2], key)

    def resolve(self, key):
        """Return the type behind typedefs and qualifiers, or None."""
        for _ in range(32):
            kind = self.types.get(key)
            if kind is None or kind[0] != "alias":
                return kind
            key = kind[2]
        return None

    def size_of(self, key):
        """Return the size of a type in bytes; 0 if it is unknown."""
        if key not in self._sizes:
            self._sizes[key] = 0
            kind = self.resolve(key)
            if kind:
                self._sizes[key] = kind[1] * self.size_of(kind[2]) if kind[0] == "array" else kind[1]
        return self._sizes[key]

    def _struct(self, name):
        if name not in self.named:
            raise Bad(f"the debug information has no struct {name}")
        return self.types[self.named[name]]

    def size(self, name):
        """Return the size of a struct by name."""
        return self._struct(name)[1]

    def _find(self, kind, member, base=0):
        for name, offset, key in kind[3]:
            if name == member:
                return base + offset, key
            inner = self.resolve(key)
            if not name and inner and inner[0] == "struct":
                found = self._find(inner, member, base + offset)
                if found:
                    return found
        return None

    def offset(self, name, member):
        """Return the offset of a member of a struct by name, also inside anonymous members."""
        found = self._find(self._struct(name), member)
        if not found:
            raise Bad(f"struct {name} has no {member}")
        return found[0]

    def member_size(self, name, member):
        """Return the size of a member of a struct by name."""
        return self.size_of(self._find(self._struct(name), member)[1])


def _read(sources):
    types, variables = {}, {}
    for prefix, path in sources.items():
        _Reader(path, prefix, types, variables)
    return types, variables


def load(folder):
    """Return the types of the objects of build_types() in a folder."""
    objects = {"c": "vmalloc.o", "o": "vmap_area_ops.o", "r": "vmap_rust.o"}
    sources = {prefix: os.path.join(folder, name) for prefix, name in objects.items()}
    return Types(*kept(os.path.join(folder, "types.pickle"), sources.values(), lambda: _read(sources)))
