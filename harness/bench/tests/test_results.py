# SPDX-License-Identifier: GPL-2.0
"""What reads, judges and shows stored results, tested with made-up ones."""

import json
import os
import re

import numpy as np
import pytest

from harness.bench import complaints, figures, plan, report, results, stats
from harness.machine.settings import Refused

from conftest import bench


def result_of(cases, boots=15, noise=0.01, seed=1, cpus=(1,)):
    """A result of cases {name: (A, B)}."""
    rng = np.random.default_rng(seed)
    made = [{"instrument": "icount", "plan": "one", "side": side, "allocator": "x", "cpus": number_of,
             "repetition": repetition, "status": "ok", "skips": [], "results": [
                 {"case": name, "metric": "cost", "unit": "ns", "threads": 1,
                  "value": float(pair[number] * np.exp(rng.normal(0, noise)))} for name, pair in cases.items()]}
            for number_of in cpus for repetition in range(boots) for number, side in enumerate("ab")]
    return {"kind": results.KIND, "started": "20261120-220000", "command": "scripts/bench", "commit": "0123abcd",
            "sides": {"a": "rbtree", "b": "rust"}, "kernels": {"arm64-bench": "7.3.4; clang"},
            "instruments": ["icount"], "boots": made}


def row_of(a, b):
    """A row of these values."""
    return stats.make_row(("icount", 1, 1, "x", "cost"), "pages", a, b)


def by_case(result):
    """Rows of a result by case."""
    return {row.case: row for row in stats.rows(result)}


@pytest.mark.parametrize("data, words", [(b'{"kind": ', "is not JSON, or was cut off"),
                                         (b'{"kind": "vmap-rust-bench"}', "is no result of this version")])
