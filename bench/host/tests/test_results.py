# SPDX-License-Identifier: GPL-2.0
"""What reads, judges and shows stored results, tested with made-up ones."""

import os
import re
import subprocess

import numpy as np
import pytest
from scipy.stats import PermutationMethod, mannwhitneyu

from bench.host import patches, report, stats, store, table
from harness.settings import REPO, Refused


def result_of(cases, boots=15, noise=0.01, seed=1, instrument="icount", drift=0.0):
    """A result of cases {name: (A, B)}; drift: how much faster or slower the host is, boot by boot."""
    rng, made = np.random.default_rng(seed), []
    for repetition in range(boots):
        speed = np.exp(rng.normal(0, drift))
        made += [{"instrument": instrument, "plan": "one", "side": side, "allocator": "x", "cpus": 1, "seconds": 3.2,
                  "repetition": repetition, "status": "ok", "skips": [], "results": [
                      {"case": name, "metric": "cost", "unit": "ns", "threads": 1,
                       "value": float(pair[number] * speed * np.exp(rng.normal(0, noise)))}
                      for name, pair in cases.items()]} for number, side in enumerate("ab")]
    return {"kind": store.KIND, "started": "2026-11-20T22:00:00Z", "command": "make bench", "set": "quick",
            "commit": "0123abcd", "host": "Model <1> & co", "sides": {"a": "rbtree", "b": "rust"},
            "kernels": {"arm64-bench": "7.3.4; clang"},
            "instruments": {instrument: {"what": "what", "absolute": instrument == "icount"}}, "boots": made}


def row_of(a, b):
    """A row of these values."""
    return stats.make_row(("icount", 1, 1, "x", "cost"), "pages", a, b)


def by_case(result):
    """Rows of a result by case."""
    return {row.case: row for row in stats.rows(result)}


def test_round_trip(tmp_path):
    """What is stored comes back; what cannot be stored leaves everything as it was."""
    path, result = tmp_path / "result.json", result_of({"area_pair": (1, 2)}, 2)
    store.save(path, result)
    with pytest.raises(ValueError):
        store.save(path, {"value": float("nan")})
    with pytest.raises(Refused, match="cannot be written: No such file"):
        store.save(tmp_path / "none/result.json", {})
    assert store.load(path) == result and os.listdir(tmp_path) == ["result.json"]


@pytest.mark.parametrize("data, words", [
    (None, "cannot be read: No such file"), (b"", "is not JSON"), (b"\xff\xfe", "is not JSON"),
    (b'{"kind": ', "is not JSON, or was cut off"), (b"[" * 100_000, "is not JSON"),
    (b"[]", "is no result of this version"),
    (b'{"kind": "vmap-rust-bench", "format": 1}', "is no result of this version of the benchmark; take it again")],
    ids=lambda value: str(value)[:12])
def test_no_result(tmp_path, data, words):
    """No file, half of one, and one of another version: one line."""
    path = tmp_path / "result.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(Refused) as caught:
        store.load(path)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_same_code_twice():
    """A/A with noise: at least 95% of the rows say no difference."""
    rows = stats.rows(result_of({f"case_{n}": (1000, 1000) for n in range(300)}, noise=0.05, seed=2))
    assert sum(row.verdict == "no difference" for row in rows) >= 0.95 * len(rows)


def test_five_percent_is_found():
    """5% in either direction with 1% noise and 15 boots; 1% is below the floor even without noise; few boots say
    nothing."""
    rows = by_case(result_of({"up": (1000, 1050), "down": (1050, 1000)}, seed=3))
    assert (rows["up"].verdict, rows["down"].verdict) == ("slower", "faster")
    assert rows["up"].ratio == pytest.approx(1.05, abs=0.012)
    row = by_case(result_of({"up": (1000, 1010)}, noise=1e-5))["up"]
    assert row.verdict == "no difference" and row.p < stats.ALPHA
    assert by_case(result_of({"up": (1000, 2000)}, 4))["up"].verdict == "too few"
    assert row_of([1] * 5, []).verdict == "one side"


