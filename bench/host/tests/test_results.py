# SPDX-License-Identifier: GPL-2.0
"""What reads stored results, tested with made-up ones."""

import copy
import json
import os
import re
import subprocess

import numpy as np
import pytest
from scipy.stats import PermutationMethod, mannwhitneyu

from bench.host import compare, figures, markdown, page, plan as plans, plots, report, stats, store, table
from harness.settings import REPO, Refused


def empty_result():
    """A result of three instruments, one of them not used, without boots."""
    kernel = {"version": "7.3.4", "config_hash": "0123456789abcdef", "compiler": "clang 19.1.7",
              "options": {"CONFIG_PREEMPT": "y"}, "text": 20_000_000, "data": 9_000_000, "bss": 700_000}
    used = {"used": True, "kernel": "arm64-bench"}
    instruments = {"icount": {**used, "absolute": True, "unit": "instructions", "what": "QEMU -icount, instructions"},
                   "wall": {**used, "absolute": False, "unit": "nanoseconds", "what": "QEMU, time of the host"},
                   "kvm": {"used": False, "reason": "/dev/kvm cannot be opened"}}
    return {"kind": "vmap-rust-bench", "format": 1, "command": "make bench", "set": "quick", "commit": "0123abcd",
            "started": "2026-11-20T22:00:00Z", "finished": "2026-11-20T22:40:00Z",
            "host": {"cpu": "Model <1> & co", "cpus": 2, "mem_mib": 24000, "kernel": "6.1.0", "qemu": "10.0.2"},
            "sides": {"a": "rbtree", "b": "rust"}, "kernels": {"arm64-bench": kernel}, "instruments": instruments,
            "boots": []}


def series(case, value, unit="ns", metric="cost", threads=1):
    """One result of a boot."""
    return {"case": case, "metric": metric, "unit": unit, "threads": threads, "value": value}


def add_boot(result, side, repetition, results, instrument="icount", plan="one-cpu", cpus=1, status="ok", skips=(),
             hists=()):
    """Add a boot to a result."""
    result["boots"].append({
        "instrument": instrument, "plan": plan, "side": side, "allocator": result["sides"][side], "cpus": cpus,
        "repetition": repetition, "seed": 100 + repetition, "seconds": 3.2, "command": "qemu-system-aarch64 -M virt",
        "status": status, "results": list(results), "skips": list(skips), "hists": list(hists)})


def simple_result(cases, boots=15, noise=0.01, seed=1, instrument="icount", drift=0.0):
    """A result of cases {name: (A, B)}; drift: how much faster or slower the host is, boot by boot."""
    rng, result = np.random.default_rng(seed), empty_result()
    for repetition in range(boots):
        speed = np.exp(rng.normal(0, drift))
        for number, side in enumerate("ab"):
            values = [series(name, float(pair[number] * speed * np.exp(rng.normal(0, noise))))
                      for name, pair in cases.items()]
            add_boot(result, side, repetition, values, instrument)
    return result


def make_results(rng, number, cpus, noise):
    """Results of one boot: of every kind that a table or a plot shows. number: 0 for side A, 1 for side B."""
    names = ["kmalloc_pair", "area_pair", "area_4", "vmalloc_pair", "stack", "align_2m", "vmap_16", "ioremap_64k",
             "lookup_start_1k", "mixed", "test:full_fit_alloc"]
    results = []
    for n, name in enumerate(names):
        factor = [1, 1.6, 0.7, 1.2, 1.0, 2.4, 0.9][n % 7] * (1 + 0.3 * (cpus - 1)) if number else 1
        results.append(series(name, round(1000 * 1.4 ** n * factor * np.exp(rng.normal(0, noise))), threads=cpus))
    results += [series("burst_order", 900 + 30 * number, metric=metric, threads=cpus) for metric in ("alloc", "free")]
    results += [series("latency_alloc", 500 * 3 ** n * (1 + number) + int(rng.integers(9)), metric=metric, threads=cpus)
                for n, metric in enumerate(("p50", "p99", "p99.9", "max"))]
    if cpus == 1:
        for areas in (1000, 16000, 100000):
            value = 200 + 4000 * (2 - number) / areas ** 0.5
            results.append(series(f"memory_{areas}", value, "bytes", "total"))
            results.append(series("memory", value, "bytes", f"slabs_{areas}"))
        results += [series("page_tables", 400 + 40 * n * (1 - number), "KiB", f"cycle_{n}") for n in range(1, 7)]
    return results


