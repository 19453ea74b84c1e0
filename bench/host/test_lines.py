#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: GPL-2.0
"""Test the instrument "lines": its model of caches, and its emulator with a planted kernel whose misses are known.

Last line "N passed, N failed". Exit code: 0 all passed, 1 not.
"""

import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "cachelines"))

import plan as plans
from cases import CASES
from image import ACQUIRE, BARRIER, Bad, EXCLUSIVE_LOAD, Image, PREFETCH, RELEASE, RMW, instruction_class
from kernel import Slab
from machine import Machine, load_model
from names import short

SCRIPT = """
SECTIONS {
	. = 0xffff800080000000; _text = .; _stext = .;
	.text : { *(.text) } _etext = .; _sinittext = .; _einittext = .;
	. = ALIGN(4096); __per_cpu_start = .; .data..percpu : { *(.data..percpu) } __per_cpu_end = .;
	.data : { *(.data .data.* .rodata .rodata.*) } .bss : { *(.bss .bss.*) } . = ALIGN(4096); _end = .;
}
"""
REAL = {"count_together", "count_apart", "count_percpu", "read_total", "add_total", "_raw_spin_lock", "_raw_spin_unlock", "locked",
        "call_stub", "call_forbidden", "zero_lines", "prefetch_total"}
FOLDER = tempfile.TemporaryDirectory()


def execute(*command):
    """Run a tool."""
    subprocess.run(command, check=True)


def build():
    """Compile the model and the planted kernel. Returns both."""
    folder = FOLDER.name
    library, vmlinux = os.path.join(folder, "model.so"), os.path.join(folder, "vmlinux")
    execute("gcc", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-o", library, os.path.join(HERE, "cachelines/model.c"),
            os.path.join(HERE, "cachelines/caches.c"), "-l:libunicorn.so.2")
    with open(os.path.join(folder, "script"), "w", encoding="ascii") as file:
        file.write(SCRIPT)
    execute("clang", "--target=aarch64-linux-gnu", "-O2", "-ffreestanding", "-fno-pic", "-fno-inline", "-fno-optimize-sibling-calls", "-mgeneral-regs-only", "-c",
        os.path.join(HERE, "cachelines/planted.c"), "-o", vmlinux + ".o")
    execute("ld.lld", "-T", os.path.join(folder, "script"), "-o", vmlinux, vmlinux + ".o")
    os.makedirs(os.path.join(folder, "include/generated"))
    with open(os.path.join(folder, "include/generated/asm-offsets.h"), "w", encoding="ascii") as file:
        file.write("#define TSK_TI_CPU 16 /* */\n#define TSK_TI_PREEMPT 8 /* */\n")
    return load_model(library), Image(vmlinux)


MODEL, IMAGE = build()


