# SPDX-License-Identifier: GPL-2.0
"""Tests of vmap-map: what it reads, its figures, its layout and its page. Run with pytest."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

# As tools/vmap-map finds them.
sys.path.insert(0, str(Path(__file__).parent))
from vmap_map import figures, snapshot, tiles  # noqa: E402 pylint: disable=wrong-import-position

HERE = Path(__file__).parent
MIB = 1 << 20
HOME = 0xffff800080000000
# One of three areas is lazy; the rest is free.
MAP = f"""vmap_rust map 1 page 4096 home {HOME:#x}-{HOME + (1 << 30):#x}
{HOME - 16 * MIB:#x}-{HOME - 15 * MIB:#x} area busy
{HOME:#x}-{HOME + 0x5000:#x} area busy
{HOME + 2 * MIB:#x}-{HOME + 4 * MIB:#x} block cpu 3 current slot 2 BlB{"." * 253}
{HOME + 8 * MIB:#x}-{HOME + 9 * MIB:#x} area flushed
{HOME + 64 * MIB:#x}-{HOME + 128 * MIB:#x} block cpu 1 pool slot 640 B{"." * 24}
{HOME + 128 * MIB:#x}-{HOME + 192 * MIB:#x} block changing
"""
INFO = f"""{HOME:#018x}-{HOME + 0x5000:#018x}   20480 kernel_clone+0x1c/0x3f0 pages=4 vmalloc N0=4
{HOME + 2 * MIB:#018x}-{HOME + 2 * MIB + 0x2000:#018x}    8192 gic_of_init+0x1/0x2 phys=0x8000000 ioremap
{HOME + 2 * MIB + 0x4000:#018x}-{HOME + 2 * MIB + 0x6000:#018x}    8192 vm_map_ram
{HOME + 2 * MIB + 0x2000:#018x}-{HOME + 2 * MIB + 0x4000:#018x}    8192 unpurged vm_area
{HOME:#018x}-{HOME + 0x5000:#018x}   20480 unpurged vm_area
{HOME + 11 * MIB:#x}-{HOME + 19 * MIB + 0x1000:#x} 8392704 big+0x1/0x2 pages=2048 vmalloc
"""


@pytest.fixture(name="folder")
def folder_of_both(tmp_path):
    """Snapshots of a system with either allocator."""
    for name, text in (("rust/map", MAP), ("rust/vmallocinfo", INFO), ("rbtree/vmallocinfo", INFO)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture(name="output")
def output_of_both(folder):
    """What vmap-map prints about them, and the text of the page and of the picture."""
    done = subprocess.run([HERE / "vmap-map", "rbtree", "rust", "--html", "page", "--svg", "picture"], cwd=folder, check=True,
                          capture_output=True, text=True)
    return done.stdout, *((folder / name).read_text(encoding="utf-8") for name in ("page", "picture"))


def test_figures(output):
    """The area below vmalloc space does not count, and neither do stale lazy areas; the range of one is that of both."""
    found = {line[:54].rstrip(): re.findall(r"[\d.,]+(?: \w+)?|-", line[54:]) for line in output[0].splitlines()[1:10]}
    assert found == {
        "busy areas": ["4", "4"], "busy, whole slots": ["8.0 MiB", "2.5 MiB"], "blocks": ["0", "3"],
        "lazy, leaving or being flushed": ["8 KiB", "1.0 MiB"], "free in blocks": ["0 B", "62.0 MiB"], "gaps": ["3", "4"],
        "free in gaps": ["1016 MiB", "893 MiB"], "largest gap": ["1005 MiB", "832 MiB"],
        "spread: span from the first to the last piece / busy": ["2.4", "75.7"]}
    text = ("vmap_rust map 1 page 4096 home 0x100000-0x180000\n"
            "0x102000-0x105000 area lazy\n0x108000-0x112000 block cpu 0 pool slot 3 B.B\n")
    small = figures.figures(snapshot.from_texts({"map": text}))
    assert list(small.values())[:8] == ["2", "24 KiB", "12 KiB", "1", "12 KiB", "3", "460 KiB", "440 KiB"]


def test_tiles():
    """Tiles cover each piece once, in the order of addresses: slots are drawn whole, and busy cells are the busy pages."""
    shots = [snapshot.from_texts({"vmallocinfo": INFO}), snapshot.from_texts({"map": MAP, "vmallocinfo": INFO})]
    snapshot.share_range(shots)
    rbtree, rust = ([(tile["kind"], tile["start"] - HOME, tile["bytes"], tile["runs"]) for tile in tiles.tiles(shot)]
                    for shot in shots)
    big = "big vmalloc"
    first = [["B", 5, "kernel_clone vmalloc"], [" ", 507, ""]]
    slots = [["B", 2, "gic_of_init ioremap"], ["l", 2, ""], ["B", 2, "vm_map_ram"]]
    assert rbtree == [
        ("region", 0, 2 * MIB, first),
        ("region", 2 * MIB, 2 * MIB, [*slots, [" ", 506, ""]]),
        ("gap", 4 * MIB, 6 * MIB, []), ("region", 10 * MIB, 2 * MIB, [[" ", 256, ""], ["B", 256, big]]),
        ("fold", 12 * MIB, 6 * MIB, [["b", 512, big]]), ("region", 18 * MIB, 2 * MIB, [["b", 257, big], [" ", 255, ""]])]
    assert [tile for tile in rust if tile[0] != "gap"] == [
        ("region", -16 * MIB, 2 * MIB, [["B", 256, ""], [" ", 256, ""]]), ("region", 0, 2 * MIB, first),
        ("block", 2 * MIB, 2 * MIB, [*slots, [".", 506, ""]]),
        ("region", 8 * MIB, 2 * MIB, [["f", 256, ""], [" ", 256, ""]]),
        # 25 slots of 20 cells, and a rest.
        ("block", 64 * MIB, 64 * MIB, [["B", 20, ""], [".", 480, ""], ["-", 12, ""]]),
        ("fold", 128 * MIB, 64 * MIB, [["?", 512, ""]])]
    blocks = [(tile["title"], tile["current"]) for tile in tiles.tiles(shots[1]) if tile["kind"] == "block"]
    assert blocks == [("CPU 3* 8 KiB", True), ("CPU 1 2.5 MiB", False)]


def test_a_picture_has_the_tiles(output):
    """Each run is drawn in the colour of its state, with its cells, and says what it is; nothing is busy where nothing is."""
    runs = [(run[0].text.split("\n"), run.get("data-owner"), [path.attrib for path in run[1:]])
            for run in ElementTree.fromstring(output[2]).iter("{http://www.w3.org/2000/svg}g") if run.get("data-owner") is not None]
    colors = {path["fill"] for _, _, paths in runs for path in paths}
    assert {letter for letter, (color, _) in snapshot.STATES.items() if color in colors} == set("Bblf.-?")
    words, owner, paths = next(run for run in runs if run[1] == "vm_map_ram" and run[0][0].startswith("CPU"))
    at = HOME + 2 * MIB
    assert words == ["CPU 3* 8 KiB", f"{at:#x}-{at + 2 * MIB:#x}", "busy", f"{at + 0x4000:#x}-{at + 0x6000:#x}", f"owner: {owner}"]
    assert [path["d"] for path in paths] == ["M4 0H32V0H5V1H0V1H4z", "M5 0H32V0H6V1H0V1H5z"]


def test_a_page_is_complete(output):
    """It needs nothing else, and has the picture."""
    assert output[2] in output[1] and not re.search(r"(src|href)=.(?!#)|https?:(?!//www.w3.org/2000/svg)", output[1])
    assert "vmalloc space: rbtree and rust</text>" in output[1] and "<tr><td>busy areas<td>4<td>4" in output[1]


@pytest.mark.parametrize("texts, what", [
    ({"map": MAP.replace("map 1", "map 2")}, "version 2"), ({"map": MAP.replace("area flushed", "area gone")}, "line 5"),
    ({"map": MAP.replace("BlB", "Bl")}, "line 4"), ({"map": MAP.replace("BlB", "BcB")}, "line 4"),
    ({"map": MAP.replace("slot 2", "slot 0")}, "line 4"), ({"map": "no\n"}, "first line"), ({}, "no area"),
    # What the kernel prints instead of addresses: early in the boot, and with kernel.kptr_restrict of 0 and 2.
    *(({"vmallocinfo": f"0x{start}-0x{end} 8192 a+0x1/0x2\n"}, "kptr_restrict") for start, end in (
        ("(____ptrval____)", "(____ptrval____)"), ("00000000de12ab34", "0000000012345678"), ("0" * 16, "0" * 16)))])
def test_bad_input_is_refused_with_the_place(texts, what):
    """The message says why and where."""
    with pytest.raises(snapshot.Bad, match=what):
        snapshot.from_texts(texts)


def test_a_folder_without_files_is_refused(tmp_path):
    """In one line."""
    done = subprocess.run([HERE / "vmap-map", tmp_path], check=False, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == f"vmap-map: {tmp_path}: there is no file vmallocinfo\n"


def section(path, head):
    """The text of a section of a document."""
    return (HERE.parent / path).read_text(encoding="utf-8").partition(f"\n{head}\n")[2].partition("\n##")[0]


def test_each_counter_is_described():
    """The documentation has what the code has."""
    stats, files = ((HERE.parent / path).read_text(encoding="utf-8") for path in ("rust/sys/per_cpu.rs", "rust/debugfs.rs"))
    counters = re.search(r"\ncounters! \{(.*?)\n\}", stats, re.S)[1]
    now = re.search(r"let now = \[(.*?)\];", files, re.S)[1]
    names = re.findall(r"^    (\w+),$", counters, re.M) + re.findall(r'\(\s*"(\w+)"', now)
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", section("docs/administration.md", "## The counters"), re.M)
    assert rows == names and len(names) >= 20


def test_each_letter_is_described():
    """The documentation and this program have the letters and states of the code."""
    letters = re.findall(r"=> '(.)',", (HERE.parent / "rust/check/slots.rs").read_text(encoding="utf-8"))
    assert set(letters) == set(snapshot.SLOT_STATES)
    assert all(f"`{word}`" in section("docs/debugging.md", "### map") for word in [*letters, *snapshot.AREA_STATES])
