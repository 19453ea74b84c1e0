# SPDX-License-Identifier: GPL-2.0
"""A built kernel: its memory, symbols, classes of instructions, layouts of types, and what functions objects have."""

import array
import bisect
import re
import subprocess
import tempfile
from pathlib import Path

from harness.settings import Refused

from .. import build

# Bits of a class, as in model.h.
RMW, BARRIER, EXCLUSIVE_LOAD, LOCK, UNLOCK, STUB, PREFETCH = 1, 2, 4, 8, 16, 32, 64

NOP = 0xD503201F
RET = 0xD65F03C0


def instruction_class(word):
    """Return what an A64 instruction does, as bits of a class; 0 for most.

    Compare-and-swap, swap and atomic arithmetic (LSE), and store-exclusive, are read-modify-writes.
    """
    if word & 0x3F000000 == 0x08000000:  # exclusives, ordered loads and stores, compare-and-swap
        is_load, is_high, is_pair = word >> 22 & 1, word >> 23 & 1, word >> 21 & 1
        if is_pair and (is_high or not word >> 31):  # CAS, CASP
            return RMW
        return 0 if is_high else EXCLUSIVE_LOAD if is_load else RMW
    if word & 0x3F200C00 == 0x38200000:
        return 0 if word >> 12 & 0xF == 0xC else RMW  # LDAPR, or LDADD, SWP ...
    if word & 0xFFFFF0FF in (0xD50330BF, 0xD503309F):  # DMB, DSB
        return BARRIER
    return PREFETCH if word & 0xFFC00018 == 0xF9800010 else 0  # PRFM PST*, [Xn, #offset]


def layouts(path, names):
    """Return the layouts of structs in an object with debug information: STRUCT or STRUCT.MEMBER -> (offset, size), in
    bytes. Refuses an object that lacks one."""
    found, struct_name = {}, None
    # Its exit code is not 0 even if it has found everything.
    shown = subprocess.run(["pahole", "-F", "dwarf", "-C", ",".join(names), path], capture_output=True, text=True,
                           check=False).stdout
    for line in shown.splitlines():
        if match := re.match(r"struct (\w+) {", line):
            struct_name = match[1]
        elif match := re.match(r"\t/\* size: (\d+)", line):
            found.setdefault(struct_name, (0, int(match[1])))
        # "type name;", "type name[3];" or "type (*name)(type);"
        elif match := re.search(r"(?:\(\*(\w+)\)\(.*\)|(\w+)(?:\[\d*\])*);\s+/\*\s+(\d+)\s+(\d+)", line):
            found.setdefault(f"{struct_name}.{match[1] or match[2]}", (int(match[3]), int(match[4])))
    for name in names:
        if name not in found:
            raise Refused(f"{path} has no struct {name}")
    return found


class Image:
    """A vmlinux in its build folder."""

    def __init__(self, path):
        self.build = Path(path).parent
        self._sorted = [symbol for symbol in build.symbols(path) if symbol[2] not in "Aa"]
        self.symbols = {name: start for start, _, _, name in reversed(self._sorted)}
        self.base = self.address("_text")
        with tempfile.TemporaryDirectory() as folder:
            build.output("llvm-objcopy", "-O", "binary", path, f"{folder}/memory")
            memory = Path(f"{folder}/memory").read_bytes()
        size = self.address("_end") - self.base
        self.memory = memory[:size].ljust(size, b"\0")
        text = (self.build / "include/generated/asm-offsets.h").read_text(encoding="utf-8")
        self.offsets = {name: int(value) for name, value in re.findall(r"^#define (\w+) (\d+)", text, re.M)}

    def address(self, name):
        """Return the address of a symbol. Refuses a kernel without it."""
        if name not in self.symbols:
            raise Refused(f"the kernel has no {name}")
        return self.symbols[name]

    def symbol_at(self, address):
        """Return (name, offset) of the symbol that contains an address; of the nearest one below if none does."""
        index = bisect.bisect_right(self._sorted, address, key=lambda symbol: symbol[0])
        for start, size, _, name in reversed(self._sorted[max(0, index - 8):index]):
            if start <= address < start + max(size, 1):
                return name, address - start
        return (self._sorted[index - 1][3], address - self._sorted[index - 1][0]) if index else (hex(address), 0)

    def functions(self):
        """Return (name, address, size) of each function."""
        return [(name, start, size) for start, size, kind, name in self._sorted if kind in "TtWw" and size]

    def words(self, address, size):
        """Return the instructions of that many bytes."""
        at = address - self.base
        return array.array("I", self.memory[at:at + (size & ~3)])

    def real_functions(self, objects):
        """Return the names of the functions of object files of the build folder, and of what the linker puts between
        functions."""
        names = {name for name, _, _ in self.functions() if re.match(r"__CortexA53843419_|__AArch64\w*Thunk_", name)}
        return names.union(name for path in objects for _, _, kind, name in build.symbols(self.build / path)
                           if kind in "TtWw")