class Model(unittest.TestCase):
    """Single accesses: which of them are coherence misses."""

    def setUp(self):
        """A machine whose memory nobody has touched."""
        self.machine = Machine(MODEL, IMAGE, 4, 64, REAL, {})
        self.line = IMAGE.address("together")

    def misses(self, *accesses):
        """Let CPUs read ("r") or write ("w") offsets of a line: (CPU, what, offset). Returns read and write misses."""
        MODEL.model_reset()
        for cpu, what, offset in accesses:
            MODEL.model_access(cpu, self.line + offset, 8, what == "w")
        counts = [self.machine.emulator.counts()[kind] for kind in range(8)]
        return sum(c.read_misses for c in counts), sum(c.write_misses for c in counts)

    def test_cold(self):
        """The first access to a line is no coherence miss, nor are later ones of the same CPU."""
        self.assertEqual(self.misses((0, "r", 0), (0, "w", 0), (0, "r", 8)), (0, 0))
        self.line += 64
        self.assertEqual(self.misses((1, "w", 0), (1, "r", 0)), (0, 0))

    def test_read_of_modified(self):
        """A read of what another CPU has modified is one miss; both may read it then."""
        self.assertEqual(self.misses((0, "w", 0), (1, "r", 0), (0, "r", 0), (1, "r", 0)), (1, 0))

    def test_read_of_exclusive(self):
        """A read of what another CPU alone has read is one miss."""
        self.assertEqual(self.misses((0, "r", 0), (1, "r", 0)), (1, 0))

    def test_first_read_of_shared(self):
        """A CPU's first read of a line that several CPUs only read is none."""
        self.assertEqual(self.misses((0, "r", 0), (1, "r", 0), (2, "r", 0), (3, "r", 0)), (1, 0))

    def test_upgrade(self):
        """A write to a line that others have too is one write miss; the next write is none."""
        self.assertEqual(self.misses((0, "r", 0), (1, "r", 0), (0, "w", 0), (0, "w", 8)), (1, 1))

    def test_read_after_invalidation(self):
        """Each CPU that had the line reads it again: one miss each, also when another one was first."""
        self.misses((0, "r", 0), (1, "r", 0), (2, "r", 0))
        self.assertEqual(self.misses((0, "w", 0), (1, "r", 0), (2, "r", 0), (1, "r", 0)), (2, 1))

    def test_write_to_modified(self):
        """A write to what another CPU has modified is one write miss."""
        self.assertEqual(self.misses((0, "w", 0), (1, "w", 8), (0, "w", 0)), (0, 2))

    def test_two_lines(self):
        """An access that crosses a line touches both."""
        self.assertEqual(self.misses((0, "w", 60), (1, "w", 60)), (0, 2))

    def test_other_lines(self):
        """Lines do not disturb each other; with 128 bytes those two are one."""
        self.assertEqual(self.misses((0, "w", 0), (1, "w", 64), (0, "w", 0), (1, "w", 64)), (0, 0))
        self.machine = Machine(MODEL, IMAGE, 4, 128, REAL, {})
        self.line &= ~127
        self.assertEqual(self.misses((0, "w", 0), (1, "w", 64), (0, "w", 0), (1, "w", 64)), (0, 3))

    def test_same_as_by_sets(self):
        """Random accesses: as a model that keeps sets of CPUs says."""
        rng = random.Random(3)
        have, lost, owner, expected = {}, {}, {}, [0, 0]
        accesses = [(rng.randrange(4), rng.choice("rrw"), 64 * rng.randrange(3)) for _ in range(3000)]
        for cpu, what, line in accesses:
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
        self.assertEqual(self.misses(*accesses), tuple(expected))


