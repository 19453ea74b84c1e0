# SPDX-License-Identifier: GPL-2.0
"""The instrument "lines": its model of caches, and its emulator with a planted kernel whose misses are known."""

import random
import struct
import subprocess
from pathlib import Path

import pytest

from harness.bench import build, plan as plans
from harness.bench.cachelines.kernel import Slab
from harness.bench.cachelines.machine import (BARRIER, EXCLUSIVE_LOAD, PREFETCH, RET, RMW, Image, Machine,
                                              instruction_class)
from harness.bench.cachelines.run import CASES
from harness.settings import Refused

SCRIPT = """
SECTIONS {
	. = 0xffff800080000000; _text = .;
	.text : { *(.text) }
	. = ALIGN(4096); __per_cpu_start = .; .data..percpu : { *(.data..percpu) } __per_cpu_end = .;
	.data : { *(.data .data.* .rodata .rodata.*) } .bss : { *(.bss .bss.*) } . = ALIGN(4096); _end = .;
}
"""
REAL = {"count_together", "count_apart", "count_percpu", "read_total", "add_total", "_raw_spin_lock", "locked",
        "call_stub", "call_forbidden", "zero_lines", "prefetch_total"}
CLANG = ("clang", "--target=aarch64-linux-gnu")


class Planted:
    """The planted kernel, and machines that have it."""

    def __init__(self, folder):
        """Compile both."""
        vmlinux = folder / "vmlinux"
        (folder / "script").write_text(SCRIPT)
        subprocess.run([*CLANG, "-O2", "-ffreestanding", "-fno-pic", "-fno-inline", "-fno-optimize-sibling-calls",
                        "-mgeneral-regs-only", "-c", Path(__file__).with_name("planted.c"), "-o", f"{vmlinux}.o"],
                       check=True)
        subprocess.run(["ld.lld", "-T", folder / "script", "-o", vmlinux, f"{vmlinux}.o"], check=True)
        (folder / "include/generated").mkdir(parents=True)
        (folder / "include/generated/asm-offsets.h").write_text(
            "#define TSK_TI_CPU 16 /* */\n#define TSK_TI_PREEMPT 8 /* */\n")
        self.library, self.image = build.cache_model(folder / "model.so"), Image(vmlinux)

    def machine(self, cpus=2, stubs=None, warm=True):
        """A machine, after each CPU has called the functions once, if it is warm."""
        made = Machine(self.library, self.image, cpus, REAL, stubs or {})
        for name in ("count_together", "count_apart", "add_total", "locked", "count_percpu") if warm else ():
            for cpu in range(cpus):
                made.call(cpu, 0, self.image.address(name), cpu)
        made.model.reset()
        return made

    def count(self, names, times=100, cpus=2):
        """What `times` calls of functions by CPUs in turn do, as struct counts."""
        machine = self.machine(cpus)
        for number in range(times):
            for name in names.split():
                machine.call(number % cpus, 1, self.image.address(name), number % cpus)
        return machine.model.counts[1]

    def misses(self, accesses):
        """Let 4 CPUs read ("r") or write ("w") offsets of a line that nobody has touched: (CPU, what, offset). Returns
        read and write misses."""
        machine = self.machine(4, warm=False)
        for machine.model.cpu, what, offset in accesses:
            machine.access(self.image.address("together") + offset, 8, what == "w")
        counts = machine.model.counts[machine.model.kind]
        return counts.read_misses, counts.write_misses


@pytest.fixture(name="planted", scope="module")
def planted_kernel(tmp_path_factory):
    """The planted kernel."""
    return Planted(tmp_path_factory.mktemp("planted"))


def test_same_as_by_sets(planted):
    """Random accesses have the misses that a simple model with sets of CPUs counts. One that crosses a line touches
    both."""
    rng = random.Random(3)
    have, lost, owner, expected = {}, {}, {}, [0, 0]
    some = [(rng.randrange(4), rng.choice("rrw"), 64 * rng.randrange(3)) for _ in range(3000)]
    for cpu, what, line in some:
        mine, gone = have.setdefault(line, set()), lost.setdefault(line, set())
        others = mine - {cpu}
        if what == "w":
            expected[1] += bool(others)
            gone |= others
            have[line], owner[line] = {cpu}, cpu
        elif cpu not in mine:
            expected[0] += bool(others) and (owner.get(line) is not None or cpu in gone)
            owner[line] = None if others else cpu
            mine.add(cpu)
        gone.discard(cpu)
    assert planted.misses(some) == tuple(expected)
    assert planted.misses([(0, "w", 60), (1, "w", 60)]) == (0, 2)


@pytest.mark.parametrize("names, times, cpus, expected", [
    # Two counters in one line: a read miss and a write miss each time. The same apart: none.
    ("count_together", 100, 2, {"read_misses": 100, "write_misses": 100}),
    ("count_apart", 100, 2, {"read_misses": 0, "write_misses": 0, "lines": 100, "lines_written": 100}),
    ("count_percpu", 100, 2, {"read_misses": 0, "write_misses": 0}),
    # A load-exclusive and a store-exclusive are one read-modify-write and one write miss, not a read miss too.
    ("add_total", 100, 2, {"rmw": 100, "read_misses": 0, "write_misses": 100, "barriers": 100}),
    # A prefetch for writing is a write miss, and then neither the read nor the write is one. Alone, it writes nothing.
    ("prefetch_total", 100, 2, {"read_misses": 0, "write_misses": 100, "lines_written": 0}),
    ("prefetch_total read_total add_total", 100, 2, {"read_misses": 0, "write_misses": 100, "lines_written": 100}),
    # A lock that all CPUs take moves with each operation.
    ("locked", 128, 8, {"read_misses": 0, "write_misses": 128, "locks": 128}),
    # Lines that are only read stay where they are.
    ("read_total", 80, 8, {"read_misses": 7, "write_misses": 0})])
