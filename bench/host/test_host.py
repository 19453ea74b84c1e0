#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: GPL-2.0
"""Test the host side of the benchmark with made-up results.

Last line "N passed, N failed". Exit code: 0 all passed, 1 not.
"""

import contextlib
import copy
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np
from scipy.stats import PermutationMethod, mannwhitneyu

import compare
import goals
import markdown
import page
import plan as plans
import plots
import stats
import store
import table

HERE = os.path.dirname(os.path.abspath(__file__))


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


def printed(function, *args):
    """What a function prints, and what it returns."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        returned = function(*args)
    return out.getvalue(), returned


def row_of(a, b):
    """A row of these values."""
    return stats.make_row(("icount", 1, 1, "x", "cost"), "pages", a, b)


def by_case(result):
    """Rows of a result by case."""
    return {row.case: row for row in stats.rows(result)}


class Store(unittest.TestCase):
    """store.py"""

    def setUp(self):
        """A folder for files."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "result.json")

    def refused(self, words, path=None):
        """Loading fails with one line that has these words."""
        with self.assertRaises(store.Bad) as caught:
            store.load(path or self.path)
        self.assertIn(words, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def refused_with(self, words, change):
        """A full result is refused after this change."""
        result = full_result(1)
        change(result)
        store.write(self.path, json.dumps(result).encode())
        self.refused(words)

    def test_round_trip(self):
        """What is stored comes back, and nothing else stays in the folder."""
        result = full_result(2)
        store.save(self.path, result)
        store.save(self.path, result)
        self.assertEqual(store.load(self.path), result)
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["result.json"])

    def test_failed_save_keeps_old(self):
        """A result that is not JSON, or a folder that does not exist, leaves everything as it was."""
        store.save(self.path, full_result(1))
        with self.assertRaises(ValueError):
            store.save(self.path, {"value": float("nan")})
        self.assertEqual(store.load(self.path), full_result(1))
        with self.assertRaisesRegex(store.Bad, "cannot be written: No such file"):
            store.save(f"{self.path}.none/result.json", {})
        os.mkdir(f"{self.path}.folder")
        with self.assertRaisesRegex(store.Bad, "cannot be written"):
            store.save(f"{self.path}.folder", {})
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.path))), ["result.json", "result.json.folder"])

    def test_no_file(self):
        """A file that does not exist, or is a folder."""
        self.refused("no such file")
        self.refused("cannot be read: Is a directory", os.path.dirname(self.path))

    def test_truncated_anywhere(self):
        """A file that was cut off, at many places, and an empty one."""
        whole = json.dumps(simple_result({"area_pair": (1, 2)}, 2)).encode()
        for length in [0, 1, *range(50, len(whole), 97), len(whole) - 1]:
            store.write(self.path, whole[:length])
            self.refused("is not JSON, or was cut off")

    def test_damaged(self):
        """Bytes that are no text, numbers that JSON does not have, brackets without end."""
        for data in (b"\xff\xfe\x00\x01", b'{"kind": NaN}', b"[" * 100_000, b"1" * 5000):
            store.write(self.path, data)
            self.refused("is not JSON")

    def test_other_json(self):
        """JSON that is no result."""
        for data in (b"[]", b"{}", b"3", b'{"kind": "other", "format": 1}'):
            store.write(self.path, data)
            self.refused("is no result of this benchmark")

    def test_other_version(self):
        """Another format names the commit that can read it; True is not 1."""
        self.refused_with("has format 3, this bench reads format 1; take it again or use the commit it names: 0123abcd",
                          lambda r: r.update(format=3))
        self.refused_with("has format True", lambda r: r.update(format=True))
        self.refused_with("has format None", lambda r: r.pop("format"))

    def test_every_key_is_needed(self):
        """Each missing key is named."""
        def walk(value, shape, where):
            """Remove each key of a shape in turn."""
            if isinstance(shape, list):
                walk(value[0], shape[0], f"{where}[0]")
            elif isinstance(shape, dict):
                for key in [k for k in shape if k not in ("*",) and not k.startswith("?")]:
                    path = f"{where}.{key}".lstrip(".")
                    self.refused_with(f"the key {path} is missing", removing(where, key))
                    walk(value[key], shape[key], path)

        def removing(where, key):
            """A function that removes a key."""
            def remove(result):
                for name in re.findall(r"[^.\[\]]+", where):
                    result = result[int(name)] if isinstance(result, list) else result[name]
                del result[key]
            return remove
        walk(full_result(1), {**store.RESULT, "kernels": store.TEXT, "instruments": store.TEXT}, "")
        for where, key in (("kernels.arm64-bench", "text"), ("instruments.icount", "absolute"),
                           ("instruments.kvm", "reason")):
            self.refused_with(f"the key {where}.{key} is missing", removing(where, key))

    def test_wrong_types(self):
        """Each wrong type is named with its key."""
        for words, change in (
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
                ("hists[0].buckets[0] must be a pair", lambda r: r["boots"][0]["hists"][0].update(buckets=[[1]]))):
            self.refused_with(words, change)
        for value in ("1", 10 ** 400, True, None, []):
            self.refused_with("boots[0].results[2].value must be a finite number",
                              lambda r, value=value: r["boots"][0]["results"][2].update(value=value))


