# SPDX-License-Identifier: GPL-2.0
"""Tests of vmap-map: what it reads, its figures and its layout. Run with pytest."""

import base64
import json
import os
import re
import sys
import tempfile
import unittest
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
# pylint: disable=wrong-import-position
from vmap_map import figures, page, snapshot, tiles

MIB = 1 << 20
HOME = 0xffff800080000000
# One of three areas is lazy; the rest is free.
SLOTS = "BlB" + "." * 253
MAP = f"""vmap_rust map 1 page 4096 home {HOME:#x}-{HOME + (1 << 30):#x}
{HOME - 16 * MIB:#x}-{HOME - 15 * MIB:#x} area busy
{HOME:#x}-{HOME + 0x5000:#x} area busy
{HOME + 2 * MIB:#x}-{HOME + 4 * MIB:#x} block cpu 3 current slot 2 {SLOTS}
{HOME + 8 * MIB:#x}-{HOME + 9 * MIB:#x} area flushed
{HOME + 64 * MIB:#x}-{HOME + 128 * MIB:#x} block cpu 1 pool slot 640 {"B" + "." * 24}
{HOME + 128 * MIB:#x}-{HOME + 192 * MIB:#x} block changing
"""
INFO = f"""{HOME:#018x}-{HOME + 0x5000:#018x}   20480 kernel_clone+0x1c/0x3f0 pages=4 vmalloc N0=4
{HOME + 2 * MIB:#018x}-{HOME + 2 * MIB + 0x2000:#018x}    8192 gic_of_init+0x1/0x2 phys=0x8000000 ioremap
{HOME + 2 * MIB + 0x4000:#018x}-{HOME + 2 * MIB + 0x6000:#018x}    8192 vm_map_ram
{HOME + 2 * MIB + 0x2000:#018x}-{HOME + 2 * MIB + 0x4000:#018x}    8192 unpurged vm_area
"""

# What the kernel prints instead of addresses: early in the boot, and with kernel.kptr_restrict of 0 and 2.
HIDDEN = (("(____ptrval____)", "(____ptrval____)"), ("00000000de12ab34", "0000000012345678"), ("0" * 16, "0" * 16))


def rust():
    """A snapshot of the allocator in Rust."""
    return snapshot.from_texts({"map": MAP, "vmallocinfo": INFO, "meminfo": "MemFree: 1 kB\nPageTables:        88 kB\n"})


def rbtree(info=INFO):
    """A snapshot of the rb-trees."""
    return snapshot.from_texts({"allocator": "rbtree\n", "vmallocinfo": info})