def test_counts(planted, names, times, cpus, expected):
    """Functions whose misses are known."""
    counts = planted.count(names, times, cpus)
    assert {field: getattr(counts, field) for field in expected} == expected


def test_calls(planted):
    """Each CPU has a percpu variable of its own. The number of instructions is that of the words on the way. A miss has
    the address and the function. DC ZVA, which has no hook, is prohibited."""
    image, machine = planted.image, planted.machine(3)
    assert [machine.call(cpu, 1, image.address("count_percpu")) for cpu in (0, 0, 1)] == [3, 4, 3]
    length = list(image.words[(image.address("read_total") - image.base) // 4:]).index(RET) + 1
    assert planted.count("read_total").instructions == 100 * length
    machine = planted.machine()
    for cpu in (0, 1):
        machine.call(cpu, 1, image.address("count_together"), cpu)
    miss = machine.misses()[-1]
    assert (image.symbol_at(miss.addr), image.symbol_at(image.base + miss.pc)[0], miss.cpu) == (
        ("together", 8), "count_together", 1)
    assert machine.call(0, 1, image.address("zero_lines")) == 16


def test_plans():
    """The plans know the cases."""
    assert plans.LINES == tuple(CASES)


def test_stub(planted):
    """A stub gets arguments and returns a value; what it raises comes out of the call. A function that is neither
    executed nor replaced is an error with its name."""
    def fail(*_):
        raise Refused("no")
    function = planted.image.address("call_stub")
    assert planted.machine(stubs={"stub": lambda value, *_: 2 * value}).call(0, 1, function, 21) == 43
    with pytest.raises(Refused, match="^no$"):
        planted.machine(stubs={"stub": fail}).call(0, 1, function, 21)
    with pytest.raises(Refused, match=r"^call_forbidden on CPU 1 of 2 reached forbidden\+0x0 after a call in"):
        planted.machine().call(1, 1, planted.image.address("call_forbidden"))


INSTRUCTIONS = {
    0: ("ldr x0, [x1]", "str x0, [x1]", "ldp x0, x1, [x2]", "stp x0, x1, [x2, #16]!", "prfm pldl1keep, [x0]",
        "ldr x0, [x1, x2]", "isb", "add x0, x1, x2", "ldar x0, [x1]", "ldapr x0, [x1]", "stlr x0, [x1]",
        "stlrb w0, [x1]"),
    PREFETCH: ("prfm pstl1strm, [x0]", "prfm pstl1keep, [sp, #64]"),
    EXCLUSIVE_LOAD: ("ldxr x0, [x1]", "ldxp x0, x2, [x1]", "ldaxrb w0, [x1]"),
    RMW: ("stxr w0, x1, [x2]", "stxp w0, x1, x3, [x2]", "cas x0, x1, [x2]", "ldadd x0, x1, [x2]", "stclr x0, [x2]",
          "caspa x0, x1, x2, x3, [x4]", "ldseta w0, w1, [x2]", "stlxr w0, w1, [x2]", "swpal x0, x1, [x2]"),
    BARRIER: ("dmb ish", "dmb ishld", "dsb ishst")}


def test_classes(tmp_path):
    """Each instruction has the class that it should have."""
    source, texts = tmp_path / "words.s", [(text, kind) for kind, some in INSTRUCTIONS.items() for text in some]
    source.write_text("".join(text + "\n" for text, _ in texts))
    subprocess.run([*CLANG, "-march=armv8.3-a", "-c", source, "-o", f"{source}.o"], check=True)
    subprocess.run(["llvm-objcopy", "-O", "binary", "-j", ".text", f"{source}.o", f"{source}.bin"], check=True)
    words = [word for word, in struct.iter_unpack("<I", (tmp_path / "words.s.bin").read_bytes())]
    assert [(text, instruction_class(word)) for (text, _), word in zip(texts, words, strict=True)] == texts


def test_slab(planted):
    """Objects do not overlap, also when other CPUs free them; a CPU gets back what it has freed; a second free is
    refused."""
    machine = planted.machine(warm=False)
    slab, rng, live = Slab(machine), random.Random(5), []
    for _ in range(2000):
        machine.cpu = rng.randrange(2)
        if live and rng.random() < 0.4:
            slab.free(live.pop(rng.randrange(len(live)))[0])
        else:
            size = rng.choice((4, 24, 80, 408, 3000, 10000))
            live.append((slab.kmalloc(size), size))
    live.sort()
    assert all(base + size <= following for (base, size), (following, _) in zip(live, live[1:]))
    base = slab.kmalloc(100)
    slab.free(base)
    assert slab.kmalloc(100) == base
    slab.free(base)
    with pytest.raises(Refused, match="which is no object"):
        slab.free(base)