def make_hist(rng, number, cpus):
    """A histogram of latencies, with four buckets for each power of two and one for 0."""
    values = np.exp(rng.normal(6 + 0.4 * number, 0.8, 2000))
    quarters, counts = np.unique(np.floor(np.log2(values) * 4), return_counts=True)
    buckets = [[0, 3], *([int(2 ** (quarter / 4)), int(count)] for quarter, count in zip(quarters, counts))]
    return {"case": "latency", "metric": "alloc", "unit": "ns", "threads": cpus, "buckets": buckets}


def full_result(boots=7, seed=1):
    """A result with every kind of data, for the tables, the page and its plots."""
    rng, result = np.random.default_rng(seed), empty_result()
    for repetition in range(boots):
        for number, side in enumerate("ab"):
            for instrument, noise in (("icount", 0.003), ("wall", 0.03)):
                for cpus in (1, 2, 4):
                    skip = {"case": "cross_cpu", "threads": 1, "reason": "needs 2 threads"}
                    results = make_results(rng, number, cpus, noise)
                    add_boot(result, side, repetition, results, instrument, f"cpus-{cpus}", cpus,
                             skips=[skip] if cpus == 1 else [], hists=[make_hist(rng, number, cpus)])
    add_boot(result, "b", boots, [series("area_pair", 1)], status="died: exit code 137 after case area_pair")
    add_boot(result, "b", 0, [], "kvm", status="skipped: no memory")
    return result


def row_of(a, b):
    """A row of these values."""
    return stats.make_row(("icount", 1, 1, "x", "cost"), "pages", a, b)


def by_case(result):
    """Rows of a result by case."""
    return {row.case: row for row in stats.rows(result)}


# store.py

def refused(path, words):
    """Loading fails with one line that has these words."""
    with pytest.raises(store.Bad) as caught:
        store.load(path)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def refused_with(path, words, change):
    """A full result is refused after this change."""
    result = full_result(1)
    change(result)
    path.write_text(json.dumps(result))
    refused(path, words)


def test_round_trip(tmp_path):
    """What is stored comes back, and nothing else stays in the folder."""
    path, result = tmp_path / "result.json", full_result(2)
    store.save(path, result)
    store.save(path, result)
    assert store.load(path) == result and os.listdir(tmp_path) == ["result.json"]


def test_failed_save_keeps_old(tmp_path):
    """A result that is not JSON, or a folder that does not exist, leaves everything as it was."""
    path = tmp_path / "result.json"
    store.save(path, full_result(1))
    with pytest.raises(ValueError):
        store.save(path, {"value": float("nan")})
    assert store.load(path) == full_result(1)
    with pytest.raises(store.Bad, match="cannot be written: No such file"):
        store.save(tmp_path / "none/result.json", {})
    (tmp_path / "folder").mkdir()
    with pytest.raises(store.Bad, match="cannot be written"):
        store.save(tmp_path / "folder", {})
    assert sorted(os.listdir(tmp_path)) == ["folder", "result.json"]


def test_no_file(tmp_path):
    """A file that does not exist, or is a folder."""
    refused(tmp_path / "result.json", "no such file")
    refused(tmp_path, "cannot be read: Is a directory")


def test_truncated_anywhere(tmp_path):
    """A file that was cut off, at many places, and an empty one."""
    path, whole = tmp_path / "result.json", json.dumps(simple_result({"area_pair": (1, 2)}, 2)).encode()
    for length in [0, 1, *range(50, len(whole), 97), len(whole) - 1]:
        store.write(path, whole[:length])
        refused(path, "is not JSON, or was cut off")


