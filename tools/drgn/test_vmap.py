# SPDX-License-Identifier: GPL-2.0
"""Tests tools/vmap and its modules on the allocators themselves: test_space.c with those of bench/native, in a process that
waits. Each program has what a kernel has of its allocator: debug information, areas in each state, lib/maple_tree.c."""

import contextlib
import os
import platform
import re
import runpy
import subprocess
from pathlib import Path

import drgn
import pytest

import vmap_rust
from harness.patches import prepare
from harness.bench import native
from vmap import RbtreeVmap, vmallocinfo_line, vmap_allocator
from vmap_area import DAMAGE

# Where bench/native builds.
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="this machine is not x86-64")
TOOL = runpy.run_path(str(Path(__file__).parent.parent / "vmap"))
PAGE, MIB = 1 << 12, 1 << 20


@contextlib.contextmanager
def started(side):
    """Start the program with the areas of one allocator; gives it, with the addresses of its areas by their names."""
    prepare.prepare("source")
    with subprocess.Popen([native.build("check", f"space-{side}")], stdout=subprocess.PIPE, text=True) as process:
        try:
            words = process.stdout.read().split()
            prog = drgn.Program()
            prog.set_pid(process.pid)
            prog.load_debug_info(main=True)
            yield prog, dict(zip(words[::2], map(int, words[1::2])))
        finally:
            process.kill()


@pytest.fixture(name="rust", scope="module")
def rust_program():
    """The program with the allocator in Rust, and its areas."""
    # The stand-in of KVec is a vector of the library.
    vmap_rust.FIELDS["space"][1].update(cpu_others="blocks.cpus.others.buf.inner.ptr",
                                        batch_others="blocks.dir.batches.others.buf.inner.ptr")
    with started("rust") as found:
        yield found


@pytest.fixture(name="rbtree", scope="module")
def rbtree_program():
    """The program with the rb-trees, and its areas."""
    with started("rbtree") as found:
        yield found


@contextlib.contextmanager
def written(prog, address, size, number):
    """Write a number of ``size`` bytes for some time."""
    old = prog.read(address, size)
    with open(f"/proc/{prog.main_thread().tid}/mem", "r+b", buffering=0) as memory:
        os.pwrite(memory.fileno(), number.to_bytes(size, "little"), address)
        try:
            yield
        finally:
            os.pwrite(memory.fileno(), old, address)


def test_areas(rust):
    """All areas with their states, in the order of addresses."""
    prog, at = rust
    assert [area[:3] for area in vmap_allocator(prog).areas()] == [(at[name], at[name] + size, state) for name, size, state in (
        ("stack", 2 * PAGE, "busy"), ("lazy", 2 * PAGE, "lazy"), ("ram", 2 * PAGE, "busy"), ("unlinked", 2 * PAGE, "unlinked"),
        ("tree", 100 * MIB + PAGE, "busy"), ("tree_lazy", 90 * MIB + PAGE, "lazy"), ("whole", 70 * MIB + PAGE, "busy"),
        ("whole_lazy", 70 * MIB + PAGE, "lazy"))]


@pytest.mark.parametrize("name, inner, is_found, block", [
    ("tree", 100 * MIB, True, None), ("tree", -1, False, "stack"), ("stack", 2 * PAGE - 1, True, "stack"),
    ("ram", PAGE, True, "stack"), ("unlinked", 2 * PAGE, False, "stack"), ("stack", -1, False, None),
    ("stack", 512 << 30, False, None), ("whole", 70 * MIB + PAGE - 1, True, "whole"),
    ("whole", 70 * MIB + PAGE, False, "whole"), ("whole", 1024 * MIB - 1, False, "whole")])
def test_find(rust, name, inner, is_found, block):
    """Inner addresses lead to their area and block, those behind an area in its slot and behind the last slot to none."""
    prog, at = rust
    space = vmap_allocator(prog)
    assert getattr(space.find(at[name] + inner), "start", None) == (at[name] if is_found else None)
    assert getattr(space.block_at(at[name] + inner), "start", None) == at.get(block)


def test_stats(rust):
    """Numbers of areas, slots and counters."""
    prog, at = rust
    space = vmap_allocator(prog)
    wanted = {"busy": 4, "lazy": 3, "unlinked": 1, "blocks": 2, "blocks_held": 2, "blocks_dirty": 1, "slots_free": 252 + 10,
              "slots_free_bytes": 252 * 2 * PAGE + 10 * 80 * MIB, "slots_lazy": 1, "slots_batched": 1, "count_hit": 6,
              "count_refill": 2, "count_alloc_tree": 2, "count_retire_block": 2, "count_retire_tree": 1, "busy_bytes": 170 * MIB + 6 * PAGE}
    assert {name: space.stats()[name] for name in wanted} == wanted
    # The areas in the largest block came from CPU 1.
    assert [cpu["count_hit"] for cpu in space.cpus()] == [4, 2]


