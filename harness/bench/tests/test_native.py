# SPDX-License-Identifier: GPL-2.0
"""scripts/bench native: both allocators under all cases in builds that check them, and how passes are sorted and shown. No time
is compared: tests must not depend on what else the machine does."""

import json
import os
import re
import subprocess

import pytest

from harness.patches import prepare, source
from harness.bench import native, native_report
from harness.toolchain.enter import in_root
from harness.machine.settings import LOGS, SERIES, Refused, linux

from conftest import bench

THREADS = ",".join({"1": None, str(min(4, len(os.sched_getaffinity(0)))): None})


@pytest.fixture(name="kernel", scope="module")
def kernel_source():
    """The kernel source, which the rb-trees are cut out of."""
    return prepare.prepare("source") or source.find(linux(SERIES))


def run(program, *words, log, **env):
    """Run the program; returns the exit code, what it said, and the path of its JSON."""
    output = LOGS / f"{log}.json"
    done = subprocess.run(in_root(program, *words, "--output", output, **env), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout, output


@pytest.mark.parametrize("kind", ["check", "tsan"])
def test_checked(kernel, kind):
    """No page is handed out twice, each area is found, all of them are free at the end and the invariants hold, and
    ThreadSanitizer finds no race but those of the kernel that tsan.supp names. All sides, all cases."""
    assert kernel
    few = ("--threads", THREADS, "--passes", "1", "--ms", "3", "--each", "6000")
    code, text, output = run(native.build(kind), *few, log=f"native-test-{kind}",
                             TSAN_OPTIONS=f"suppressions={native.FOLDER}/tsan.supp exitcode=66 history_size=7")
    assert code == 0 and "WARNING" not in text and "broken" not in text, text
    tests = native.read(output)["tests"]
    # With one CPU there is no other worker that could write.
    assert {test["case"] for test in tests} >= {case for case in native.known_cases() if THREADS != "1" or "writer" not in case}
    assert all({one["side"] for one in test["passes"]} == set(native.SIDES) for test in tests)
    # Each side has purged, which needs a flush.
    assert all(flushes for test in tests for flushes in test["flushes"].values())


def test_source_that_changed(kernel, tmp_path, monkeypatch):
    """One line says so, if a part of mm/vmalloc.c is not found, is there twice or elsewhere, or does not compile."""
    text = (kernel / "mm/vmalloc.c").read_text(encoding="utf-8")
    first, behind = native.PARTS[0]
    for other in (text.replace(first, ""), text + first, text.replace(behind, ""), text.replace(first, behind + first)):
        with pytest.raises(Refused, match=r"^F has changed too much for bench/native: .* adapt PARTS in \S+$"):
            native.cut(other, "F")
    # A tree that has all but this file.
    for path in (*kernel.iterdir(), *(kernel / "mm").iterdir()):
        copy = tmp_path / "linux" / path.relative_to(kernel)
        copy.parent.mkdir(exist_ok=True)
        if path.name == "mm":
            copy.mkdir()
        elif path.name != "vmalloc.c":
            copy.symlink_to(path)
    (tmp_path / "linux/mm/vmalloc.c").write_text(text.replace("spin_lock(&free_vmap_area_lock)", "new_lock(&free_lock)"))
    monkeypatch.setattr(native.source, "find", lambda _: tmp_path / "linux")
    monkeypatch.setattr(native, "BUILDS", tmp_path)
    with pytest.raises(Refused, match=r"^bench/native does not build with \S+/mm/vmalloc.c; .* has changed too much"):
        native.build(target="rbtree.o")


@pytest.mark.parametrize("words, text", [
    (("--cases", "no"), "unknown case no"), (("--threads", "0"), "--threads must be"), (("--side", "no"), "unknown side no"),
    (("--passes", "1x"), "--passes must be"), (("--nosuch",), "wrong option --nosuch"), (("no",), "wrong argument no")])
def test_program_refuses(kernel, words, text):
    """The program itself, which runs on other machines, too, says in one line what is wrong."""
    assert kernel
    done = subprocess.run(in_root(native.build("check"), *words), capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("native: error: ") and text in done.stderr


def made_up(**more):
    """Return passes of all sides, rust twice as fast, with what is in more: lists of one value for each pass."""
    passes = []
    for side, cost in (("rbtree", 100), ("rust", 50), ("calls", 110)):
        for number in range(12):
            passes.append({"side": side, "cost": cost + number / 1000, "rate": 1e9 / cost, "had_cpu": 1.0, "p50": cost,
                           "p99.9": cost, "max": cost, **{name: values[number] for name, values in more.items()}})
    return passes


def test_places(tmp_path):
    """Passes are sorted by how far CPUs were apart, and disturbed ones do not count; other commands read the result. In the
    tables of the documents a loss is bold, and passes of CPUs that are far apart are left out."""
    near, far = [60.0, 70.0], [325.0, 330.0]
    tests = [
        {"case": "area_pair", "threads": 1, "passes": made_up(had_cpu=[0.5] * 3 + [1.0] * 9), "flushes": {}},
        {"case": "area_64", "threads": 1, "passes": made_up(had_cpu=[0.5] * 12), "flushes": {}},
        {"case": "area_64", "threads": 2, "passes": made_up(ping=[near] * 6 + [far] * 5 + [[60.0, 330.0]]), "flushes": {}}]
    raw = {"format": 1, "had_cpu": 0.97, "linux": "7.3.4", "commit": "made-up", "compilers": "none", "tests": tests,
           "machine": {"cpu": "made up", "cores": 2, "siblings": "0", "hypervisor": True, "mitigations": {}}}
    rows, disturbed = native_report.places(raw)
    assert {key: len(sides["rust"]) for key, sides in rows.items()} == {
        ("area_pair", 1, ""): 9, ("area_64", 1, ""): 12, ("area_64", 2, "near"): 6, ("area_64", 2, "far"): 5}
    assert disturbed == 3 * 15
    (tmp_path / "raw").write_text(json.dumps(raw))
    env = {"VMAP_RUST_RESULTS": str(tmp_path)}
    code, text = bench("native", "--from", tmp_path / "raw", **env)
    assert code == 0 and re.search(r"area_64 +│ +2 │ far, 328 ns +│ +100.0 │ +50.0 │ +110.0 │ +0.50 .*│ +1.10 ", text), text
    assert "other programs had the CPUs during 45 of 108 passes" in text
    code, text = bench("show", "last", **env)
    assert code == 0 and re.search(r"area_64 far +│ 2x2 .*0.500", text) and "native-calls: " in text, text
    code, text = bench("figures", "last", **env)
    assert code == 0 and "\n| reserve and free a page | 100 -> 50.0 (-50%) | - | **100 -> 110 (+10%)** |\n" in text, text
    assert "\n| reserve and free 64 pages | 100 -> 50.0 (-50%) | 100 -> 50.0 (-50%) | **100 -> 110 (+10%)** |\n" in text, text
    assert re.findall(r"^\| `area_64` \| ([12]) \| ([^|]*) \| 100 -> 50[^|]* \| (\**)100 -> 110", text, re.M) == [
        ("1", "", "**"), ("2", "65 ns", "**")], text
