# SPDX-License-Identifier: GPL-2.0
"""Pictures of tables."""

import re
from xml.etree import ElementTree

import pytest

from harness.bench import pictures

# Tables of docs/bench.md: losses beyond the axis and on it, a gain beyond it, no difference, no ratio, and more that is better.
TABLES = """
<!-- figures icount -->
`scripts/bench --set figures`, commit 0123456789ab. Rows with a loss first, losses bold.

| case | 1x1 | 2x1 |
| --- | ---: | ---: |
| `loses` | **1 -> 263, 263.15** | **100 -> 150, 1.50 (1.40 to 1.60)** |
| `gains` | 1,000 -> 60, 0.06 | 100 -> 50, 0.50 (0.40 to 0.60) |
| `even` | 0 -> 0 | 100 -> 90, 0.90 (0.70 to 1.10) |
<!-- end of figures -->
<!-- figures complaints -->
`scripts/bench complaints`, commit 0123456789ab.

| complaint | load | rb-trees | Rust | ratio | figure |
| --- | --- | ---: | ---: | ---: | --- |
| Small machines lose memory | fill it | 1,580 | **1,844** | 1.167 | KiB that do not come back |
| Module space is full | fill it | 1,000 | **500** | 0.500 | MiB that could be reserved |
| CPUs wait | wait | 200 | 100 | 0.500 | instructions |
<!-- end of figures -->
<!-- figures programs -->
`scripts/bench programs`, commit 0123456789ab, medians of 5 boots.

| program | one operation | areas | A | B | C | B/A | B/C | spread |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| unshare | unshare --fork | 0.551 | 100 | 101 | 200 | **1.010** | 0.500 | 0.10% |
<!-- end of figures -->
"""


@pytest.fixture(name="repo")
def small_repo(tmp_path, monkeypatch):
    """A repository that has only docs/bench.md, and its pictures."""
    monkeypatch.setattr(pictures, "REPO", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/bench.md").write_text(TABLES)
    pictures.main()
    return tmp_path / "docs"


def drawn(path):
    """Return of each text of a picture x and whether it has the colour of a loss, and x of the markers of each colour."""
    root, texts, marks = ElementTree.parse(path).getroot(), {}, {}
    for one in root.iter("{http://www.w3.org/2000/svg}text"):
        x = one.get("x") or re.match(r"translate\(([\d.]+)", one.get("transform"))[1]
        texts.setdefault(one.text, []).append((float(x), "#d55e00" in one.get("style")))
    for one in root.iter("{http://www.w3.org/2000/svg}use"):
        marks.setdefault(re.search("fill: (#[0-9a-f]+)|$", one.get("style", ""))[1], []).append(float(one.get("x")))
    return texts, marks


def test_losses(repo):
    """A row that loses has the colour of a loss, also its label, and is right of 1; others are not. Beyond the axis the number
    is written. What gives less where more is better loses."""
    texts, marks = drawn(repo / "figures-cases.svg")
    one, left = texts["1"][0][0], texts["0.25"][0][0]
    # One of each colour is in the legend, which comes last.
    assert min(marks["#d55e00"][:2]) > one and len(marks["#d55e00"]) == 3
    assert max(marks["#009e73"][:2]) < one and marks["#009e73"][0] == pytest.approx(left, abs=0.1)
    assert texts["loses"][0][1] and not texts["gains"][0][1] and not texts["even"][0][1]
    (loss, _), (gain, _) = texts["263"][0], texts["0.06"][0]
    assert gain < left < texts["0.5"][0][0] < one < texts["2"][0][0] < loss and "1.5" not in texts
    texts, _ = drawn(repo / "figures-complaints.svg")
    assert texts["2"] and texts["Module space is full"][0][1] and texts["1.17"][0][0] > texts["1"][0][0] > texts["0.5"][0][0]


def test_lines():
    """Sizes, ratios, intervals and verdicts of each table."""
    tables = dict(re.findall(r"<!-- figures (\w+) -->\n(.*?)<!-- end", TABLES, re.S))
    lines = pictures.lines_of("icount", tables["icount"])
    assert lines == {"loses": [("1x1", 263.15, None, None, "slower"), ("2x1", 1.5, 1.4, 1.6, "slower")],
                     "gains": [("1x1", 0.06, None, None, "faster"), ("2x1", 0.5, 0.4, 0.6, "faster")],
                     "even": [("2x1", 0.9, 0.7, 1.1, "no difference")]}
    assert [*pictures.lines_of("complaints", tables["complaints"]).values()] == [
        [("", 0.5, None, None, "faster")], [("", 1.167, None, None, "slower")], [("", 2, None, None, "slower")]]
    assert pictures.lines_of("programs", tables["programs"]) == {
        "unshare\nunshare --fork": [("B/A", 1.01, None, None, "slower"), ("B/C", 0.5, None, None, "faster")]}
    assert pictures.lines_of("rest", "| a | b | c | >d |\n| - |\n| area misses | 8x8 | lines | 4 -> 2, 0.50 |") == {
        "area misses": [("8x8", 0.5, None, None, "faster")]}
    assert pictures.lines_of("native", "| a |\n| - |\n| `area` | 2 | 9 ns | 4 -> 2, 0.50 | **4 -> 8, 2.00** |") == {
        "area": [("2 threads", 0.5, None, None, "faster")], "area, calls": [("2 threads", 2, None, None, "slower")]}


def test_stale(repo):
    """The bytes are the same each time. A picture is stale after a change of a number in its table, without it, and without the
    table, until it is drawn again."""
    document, old = repo / "bench.md", {path: path.read_bytes() for path in repo.glob("*.svg")}
    assert len(old) == 3 and not pictures.stale()
    pictures.main()
    assert old == {path: path.read_bytes() for path in repo.glob("*.svg")}
    document.write_text(TABLES.replace("1.50 (", "1.51 ("))
    assert pictures.stale() == ["figures-cases.svg"]
    (repo / "figures-programs.svg").unlink()
    document.write_text(TABLES.replace("<!-- figures complaints -->", ""))
    assert pictures.stale() == ["figures-programs.svg", "figures-complaints.svg"]
    pictures.main()
    assert not pictures.stale() and not (repo / "figures-complaints.svg").exists()