class Statistics(unittest.TestCase):
    """stats.py"""

    def test_same_code_twice(self):
        """A/A with noise: at least 95% of the rows say no difference."""
        rows = stats.rows(simple_result({f"case_{n}": (1000, 1000) for n in range(300)}, boots=15, noise=0.05, seed=2))
        same = sum(row.verdict == "no difference" for row in rows)
        self.assertGreaterEqual(same, 0.95 * len(rows))

    def test_five_percent_is_found(self):
        """5% in either direction with 1% noise and 15 boots; 1% is below the floor even without noise."""
        rows = by_case(simple_result({"up": (1000, 1050), "down": (1050, 1000)}, seed=3))
        self.assertEqual((rows["up"].verdict, rows["down"].verdict), ("slower", "faster"))
        self.assertAlmostEqual(rows["up"].ratio, 1.05, delta=0.012)
        row = by_case(simple_result({"up": (1000, 1010)}, noise=1e-5))["up"]
        self.assertEqual(row.verdict, "no difference")
        self.assertLess(row.p, stats.ALPHA)

    def test_interval_brackets_the_truth(self):
        """The interval has the true ratio in it in about 95% of 200 draws."""
        rng, inside = np.random.default_rng(4), 0
        for _ in range(200):
            row = row_of(100 * np.exp(rng.normal(0, 0.05, 9)), 130 * np.exp(rng.normal(0, 0.05, 11)))
            inside += row.low <= 1.3 <= row.high
        self.assertTrue(182 <= inside <= 199, inside)

    def test_interval_by_hand(self):
        """With 5 and 5 values the third smallest and largest of 25 differences bound it: P(U < 3) = 4 / 252."""
        self.assertEqual([stats.cut(n, m) for n, m in ((3, 3), (4, 4), (5, 5), (10, 10), (15, 15))], [0, 1, 3, 24, 65])
        a, b = [1, 2, 4, 8, 16], [3, 5, 9, 17, 33]
        every = sorted(y / x for x in a for y in b)
        row = row_of(a, b)
        np.testing.assert_allclose((row.low, row.ratio, row.high), (every[2], every[12], every[-3]))

    def test_p_is_exact(self):
        """The same p as scipy's with and without ties, also by its enumeration of permutations."""
        rng = np.random.default_rng(5)
        for size in (4, 5, 6):
            for a, b in ((rng.normal(0, 1, size), rng.normal(1, 1, 5)),
                         (rng.integers(0, 4, size), rng.integers(1, 5, size))):
                enumerated = mannwhitneyu(a, b, method=PermutationMethod(n_resamples=10_000)).pvalue
                self.assertAlmostEqual(stats.rank_test(a, b), enumerated)
        self.assertAlmostEqual(stats.rank_test([1] * 5, [2] * 5), 2 / 252)
        self.assertLess(stats.rank_test([1] * 50, [2] * 50), 1e-10)

    def test_identical_values(self):
        """No noise at all: p is 1 for the same values, and a difference is found."""
        rows = by_case(simple_result({"same": (7, 7), "up": (7, 8)}, boots=5, noise=0))
        self.assertEqual((rows["same"].p, rows["same"].ratio, rows["same"].verdict), (1.0, 1.0, "no difference"))
        self.assertEqual((rows["same"].low, rows["same"].high), (1.0, 1.0))
        self.assertEqual((rows["up"].ratio, rows["up"].verdict), (8 / 7, "slower"))
        self.assertEqual(stats.rank_test([3] * 40, [3] * 40), 1.0)

    def test_zeros(self):
        """Medians of 0 on both sides, on one, single zeros, and negative values."""
        for a, b, ratio, verdict in (
                ([0] * 5, [0, 0, 0, 1, 2], 1.0, "no difference"),
                ([0] * 5, [4, 5, 6, 7, 8], None, "slower"),
                ([4, 5, 6, 7, 8], [0] * 5, None, "faster"),
                ([0] * 5, [0, 0, 1, 1, 1], None, "no difference"),
                ([0, 9, 10, 11, 12], [0, 9, 10, 11, 12], 1.0, "no difference"),
                ([0, 0, 0, 5, 5, 5], [9] * 6, None, "slower"),
                ([-9, -8, -7, -6, -5], [5, 6, 7, 8, 9], None, "slower")):
            row = row_of(a, b)
            self.assertEqual((row.ratio, row.verdict), (ratio, verdict), (a, b))

    def test_too_few(self):
        """Four boots are too few, five are not; a side without values is too few."""
        self.assertEqual(by_case(simple_result({"up": (1, 2)}, boots=4))["up"].verdict, "too few")
        self.assertEqual(by_case(simple_result({"up": (1, 2)}, boots=5))["up"].verdict, "slower")
        result = simple_result({"up": (1, 2)}, boots=5)
        result["boots"] = [boot for boot in result["boots"] if boot["side"] == "b"]
        row = by_case(result)["up"]
        self.assertEqual((row.median_a, row.ratio, row.p, row.verdict), (None, None, None, "one side"))

    def test_only_good_boots(self):
        """A boot that died does not count, and a case that a boot reports twice counts once."""
        result = simple_result({"up": (1, 2)}, boots=5)
        for number in (0, 1, 3, 5):
            result["boots"][number]["status"] = "died: exit code 1"
        self.assertEqual((len(by_case(result)["up"].a), len(by_case(result)["up"].b)), (4, 2))
        status = "died: exit code 1"
        self.assertEqual(stats.dead(result, "icount"), [("one-cpu a (rbtree) repetition 0", 1, status),
                                                        ("one-cpu b (rust) repetition 0, 1, 2", 3, status)])
        result["boots"][2]["results"] = [series("up", 4), series("up", 6)]
        self.assertEqual(by_case(result)["up"].a[0], 5)

    def test_order(self):
        """Losing first; rows without a ratio are the most extreme of their verdict."""
        result = simple_result({"up2": (1, 2), "up3": (1, 3), "same": (5, 5), "down2": (2, 1), "down3": (3, 1),
                                "new": (0, 9), "gone": (9, 0)}, boots=5, noise=0)
        result["boots"][0]["results"].append(series("few", 1))
        self.assertEqual([row.case for row in stats.rows(result)],
                         ["new", "up3", "up2", "few", "same", "down2", "down3", "gone"])

    def test_amounts(self):
        """Values as people read them."""
        values = (None, 0, 2003, 1234567.8, 123.4, 12.34, 1.234, 0.1234)
        self.assertEqual([stats.amount(v, "ns") for v in values],
                         ["-", "0 ns", "2,003 ns", "1,234,568 ns", "123 ns", "12.3 ns", "1.23 ns", "0.123 ns"])


