# SPDX-License-Identifier: GPL-2.0
"""Tests of vmap-bench with a made-up kernel. Run with pytest."""

import builtins
import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).with_name("vmap-bench")
LINES = ("6,1,1,-;vmap_bench: start allocator={} release=7.3.4 cpus=2\n"
         "6,2,2,-;vmap_bench: result case=area_pair threads=1 metric=cost unit=mns value={} min=1 max=9 passes=5 ops=20000\n"
         "6,3,3,-;vmap_bench: result case=purge_512 threads=1 metric=flushes unit=tables value=7 min=1 max=9 passes=5 ops=20\n"
         "6,4,4,-;vmap_bench: end failed={}\n")


class Kernel:
    """What a write to the parameters prints to the log."""

    def __init__(self, folder):
        self.folder, self.allocator, self.cost, self.failed, self.seen = folder, "rbtree", 120500, 0, None
        (folder / "parameters").mkdir()
        for name in ("run", "scale", "threads"):
            (folder / "parameters" / name).write_text("")
        # What was there before does not count.
        (folder / "kmsg").write_text("6,0,0,-;vmap_bench: result case=old threads=1 metric=cost unit=mns value=1 \n")

    def open(self, path, *args, **options):
        """As open()."""
        if str(path).endswith("parameters/run"):
            self.seen = [(self.folder / "parameters" / name).read_text() for name in ("scale", "threads")]
            with builtins.open(self.folder / "kmsg", "a", encoding="ascii") as log:
                log.write(LINES.format(self.allocator, self.cost, self.failed))
        return builtins.open(path, *args, **options)


@pytest.fixture(name="tool")
def tool_of_a_kernel(tmp_path, monkeypatch, capsys):
    """Return a function that runs the tool and returns what it printed, and the kernel."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("vmap_bench", str(TOOL))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("vmap_bench", loader))
    loader.exec_module(module)
    kernel = Kernel(tmp_path)
    for name, value in {"PARAMETERS": str(tmp_path / "parameters"), "LOG": str(tmp_path / "kmsg"), "open": kernel.open}.items():
        monkeypatch.setattr(module, name, value, raising=False)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["vmap-bench", *words])
        module.main()
        return capsys.readouterr().out
    return run, kernel


def test_both_boots(tool, tmp_path):
    """The first boot says what to do next, the second prints both; of an allocator only the newest runs count. FILE is a
    result as scripts/bench stores them."""
    run, kernel = tool
    file = str(tmp_path / "x.json")
    assert f"Now boot with vmap_allocator=rust, and run: tools/vmap-bench {file}" in run(file, "--repetitions", "2")
    kernel.cost = 100000
    run(file)
    kernel.allocator, kernel.cost = "rust", 50000
    text = run(file)
    assert [line.split() for line in text.splitlines() if line.startswith(("area_pair", "purge_512"))] == [
        ["area_pair", "1", "100.0", "50.0", "0.50"], ["purge_512", "flushes", "1", "7.0", "7.0", "1.00", "tables"]]
    assert "Now boot" not in text and text.count("cpu ") == 2 and run(file, "--show") == text
    stored = json.loads(Path(file).read_text())
    assert len(stored["boots"]) == 10 and not {"old"} & {one["case"] for boot in stored["boots"] for one in boot["results"]}


@pytest.mark.parametrize("cpus, page, scale, threads", [(2, 4096, "491", "1,2"), (64, 4096, "1720", "1,64"),
                                                        (128, 16384, "491", "1,64"), (1, 65536, "100", "1")])
def test_parameters(tool, tmp_path, monkeypatch, cpus, page, scale, threads):
    """A pass frees enough for three purges, and there are no more workers than the kernel can have."""
    run, kernel = tool
    monkeypatch.setattr("os.cpu_count", lambda: cpus)
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": page}.get)
    run(str(tmp_path / "x.json"), "--repetitions", "1")
    assert kernel.seen == [scale, threads]


def test_scale(tool, tmp_path):
    """Cases whose operations are a number of areas have as many as they say. FILE does not mix scales."""
    run, kernel = tool
    file = tmp_path / "x.json"
    for words, percent in (("--cases", "map_1m"), "100"), (("--cases", "area_pair,all"), "100"), (("--scale", "50"), "50"):
        run(str(file), *words)
        assert kernel.seen[0] == percent
    kernel.allocator, before = "rust", file.read_text()
    with pytest.raises(SystemExit, match="has the other allocator with another --scale than 60; choose another FILE"):
        run(str(file), "--scale", "60")
    assert file.read_text() == before and "Now boot" not in run(str(file), "--scale", "50")


@pytest.mark.parametrize("what, words", [
    ("case", "a case failed, or the log is cut off"), ("file", "is no result of this tool"), ("json", "cannot be read"),
    ("option", "needs root, and a kernel with CONFIG_VMAP_RUST_BENCH=y"), ("folder", "cannot be written")])
def test_refusals(tool, tmp_path, what, words):
    """One line each, and FILE stays what it was."""
    run, kernel = tool
    file = tmp_path / ("none/x.json" if what == "folder" else "x.json")
    text = {"file": '{"kind": "other"}', "json": "{"}.get(what)
    if text:
        file.write_text(text)
    kernel.failed = int(what == "case")
    if what == "option":
        for path in (tmp_path / "parameters").iterdir():
            path.unlink()
        (tmp_path / "parameters").rmdir()
    with pytest.raises(SystemExit, match=words):
        run(str(file))
    assert (file.read_text() if file.exists() else None) == text and not list(tmp_path.glob("*.new"))