@pytest.mark.parametrize("data, words", [
    # Bytes that are no text, numbers that JSON does not have, brackets without end.
    *((data, "is not JSON") for data in (b"\xff\xfe\x00\x01", b'{"kind": NaN}', b"[" * 100_000, b"1" * 5000)),
    *((data, "is no result of this benchmark") for data in (b"[]", b"{}", b"3", b'{"kind": "other", "format": 1}'))],
    ids=lambda value: value[:12])
def test_damaged(tmp_path, data, words):
    """A file that is no JSON, or JSON that is no result."""
    store.write(tmp_path / "result.json", data)
    refused(tmp_path / "result.json", words)


def keys_of(value, shape, where=()):
    """The path of each key that a shape asks for, in a value."""
    if isinstance(shape, list):
        yield from keys_of(value[0], shape[0], (*where, 0))
    elif isinstance(shape, dict):
        for key in shape:
            if key != "*" and not key.startswith("?"):
                yield (*where, key)
                yield from keys_of(value[key], shape[key], (*where, key))


def test_every_key_is_needed(tmp_path):
    """Each missing key is named."""
    shape = {**store.RESULT, "kernels": store.TEXT, "instruments": store.TEXT}
    paths = [*keys_of(full_result(1), shape), ("kernels", "arm64-bench", "text"), ("instruments", "icount", "absolute"),
             ("instruments", "kvm", "reason")]
    assert len(paths) > 40
    for *where, key in paths:
        def remove(result, where=where, key=key):
            for name in where:
                result = result[name]
            del result[key]
        name = ".".join(map(str, [*where, key])).replace(".0", "[0]")
        refused_with(tmp_path / "result.json", f"the key {name} is missing", remove)


@pytest.mark.parametrize("words, change", [
    # Another format names the commit that can read it; True is not 1.
    ("has format 3, this bench reads format 1; take it again or use the commit it names: 0123abcd",
     lambda r: r.update(format=3)),
    ("has format True", lambda r: r.update(format=True)),
    ("has format None", lambda r: r.pop("format")),
    ("boots must be a list", lambda r: r.update(boots={})),
    ("host must be an object", lambda r: r.update(host="x")),
    ("host.cpus must be a whole number, 1 or more", lambda r: r["host"].update(cpus=0)),
    ("set must be", lambda r: r.update(set="huge")),
    ("kernels.arm64-bench.options.CONFIG_X must be a string",
     lambda r: r["kernels"]["arm64-bench"]["options"].update(CONFIG_X=1)),
    ("instruments.icount.used must be true or false", lambda r: r["instruments"]["icount"].update(used=1)),
    ("instruments.wall.kernel is not a key of k", lambda r: r["instruments"]["wall"].update(kernel="x")),
    ("boots[1].instrument is not a key of instruments", lambda r: r["boots"][1].update(instrument="x")),
    ("boots[1].status is ok, but its instrument is", lambda r: r["boots"][1].update(instrument="kvm")),
    ("boots[0].side must be", lambda r: r["boots"][0].update(side="c")),
    ("boots[0].side must be", lambda r: r["boots"][0].update(side=[])),
    ("boots[0].results[2].min must be a finite", lambda r: r["boots"][0]["results"][2].update(min=None)),
    ("boots[0].results[2].threads must be", lambda r: r["boots"][0]["results"][2].update(threads=0)),
    ("hists[0].buckets[0] must be a pair", lambda r: r["boots"][0]["hists"][0].update(buckets=[[1]])),
    *(("boots[0].results[2].value must be a finite number",
       lambda r, value=value: r["boots"][0]["results"][2].update(value=value))
      for value in ("1", 10 ** 400, True, None, []))], ids=lambda value: value[:40] if isinstance(value, str) else "")
def test_wrong_values(tmp_path, words, change):
    """Another format, and each wrong type with its key, is named."""
    refused_with(tmp_path / "result.json", words, change)


