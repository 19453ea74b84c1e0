# SPDX-License-Identifier: GPL-2.0
"""CPUs that execute functions of a built kernel, one after the other, in the emulator unicorn; model.c has their caches."""

import array
import bisect
import ctypes
import re
import subprocess
from pathlib import Path

import unicorn
from unicorn import arm64_const as arm64

from ...settings import Refused
from .. import build

# What an instruction is, as in model.c.
RMW, BARRIER, EXCLUSIVE_LOAD, LOCK, PREFETCH = 1, 2, 4, 8, 16
KINDS, MASK, PAGE, LINE = 16, (1 << 64) - 1, 4096, 64
NOP, RET = 0xD503201F, 0xD65F03C0
# Behind the image and the percpu memory of all CPUs: the heap. It begins at a multiple of HEAP_ALIGN.
HEAP_SIZE, HEAP_ALIGN = 2 << 30, 4 << 20
# What is not modelled: where calls return to, then for each CPU its task, room for arguments, and its stack.
EXIT = 0xFFFF_2000_0000_0000
PRIVATE, PRIVATE_SIZE, ARGUMENTS = EXIT + PAGE, 64 << 10, 16 << 10
# System registers for unicorn: CRn, CRm, op0, op1, op2.
TCR_EL1, SP_EL0 = (2, 0, 3, 0, 2), (4, 1, 3, 0, 0)
TCR_48_BITS = 16 << 16 | 16
# preempt_count of a task that may be preempted and need not: see PREEMPT_ENABLED of arm64.
PREEMPT_ENABLED = 1 << 32


class Counts(ctypes.Structure):
    """struct counts of model.c."""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "instructions", "read_misses", "write_misses", "rmw", "barriers", "lines", "lines_written", "locks")]


class Miss(ctypes.Structure):
    """struct miss of model.c."""
    _fields_ = [("addr", ctypes.c_uint64), ("pc", ctypes.c_uint32), ("is_write", ctypes.c_uint8),
                ("kind", ctypes.c_uint8), ("cpu", ctypes.c_uint16)]


class Model(ctypes.Structure):
    """struct model of model.c."""
    _fields_ = [("base", ctypes.c_uint64), ("size", ctypes.c_uint64), ("classes", ctypes.c_char_p),
                ("words", ctypes.c_uint64), *((name, ctypes.c_uint32) for name in ("cpu", "kind", "op", "nr_misses")),
                ("counts", Counts * KINDS), ("misses", ctypes.POINTER(Miss))]

    def reset(self):
        """Forget what was counted, not the caches."""
        self.counts, self.nr_misses = (Counts * KINDS)(), 0


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


class Image:
    """A vmlinux in its build folder: its memory and symbols."""

    def __init__(self, path):
        self.build = Path(path).parent
        self._sorted = [symbol for symbol in build.symbols(path) if symbol[2] not in "Aa"]
        self.symbols = {name: start for start, _, _, name in reversed(self._sorted)}
        # (name, address, size) of each.
        self.functions = [(name, start, size) for start, size, kind, name in self._sorted if kind in "TtWw" and size]
        self.base, self.size = self.address("_text"), self.address("_end") - self.address("_text")
        memory = subprocess.run(["llvm-objcopy", "-O", "binary", path, "-"], stdout=subprocess.PIPE, check=True).stdout
        self.words = array.array("I", memory[:self.size].ljust(self.size, b"\0"))
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
        below = self._sorted[max(0, index - 8):index][::-1] or [(0, 0, "", "0")]
        start, _, _, name = next((one for one in below if address < one[0] + max(one[1], 1)), below[0])
        return name, address - start

    def functions_of(self, objects):
        """Return the names of the functions of object files of the build folder, and of what the linker puts between
        functions."""
        names = {name for name, _, _ in self.functions if re.match(r"__CortexA53843419_|__AArch64\w*Thunk_", name)}
        return names.union(name for path in objects for _, _, kind, name in build.symbols(self.build / path)
                           if kind in "TtWw")