# Command: a line of it.
LINES = {
    "list": "0x{tree_lazy:x}-0x[0-9a-f]+ 94375936 unpurged vm_area",
    "owner {stack:x}": r"{stack:#x}: 0x0 into {stack:#x}-{lazy:#x}    8192 main\+0x\S+ vmalloc",
    "owner {inner:x} 1000": "{inner:#x}: 0x1000 into {ram:#x}-{unlinked:#x}    8192 vm_map_ram",
    "owner 1000": "0x1000: in no area",
    "stats": "count_hit +6",
    "validate": "rust: ok",
}


@pytest.mark.parametrize("words", LINES)
def test_commands(rust, words):
    """The commands print such a line, and say whether something is missing."""
    prog, at = rust
    names = {**at, "inner": at["ram"] + PAGE}
    code, lines = TOOL["run"](prog, TOOL["parse"](words.format(**names).split()))
    assert code == (" 1000" in words)
    assert any(re.fullmatch(LINES[words].format(**names), line) for line in lines), lines


def field(space, kind, address, name, word=0):
    """Return where a field of a structure is, or a word of it."""
    return address + space.types[kind].member(name).bit_offset // 8 + 8 * word


def of_block(name, word=0):
    """Return what finds a field of the block of small areas."""
    return lambda space, at: field(space, "block", space.block_at(at["stack"]).node, name, word)


def of_area(which, name):
    """Return what finds a field of the object of an area."""
    return lambda space, at: field(space, "object", space.find(at[which]).va.value_(), name)


def of_table(after):
    """Return what finds the entry of the block of small areas in the directory, or one after it."""
    return lambda space, at: space.place_of(at["stack"])[0]["table"] + 8 * (space.place_of(at["stack"])[1] + after)


def root(space, _at):
    """Return where the root of the index is."""
    return drgn.Object(space.prog, "struct maple_tree *", value=space.space()["index"]).ma_root.address_


# A line of validate, what finds the damaged word, and what is written there. The class is a byte.
DAMAGES = [
    ("is busy, but slot 2 is free", of_block("free"), ~0b1011 & (1 << 64) - 1),
    ("is unlinked, but slot 3 waits for a purge", of_block("flushing"), 0b1000),
    ("slots [4] are free and lazy", of_block("lazy"), 0b10010),
    ("slots [256] are behind the last one", of_block("lazy", 4), 1),
    ("is not in its slot 2", of_area("ram", "va_end"), lambda at: at["unlinked"] + 1),
    ("is not in its slot 2", of_area("ram", "va_start"), lambda at: at["ram"] - PAGE),
    ("its description is damaged: class 99", of_block("class"), 99),
    ("its description is damaged: class 1, slots of 0 pages", of_block("slot_pages"), 0),
    ("slots of 513 pages", of_block("slot_pages"), 513),
    ("place 5", of_block("place"), 5),
    ("0x1000-0x201000; the index has", of_block("first_page"), 1),
    ("cannot be read: ", of_table(0), 0x1234),
    ("cannot be read: ", of_block("chunks"), 0x1234),
    ("index: cannot be read: ", root, 0x123400 | 10),
    ("in the index, but not in the directory", of_table(0), 0),
    ("in the directory, but not in the index", of_table(200), 0x1234),
    ("its object says", of_area("tree", "va_start"), lambda at: at["tree"] + PAGE),
    (": leaked", of_area("tree", "flags"), 7 << 16),
    ("its vm_struct says", lambda space, at: space.find(at["stack"]).va.vm.size.address_, 0x1000),
]


@pytest.mark.parametrize("line, find, number", DAMAGES)
def test_damage(rust, line, find, number):
    """A damage is one line of validate."""
    prog, at = rust
    space = vmap_allocator(prog)
    with written(prog, find(space, at), 1 if number == 99 else 8, number(at) if callable(number) else number):
        found = list(space.validate())
    assert len(found) == 1 and line in found[0], found
    assert not list(space.validate())