# stats.py

def test_same_code_twice():
    """A/A with noise: at least 95% of the rows say no difference."""
    rows = stats.rows(simple_result({f"case_{n}": (1000, 1000) for n in range(300)}, boots=15, noise=0.05, seed=2))
    assert sum(row.verdict == "no difference" for row in rows) >= 0.95 * len(rows)


def test_five_percent_is_found():
    """5% in either direction with 1% noise and 15 boots; 1% is below the floor even without noise."""
    rows = by_case(simple_result({"up": (1000, 1050), "down": (1050, 1000)}, seed=3))
    assert (rows["up"].verdict, rows["down"].verdict) == ("slower", "faster")
    assert rows["up"].ratio == pytest.approx(1.05, abs=0.012)
    row = by_case(simple_result({"up": (1000, 1010)}, noise=1e-5))["up"]
    assert row.verdict == "no difference" and row.p < stats.ALPHA


def test_interval_brackets_the_truth():
    """The interval has the true ratio in it in about 95% of 200 draws."""
    rng, inside = np.random.default_rng(4), 0
    for _ in range(200):
        row = row_of(100 * np.exp(rng.normal(0, 0.05, 9)), 130 * np.exp(rng.normal(0, 0.05, 11)))
        inside += row.low <= 1.3 <= row.high
    assert 182 <= inside <= 199


def test_interval_by_hand():
    """With 5 and 5 values the third smallest and largest of 25 differences bound it: P(U < 3) = 4 / 252."""
    assert [stats.cut(n, m) for n, m in ((3, 3), (4, 4), (5, 5), (10, 10), (15, 15))] == [0, 1, 3, 24, 65]
    a, b = [1, 2, 4, 8, 16], [3, 5, 9, 17, 33]
    every = sorted(y / x for x in a for y in b)
    row = row_of(a, b)
    np.testing.assert_allclose((row.low, row.ratio, row.high), (every[2], every[12], every[-3]))


def test_p_is_exact():
    """The same p as scipy's with and without ties, also by its enumeration of permutations."""
    rng = np.random.default_rng(5)
    for size in (4, 5, 6):
        for a, b in ((rng.normal(0, 1, size), rng.normal(1, 1, 5)),
                     (rng.integers(0, 4, size), rng.integers(1, 5, size))):
            enumerated = mannwhitneyu(a, b, method=PermutationMethod(n_resamples=10_000)).pvalue
            assert stats.rank_test(a, b) == pytest.approx(enumerated, abs=1e-7)
    assert stats.rank_test([1] * 5, [2] * 5) == pytest.approx(2 / 252, abs=1e-7)
    assert stats.rank_test([1] * 50, [2] * 50) < 1e-10


def test_identical_values():
    """No noise at all: p is 1 for the same values, and a difference is found."""
    rows = by_case(simple_result({"same": (7, 7), "up": (7, 8)}, boots=5, noise=0))
    same = rows["same"]
    assert (same.p, same.ratio, same.verdict, same.low, same.high) == (1.0, 1.0, "no difference", 1.0, 1.0)
    assert (rows["up"].ratio, rows["up"].verdict) == (8 / 7, "slower")
    assert stats.rank_test([3] * 40, [3] * 40) == 1.0


@pytest.mark.parametrize("a, b, ratio, verdict", [
    ([0] * 5, [0, 0, 0, 1, 2], 1.0, "no difference"),
    ([0] * 5, [4, 5, 6, 7, 8], None, "slower"),
    ([4, 5, 6, 7, 8], [0] * 5, None, "faster"),
    ([0] * 5, [0, 0, 1, 1, 1], None, "no difference"),
    ([0, 9, 10, 11, 12], [0, 9, 10, 11, 12], 1.0, "no difference"),
    ([0, 0, 0, 5, 5, 5], [9] * 6, None, "slower"),
    ([-9, -8, -7, -6, -5], [5, 6, 7, 8, 9], None, "slower")])