class Planted(unittest.TestCase):
    """Code whose misses, instructions and locks are known."""

    def machine(self, cpus=2, stubs=None):
        """A machine, after each CPU has called the functions once."""
        made = Machine(MODEL, IMAGE, cpus, 64, REAL, stubs or {})
        for name in ("count_together", "count_apart", "add_total", "locked", "count_percpu"):
            for cpu in range(cpus):
                made.call(cpu, 0, IMAGE.address(name), cpu)
        MODEL.model_reset()
        return made

    def count(self, name, times=100, cpus=2):
        """What `times` calls by CPUs in turn do, as struct counts."""
        machine = self.machine(cpus)
        for number in range(times):
            machine.call(number % cpus, 1, IMAGE.address(name), number % cpus)
        return machine.emulator.counts()[1]

    def test_false_sharing(self):
        """Two counters in one line: a read miss and a write miss each time."""
        counts = self.count("count_together")
        self.assertEqual((counts.ops, counts.read_misses, counts.write_misses), (100, 100, 100))

    def test_padded(self):
        """The same apart: none."""
        counts = self.count("count_apart")
        self.assertEqual((counts.ops, counts.read_misses, counts.write_misses), (100, 0, 0))
        self.assertEqual((counts.touched, counts.written), (100, 100))

    def test_percpu(self):
        """A percpu variable: none, and each CPU has its own."""
        counts = self.count("count_percpu")
        self.assertEqual((counts.read_misses, counts.write_misses), (0, 0))
        machine = self.machine(3)
        self.assertEqual([machine.call(cpu, 1, IMAGE.address("count_percpu")) for cpu in (0, 0, 1)], [3, 4, 3])

    def test_atomic(self):
        """A load-exclusive and a store-exclusive are one read-modify-write and one write miss, not a read miss too."""
        counts = self.count("add_total")
        self.assertEqual((counts.rmw, counts.read_misses, counts.write_misses, counts.barriers), (100, 0, 100, 100))

    def test_prefetch(self):
        """A prefetch for writing is a write miss, and then neither the read nor the write is one. Alone, it writes nothing."""
        counts = self.count("prefetch_total")
        self.assertEqual((counts.read_misses, counts.write_misses, counts.written), (0, 100, 0))
        machine = self.machine()
        for number in range(100):
            for name in ("prefetch_total", "read_total", "add_total"):
                machine.call(number % 2, 1, IMAGE.address(name))
        counts = machine.emulator.counts()[1]
        self.assertEqual((counts.read_misses, counts.write_misses, counts.written), (0, 100, 100))

    def test_lock(self):
        """A lock that all CPUs take moves with each operation."""
        counts = self.count("locked", 128, 8)
        self.assertEqual((counts.read_misses, counts.write_misses, counts.locks, counts.acquires, counts.releases), (0, 128, 128, 128, 128))
        self.assertTrue(10 < counts.hold < 40, counts.hold)

    def test_readers(self):
        """Lines that are only read stay where they are."""
        machine = self.machine(8)
        for number in range(80):
            machine.call(number % 8, 1, IMAGE.address("read_total"))
        counts = machine.emulator.counts()[1]
        self.assertEqual((counts.read_misses, counts.write_misses), (7, 0))

    def test_instructions(self):
        """The number of instructions is that of the words on the way."""
        start = IMAGE.address("read_total")
        words = IMAGE.words(start, start + 64)
        length = next(number for number, word in enumerate(words) if word == 0xD65F03C0) + 1
        self.assertEqual(self.count("read_total").insns, 100 * length)

    def test_where(self):
        """A miss has the address and the function."""
        machine = self.machine()
        machine.call(0, 1, IMAGE.address("count_together"), 0)
        machine.call(1, 1, IMAGE.address("count_together"), 1)
        found = [(IMAGE.symbol_at(miss.addr), IMAGE.symbol_at(machine.text + miss.pc)[0], miss.cpu) for miss in machine.emulator.misses()]
        self.assertEqual(found[-1], (("together", 8), "count_together", 1))

    def test_stub(self):
        """A stub gets arguments and returns a value."""
        machine = self.machine(stubs={"stub": lambda m: 2 * m.argument(0)})
        self.assertEqual(machine.call(0, 1, IMAGE.address("call_stub"), 21), 43)

    def test_stub_fails(self):
        """What a stub raises comes out of the call."""
        def fail(_):
            raise Bad("no")
        machine = self.machine(stubs={"stub": fail})
        with self.assertRaisesRegex(Bad, "^no$"):
            machine.call(0, 1, IMAGE.address("call_stub"), 21)

    def test_unknown_function(self):
        """A function that is neither executed nor replaced is an error with its name."""
        with self.assertRaisesRegex(Bad, r"^call_forbidden on CPU 1 of 2 reached forbidden\+0x0 after a call in call_forbidden"):
            self.machine().call(1, 1, IMAGE.address("call_forbidden"))

    def test_zero_lines(self):
        """DC ZVA, which has no hook, is prohibited."""
        self.assertEqual(self.machine().call(0, 1, IMAGE.address("zero_lines")), 16)