class Texts(unittest.TestCase):
    """table.py, markdown.py"""

    def test_table(self):
        """Values, units, verdicts, summary and all that is missing are there; no colours in a pipe."""
        text, _ = printed(table.print_result, full_result())
        for words in (" instr ", " ns ", " KiB ", "area_pair ", "latency_alloc p99.9", "4x4", "slower", "faster",
                      "no difference", "skipped: cross_cpu 1x1: needs 2 threads",
                      "died: exit code 137 after case area_pair", "kvm was not measured: /dev/kvm",
                      "(rust) repetition 0: skipped: no memory", "A rbtree", "B rust",
                      ", 1 skipped"):
            self.assertIn(words, text)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("…", text)
        icount = text.split("wall:")[0]
        self.assertNotIn(" ns ", icount)
        self.assertLess(icount.index("│ slower"), icount.index("│ faster"))

    def test_summary(self):
        """The counts of the verdicts."""
        result = simple_result({"up": (1, 2), "same": (5, 5), "down": (2, 1)}, boots=5, noise=0)
        text, _ = printed(table.print_result, result)
        self.assertIn("1 faster, 1 slower, 1 no difference, 0 too few, 0 skipped\n", text)

    def test_no_rows(self):
        """A result without a good boot still prints, in every form."""
        result = empty_result()
        add_boot(result, "a", 0, [], status="timeout: 60 s")
        self.assertIn("timeout: 60 s", printed(table.print_result, result)[0])
        self.assertIn("timeout: 60 s", page.page(result))
        self.assertIn("| case |", markdown.markdown(result))

    def test_markdown(self):
        """A column per instrument, every line as wide, marks, losing rows first, bars escaped."""
        result = full_result()
        result["boots"][0]["results"].append(series("a|b", 3))
        lines = markdown.markdown(result).splitlines()[2:]
        self.assertEqual(lines[0], "| case | CPUs x threads | icount | wall |")
        self.assertEqual({line.replace("\\|", "").count("|") for line in lines}, {5})
        lost = ["**slower**" in line for line in lines[2:]]
        self.assertEqual(lost, sorted(lost, reverse=True))
        self.assertTrue(any(lost))
        self.assertRegex("\n".join(lines), r"\| area_pair \| 1x1 \| 1,\d+ -> 2,\d+ instr \(1\.\d\d\) \*\*slower\*\* "
                                           r"\| 1,\d+ -> 2,\d+ ns \(1\.\d\d\) \*\*slower\*\* \|")
        self.assertTrue(any(line.startswith(r"| a\|b |") for line in lines))