def test_stored(monkeypatch, tmp_path, data, words):
    """Half of a file, and one of another version, by name and by path: one line."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    (tmp_path / "x.json").write_bytes(data)
    for name in "last", f"{tmp_path}/x.json":
        with pytest.raises(Refused, match=words):
            results.load(name)


def test_verdicts():
    """A/A with noise: at least 95% of the rows say no difference. 5% in either direction is found with 1% noise and 15
    boots; 1% is below the floor even without noise; few boots say nothing."""
    rows = stats.rows(result_of({f"case_{n}": (1000, 1000) for n in range(300)}, noise=0.05, seed=2))
    assert sum(row.verdict == "no difference" for row in rows) >= 0.95 * len(rows)
    rows = by_case(result_of({"up": (1000, 1050), "down": (1050, 1000)}, seed=3))
    assert (rows["up"].verdict, rows["down"].verdict) == ("slower", "faster")
    assert rows["up"].ratio == pytest.approx(1.05, abs=0.012)
    assert by_case(result_of({"up": (1000, 1010)}, noise=1e-5))["up"].verdict == "no difference"
    assert by_case(result_of({"up": (1000, 2000)}, 4))["up"].verdict == "too few"


def test_interval():
    """With 5 and 5 values the third smallest and largest of 25 differences bound it: P(U < 3) = 4 / 252. It has the
    true ratio in it in about 95% of 200 draws."""
    a, b = [1, 2, 4, 8, 16], [3, 5, 9, 17, 33]
    every, row = sorted(y / x for x in a for y in b), row_of(a, b)
    np.testing.assert_allclose((row.low, row.ratio, row.high), (every[2], every[12], every[-3]))
    rng, inside = np.random.default_rng(4), 0
    for _ in range(200):
        row = row_of(100 * np.exp(rng.normal(0, 0.05, 9)), 130 * np.exp(rng.normal(0, 0.05, 11)))
        inside += row.low <= 1.3 <= row.high
    assert 182 <= inside <= 199


def test_p():
    """Exact without ties, and with them: 4 of 252 orders of these are as far apart."""
    assert stats.rank_test([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252, abs=1e-7)
    assert stats.rank_test([1] * 5, [2] * 5) == pytest.approx(2 / 252, abs=1e-7)


@pytest.mark.parametrize("a, b, ratio, verdict", [
    ([7] * 5, [8] * 5, 8 / 7, "slower"),
    ([0] * 5, [0, 0, 0, 1, 2], None, "no difference"),
    ([4, 5, 6, 7, 8], [0] * 5, None, "faster"),
    ([0, 9, 10, 11, 12], [0, 9, 10, 11, 12], 1.0, "no difference"),
    ([-9, -8, -7, -6, -5], [5, 6, 7, 8, 9], None, "slower"),
    ([1] * 5, [], None, "one side")])
def test_zeros(a, b, ratio, verdict):
    """Equal values, medians of 0 on both sides, on one, single zeros, negative values, and none."""
    row = row_of(a, b)
    assert (pytest.approx(row.ratio) == ratio if ratio else row.ratio is None) and row.verdict == verdict


def test_boots_that_do_not_count(tmp_path):
    """They have no values, and are named, with cases that were skipped, or that failed with an allocator."""
    result = result_of({"area_pair": (1, 2)}, 5)
    result["boots"][0] |= {"status": "x"}
    result["boots"][1] |= {"skips": [{"case": "growth", "threads": 2, "reason": "no"},
                                     {"case": "mixed", "threads": 1, "reason": "failed: -ENOMEM"}]}
    assert by_case(result)["area_pair"].verdict == "too few"
    assert report.failures(result) == ["boot does not count: icount one a (x) repetition 0: x",
                                       "skipped: icount growth 1x2, x: no", "skipped: icount mixed 1x1, x: failed: -ENOMEM"]
    # Without any row there still is a plot.
    report.plot(result | {"boots": result["boots"][:1]}, tmp_path / "plot.svg")


@pytest.mark.parametrize("new, code, words", [
    ((1000, 1050), 1, "1 slower, 0 faster, 0 as before"), ((1000, 950), 0, "0 slower, 1 faster, 0 as before"),
    ((2000, 1000), 0, "0 slower, 0 faster, 1 as before, 0 of too few boots, 0 missing")])
def test_compare(capsys, new, code, words):
    """Exit code 1: side B became slower. Side A does not matter. Nothing in common is refused."""
    old = result_of({"up": (1000, 1000)})
    assert report.compare(old, result_of({"up": new}, seed=13)) == code and words in capsys.readouterr().out
    with pytest.raises(Refused, match="no case of side B was counted in both"):
        report.compare(old, result_of({"other": (1, 1)}))


@pytest.mark.parametrize("instrument, refused", [("machine", False), ("native", True)])
def test_compare_times(capsys, instrument, refused):
    """Times are compared if they are of a machine of one's own, which has nothing else."""
    old, new = (result_of({"up": (900, cost)}) | {"instruments": [instrument]} for cost in (1000, 1100))
    for boot in old["boots"] + new["boots"]:
        boot["instrument"] = instrument
    if refused:
        with pytest.raises(Refused, match="no case of side B was counted in both"):
            report.compare(old, new)
    else:
        new["kernels"] = {new["sides"]["b"]: "cpu X, kernel 7.3.4"}
        assert report.compare(old, new) == 1
        text = capsys.readouterr().out
        assert "1 slower, 0 faster" in text and "new: cpu X, kernel 7.3.4\ntimes of one boot each" in text


def test_figures():
    """The bases are side by side with losses first and bold. README.md has its own cases first, then others that lose. Each
    table has its command and commit."""
    made = figures.tables(result_of({"area_pair": (1000, 500), "aliases_1": (1000, 1200), "area_4": (1000, 1000),
                                     "area_512": (1000, 700), "memory": (10, 5)}, 5, noise=0, cpus=(1, 2)))
    assert re.findall(r"^\| `(\w+)` \| (\**)[\d,]+ -> [\d,]+, [^|]+ \| (\**)\d", made["icount"], re.M) == [
        ("aliases_1", "**", "**"), ("area_4", "", ""), ("area_512", "", ""), ("area_pair", "", "")]
    assert len(re.findall(r"^\| memory \| [12]x1 \| icount \| [\d.]+ -> [\d.]+, 0.50[^|]* \|$", made["rest"], re.M)) == 2
    assert re.findall(r"^\| ([^|]*) \| (\**)[^|]* -> [^|]* \(([+-]\d+%)\)", made["readme"], re.M) == [
        ("reserve and free a page", "", "-50%"), ("reserve and free four pages", "", "+0%"),
        ("vm_unmap_aliases() after one of 4,096 areas was freed", "**", "+20%")]
    assert all(text.startswith("`scripts/bench`, commit 0123abcd.") for text in made.values())