def test_zeros(a, b, ratio, verdict):
    """Medians of 0 on both sides, on one, single zeros, and negative values."""
    row = row_of(a, b)
    assert (row.ratio, row.verdict) == (ratio, verdict)


def test_too_few():
    """Four boots are too few, five are not; a side without values is too few."""
    assert by_case(simple_result({"up": (1, 2)}, boots=4))["up"].verdict == "too few"
    assert by_case(simple_result({"up": (1, 2)}, boots=5))["up"].verdict == "slower"
    result = simple_result({"up": (1, 2)}, boots=5)
    result["boots"] = [boot for boot in result["boots"] if boot["side"] == "b"]
    row = by_case(result)["up"]
    assert (row.median_a, row.ratio, row.p, row.verdict) == (None, None, None, "one side")


def test_only_good_boots():
    """A boot that died does not count, and a case that a boot reports twice counts once."""
    result, status = simple_result({"up": (1, 2)}, boots=5), "died: exit code 1"
    for number in (0, 1, 3, 5):
        result["boots"][number]["status"] = status
    assert (len(by_case(result)["up"].a), len(by_case(result)["up"].b)) == (4, 2)
    assert stats.dead(result, "icount") == [("one-cpu a (rbtree) repetition 0", 1, status),
                                            ("one-cpu b (rust) repetition 0, 1, 2", 3, status)]
    result["boots"][2]["results"] = [series("up", 4), series("up", 6)]
    assert by_case(result)["up"].a[0] == 5


def test_order():
    """Losing first; rows without a ratio are the most extreme of their verdict."""
    result = simple_result({"up2": (1, 2), "up3": (1, 3), "same": (5, 5), "down2": (2, 1), "down3": (3, 1),
                            "new": (0, 9), "gone": (9, 0)}, boots=5, noise=0)
    result["boots"][0]["results"].append(series("few", 1))
    assert [row.case for row in stats.rows(result)] == ["new", "up3", "up2", "few", "same", "down2", "down3", "gone"]


def test_amounts():
    """Values as people read them."""
    assert [stats.amount(v, "ns") for v in (None, 0, 2003, 1234567.8, 123.4, 12.34, 1.234, 0.1234)] == [
        "-", "0 ns", "2,003 ns", "1,234,568 ns", "123 ns", "12.3 ns", "1.23 ns", "0.123 ns"]


# table.py, markdown.py

def test_table(capsys):
    """Values, units, verdicts, summary and all that is missing are there; no colours in a pipe."""
    table.print_result(full_result())
    text = capsys.readouterr().out
    for words in (" instr ", " ns ", " KiB ", "area_pair ", "latency_alloc p99.9", "4x4", "slower", "faster",
                  "no difference", "skipped: cross_cpu 1x1: needs 2 threads",
                  "died: exit code 137 after case area_pair", "kvm was not measured: /dev/kvm",
                  "(rust) repetition 0: skipped: no memory", "A rbtree", "B rust", ", 1 skipped"):
        assert words in text
    icount = text.split("wall:")[0]
    assert "\x1b" not in text and "…" not in text and " ns " not in icount
    assert icount.index("│ slower") < icount.index("│ faster")


def test_summary(capsys):
    """The counts of the verdicts."""
    table.print_result(simple_result({"up": (1, 2), "same": (5, 5), "down": (2, 1)}, boots=5, noise=0))
    assert "1 faster, 1 slower, 1 no difference, 0 too few, 0 skipped\n" in capsys.readouterr().out


def test_no_rows(capsys):
    """A result without a good boot still prints, in every form."""
    result = empty_result()
    add_boot(result, "a", 0, [], status="timeout: 60 s")
    table.print_result(result)
    assert "timeout: 60 s" in capsys.readouterr().out
    assert "timeout: 60 s" in page.page(result)
    assert "| case |" in markdown.markdown(result)