class Goals(unittest.TestCase):
    """goals.py"""

    def result(self, rust, unit="ns"):
        """A result of the area pair with 1 and 8 CPUs: 2,000 for side A, `rust` for side B."""
        result = empty_result()
        for repetition in range(5):
            for cpus, value in zip((1, 8), rust):
                for side, amount in (("a", 2000), ("b", value)):
                    add_boot(result, side, repetition, [series("area_pair", amount + repetition, threads=cpus)], "icount", f"cpus-{cpus}", cpus)
        return result

    def said(self, rust):
        """What is said of the area pair with 1 CPU and with 8."""
        lines = {line[0]: line for line in goals.lines(self.result(rust))}
        return lines["area pair, 1 page, 1 CPU"][-1], lines["area pair, 8 CPUs x 8 threads"][-1]

    def test_reached_and_missed(self):
        """Against a number, and against the figure with 1 CPU."""
        self.assertEqual(self.said((600, 800)), ("yes", "yes"))
        self.assertEqual(self.said((600, 1000)), ("yes", "**no**"))
        self.assertEqual(self.said((1200, 1300)), ("**no**", "yes"))

    def test_not_measured(self):
        """A goal without a row says so, and is not reached."""
        lines = {line[0]: line[-1] for line in goals.lines(self.result((600, 800)))}
        self.assertEqual(lines["vmalloc pair, 1 page, 1 CPU"], "not measured")

    def test_worst_of_many(self):
        """Of several rows, one that misses the goal is shown, and how many do."""
        result = empty_result()
        for repetition in range(5):
            for side, amounts in (("a", (100, 100, 100)), ("b", (50, 130, 120))):
                some = [series(f"test:{name}", amount + repetition / 100) for name, amount in zip("xyz", amounts)]
                add_boot(result, side, repetition, some, "icount", "tests", 1)
        line = next(line for line in goals.lines(result) if line[0].startswith("each case of test_vmalloc, 1 CPU"))
        self.assertIn("worst of 3: test:y", line[0])
        self.assertEqual(line[-1], "**no**: 2 of 3")

    def test_every_goal_can_be_measured(self):
        """Each goal's instrument is part of the set that is named after them."""
        used = {p.instrument for p in plans.goals(2)}
        self.assertEqual({g.instrument for g in goals.GOALS} - used, set())

    def test_both_forms(self):
        """For documents and for the terminal."""
        result = self.result((600, 800))
        text = goals.markdown(result)
        self.assertEqual(len(text.splitlines()), len(goals.GOALS) + 2)
        self.assertIn("area pair, 1 page, 1 CPU", printed(goals.print_goals, result)[0])