def test_interval():
    """With 5 and 5 values the third smallest and largest of 25 differences bound it: P(U < 3) = 4 / 252. It has the
    true ratio in it in about 95% of 200 draws."""
    assert [stats.interval_rank(n, m) for n, m in ((3, 3), (4, 4), (5, 5), (10, 10), (15, 15))] == [0, 1, 3, 24, 65]
    a, b = [1, 2, 4, 8, 16], [3, 5, 9, 17, 33]
    every, row = sorted(y / x for x in a for y in b), row_of(a, b)
    np.testing.assert_allclose((row.low, row.ratio, row.high), (every[2], every[12], every[-3]))
    rng, inside = np.random.default_rng(4), 0
    for _ in range(200):
        row = row_of(100 * np.exp(rng.normal(0, 0.05, 9)), 130 * np.exp(rng.normal(0, 0.05, 11)))
        inside += row.low <= 1.3 <= row.high
    assert 182 <= inside <= 199


def test_p():
    """Exact with and without ties, as scipy's enumeration of permutations."""
    rng = np.random.default_rng(5)
    for size in (4, 5, 6):
        for a, b in ((rng.normal(0, 1, size), rng.normal(1, 1, 5)),
                     (rng.integers(0, 4, size), rng.integers(1, 5, size))):
            enumerated = mannwhitneyu(a, b, method=PermutationMethod(n_resamples=10_000)).pvalue
            assert stats.rank_test(a, b) == pytest.approx(enumerated, abs=1e-7)
    assert stats.rank_test([1] * 5, [2] * 5) == pytest.approx(2 / 252, abs=1e-7)
    assert stats.rank_test([1] * 15, [2] * 15) < 0.001 and stats.rank_test([3] * 40, [3] * 40) == 1.0
    assert stats.rank_test([1, 2, 2], [3]) == 1.0


@pytest.mark.parametrize("a, b, ratio, verdict", [
    ([7] * 5, [7] * 5, 1.0, "no difference"),
    ([7] * 5, [8] * 5, 8 / 7, "slower"),
    ([0] * 5, [0, 0, 0, 1, 2], 1.0, "no difference"),
    ([0] * 5, [4, 5, 6, 7, 8], None, "slower"),
    ([4, 5, 6, 7, 8], [0] * 5, None, "faster"),
    ([0, 9, 10, 11, 12], [0, 9, 10, 11, 12], 1.0, "no difference"),
    ([-9, -8, -7, -6, -5], [5, 6, 7, 8, 9], None, "slower")])
def test_zeros(a, b, ratio, verdict):
    """Equal values, medians of 0 on both sides, on one, single zeros, and negative values."""
    row = row_of(a, b)
    assert (pytest.approx(row.ratio) == ratio if ratio else row.ratio is None) and row.verdict == verdict


def test_boots_that_do_not_count():
    """They have no values, and are named, with cases that were skipped."""
    result = result_of({"area_pair": (1, 2)}, 5)
    result["boots"][0] |= {"status": "died: x"}
    result["boots"][1] |= {"skips": [{"case": "growth", "threads": 2, "reason": "no"}]}
    assert len(by_case(result)["area_pair"].a) == 4
    assert list(report.failures(result)) == ["boot does not count: icount one a (x) repetition 0: died: x",
                                             "skipped: icount growth 1x2: no"]


@pytest.mark.parametrize("new, code, drift", [
    ({"up": (1000, 1050)}, 1, 0), ({"up": (1000, 950)}, 0, 0), ({"up": (1000, 1000)}, 0, 0), ({"other": (1, 1)}, 1, 0),
    # Another day is another speed of the host: only the ratio to side A counts.
    ({"up": (2000, 2000)}, 0, 0.3), ({"up": (2000, 2300)}, 1, 0.3)])
def test_compare(capsys, new, code, drift):
    """Exit code 1: slower, or nothing to compare."""
    instrument = "uml" if drift else "icount"
    old = result_of({"up": (1000, 1000)}, instrument=instrument, drift=drift)
    new = result_of(new, seed=13, instrument=instrument, drift=drift) | {"host": "another"}
    assert report.compare(old, new) == code
    assert "nothing to compare" in (text := capsys.readouterr().out) or "host differs" in text