def test_rbtree(rbtree):
    """The rb-trees, in which no purge was; and a damage of their list."""
    prog, at = rbtree
    space = vmap_allocator(prog)
    assert isinstance(space, RbtreeVmap) and not list(space.validate())
    assert sorted(area[:3] for area in space.areas()) == [
        (at["first"], at["first"] + 2 * PAGE, "busy"), (at["lazy"], at["lazy"] + 2 * PAGE, "lazy"),
        (at["second"], at["second"] + 6 * PAGE, "busy")]
    assert space.find(at["second"] + 5 * PAGE).start == at["second"] and space.find(at["second"] + 6 * PAGE) is None
    assert space.stats() == {"busy": 2, "busy_bytes": 8 * PAGE, "lazy": 1, "lazy_bytes": 2 * PAGE}
    with written(prog, space.find(at["second"]).va.list.prev.address_, 8, 0x1234):
        found = list(space.validate())
    assert len(found) == 1 and "areas: cannot be read: " in found[0], found


def test_rbtree_changes(rbtree, monkeypatch):
    """In a running kernel, a list is read again if an area of it leads to another list, in a circle; an area that was freed
    meanwhile, or whose struct vm_struct is another one's, has no line."""
    prog, at = rbtree
    space = vmap_allocator(prog)
    wanted = {area.start: area for area in space.areas()}
    first, lazy = wanted[at["first"]].va, wanted[at["lazy"]].va
    with contextlib.ExitStack() as changes:
        reads, read = [], RbtreeVmap._read_list  # pylint: disable=protected-access

        def changing(state, head):
            reads.append(state)
            if len(reads) == 3:
                changes.close()
            return read(state, head)

        monkeypatch.setattr(space, "_read_list", changing)
        for before, after in ((first, lazy), (lazy, first)):
            changes.enter_context(written(prog, before.list.next.address_, 8, after.list.address_of_().value_()))
            changes.enter_context(written(prog, after.list.prev.address_, 8, before.list.address_of_().value_()))
        assert sorted(space.areas()) == sorted(wanted.values()) and reads.count("busy") > 2
    area = wanted[at["second"]]
    assert vmallocinfo_line(area, set())
    for address, number in ((area.va.vm.address_, 0x13000), (area.va.vm.addr.address_, at["first"]),
                            (area.va.vm.size.address_, 5 * PAGE)):
        with written(prog, address, 8, number):
            assert not vmallocinfo_line(area, set())
            with monkeypatch.context() as dump:
                dump.setattr("vmap._is_live", lambda _: False)
                if number != 0x13000:
                    assert vmallocinfo_line(area, set())
    with written(prog, area.va.va_start.address_, 8, at["first"]):
        assert not vmallocinfo_line(area, set())


@pytest.mark.parametrize("name, text", [("vmap_rust::kernel_space::SPACE", "no debug information has .* CONFIG_DEBUG_INFO_DWARF5"),
                                        ("policy::blocks::Cpu", "another version of mm/vmap_rust .*policy::blocks::")])
def test_refused(rust, monkeypatch, name, text):
    """One line says so if there is no debug information of Rust, or if its types are not those that the module knows."""
    monkeypatch.setattr(vmap_rust, "SPACE", vmap_rust.SPACE.replace(name, "x::Y"))
    fields = {kind: (path.replace(name, f"{name}s"), rest) for kind, (path, rest) in vmap_rust.FIELDS.items()}
    monkeypatch.setattr(vmap_rust, "FIELDS", fields)
    with pytest.raises(DAMAGE, match=text):
        vmap_allocator(rust[0])


def test_symbols_are_missing(capsys):
    """One line names the option, if the kernel has no debug information at all."""
    assert TOOL["refuse"](drgn.MissingDebugInfoError("missing some\nsee URL")) == 2
    assert re.fullmatch("vmap: error: missing some; build the kernel with CONFIG_DEBUG_INFO_DWARF5, .*\n", capsys.readouterr().err)


def test_live(rust, monkeypatch):
    """In a running kernel, an index whose end was missing once is read again; one that never stays the same is refused."""
    space = vmap_allocator(rust[0])
    wanted, reads, until = list(space.areas()), [], 4
    whole = list(space._read_entries())  # pylint: disable=protected-access

    def changing():
        reads.append(whole[:-1 if len(reads) + 1 < until and not len(reads) % 2 else None])
        return reads[-1]

    monkeypatch.setattr(space, "_read_entries", changing)
    assert list(space.areas()) == wanted and len(reads) == 5
    until = 1000
    with pytest.raises(ValueError, match="changes while it is read"):
        list(space.areas())