class Page(unittest.TestCase):
    """plots.py, page.py"""

    @classmethod
    def setUpClass(cls):
        """One page for all tests: plots take seconds."""
        cls.result = full_result()
        cls.rows = stats.rows(cls.result)
        cls.html = page.page(cls.result)

    def test_nothing_external(self):
        """No script, nothing fetched: each src is data and each href is within the page."""
        self.assertNotRegex(self.html, r"(?i)<script|<link|<iframe|@import|url\(|srcset|https?://")
        sources = re.findall(r'src="([^"]*)"', self.html)
        self.assertTrue(all(source.startswith("data:image/svg+xml;base64,") for source in sources))
        targets = set(re.findall(r'href="#([^"]+)"', self.html))
        self.assertEqual(len(re.findall("href=", self.html)), len(re.findall('href="#', self.html)))
        self.assertLessEqual(targets, set(re.findall(r'id="([^"]+)"', self.html)))

    def test_each_plot(self):
        """The page has every kind of plot, and the plots are SVG."""
        captions = [f"{i}: {what}" for what in ("ratio of each case", "cost over threads") for i in ("icount", "wall")]
        captions += ["latency distributions", "memory of an area", "page tables over cycles"]
        self.assertEqual(re.findall(r'<img alt="([^"]*)"', self.html), captions)
        self.assertNotIn("Not measured in this set", self.html)
        for made in (plots.latency(self.result), plots.memory(self.result, self.rows),
                     plots.page_tables(self.result, self.rows)):
            for _, svg in made:
                self.assertIn(b"<svg", svg)
                self.assertNotIn(b"<image", svg)

    def test_missing_plots(self):
        """A plot without data is left out, and the page says so."""
        html = page.page(simple_result({"up": (1, 2)}, boots=5))
        self.assertEqual(re.findall(r'<img alt="([^"]*)"', html), ["icount: ratio of each case"])
        self.assertEqual(html.count("Not measured in this set"), 4)

    def test_contents(self):
        """How it was taken, losing cases, skipped ones and dead boots are there; text is escaped."""
        for words in ("0123456789abcdef", "CONFIG_PREEMPT=y", "Model &lt;1&gt; &amp; co", "0123abcd", "make bench",
                      "100, 101", "clang 19.1.7", "TCG is no silicon", "take turns on one thread",
                      "cross_cpu 1x1: needs 2 threads", "died: exit code 137", "skipped: no memory",
                      "/dev/kvm cannot be opened", "20,000,000",
                      "prefers-color-scheme: dark"):
            self.assertIn(words, self.html)
        self.assertIn("boots that do not count: 1<", self.html)
        losing = self.html[self.html.index('id="losing"'):self.html.index('id="plots"')]
        self.assertEqual(losing.count('class="slower"'), sum(row.verdict == "slower" for row in self.rows))
        self.assertNotIn('class="faster"', losing)
        self.assertEqual(self.html[self.html.index('id="rows"'):].count("<td class=\"no-difference\">"),
                         sum(row.verdict == "no difference" for row in self.rows))

    def test_same_again(self):
        """The same result gives the same page."""
        result = simple_result({"up": (1, 2)}, boots=5)
        self.assertEqual(page.page(result), page.page(result))

    def test_names_of_panels(self):
        """Memory is found in both forms of its names, single points are not; page tables of a guest are one panel."""
        def titles(function, cases):
            """Titles of the panels of a plot."""
            result = empty_result()
            add_boot(result, "a", 0, [series(case, 5, "bytes", metric, threads) for case, metric, threads in cases])
            found = []
            original, plots.grid = plots.grid, lambda items, draw: found.extend(title for title, _ in items)
            try:
                function(result, stats.rows(result))
            finally:
                plots.grid = original
            return found
        cases = [("memory_1000", "total", 1), ("memory_16000", "total", 1), ("memory", "in_x_16000", 1),
                 ("memory", "slabs_1000", 1), ("memory", "slabs_16000", 1)]
        self.assertEqual(titles(plots.memory, cases), ["icount slabs 1x1", "icount total 1x1"])
        self.assertEqual(titles(plots.page_tables, [("page_tables", "cycle_0", 1), ("page_tables", "cycle_1", 4)]),
                         ["icount page tables, 1 CPU"])

    def test_scaling_lines(self):
        """One line per side over 1x1, 2x2; one per side and guest where guests have several numbers of threads."""
        def labels(sizes):
            """Labels of the lines of a panel."""
            rows = [stats.make_row(("icount", cpus, threads, "x", "cost"), "ns", [3], [4]) for cpus, threads in sizes]
            _, axes = plots.pyplot.subplots()
            plots.draw_scaling(axes, rows, {"a": "A", "b": "B"}, {})
            self.addCleanup(plots.pyplot.close, axes.figure)
            return sorted(axes.get_legend_handles_labels()[1])
        self.assertEqual(labels([(1, 1), (2, 2)]), ["A, CPUs = threads", "B, CPUs = threads"])
        self.assertEqual(labels([(1, 1), (4, 2)]), ["A, several guests", "B, several guests"])
        self.assertEqual(labels([(1, 1), (4, 1), (4, 4)]), ["A, 1 CPU", "A, 4 CPUs", "B, 1 CPU", "B, 4 CPUs"])

    def test_ticks(self):
        """Labels of ticks stay short."""
        self.assertEqual([plots.plain(v) for v in (0.05, 0, 2, 1500, 99000, 250000, 2.5e6, 1.5e9, -200, -3e6)],
                         ["0.05", "0", "2", "1,500", "99,000", "250k", "2.5M", "1.5G", "-200", "-3M"])

    def test_hists_are_merged(self):
        """Histograms of good boots are added up, those of dead ones are not."""
        result = empty_result()
        hist = {"case": "latency", "metric": "alloc", "unit": "ns", "threads": 1, "buckets": [[0, 1], [8, 2]]}
        for repetition, status in enumerate(("ok", "ok", "died: x")):
            add_boot(result, "a", repetition, [], status=status, hists=[hist])
        (key, sides), = plots.merged_hists(result).items()
        self.assertEqual((key, dict(sides["a"])), (("icount", 1, 1, "latency", "alloc", "instr"), {0: 2, 8: 4}))