def test_markdown():
    """A column per instrument, every line as wide, marks, losing rows first, bars escaped."""
    result = full_result()
    result["boots"][0]["results"].append(series("a|b", 3))
    lines = markdown.markdown(result).splitlines()[2:]
    assert lines[0] == "| case | CPUs x threads | icount | wall |"
    assert {line.replace("\\|", "").count("|") for line in lines} == {5}
    lost = ["**slower**" in line for line in lines[2:]]
    assert lost == sorted(lost, reverse=True) and any(lost)
    assert re.search(r"\| area_pair \| 1x1 \| 1,\d+ -> 2,\d+ instr \(1\.\d\d\) \*\*slower\*\* "
                     r"\| 1,\d+ -> 2,\d+ ns \(1\.\d\d\) \*\*slower\*\* \|", "\n".join(lines))
    assert any(line.startswith(r"| a\|b |") for line in lines)


# figures.py

def base_result(rust):
    """A result of the area pair with 1 and 2 CPUs: 2,000 for side A, `rust` for side B."""
    result = empty_result()
    for repetition in range(5):
        for cpus, value in zip((1, 2), rust):
            for side, amount in (("a", 2000), ("b", value)):
                add_boot(result, side, repetition, [series("area_pair", amount + repetition)], "icount",
                         f"cpus-{cpus}", cpus)
    return result


def test_bases_side_by_side():
    """A row for each case, a column for each base; a loss is bold."""
    _, lines, styles = figures.cells(base_result((1000, 3000)))
    assert lines == [["`area_pair`", "2,002 -> 1,002, 0.50", "**2,002 -> 3,002, 1.50**", "", ""]] and styles == ["red"]


def test_figures_are_written(tmp_path, monkeypatch):
    """Only what is between the marks changes; a page without them is refused."""
    page = tmp_path / "page.md"
    monkeypatch.setattr(figures, "PAGE", page)
    page.write_text(f"before\n{figures.BEGIN}stale\n{figures.END}after\n")
    figures.write(base_result((1000, 1000)))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "stale" not in text
    assert "| `area_pair` | 2,002 -> 1,002, 0.50 |" in text
    page.write_text("nothing\n")
    with pytest.raises(Refused, match="has no line"):
        figures.write(base_result((1000, 1000)))


# compare.py

SAME, UP = {"same": (1000, 1000)}, {"up": (1000, 1000)}
WALL = {"instrument": "wall", "drift": 0.3}
SPEEDS = (simple_result(SAME | UP, seed=8, **WALL),
          simple_result({"same": (2000, 2000), "up": (2000, 2200)}, seed=9, **WALL))


@pytest.mark.parametrize("old, new, side, code, words", [
    # On an absolute instrument a slower side B is one though side A is slower too; regressions come first.
    (simple_result({**SAME, **UP, "down": (1000, 1000)}, seed=6),
     simple_result({**SAME, "up": (1100, 1100), "down": (900, 900)}, seed=7), "b", 1,
     r"^(?!.*same).*up .*regression.*down .*improvement.*"
     "1 regressions, 1 improvements; the rest: 1 no difference, 0 too few"),
    # Elsewhere another speed of the host is no regression, and a slower side B within the pairs is one.
    (*SPEEDS, "b", 1, "b/a.*1 regressions, 0 improvements; the rest: 1 no difference"),
    # Side a against side b is the same change the other way round.
    (*SPEEDS, "a", 0, "0 regressions, 1 improvements"),
    # Keys of one result only are named.
    (simple_result({"x": (1, 2), "y": (1, 2)}, seed=10), simple_result({"x": (1, 2), "z": (1, 2)}, seed=11), "b", 0,
     r"only in the old result \(1\): icount y 1x1.*only in the new result \(1\): icount z 1x1"),
    (simple_result({"x": (1, 2)}), simple_result({"y": (1, 2)}), "b", 1, "^[^\n]*no row in common[^\n]*\n$"),
    # A result compared with itself has no regression.
    (full_result(), full_result(), "b", 0, "^(?!.*(warning|only in)).*0 regressions, 0 improvements")],
    ids=["absolute", "relative", "other side", "keys of one", "nothing in common", "itself"])