def test_tables():
    """Losses are bold in documents, not in terminals; cells are escaped."""
    one = table.Table("<title>", ["case", ">A"], [["a|b", "**2**"]], ["red"])
    assert table.markdown(one) == "| case | A |\n| --- | ---: |\n| a\\|b | **2** |\n"
    page = table.page("t", ["<&>", one, b"<svg/>"])
    assert "&lt;title&gt;" in page and '<tr class="red"><td class="">a|b</td><td class="n">2</td>' in page
    assert "<p>&lt;&amp;&gt;</p>" in page and "data:image/svg+xml;base64," in page


def test_figures():
    """The bases are side by side with losses first and bold; the page has all rows and a plot."""
    result = result_of({"area_pair": (1000, 1200), "memory": (10, 5)}, 5)
    for number, boot in enumerate(list(result["boots"])):
        result["boots"].append(boot | {"cpus": 2, "repetition": number, "results": [
            one | {"value": one["value"] / 2} for one in boot["results"]]})
    bases, others = report.figures(result)
    assert [row[0] for row in bases.rows] == ["`area_pair`"] and bases.rows[0][1].startswith("**")
    assert [row[:3] for row in others.rows] == [["memory", "1x1", "icount"], ["memory", "2x1", "icount"]]
    assert all(re.fullmatch(r"cost [\d.]+ -> [\d.]+ instr", row[3]) for row in others.rows)
    page = report.page(result)
    assert "memory" in page and "image/svg" in page and "Model &lt;1&gt; &amp; co" in page


def test_sides():
    """A row for each case, red where a side takes more than the kernel without patches."""
    shown = report.sides(result_of({"x": (1000, 2000)}, 5, 0), result_of({"x": (1000, 500)}, 5, 0))
    assert (shown.columns, shown.rows) == (["case", ">1x1"], [["x", "1,000 -> 2,000 -> 500"]])
    assert shown.styles == ["red"]


def test_patches():
    """All patches of both series are in order; a row has what the series and single patches change."""
    names = patches.patches()
    assert names[:2] == ["fixes 1", "fixes 2"] and names[-1].startswith("mapping ") and len(set(names)) == len(names)
    states = {count: {("x", "2x1"): 1000 if count < 2 else 500, ("same", "2x1"): 7} for count in range(len(names) + 1)}
    assert list(patches.patches_rows("arm64-bench", names, states)) == [
        ["arm64", "x", "2x1", "1,000 -> 500 (0.50)", "", "fixes 2 0.50"]]
    # Only whole series.
    states = {count: states[count] for count in (0, sum(name.startswith("fixes") for name in names), len(names))}
    assert list(patches.patches_rows("x86_64-bench", names, states)) == [
        ["x86_64", "x", "2x1", "1,000 -> 500 (0.50)", "", ""]]


def test_put(tmp_path):
    """Tables replace what stands between two marks, and nothing else."""
    page = tmp_path / "page.md"
    page.write_text(f"before\nMARK\nold\n{table.END}after\n", encoding="utf-8")
    table.put(page, "MARK\n", "new\n")
    assert page.read_text(encoding="utf-8") == f"before\nMARK\n\nnew\n\n{table.END}after\n"
    page.write_text("nothing\n", encoding="utf-8")
    with pytest.raises(Refused, match="has no line"):
        table.put(page, "MARK\n", "new\n")


def bench(*words, stdout=subprocess.PIPE):
    """Run the program behind scripts/bench; returns the exit code, its output and its errors."""
    done = subprocess.run(["python3", "-P", "-m", "bench.host", *words], stdout=stdout, stderr=subprocess.PIPE,
                          text=True, check=False, env={**os.environ, "PYTHONPATH": str(REPO)})
    return done.returncode, done.stdout, done.stderr


def test_commands(tmp_path):
    """The commands that read results, and a pipe that is closed early."""
    old = tmp_path / "old.json"
    store.save(old, result_of({"up": (1000, 1000)}))
    assert "up" in bench("show", old)[1]
    assert bench("show", old, "-o", tmp_path / "page.html") == (0, "", "")
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert bench("compare", old, old)[0] == 0 and "1,000 -> 1,002 -> 1,002" in bench("sides", old, old)[1]
    assert bench("figures", old)[0] == 0
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as out:
        assert bench("show", old, stdout=out) == (1, None, "")