class Compare(unittest.TestCase):
    """compare.py"""

    def test_itself(self):
        """A result compared with itself has no regression."""
        result = full_result()
        text, code = printed(compare.compare, result, result)
        self.assertEqual(code, 0)
        self.assertIn("0 regressions, 0 improvements", text)
        self.assertNotIn("warning", text)
        self.assertNotIn("only in", text)

    def test_absolute(self):
        """On an absolute instrument a slower side B is one though side A is slower too; regressions come first."""
        old = simple_result({"same": (1000, 1000), "up": (1000, 1000), "down": (1000, 1000)}, seed=6)
        new = simple_result({"same": (1000, 1000), "up": (1100, 1100), "down": (900, 900)}, seed=7)
        text, code = printed(compare.compare, old, new)
        self.assertEqual(code, 1)
        self.assertIn("1 regressions, 1 improvements; the rest: 1 no difference, 0 too few", text)
        self.assertRegex(text, r"up .*regression")
        self.assertLess(text.index("regression"), text.index("improvement"))
        self.assertNotIn("same", text.split("1 regressions")[0])
        self.assertEqual(printed(compare.compare, old, old)[1], 0)

    def test_relative(self):
        """Elsewhere another speed of the host is no regression, and a slower side B within the pairs is one."""
        old = simple_result({"same": (1000, 1000), "up": (1000, 1000)}, seed=8, instrument="wall", drift=0.3)
        new = simple_result({"same": (2000, 2000), "up": (2000, 2200)}, seed=9, instrument="wall", drift=0.3)
        text, code = printed(compare.compare, old, new)
        self.assertEqual(code, 1)
        self.assertIn("1 regressions, 0 improvements; the rest: 1 no difference", text)
        self.assertIn("b/a", text)
        # Side a against side b is the same change the other way round.
        text, code = printed(compare.compare, old, new, "a")
        self.assertEqual(code, 0)
        self.assertIn("0 regressions, 1 improvements", text)

    def test_pairs(self):
        """A repetition whose other side died has no ratio, nor has one to 0; plans keep repetitions apart."""
        old = simple_result({"up": (10, 20), "zero": (0, 1)}, boots=6, noise=0, instrument="wall")
        old["boots"][0]["status"] = "died: x"
        add_boot(old, "a", 1, [series("up", 40)], "wall", "other")
        add_boot(old, "b", 1, [series("up", 20)], "wall", "other")
        sides = compare.one_side(old, "b", {"wall": False})
        self.assertEqual([unit_values for unit_values in sides.values()], [("b/a", [2, 2, 2, 2, 2, 0.5])])

    def test_warnings(self):
        """Each difference of the conditions is one line."""
        old = simple_result({"up": (1, 2)}, boots=5)
        new = copy.deepcopy(old)
        new["host"]["cpu"] = "Model 2"
        new["kernels"]["arm64-bench"].update(version="7.3.5", config_hash="f" * 16, options={"CONFIG_KASAN": "y"})
        text, code = printed(compare.compare, old, new)
        self.assertEqual(code, 0)
        self.assertEqual([line.split("differ")[0] for line in text.splitlines() if line.startswith("warning")],
                         ["warning: host CPU ", "warning: arm64-bench: kernel version ",
                          "warning: arm64-bench: config hash ", "warning: arm64-bench: options "])
        self.assertIn("CONFIG_KASAN not set -> y, CONFIG_PREEMPT y -> not set", text)

    def test_only_in_one(self):
        """Keys of one result only are named."""
        old, new = (simple_result({"x": (1, 2), other: (1, 2)}, seed=seed) for other, seed in (("y", 10), ("z", 11)))
        text, code = printed(compare.compare, old, new)
        self.assertEqual(code, 0)
        self.assertIn("only in the old result (1): icount y 1x1", text)
        self.assertIn("only in the new result (1): icount z 1x1", text)

    def test_nothing_in_common(self):
        """One line, and 1."""
        text, code = printed(compare.compare, simple_result({"x": (1, 2)}), simple_result({"y": (1, 2)}))
        self.assertEqual((text.count("\n"), code), (1, 1))
        self.assertIn("no row in common", text)


