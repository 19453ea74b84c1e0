# SPDX-License-Identifier: GPL-2.0
"""CPUs that execute functions of a kernel image, one after the other, with the model of their caches."""

import array
import ctypes
import re
import struct

import unicorn
from unicorn import arm64_const as arm64

from harness.settings import Refused

from .image import LOCK, NOP, RET, STUB, UNLOCK, instruction_class

PAGE = 4096
LINE = 64  # bytes, as LINE of model.h
# Where memory lies that is not part of the kernel image.
HEAP, HEAP_SIZE = 0xFFFF_0000_0000_0000, 2 << 30
PERCPU = 0xFFFF_1000_0000_0000
PRIVATE = 0xFFFF_2000_0000_0000
PRIVATE_SIZE = 64 << 10  # of one CPU: its task, room for arguments, and its stack
ARGUMENTS = 16 << 10
ENTRY = 0xFFFF_3000_0000_0000
MASK = (1 << 64) - 1

# Sets SP_EL0 (the task), TPIDR_EL1 (the percpu offset) and SP from x9 to x11, and calls x12.
TRAMPOLINE = (0xD5184109, 0xD518D08A, 0x9100017F, 0xD63F0180, NOP)
# Sets TCR_EL1 to x0: the kernel reads from it that addresses have 48 bits, as on a Cortex-A72. The MMU stays off.
SET_TCR = (0xD5182040, NOP)
TCR_48_BITS = 16 << 16 | 16
# preempt_count of a task that may be preempted and need not: see PREEMPT_ENABLED of arm64.
PREEMPT_ENABLED = 1 << 32


class Counts(ctypes.Structure):
    """What all operations of one kind did: struct counts of model.h."""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "instructions", "read_misses", "write_misses", "rmw", "barriers", "lines", "lines_written", "locks", "hold")]


class Miss(ctypes.Structure):
    """A coherence miss: struct miss of model.h."""
    _fields_ = [("addr", ctypes.c_uint64), ("pc", ctypes.c_uint32), ("is_write", ctypes.c_uint8),
                ("kind", ctypes.c_uint8), ("cpu", ctypes.c_uint16)]


# A stub that model.c calls with the address of the function.
STUB_CALL = ctypes.CFUNCTYPE(None, ctypes.c_uint64)


def load_model(path):
    """Return the library made of model.c."""
    model = ctypes.CDLL(path)
    u64, unsigned, pointer = ctypes.c_uint64, ctypes.c_uint, ctypes.c_void_p
    for name, result, arguments in (
            ("model_init", ctypes.c_int, (u64, u64, ctypes.c_char_p, u64, u64, pointer, STUB_CALL)),
            ("model_add", ctypes.c_int, (u64, u64)), ("model_start", ctypes.c_int, (pointer,)),
            ("model_reset", None, ()), ("model_counts", ctypes.POINTER(Counts), ()),
            ("model_misses", ctypes.POINTER(Miss), ()),
            ("model_nr_misses", u64, ()), ("model_access", None, (unsigned, u64, u64, ctypes.c_bool)),
            ("model_call", ctypes.c_int, (pointer, unsigned, unsigned, pointer, u64, pointer, unsigned, pointer))):
        function = getattr(model, name)
        function.restype, function.argtypes = result, arguments
    return model