class Parts(unittest.TestCase):
    """Instructions, names, slab and plans."""

    INSTRUCTIONS = (
        ("ldr x0, [x1]", 0), ("str x0, [x1]", 0), ("ldp x0, x1, [x2]", 0), ("stp x0, x1, [x2, #16]!", 0), ("prfm pstl1strm, [x0]", PREFETCH),
        ("prfm pstl1keep, [sp, #64]", PREFETCH), ("prfm pldl1keep, [x0]", 0),
        ("ldr x0, [x1, x2]", 0), ("isb", 0), ("add x0, x1, x2", 0), ("ldxr x0, [x1]", EXCLUSIVE_LOAD), ("ldaxrb w0, [x1]", EXCLUSIVE_LOAD | ACQUIRE),
        ("ldxp x0, x2, [x1]", EXCLUSIVE_LOAD), ("stxr w0, x1, [x2]", RMW), ("stlxr w0, w1, [x2]", RMW | RELEASE), ("stxp w0, x1, x3, [x2]", RMW),
        ("ldar x0, [x1]", ACQUIRE), ("stlr x0, [x1]", RELEASE), ("stlrb w0, [x1]", RELEASE), ("ldapr x0, [x1]", ACQUIRE),
        ("cas x0, x1, [x2]", RMW), ("casal x0, x1, [x2]", RMW | ACQUIRE | RELEASE), ("caspa x0, x1, x2, x3, [x4]", RMW | ACQUIRE),
        ("swpal x0, x1, [x2]", RMW | ACQUIRE | RELEASE), ("ldadd x0, x1, [x2]", RMW), ("stclr x0, [x2]", RMW), ("ldseta w0, w1, [x2]", RMW | ACQUIRE),
        ("dmb ish", BARRIER), ("dmb ishld", BARRIER), ("dsb ishst", BARRIER))

    def test_classes(self):
        """Each instruction has the class that it should have."""
        source = os.path.join(FOLDER.name, "words.s")
        with open(source, "w", encoding="ascii") as file:
            file.write("".join(text + "\n" for text, _ in self.INSTRUCTIONS))
        execute("clang", "--target=aarch64-linux-gnu", "-march=armv8.3-a", "-c", source, "-o", source + ".o")
        execute("llvm-objcopy", "-O", "binary", "-j", ".text", source + ".o", source + ".bin")
        with open(source + ".bin", "rb") as file:
            words = [word for word, in struct.iter_unpack("<I", file.read())]
        self.assertEqual([(text, instruction_class(word)) for (text, _), word in zip(self.INSTRUCTIONS, words, strict=True)], list(self.INSTRUCTIONS))

    def test_short(self):
        """Names of Rust without crates and generic arguments."""
        for name, expected in (
                ("<vmap_rust[2f48914c43bd9163]::block::Block>::alloc", "block::Block::alloc"),
                ("<vmap_rust[2f48914c43bd9163]::space::Space<vmap_rust[2f48914c43bd9163]::checked::CheckedTlb>>::free_areas", "space::Space::free_areas"),
                ("<vmap_rust::cache::Part>::take::<<vmap_rust::cache::RangeCache>::take<vmap_rust::space::X>::{closure#0}>", "cache::Part::take"),
                ("vmap_rust::grace::Node<vmap_rust::block::Block>", "block::Block"), ("vmap_rust::ffi::SPACE", "ffi::SPACE"),
                ("kernel::sync::lock::Lock<vmap_rust::blocks::Pool, kernel::sync::lock::spinlock::SpinLockBackend>", "Lock of blocks::Pool")):
            self.assertEqual(short(name), expected)

    def test_slab(self):
        """Objects do not overlap; a CPU gets back what it has freed; a second free is refused."""
        machine = Machine(MODEL, IMAGE, 2, 64, REAL, {})
        slab = Slab()
        rng = random.Random(5)
        live = []
        for _ in range(2000):
            machine.cpu = rng.randrange(2)
            if live and rng.random() < 0.4:
                slab.free(machine, live.pop(rng.randrange(len(live)))[0])
            else:
                size = rng.choice((4, 24, 80, 408, 3000, 10000))
                live.append((slab.kmalloc(machine, size, "test"), size))
        live.sort()
        for (base, size), (following, _) in zip(live, live[1:]):
            self.assertLessEqual(base + size, following)
        base = slab.kmalloc(machine, 100, "test")
        slab.free(machine, base)
        self.assertEqual(slab.kmalloc(machine, 100, "test"), base)
        slab.free(machine, base)
        with self.assertRaisesRegex(Bad, "which is no object"):
            slab.free(machine, base)

    def test_plans(self):
        """The plans know the cases; others are not asked of the emulator, nor its own of a guest."""
        self.assertEqual(plans.LINES, tuple(CASES))
        for made in (plans.quick(2), plans.full(2), plans.goals(2)):
            some = [p for p in made if p.instrument == "lines"]
            self.assertTrue(some)
            self.assertLessEqual({case for p in some for case in p.run.split(",")}, set(CASES))
            self.assertEqual({p.run for p in plans.selected(made, ["lines"], "pair*,area_pair")}, {"pair,pair_remote"})
            self.assertEqual({p.run for p in plans.selected(made, ["icount"], "pair,area_pair")}, {"area_pair"})
            self.assertEqual(plans.selected(made, ["lines"], "area_pair"), [])

    def test_metrics(self):
        """The goals about lines are about cases and metrics that are measured."""
        import goals
        from emulate import METRICS
        known = {f"{case} {metric}" for case in CASES for metric, _, _ in METRICS}
        some = [goal for goal in goals.GOALS if goal.instrument == "lines"]
        self.assertTrue(some)
        sizes = {(case, f"{p.cpus}x{p.cpus}") for p in plans.goals(2) if p.instrument == "lines" for case in p.run.split(",")}
        for goal in some:
            self.assertIn(goal.case, known)
            self.assertIn((goal.case.split()[0], goal.size), sizes)
            self.assertTrue(re.fullmatch(r"[\w., ]+", goal.goal), goal.goal)


def main():
    """Run all tests."""
    result = unittest.main(module="__main__", exit=False, verbosity=2).result
    failed = len({str(test) for test, _ in result.failures + result.errors})
    print(f"{result.testsRun - failed} passed, {failed} failed")
    return 1 if failed or not result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