class Report(unittest.TestCase):
    """report, as a command"""

    def setUp(self):
        """A stored result."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.path = folder.name, os.path.join(folder.name, "old.json")
        self.old = simple_result({"up": (1000, 1000)}, seed=12)
        store.save(self.path, self.old)

    def run_report(self, *args):
        """Run it; returns (exit code, output, errors)."""
        command = [sys.executable, "-B", os.path.join(HERE, "report"), *args]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_commands(self):
        """Each subcommand does its work."""
        self.assertIn("no difference", self.run_report("table", self.path)[1])
        self.assertIn("| up | 1x1 |", self.run_report("markdown", self.path)[1])
        target = os.path.join(self.folder, "page.html")
        self.assertEqual(self.run_report("html", self.path, "-o", target), (0, "", ""))
        with open(target, encoding="utf-8") as file:
            self.assertTrue(file.read().startswith("<!DOCTYPE html>"))
        self.assertEqual(self.run_report("compare", self.path, self.path)[0], 0)

    def test_regression_is_exit_code_1(self):
        """A planted regression."""
        new = os.path.join(self.folder, "new.json")
        store.save(new, simple_result({"up": (1000, 1050)}, seed=13))
        code, out, err = self.run_report("compare", self.path, new)
        self.assertEqual((code, err), (1, ""))
        self.assertIn("regression", out)

    def test_errors_are_one_line(self):
        """Wrong use and files that cannot be used: one line, exit code 1."""
        bad = os.path.join(self.folder, "bad.json")
        store.write(bad, b"{")
        for args in ((), ("nothing",), ("table",), ("table", "--what", self.path), ("html", self.path),
                     ("compare", self.path), ("table", f"{self.path}.none"), ("markdown", bad),
                     ("compare", self.path, bad), ("html", self.path, "-o", self.folder)):
            code, out, err = self.run_report(*args)
            self.assertEqual((code, out, err.count("\n")), (1, "", 1), (args, err))
            self.assertRegex(err, "^report.*: error: ")

    def test_reader_goes_away(self):
        """A pipe that is closed early gives no traceback."""
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "w") as out:
            done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "report"), "table", self.path], stdout=out,
                                  stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, ""))


def main():
    """Run all tests."""
    result = unittest.main(module="__main__", exit=False, verbosity=2).result
    failed = len({str(test) for test, _ in result.failures + result.errors})
    print(f"{result.testsRun - failed} passed, {failed} failed")
    return 1 if failed or not result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
