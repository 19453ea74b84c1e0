# SPDX-License-Identifier: GPL-2.0
"""A built kernel: its memory, symbols, classes of instructions, and the objects that its functions come from."""

import bisect
import os
import pickle
import re
import secrets
import struct

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from harness.settings import Refused

# Bits of a class, as in model.h.
RMW, BARRIER, ACQUIRE, RELEASE, EXCLUSIVE_LOAD, LOCK, UNLOCK, STUB, PREFETCH = 1, 2, 4, 8, 16, 32, 64, 128, 256

NOP = 0xD503201F
RET = 0xD65F03C0
# To be raised when what kept() stores changes, or the module of its class.
FORMAT = 5


class Bad(Refused):
    """Something that cannot be emulated: one line says what."""


def instruction_class(word):
    """Return what an A64 instruction does, as bits of a class; 0 for most.

    Compare-and-swap, swap and atomic arithmetic (LSE), and store-exclusive, are read-modify-writes.
    """
    if word & 0x3F000000 == 0x08000000:  # exclusives, ordered loads and stores, compare-and-swap
        is_ordered, is_load, is_high = word >> 15 & 1, word >> 22 & 1, word >> 23 & 1
        is_pair = word >> 21 & 1
        if is_high and is_pair or not is_high and is_pair and not word >> 31:  # CAS, CASP
            return RMW | ACQUIRE * (word >> 22 & 1) | RELEASE * is_ordered
        if is_high:  # LDAR, LDLAR, STLR, STLLR
            return ACQUIRE if is_load else RELEASE
        if is_load:
            return EXCLUSIVE_LOAD | ACQUIRE * is_ordered
        return RMW | RELEASE * is_ordered
    if word & 0x3F200C00 == 0x38200000:
        if word >> 12 & 0xF == 0xC:  # LDAPR
            return ACQUIRE
        return RMW | ACQUIRE * (word >> 23 & 1) | RELEASE * (word >> 22 & 1)
    if word & 0xFFFFF0FF in (0xD50330BF, 0xD503309F):  # DMB, DSB
        return BARRIER
    if word & 0xFFC00018 == 0xF9800010:  # PRFM PST*, [Xn, #offset]
        return PREFETCH
    return 0


def functions_of(path):
    """Return the names of the functions that an object file defines."""
    with open(path, "rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        return {s.name for s in table.iter_symbols() if s["st_info"]["type"] == "STT_FUNC" and s["st_shndx"] != "SHN_UNDEF"}


class Image:
    """A vmlinux in its build folder."""

    def __init__(self, path):
        self.build = os.path.dirname(os.path.realpath(path))
        self.symbols, self._functions = {}, []
        try:
            with open(path, "rb") as file:
                elf = ELFFile(file)
                if elf["e_machine"] != "EM_AARCH64":
                    raise Bad(f"{path} is no kernel for arm64")
                self._read_symbols(elf.get_section_by_name(".symtab"))
                self.base = self.address("_text")
                self.memory = bytearray(self.address("_end") - self.base)
                for segment in elf.iter_segments("PT_LOAD"):
                    data, at = segment.data(), segment["p_vaddr"] - self.base
                    if 0 <= at and at + len(data) <= len(self.memory):  # notes and such lie behind
                        self.memory[at:at + len(data)] = data
        except (OSError, ELFError) as error:
            raise Bad(f"cannot read {path}: {error}") from error
        with open(os.path.join(self.build, "include/generated/asm-offsets.h"), encoding="utf-8") as file:
            self.offsets = {name: int(value) for name, value in re.findall(r"^#define (\w+) (\d+)", file.read(), re.M)}

    def _read_symbols(self, table):
        if table is None:
            raise Bad("the kernel has no symbols")
        for symbol in table.iter_symbols():
            if symbol["st_shndx"] == "SHN_UNDEF" or symbol.name.startswith("$"):
                continue
            self.symbols.setdefault(symbol.name, symbol["st_value"])
            if symbol["st_info"]["type"] in ("STT_FUNC", "STT_OBJECT", "STT_NOTYPE"):
                self._functions.append((symbol["st_value"], symbol["st_size"], symbol["st_info"]["type"] == "STT_FUNC", symbol.name))
        self._functions.sort()
        self._starts = [start for start, *_ in self._functions]

    def address(self, name):
        """Return the address of a symbol."""
        if name not in self.symbols:
            raise Bad(f"the kernel has no {name}")
        return self.symbols[name]

    def symbol_at(self, address):
        """Return (name, offset) of the symbol that contains an address; of the nearest one below if none does."""
        index = bisect.bisect_right(self._starts, address)
        for start, size, _, name in reversed(self._functions[max(0, index - 8):index]):
            if start <= address < start + max(size, 1):
                return name, address - start
        if not index:
            return hex(address), 0
        start, _, _, name = self._functions[index - 1]
        return name, address - start

    def functions(self):
        """Yield (name, address, size) of each function."""
        for start, size, is_function, name in self._functions:
            if is_function:
                yield name, start, size

    def words(self, start, end):
        """Return the instructions from start to end."""
        return struct.unpack_from(f"<{(end - start) // 4}I", self.memory, start - self.base)

    def real_functions(self, objects):
        """Return the names of the functions of object files of the build folder, and of what the linker puts between functions."""
        names = {name for name, _, _ in self.functions() if re.match(r"__CortexA53843419_|__AArch64\w*Thunk_", name)}
        for path in objects:
            path = os.path.join(self.build, path)
            if not os.path.exists(path):
                raise Bad(f"there is no {path}")
            names |= functions_of(path)
        return names


def kept(path, sources, make):
    """Return what make() returned when it was last called after the sources had changed. It is kept beside the results
    of earlier runs: what takes seconds to read from a large file."""
    path = f"{path}.{FORMAT}"
    try:
        if all(os.path.getmtime(path) > os.path.getmtime(source) for source in sources):
            with open(path, "rb") as file:
                return pickle.load(file)
    except (OSError, ValueError, TypeError, EOFError, AttributeError, pickle.UnpicklingError):
        pass
    value = make()
    # Several processes may do this at once.
    temporary = f"{path}.{secrets.token_hex(4)}"
    with open(temporary, "wb") as file:
        pickle.dump(value, file)
    os.replace(temporary, path)
    return value


def load_image(path, folder):
    """Return the Image of a vmlinux, which is kept in a folder."""
    return kept(os.path.join(folder, "image.pickle"), (path,), lambda: Image(path))
