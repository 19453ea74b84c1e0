# SPDX-License-Identifier: GPL-2.0
"""The instrument "lines": its model of caches, and its emulator with a planted kernel whose misses are known."""

import random
import struct
import subprocess

import pytest

from bench.host import build, plan as plans
from bench.host.cachelines.cases import CASES
from bench.host.cachelines.image import (BARRIER, EXCLUSIVE_LOAD, PREFETCH, RET, RMW, Image, instruction_class,
                                         layouts)
from bench.host.cachelines.stand_ins import Slab
from bench.host.cachelines.machine import Machine, load_model
from harness.settings import Refused

SCRIPT = """
SECTIONS {
	. = 0xffff800080000000; _text = .; _stext = .;
	.text : { *(.text) } _etext = .; _sinittext = .; _einittext = .;
	. = ALIGN(4096); __per_cpu_start = .; .data..percpu : { *(.data..percpu) } __per_cpu_end = .;
	.data : { *(.data .data.* .rodata .rodata.*) } .bss : { *(.bss .bss.*) } . = ALIGN(4096); _end = .;
}
"""
REAL = {"count_together", "count_apart", "count_percpu", "read_total", "add_total", "_raw_spin_lock",
        "_raw_spin_unlock", "locked", "call_stub", "call_forbidden", "zero_lines", "prefetch_total"}
CLANG = ("clang", "--target=aarch64-linux-gnu")


class Planted:
    """The model, the planted kernel, and machines that have it."""

    def __init__(self, folder):
        """Compile both."""
        vmlinux = folder / "vmlinux"
        (folder / "script").write_text(SCRIPT)
        subprocess.run([*CLANG, "-O2", "-ffreestanding", "-fno-pic", "-fno-inline", "-fno-optimize-sibling-calls",
                        "-mgeneral-regs-only", "-c", build.CACHELINES / "planted.c", "-o", f"{vmlinux}.o"], check=True)
        subprocess.run(["ld.lld", "-T", folder / "script", "-o", vmlinux, f"{vmlinux}.o"], check=True)
        (folder / "include/generated").mkdir(parents=True)
        (folder / "include/generated/asm-offsets.h").write_text(
            "#define TSK_TI_CPU 16 /* */\n#define TSK_TI_PREEMPT 8 /* */\n")
        self.model, self.image = load_model(build.cache_model(folder / "model.so")), Image(vmlinux)

    def machine(self, cpus=2, stubs=None, warm=True):
        """A machine, after each CPU has called the functions once, if it is warm."""
        made = Machine(self.model, self.image, cpus, REAL, stubs or {})
        for name in ("count_together", "count_apart", "add_total", "locked", "count_percpu") if warm else ():
            for cpu in range(cpus):
                made.call(cpu, 0, self.image.address(name), cpu)
        self.model.model_reset()
        return made

    def count(self, names, times=100, cpus=2):
        """What `times` calls of functions by CPUs in turn do, as struct counts."""
        machine = self.machine(cpus)
        for number in range(times):
            for name in names.split():
                machine.call(number % cpus, 1, self.image.address(name), number % cpus)
        return machine.counts()[1]

    def misses(self, accesses):
        """Let 4 CPUs read ("r") or write ("w") offsets of a line that nobody has touched: (CPU, what, offset). Returns
        read and write misses."""
        machine, start = self.machine(4, warm=False), self.image.address("together")
        for cpu, what, offset in accesses:
            self.model.model_access(cpu, start + offset, 8, what == "w")
        counts = [machine.counts()[kind] for kind in range(8)]
        return sum(c.read_misses for c in counts), sum(c.write_misses for c in counts)


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
    assert names != "locked" or 10 < counts.hold < 40


def test_calls(planted):
    """Each CPU has a percpu variable of its own. The number of instructions is that of the words on the way. A miss has
    the address and the function. DC ZVA, which has no hook, is prohibited."""
    image, machine = planted.image, planted.machine(3)
    assert [machine.call(cpu, 1, image.address("count_percpu")) for cpu in (0, 0, 1)] == [3, 4, 3]
    length = list(image.words(image.address("read_total"), 64)).index(RET) + 1
    assert planted.count("read_total").instructions == 100 * length
    machine = planted.machine()
    for cpu in (0, 1):
        machine.call(cpu, 1, image.address("count_together"), cpu)
    miss = machine.misses()[-1]
    assert (image.symbol_at(miss.addr), image.symbol_at(image.base + miss.pc)[0], miss.cpu) == (
        ("together", 8), "count_together", 1)
    assert machine.call(0, 1, image.address("zero_lines")) == 16


def test_stub(planted):
    """A stub gets arguments and returns a value; what it raises comes out of the call. A function that is neither
    executed nor replaced is an error with its name."""
    def fail(_):
        raise Refused("no")
    function = planted.image.address("call_stub")
    assert planted.machine(stubs={"stub": lambda m: 2 * m.argument(0)}).call(0, 1, function, 21) == 43
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


@pytest.mark.parametrize("kind", INSTRUCTIONS)
def test_classes(tmp_path, kind):
    """Each instruction has the class that it should have."""
    source, texts = tmp_path / "words.s", INSTRUCTIONS[kind]
    source.write_text("".join(text + "\n" for text in texts))
    subprocess.run([*CLANG, "-march=armv8.3-a", "-c", source, "-o", f"{source}.o"], check=True)
    subprocess.run(["llvm-objcopy", "-O", "binary", "-j", ".text", f"{source}.o", f"{source}.bin"], check=True)
    words = [word for word, in struct.iter_unpack("<I", (tmp_path / "words.s.bin").read_bytes())]
    assert [(text, instruction_class(word)) for text, word in zip(texts, words, strict=True)] == [
        (text, kind) for text in texts]


def test_layouts(tmp_path):
    """Offsets and sizes of members, also of pointers to functions and in anonymous unions."""
    (tmp_path / "a.c").write_text("struct one { long a; union { int b; void *c; }; int (*d)(long); char e[3]; } one;\n")
    subprocess.run([*CLANG, "-g", "-c", tmp_path / "a.c", "-o", tmp_path / "a.o"], check=True)
    assert layouts(tmp_path / "a.o", ["one"]) == {
        "one": (0, 32), "one.a": (0, 8), "one.b": (8, 4), "one.c": (8, 8), "one.d": (16, 8), "one.e": (24, 3)}
    with pytest.raises(Refused, match="has no struct two"):
        layouts(tmp_path / "a.o", ["two"])


def test_slab(planted):
    """Objects do not overlap, also when other CPUs free them; a CPU gets back what it has freed; a second free is
    refused."""
    machine, slab, rng, live = planted.machine(warm=False), Slab(), random.Random(5), []
    for _ in range(2000):
        machine.cpu = rng.randrange(2)
        if live and rng.random() < 0.4:
            slab.free(machine, live.pop(rng.randrange(len(live)))[0])
        else:
            size = rng.choice((4, 24, 80, 408, 3000, 10000))
            live.append((slab.kmalloc(machine, size, "test"), size))
    live.sort()
    assert all(base + size <= following for (base, size), (following, _) in zip(live, live[1:]))
    base = slab.kmalloc(machine, 100, "test")
    slab.free(machine, base)
    assert slab.kmalloc(machine, 100, "test") == base
    slab.free(machine, base)
    with pytest.raises(Refused, match="which is no object"):
        slab.free(machine, base)


def test_plans():
    """The plans know the cases."""
    assert plans.LINES == tuple(CASES)