class Reading(unittest.TestCase):
    """What the files say is what a snapshot has."""

    def test_owners_come_from_vmallocinfo(self):
        pieces = rust()["pieces"]
        self.assertEqual([piece["kind"] for piece in pieces], ["area", "area", "block", "area", "block", "block"])
        self.assertEqual((pieces[1]["owner"], pieces[1]["type"]), ("kernel_clone", "vmalloc"))
        owners = [(area["owner"], area["type"]) for area in pieces[2]["areas"]]
        self.assertEqual(owners, [("gic_of_init", "ioremap"), ("vm_map_ram", "vm_map_ram")])
        self.assertNotIn("slots", pieces[5])

    def test_without_a_map_lazy_areas_are_in_vmallocinfo(self):
        states = [piece["state"] for piece in rbtree()["pieces"]]
        self.assertEqual(states, ["busy", "busy", "lazy", "busy"])

    def test_an_area_freed_during_the_read_counts_once(self):
        twice = INFO + f"{HOME:#018x}-{HOME + 0x5000:#018x}   20480 unpurged vm_area\n"
        self.assertEqual(len(rbtree(twice)["pieces"]), 4)

    def test_bad_input_is_refused_with_the_place(self):
        for texts, what in (({"map": MAP.replace("map 1", "map 2")}, "version 2"),
                            ({"map": MAP.replace("area flushed", "area gone")}, "line 5"),
                            ({"map": MAP.replace("BlB", "Bl")}, "line 4"), ({"map": MAP.replace("BlB", "BcB")}, "line 4"),
                            ({"map": MAP.replace("slot 2", "slot 0")}, "line 4"), ({"map": "no\n"}, "first line"),
                            *(({"vmallocinfo": f"0x{start}-0x{end} 8192 a+0x1/0x2\n"}, "kptr_restrict") for start, end in HIDDEN),
                            ({}, "no area")):
            with self.assertRaisesRegex(snapshot.Bad, what):
                snapshot.from_texts(texts)

    def test_a_folder_has_a_snapshot(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("map", MAP), ("vmallocinfo", INFO)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            self.assertEqual(snapshot.load(folder)["pieces"], rust()["pieces"])
            os.unlink(os.path.join(folder, "vmallocinfo"))
            with self.assertRaisesRegex(snapshot.Bad, "no file vmallocinfo"):
                snapshot.load(folder)


class Figures(unittest.TestCase):
    """Sizes and gaps."""

    def test_figures_of_a_map(self):
        values = figures.figures(rust())
        self.assertEqual((values["areas"], values["blocks"]), (4, 3))
        # The area below vmalloc space does not count.
        self.assertEqual(values["busy"], (5 + 2 * 2 + 640) * 4096)
        self.assertEqual((values["lazy"], values["free in blocks"]), (2 * 4096 + MIB, (253 * 2 + 24 * 640) * 4096))
        self.assertEqual((values["gaps"], values["largest gap"]), (4, (1 << 30) - 192 * MIB))
        self.assertEqual(values["in gaps"], (1 << 30) - (5 * 4096 + 2 * MIB + MIB + 128 * MIB))
        # Regions at 0, 2, 64 and 66 MiB have a busy slot.
        self.assertEqual((values["regions"], values["tables"], values["meminfo tables"]), (4, 4 * 4096, 88))

    def test_the_rb_trees_get_the_range_of_the_other_snapshot(self):
        shots = [rbtree(), rust()]
        snapshot.share_range(shots)
        self.assertEqual((shots[0]["start"], shots[0]["end"]), (HOME, HOME + (1 << 30)))
        alone = rbtree()
        snapshot.share_range([alone])
        self.assertFalse(alone["range_known"])
        self.assertEqual(figures.figures(alone)["gaps"], 1)


class Layout(unittest.TestCase):
    """Tiles cover every piece once, in the order of addresses."""

    def test_tiles_have_512_cells_and_do_not_overlap(self):
        for shot in (rust(), rbtree()):
            drawn, at = tiles.tiles(shot), 0
            for tile in drawn:
                self.assertGreaterEqual(tile["start"], at)
                at = tile["start"] + tile["bytes"]
                if tile["kind"] != "gap":
                    self.assertEqual(sum(run[1] for run in tile["runs"]), tiles.CELLS)
            self.assertEqual(len(tiles.bins(next(tile for tile in drawn if tile["runs"]), 64)), 64)

    def test_busy_cells_are_the_busy_pages(self):
        large = f"{HOME + MIB:#x}-{HOME + 9 * MIB + 0x1000:#x} 8392704 big+0x1/0x2 pages=2048 vmalloc\n"
        shot = rbtree(large)
        busy, first = 0, 0
        for tile in tiles.tiles(shot):
            cells = sum(length for letter, length, _ in tile["runs"] if letter in "Bb")
            first += sum(letter == "B" for letter, _, _ in tile["runs"])
            busy += cells * (tile["bytes"] // tiles.CELLS)
        self.assertEqual((busy, first), (8 * MIB + 0x1000, 1))
        # 1 MiB, three whole regions in one tile, 1 MiB and a page.
        self.assertEqual([tile["kind"] for tile in tiles.tiles(shot)], ["region", "fold", "region"])

    def test_slots_are_drawn_whole(self):
        blocks = [tile for tile in tiles.tiles(rust()) if tile["kind"] == "block"]
        self.assertEqual([(tile["cpu"], tile["current"], tile["slot"]) for tile in blocks], [(3, True, 8192), (1, False, 640 * 4096)])
        self.assertEqual(blocks[0]["runs"], [["B", 2, ("gic_of_init", "ioremap")], ["l", 2, None], ["B", 2, ("vm_map_ram", "vm_map_ram")],
                                             [".", 506, None]])
        # 25 slots of 20 cells, and a rest.
        self.assertEqual(blocks[1]["runs"], [["B", 20, None], [".", 480, None], ["-", 12, None]])

    def test_a_lazy_slot_is_seen_in_a_line_of_the_terminal(self):
        block = next(tile for tile in tiles.tiles(rust()) if tile["kind"] == "block")
        self.assertEqual("".join(tiles.bins(block, 64)), "l" + "." * 63)
        self.assertEqual("".join(tiles.bins(block, 256))[:4], "BlB.")


class Page(unittest.TestCase):
    """The page has all data and needs nothing else."""

    def test_a_page_is_complete(self):
        shots = [rust(), rbtree()]
        snapshot.share_range(shots)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            size = page.write(shots, [figures.figures(shot) for shot in shots], path, "a < b")
            with open(path, encoding="utf-8") as file:
                text = file.read()
        self.assertEqual(size, len(text.encode()))
        self.assertNotRegex(text, r"@[A-Z]+@|(src|href)=|https?:")
        self.assertIn("<h1>a &lt; b</h1>", text)
        data = json.loads(zlib.decompress(base64.b64decode(re.search(r'PACKED = "([^"]+)"', text)[1])))
        self.assertEqual([panel["name"] for panel in data["panels"]], ["rust", "rbtree"])
        self.assertEqual([len(panel["tiles"]) for panel in data["panels"]], [len(tiles.tiles(shot)) for shot in shots])
        self.assertIn("kernel_clone vmalloc", data["owners"])


class Description(unittest.TestCase):
    """The documentation has what the code has."""

    def test_each_counter_is_described(self):
        with open(os.path.join(HERE, "../rust/base/stats.rs"), encoding="utf-8") as file:
            counters = re.search(r"\ncounters! \{(.*?)\n\}", file.read(), re.S)[1]
        with open(os.path.join(HERE, "../rust/debugfs.rs"), encoding="utf-8") as file:
            now = re.search(r"let now = \[(.*?)\];", file.read(), re.S)[1]
        names = re.findall(r"^    (\w+),$", counters, re.M) + re.findall(r'\(\s*"(\w+)"', now)
        with open(os.path.join(HERE, "../docs/administration.md"), encoding="utf-8") as file:
            rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", file.read().partition("## The counters")[2].partition("\n## ")[0], re.M)
        self.assertGreaterEqual(len(names), 20)
        self.assertEqual(rows, names)

    def test_each_letter_is_described(self):
        with open(os.path.join(HERE, "../docs/debugging.md"), encoding="utf-8") as file:
            text = file.read().partition("\n### map\n")[2].partition("\n##")[0]
        with open(os.path.join(HERE, "../rust/state/block_view.rs"), encoding="utf-8") as file:
            letters = re.findall(r"=> '(.)',", file.read())
        self.assertEqual(set(letters), set(snapshot.SLOT_STATES))
        for letter in letters:
            self.assertIn(f"`{letter}`", text)
        for state in snapshot.AREA_STATES:
            self.assertIn(f"`{state}`", text)
