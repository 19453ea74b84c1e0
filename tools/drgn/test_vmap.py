# SPDX-License-Identifier: GPL-2.0
"""Tests tools/vmap and its modules on the spaces of test_space.c, which are in the memory of this process.

Needs drgn, a C compiler, and include/linux/vmap_rust_debug.h of the patched kernel tree.
"""

import contextlib
import ctypes
import os
import runpy
import subprocess
from pathlib import Path

import drgn
import pytest

import vmap_rust
from harness.settings import TREE
from vmap import vmap_allocator
from vmap_area import DAMAGE

HERE = Path(__file__).parent
TOOL = runpy.run_path(str(HERE.parent / "vmap"))
MIB = 1 << 20
HOME = 0xffffc90000000000
START, WHOLE = HOME + 64 * MIB, HOME + 1024 * MIB
LAST = WHOLE + 11 * 80 * MIB


@pytest.fixture(name="prog", scope="module")
def program(tmp_path_factory):
    """The program with the spaces."""
    library = str(tmp_path_factory.mktemp("space") / "space.so")
    subprocess.run(["gcc", "-g", "-shared", "-fPIC", "-iquote", TREE, "-o", library, HERE / "test_space.c"], check=True)
    ctypes.CDLL(library)
    prog = drgn.Program()
    prog.set_pid(os.getpid())
    prog.load_debug_info([library])
    return prog


@contextlib.contextmanager
def written(value, number):
    """Write a number to a variable, or to a part of it, for some time."""
    size = drgn.sizeof(value)
    old = value.prog_.read(value.address_, size)
    ctypes.memmove(value.address_, number.to_bytes(size, "little"), size)
    try:
        yield
    finally:
        ctypes.memmove(value.address_, old, size)


def test_areas(prog):
    """All areas with their states, in the order of addresses."""
    assert [area[:3] for area in vmap_allocator(prog).areas()] == [
        (HOME, HOME + 8 * MIB, "busy"), (HOME + 9 * MIB, HOME + 10 * MIB, "lazy"), (START, START + 0x2000, "busy"),
        (START + 0x2000, START + 0x3000, "lazy"), (START + 0x4000, START + 0x6000, "busy"),
        (START + 0x6000, START + 0x8000, "unlinked"), (LAST, LAST + 70 * MIB, "busy")]


@pytest.mark.parametrize("address, area, block", [
    (HOME + 8 * MIB - 1, HOME, None), (HOME + 8 * MIB, None, None), (START + 0x5fff, START + 0x4000, START),
    (START + 0x3000, None, START), (START + 2 * MIB, None, None), (START + (512 << 30), None, None),
    ((1 << 64) - 1, None, None),
    (LAST - 1, None, WHOLE), (LAST + 70 * MIB - 1, LAST, WHOLE), (WHOLE + (1 << 30) - 1, None, WHOLE)])
def test_find(prog, address, area, block):
    """Inner addresses lead to their area and block, those behind an area in its slot and behind the last slot to none."""
    space = vmap_allocator(prog)
    assert getattr(space.find(address), "start", None) == area
    assert getattr(space.block_at(address), "start", None) == block


def test_stats(prog):
    """Numbers of areas, slots and counters, and current blocks."""
    space = vmap_allocator(prog)
    wanted = {"busy": 4, "lazy": 2, "unlinked": 1, "blocks": 2, "blocks_held": 1, "blocks_owned": 1, "blocks_dirty": 1,
              "slots_free": 252 + 11, "slots_free_bytes": 252 * 0x2000 + 11 * 80 * MIB, "slots_lazy": 1, "count_hit": 12,
              "count_refill": 3, "busy_bytes": 8 * MIB + 0x4000 + 70 * MIB}
    assert {name: space.stats()[name] for name in wanted} == wanted
    assert space.current() == {WHOLE: 1}
    for bits, hits in ((1, 7), (0, 7)):
        with written(prog["__cpu_possible_mask"].bits[0], bits):
            assert space.stats()["count_hit"] == hits