class Machine:
    """The CPUs of a kernel image. There is one at a time: the model has one set of caches."""

    def __init__(self, model, image, cpus, real, stubs):
        """real: names of functions to execute; stubs: names to (handler or None) for those that are replaced."""
        self.model, self.image, self.cpus, self.cpu, self._failure = model, image, cpus, 0, None
        self.stubs = {image.address(name): handler for name, handler in stubs.items() if name in image.symbols}
        # A function can have several names.
        self._real = {address: size for name, address, size in image.functions()
                      if name in real and address not in self.stubs}
        self.uc = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.uc.ctl_set_cpu_model(arm64.UC_CPU_ARM64_A72)
        self.uc.mem_map(ENTRY, PAGE)
        self.uc.mem_write(ENTRY, struct.pack(f"<{len(TRAMPOLINE)}I", *TRAMPOLINE))
        self.uc.mem_write(ENTRY + 64, struct.pack(f"<{len(SET_TCR)}I", *SET_TCR))
        self.uc.reg_write(arm64.UC_ARM64_REG_X0, TCR_48_BITS)
        self.uc.emu_start(ENTRY + 64, ENTRY + 64 + 4)
        # The model keeps the first two. It sets X0 to X12 for a call.
        self._kept = (self._classes().tobytes(), STUB_CALL(self._stub), (ctypes.c_int * 32)(
            *(arm64.UC_ARM64_REG_X0 + number for number in range(29)), arm64.UC_ARM64_REG_X29, arm64.UC_ARM64_REG_X30,
            arm64.UC_ARM64_REG_SP))
        classes, stub, registers = self._kept
        self._check(model.model_init(image.base, len(classes) // 2, classes, ENTRY, ENTRY + 4 * (len(TRAMPOLINE) - 1),
                                     registers, stub))
        self._modelled(image.base, image.address("_end") - image.base)
        self._modelled(HEAP, HEAP_SIZE)
        self._load()
        self._make_cpus()
        self._handle = self.uc._uch  # pylint: disable=protected-access
        self._check(model.model_start(self._handle))

    @staticmethod
    def _check(error):
        """Refuse to go on if a function of the model has failed."""
        if error:
            raise Refused("no memory for the model of caches")

    def _modelled(self, base, size):
        """Map memory whose lines are modelled."""
        self.uc.mem_map(base, size)
        self._check(self.model.model_add(base, size))

    def _texts(self):
        """Return the ranges of addresses that have code."""
        return [(self.image.address(low), self.image.address(high))
                for low, high in (("_stext", "_etext"), ("_sinittext", "_einittext"))]

    def _classes(self):
        """Return what model.c must know of each instruction of a function that is executed, as bits of a class."""
        base = self.image.base
        classes = array.array("H", bytes(2 * ((self._texts()[-1][1] - base) // 4)))
        for name, address, size in self.image.functions():
            if address not in self._real:
                continue
            first = (address - base) // 4
            for index, word in enumerate(self.image.words(address, size)):
                classes[first + index] |= instruction_class(word)
            if re.fullmatch(r"_raw_(spin|read|write)_(try)?lock(_bh|_irq|_irqsave|_irq_disable)?", name):
                classes[first] |= LOCK
            elif re.fullmatch(r"_raw_(spin|read|write)_unlock\w*", name):
                classes[first] |= UNLOCK
        for address, handler in self.stubs.items():
            if handler:
                classes[(address - base) // 4] = STUB
        return classes

    def _load(self):
        """Put the image into memory, with an undefined instruction at the start of each function that is neither real
        nor a stub."""
        self.uc.mem_write(self.image.base, self.image.memory)
        texts = self._texts()
        for _, address, size in self.image.functions():
            if address in self._real:
                self._replace_privileged(address, size)
            elif address in self.stubs:
                self.put(address, RET, 4)
            elif any(low <= address < high for low, high in texts):
                self.put(address, 0, 4)

    def _replace_privileged(self, address, size):
        """Replace what the emulator cannot show: TLB invalidation, and zeroing of whole lines, which has no hook."""
        for index, word in enumerate(self.image.words(address, size)):
            if word & 0xFFF8F000 == 0xD5088000:  # TLBI
                self.put(address + 4 * index, NOP, 4)
            elif word & 0xFFFFFFE0 == 0xD53B00E0:  # MRS Xt, DCZID_EL0: say that DC ZVA is prohibited
                self.put(address + 4 * index, 0xD2800200 | word & 31, 4)  # MOV Xt, #16

    def _make_cpus(self):
        """Give each CPU its percpu memory, task and stack, and tell the kernel how many there are."""
        image, cpus = self.image, self.cpus
        first = image.address("__per_cpu_start")
        size = image.address("__per_cpu_end") - first
        self.stride = -(-size // PAGE) * PAGE
        self._modelled(PERCPU, self.stride * cpus)
        self.uc.mem_map(PRIVATE, PRIVATE_SIZE * cpus)
        content = bytes(self.uc.mem_read(first, size))
        for name in ("nr_cpu_ids", "__num_online_cpus", "__num_possible_cpus"):
            self.put(image.address(name), cpus, 4)
        for name in ("__cpu_possible_mask", "__cpu_online_mask", "__cpu_present_mask", "__cpu_active_mask"):
            self.uc.mem_write(image.address(name), ((1 << cpus) - 1).to_bytes(64, "little"))
        self.states = []
        for cpu in range(cpus):
            base, private = PERCPU + self.stride * cpu, PRIVATE + PRIVATE_SIZE * cpu
            self.uc.mem_write(base, content)
            self.put(image.address("__per_cpu_offset") + 8 * cpu, base - first & MASK)
            self.put(private + image.offsets["TSK_TI_PREEMPT"], PREEMPT_ENABLED)
            self.put(private + image.offsets["TSK_TI_CPU"], cpu, 4)
            self.states.append((ctypes.c_uint64 * 3)(private, base - first & MASK, private + PRIVATE_SIZE - 64))

    def _stub(self, address):
        """Run the handler of a function that is replaced; model.c calls this."""
        try:
            result = self.stubs[address](self)
        except Exception as error:  # pylint: disable=broad-except # ctypes would drop it
            self._failure = error
            self.uc.emu_stop()
            return
        self.uc.reg_write(arm64.UC_ARM64_REG_X0, (result or 0) & MASK)

    def call(self, cpu, kind, function, *args):
        """Let a CPU call the function at an address. Returns X0.

        Refuses if it reaches anything that is neither real nor a stub.
        """
        self.cpu, result = cpu, ctypes.c_uint64()
        error = self.model.model_call(self._handle, cpu, kind, self.states[cpu], function,
                                      (ctypes.c_uint64 * len(args))(*args), len(args), ctypes.byref(result))
        if self._failure:
            failure, self._failure = self._failure, None
            raise failure
        if error:
            name, offset = self.image.symbol_at(self.uc.reg_read(arm64.UC_ARM64_REG_PC))
            raise Refused(f"{self.image.symbol_at(function)[0]} on CPU {cpu} of {self.cpus} reached {name}+{offset:#x} "
                      f"after a call in {self.caller()}, which is neither executed nor replaced "
                      f"({unicorn.UcError(error)})")
        return result.value

    def counts(self):
        """Return the counts of each kind."""
        return self.model.model_counts()

    def misses(self):
        """Return the coherence misses since the last reset."""
        number = self.model.model_nr_misses()
        return self.model.model_misses()[:number] if number else []

    def argument(self, number):
        """Return X0, X1 ... in a stub."""
        return self.uc.reg_read(arm64.UC_ARM64_REG_X0 + number)

    def caller(self):
        """Return the name of the function that called a stub."""
        return self.image.symbol_at(self.uc.reg_read(arm64.UC_ARM64_REG_LR))[0]

    def arguments_at(self, cpu):
        """Return the address of memory of a CPU for arguments, which is not modelled."""
        return PRIVATE + PRIVATE_SIZE * cpu + ARGUMENTS

    def get(self, address, size=8):
        """Return the number of that many bytes in memory, as no CPU."""
        return int.from_bytes(self.uc.mem_read(address, size), "little")

    def put(self, address, value, size=8):
        """Write a number of that many bytes to memory, as no CPU."""
        self.uc.mem_write(address, (value & (1 << 8 * size) - 1).to_bytes(size, "little"))

    def string(self, address):
        """Return a string in memory, as no CPU."""
        return bytes(self.uc.mem_read(address, 64)).split(b"\0")[0].decode(errors="replace")