def test_complaints():
    """Each row is run by a plan, with a case that the guest knows. A loss needs all boots, and 2%; for some rows more is better.
    README.md has the best rows and the worst ones."""
    assert all(row.plan in plan.COMPLAINTS and row.key[3] in plan.guest_cases() for row in complaints.ROWS)
    row = complaints.ROWS[0]
    assert [row.is_worse([100, 101], b) for b in ([103, 104], [100.5, 110], [101.5, 101.6], [90, 91])] == [True, False, False, False]
    made = [one for one in complaints.ROWS if one.more_is_better][0]
    assert made.is_worse([103, 104], [100, 101]) and not made.is_worse([100, 101], [103, 104])
    result = result_of({}, 3) | {"command": "scripts/bench complaints"}
    for boot in result["boots"]:
        boot["results"] = [{"case": row.key[3], "metric": row.key[4], "unit": "ns", "threads": row.key[2],
                            "value": 100 if boot["side"] == "a" else 50 + 10 * number}
                           for number, row in enumerate(complaints.ROWS)]
        boot["cpus"] = complaints.ROWS[0].key[1]
    tables = figures.tables(result)
    assert tables["complaints"].count("\n| ") >= 2 and "**" in tables["readme-complaints"] and "0.500" in tables["complaints"]


def test_written(monkeypatch, tmp_path):
    """A table replaces the one between its two lines; a document without them is refused."""
    monkeypatch.setattr(figures, "REPO", tmp_path)
    document = tmp_path / "README.md"
    document.write_text(f"a\n<!-- figures readme -->\nold\n{figures.END}\nb\n")
    figures.put("readme", "new\n")
    assert document.read_text() == f"a\n<!-- figures readme -->\nnew\n{figures.END}\nb\n"
    document.write_text("a\n")
    with pytest.raises(Refused, match="<!-- figures readme -->"):
        figures.put("readme", "new\n")


@pytest.mark.parametrize("words, pattern", [
    ("nosuch", "unknown command nosuch; see --help"),
    ("show last~9999", "there is no result last~9999"),
    ("--set foo", "--set: invalid choice: 'foo'"),
    ("--instruments foo", '--instruments: invalid choice: .foo.'),
    ("--set mapping --instruments lines", "--set, --a, --instruments and --cases leave nothing to measure"),
    ("--instruments latency --cases area_pair", "--cases leave nothing to measure"),
    ("--repetitions 0", "--repetitions: must be a whole number from 1 to 1000"),
    ("--cases area_pair,nosuch", '^bench: error: unknown case "nosuch"; scripts/bench list prints them$'),
    ("native --cases area_pair,nosuch", 'unknown case "nosuch"; there are area_pair .*'),
    ("native --threads 0", '--threads: must be a whole number from 1 to [0-9]+, not "0"'),
    ("native --passes no", "--passes: must be a whole number from 1 to 1000"),
    ("native --from /nosuch", "/nosuch: cannot be read: No such file"),
    ("native --from README.md", "README.md: is not what the program printed")])
def test_refused(words, pattern):
    """Exit code 1 and one line that says what to do, before anything is prepared or built."""
    code, text = bench(*words.split(), TOOLCHAIN="host", VMAP_RUST_IN_ROOT="0")
    assert code == 1 and text.count("\n") == 1 and re.search(pattern, text), text


def test_commands(tmp_path, monkeypatch):
    """The commands that read results, by their names, and a pipe that is closed early."""
    monkeypatch.setenv("VMAP_RUST_RESULTS", str(tmp_path))
    (tmp_path / "1.json").write_text(json.dumps(result_of({"up": (1000, 1000)})))
    (tmp_path / "2.json").write_text(json.dumps(result_of({"up": (1000, 2000)})))
    assert " slower " in bench("show", "last")[1] and " slower " not in bench("show", "1")[1]
    assert bench("compare", "last~1", "last")[0] == 1 and bench("figures", "last")[0] == 0
    assert re.search("1,00. -> 1,00. -> 2,00", bench("figures", "last~1", "last")[1])
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as out:
        assert bench("show", "last", stdout=out)[0] == 1