class Machine:
    """The CPUs of a kernel image. There is one machine at a time: the model has one set of caches."""

    def __init__(self, library, image, cpus, real, stubs):
        """library: model.c, compiled; real: names of functions to execute; stubs: those that are replaced, with a
        handler, which gets the first four arguments and returns X0, or None."""
        model = ctypes.CDLL(library)
        model.model_start.argtypes = [ctypes.c_void_p]
        self.model, self.image, self.cpus, self.cpu, self._contexts = Model.in_dll(model, "m"), image, cpus, 0, []
        self.access = lambda *args: model.model_access(*map(ctypes.c_uint64, args))
        size = -(-image.size // PAGE) * PAGE
        self.percpu, first = image.base + size, image.address("__per_cpu_start")
        self.stride = -(-(image.address("__per_cpu_end") - first) // PAGE) * PAGE
        self.heap = -(-(self.percpu + self.stride * cpus) // HEAP_ALIGN) * HEAP_ALIGN
        self.uc = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.uc.ctl_set_cpu_model(arm64.UC_CPU_ARM64_A72)
        self.uc.mem_map(image.base, self.heap + HEAP_SIZE - image.base)
        self.uc.mem_map(EXIT, PAGE + PRIVATE_SIZE * cpus)
        # An end for emu_start() would cost more than a call: its block is translated again each time.
        self.uc.hook_add(unicorn.UC_HOOK_CODE, lambda uc, *_: uc.emu_stop(), begin=EXIT, end=EXIT)
        words, self._classes = self._load({name: handler for name, handler in stubs.items() if name in image.symbols}, real)
        self.uc.mem_write(image.base, words.tobytes())
        self._make_cpus()
        self.model.base, self.model.size = image.base, self.heap + HEAP_SIZE - image.base
        self.model.classes, self.model.words = self._classes, len(self._classes)
        if model.model_start(self.uc._uch):  # pylint: disable=protected-access
            raise Refused("no memory for the model of caches")
        self.model.reset()

    def _load(self, stubs, real):
        """Return the instructions of the image and their classes. Each function that is neither real nor a stub begins
        with an undefined instruction."""
        words, base = self.image.words[:], self.image.base
        classes, stubs = bytearray(len(words)), {self.image.address(name): handler for name, handler in stubs.items()}
        # A function can have several names.
        real = {start for name, start, _ in self.image.functions if name in real} - stubs.keys()
        for name, start, size in self.image.functions:
            first = (start - base) // 4
            if start not in real:
                words[first] = RET if start in stubs else 0
                continue
            for index in range(first, first + size // 4):
                word = words[index]
                classes[index] |= instruction_class(word)
                if word & 0xFFF8F000 == 0xD5088000:  # TLBI
                    words[index] = NOP
                elif word & 0xFFFFFFE0 == 0xD53B00E0:  # MRS Xt, DCZID_EL0: MOV Xt, #16 prohibits DC ZVA, which has no hook
                    words[index] = 0xD2800200 | word & 31
            if re.fullmatch(r"_raw_(spin|read|write)_(try)?lock(_bh|_irq|_irqsave|_irq_disable)?", name):
                classes[first] |= LOCK
        for start, handler in stubs.items():
            if handler:
                self.uc.hook_add(unicorn.UC_HOOK_CODE, self._stub, handler, start, start)
        return words, bytes(classes)

    def _stub(self, uc, _address, _size, handler):
        """Run the handler of a function that is replaced."""
        result = handler(*(uc.reg_read(arm64.UC_ARM64_REG_X0 + number) for number in range(4)))
        uc.reg_write(arm64.UC_ARM64_REG_X0, (result or 0) & MASK)

    def _make_cpus(self):
        """Give each CPU its percpu memory, task and stack, and tell the kernel how many there are."""
        image, cpus, first = self.image, self.cpus, self.image.address("__per_cpu_start")
        content = bytes(self.uc.mem_read(first, image.address("__per_cpu_end") - first))
        for name in ("nr_cpu_ids", "__num_online_cpus", "__num_possible_cpus"):
            self.put(image.address(name), cpus, 4)
        for name in ("__cpu_possible_mask", "__cpu_online_mask", "__cpu_present_mask", "__cpu_active_mask"):
            self.put(image.address(name), (1 << cpus) - 1, 64)
        self.uc.reg_write(arm64.UC_ARM64_REG_CP_REG, (*TCR_EL1, TCR_48_BITS))
        self.uc.reg_write(arm64.UC_ARM64_REG_LR, EXIT)
        for cpu in range(cpus):
            base, private = self.percpu + self.stride * cpu, PRIVATE + PRIVATE_SIZE * cpu
            self.uc.mem_write(base, content)
            self.put(image.address("__per_cpu_offset") + 8 * cpu, base - first)
            self.put(private + image.offsets["TSK_TI_PREEMPT"], PREEMPT_ENABLED)
            self.put(private + image.offsets["TSK_TI_CPU"], cpu, 4)
            self.uc.reg_write(arm64.UC_ARM64_REG_CP_REG, (*SP_EL0, private))
            self.uc.reg_write(arm64.UC_ARM64_REG_TPIDR_EL1, base - first & MASK)
            self.uc.reg_write(arm64.UC_ARM64_REG_SP, private + PRIVATE_SIZE - 64)
            self._contexts.append(self.uc.context_save())

    def call(self, cpu, kind, function, *args):
        """Let a CPU call the function at an address, as an operation of a kind; returns X0. Refuses if it reaches
        anything that is neither real nor a stub."""
        self.cpu = self.model.cpu = cpu
        self.model.kind = kind
        self.model.op += 1
        self.uc.context_restore(self._contexts[cpu])
        for number, value in enumerate(args):
            self.uc.reg_write(arm64.UC_ARM64_REG_X0 + number, value)
        try:
            self.uc.emu_start(function, EXIT + PAGE // 2)
        except unicorn.UcError as error:
            name, offset = self.image.symbol_at(self.uc.reg_read(arm64.UC_ARM64_REG_PC))
            raise Refused(f"{self.image.symbol_at(function)[0]} on CPU {cpu} of {self.cpus} reached {name}+{offset:#x} "
                          f"after a call in {self.caller()}, which is neither executed nor replaced ({error})") from None
        return self.uc.reg_read(arm64.UC_ARM64_REG_X0)

    def misses(self):
        """Return the coherence misses since the last reset."""
        return self.model.misses[:self.model.nr_misses]

    def caller(self):
        """Return the name of the function that called a stub."""
        return self.image.symbol_at(self.uc.reg_read(arm64.UC_ARM64_REG_LR))[0]

    def get(self, address, size=8):
        """Return the number of that many bytes in memory, as no CPU."""
        return int.from_bytes(self.uc.mem_read(address, size), "little")

    def put(self, address, value, size=8):
        """Write a number of that many bytes to memory, as no CPU."""
        self.uc.mem_write(address, (value & (1 << 8 * size) - 1).to_bytes(size, "little"))