def test_compare(capsys, old, new, side, code, words):
    """The exit code, and what is printed, in this order."""
    assert compare.compare(old, new, side) == code
    text = capsys.readouterr().out
    assert re.search(words, text, re.S), text


def test_compare_pairs():
    """A repetition whose other side died has no ratio, nor has one to 0; plans keep repetitions apart."""
    old = simple_result({"up": (10, 20), "zero": (0, 1)}, boots=6, noise=0, instrument="wall")
    old["boots"][0]["status"] = "died: x"
    add_boot(old, "a", 1, [series("up", 40)], "wall", "other")
    add_boot(old, "b", 1, [series("up", 20)], "wall", "other")
    assert list(compare.one_side(old, "b", {"wall": False}).values()) == [("b/a", [2, 2, 2, 2, 2, 0.5])]


def test_compare_warnings(capsys):
    """Each difference of the conditions is one line."""
    old = simple_result({"up": (1, 2)}, boots=5)
    new = copy.deepcopy(old)
    new["host"]["cpu"] = "Model 2"
    new["kernels"]["arm64-bench"].update(version="7.3.5", config_hash="f" * 16, options={"CONFIG_KASAN": "y"})
    assert compare.compare(old, new) == 0
    text = capsys.readouterr().out
    assert [line.split("differ")[0] for line in text.splitlines() if line.startswith("warning")] == [
        "warning: host CPU ", "warning: arm64-bench: kernel version ", "warning: arm64-bench: config hash ",
        "warning: arm64-bench: options "]
    assert "CONFIG_KASAN not set -> y, CONFIG_PREEMPT y -> not set" in text


# The commands that only read results.

def bench(*words, stdout=subprocess.PIPE):
    """Run scripts/bench in the toolchain root; returns (exit code, output, errors)."""
    done = subprocess.run([REPO / "scripts/bench", *words], stdout=stdout, stderr=subprocess.PIPE, text=True,
                          check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(name="old")
def stored(tmp_path):
    """A stored result."""
    store.save(tmp_path / "old.json", simple_result({"up": (1000, 1000)}, seed=12))
    return tmp_path / "old.json"


def test_commands(old, tmp_path):
    """Each command does its work; a regression is exit code 1."""
    assert "no difference" in bench("table", old)[1]
    assert "| up | 1x1 |" in bench("markdown", old)[1]
    assert bench("html", old, "-o", tmp_path / "page.html") == (0, "", "")
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert bench("compare", old, old)[0] == 0
    store.save(tmp_path / "new.json", simple_result({"up": (1000, 1050)}, seed=13))
    code, out, err = bench("compare", old, tmp_path / "new.json")
    assert (code, err) == (1, "") and "regression" in out


@pytest.mark.parametrize("words, pattern", [
    ("table FOLDER/no-such.json", "no-such.json: no such file"), ("markdown FOLDER/cut.json", "cut.json: is not JSON"),
    ("compare FOLDER/old.json FOLDER/cut.json", "cut.json: is not JSON"),
    ("html FOLDER/old.json -o FOLDER", "cannot be written"),
    ("compare FOLDER/old.json FOLDER/new.json", "new.json: has format 7")])
def test_bad_files(old, tmp_path, words, pattern):
    """No result, half of one, one of another version, and a page that cannot be written: one line, exit code 1."""
    (tmp_path / "cut.json").write_text(old.read_text()[:3000])
    (tmp_path / "new.json").write_text(old.read_text().replace('"format": 1', '"format": 7'))
    code, out, err = bench(*words.replace("FOLDER", str(tmp_path)).split())
    assert (code, out, err.count("\n")) == (1, "", 1) and re.match(f"bench: error: .*{pattern}", err), err


def test_reader_goes_away(old):
    """A pipe that is closed early gives no traceback."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as out:
        assert bench("table", old, stdout=out) == (1, None, "")