# Command: some of its lines.
LINES = {
    "list": [f"{HOME + 9 * MIB:#x}-{HOME + 10 * MIB:#x} 1048576 unpurged vm_area"],
    f"owner {START + 1:x} {START + 0x5000:x} 1000": [
        f"{START + 1:#x}: 0x1 into {START:#x}-{START + 0x2000:#x}    8192 0xabc pages=1 vmalloc",
        f"{START + 0x5000:#x}: 0x1000 into {START + 0x4000:#x}-{START + 0x6000:#x}    8192 vm_map_ram",
        "0x1000: in no area"],
    "stats": ["allocator                rust", "count_hit                12"],
    "validate": ["rust: ok"],
}


@pytest.mark.parametrize("words", LINES)
def test_commands(prog, words):
    """The commands print such lines, and say whether something is missing."""
    code, lines = TOOL["run"](prog, TOOL["parse"](words.split()))
    assert set(LINES[words]) <= set(lines) and code == (" 1000" in words)


DAMAGES = [
    (True, "is busy, but slot 2 is free", lambda p: p["block"].free[0], ~0b1011 & (1 << 64) - 1),
    (True, "is unlinked, but slot 3 waits for a purge", lambda p: p["block"].flushing[0], 0b1000),
    (True, "slots [4] are free and lazy", lambda p: p["block"].lazy[0], 0b10010),
    (True, "slots [256] are behind the last one", lambda p: p["block"].lazy[4], 1),
    (True, "is not in its slot 2", lambda p: p["small"][2].va_end, START + 0x6001),
    (True, "is not in its slot 2", lambda p: p["small"][2].va_start, START + 0x3000),
    (True, "its description is damaged: class 99", lambda p: p["block"].member_("class"), 99),
    (True, "its description is damaged: class 1, slots of 0 pages", lambda p: p["block"].slot_pages, 0),
    (True, "slots of 513 pages", lambda p: p["block"].slot_pages, 513),
    (True, "place 5", lambda p: p["block"].place, 5),
    (True, "0x1000-0x201000; the index has", lambda p: p["block"].first_page, 1),
    (True, "cannot be read: ", lambda p: p["tables"][0][32], 0x1234),
    (True, "cannot be read: ", lambda p: p["block"].chunks[0], 0x1234),
    (True, "index: cannot be read: ", lambda p: p["tree"].ma_root, 0x123400 | 10),
    (True, "in the index, but not in the directory", lambda p: p["tables"][0][32], 0),
    (True, "in the directory, but not in the index", lambda p: p["tables"][0][96], 0x1234),
    (True, "its object says", lambda p: p["area"].va_start, HOME + 0x1000),
    (True, "area 0xffffc90000000000-0xffffc90000800000: leaked", lambda p: p["area"].flags, 6 << 16),
    (True, "its vm_struct says 0xffffc90004000000, 4096 bytes", lambda p: p["stack"].size, 0x1000),
    (False, "areas: cannot be read: ", lambda p: p["both"][1].list.prev, 0x1234),
]


@pytest.mark.parametrize("rust, line, place, number", DAMAGES)
def test_damage(prog, rust, line, place, number):
    """A damage is one line of validate."""
    with written(prog["vmap_rust_key"], int(rust)), written(place(prog), number):
        found = list(vmap_allocator(prog).validate())
    assert len(found) == 1 and line in found[0], found


def test_rbtree(prog):
    """Without an allocator of its own, vmalloc has the rb-trees."""
    with written(prog["vmap_rust_key"], 0):
        space = vmap_allocator(prog)
        assert [area[:2] for area in space.areas()] == [(HOME, HOME + 0x2000), (HOME + 0x2000, HOME + 0x4000)]
        assert not list(space.validate())
        assert space.find(HOME + 0x2000).start == HOME + 0x2000 and space.find(HOME + 0x4000) is None
        assert space.stats() == {"busy": 2, "busy_bytes": 0x4000}


def test_refused(prog, monkeypatch):
    """A description of another version is refused."""
    monkeypatch.setattr(vmap_rust, "VERSION", 2)
    with pytest.raises(DAMAGE, match="version 1; this module knows version 2"):
        vmap_allocator(prog)


def test_live(prog, monkeypatch):
    """In a running kernel, an index whose end was missing once is read again; one that never stays the same is refused."""
    space = vmap_allocator(prog)
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
