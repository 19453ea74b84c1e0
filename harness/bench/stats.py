# SPDX-License-Identifier: GPL-2.0
"""From a stored result to rows: two medians, the ratio with its interval, and a verdict. Lower is better, always.

One boot is one value: within a boot all values share its layout of memory and code, so they say nothing about the next.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import PermutationMethod, mannwhitneyu

from .plan import CLOCKS

ALPHA = 0.01  # p below this is a difference...
FLOOR = 0.02  # ...when the ratio is also this far from 1.
FEW = 5  # Fewer values than this on a side are no base for a verdict.
LEVEL = 0.95  # of the interval

# In the order in which rows are shown.
VERDICTS = ["slower", "too few", "one side", "no difference", "faster"]


@dataclass
class Row:
    """One case and metric on one instrument, with its CPUs and threads: side B against side A. None: it has no such
    value."""

    instrument: str
    cpus: int
    threads: int
    case: str
    metric: str
    unit: str
    median_a: float | None
    median_b: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = "one side"

    @property
    def key(self):
        """What makes it the same row in another result."""
        return (self.instrument, self.cpus, self.threads, self.case, self.metric)

    @property
    def name(self):
        """The case, with the metric when that is not its cost."""
        return self.case if self.metric == "cost" else f"{self.case} {self.metric}"

    @property
    def size(self):
        """CPUs x threads."""
        return f"{self.cpus}x{self.threads}"


@functools.lru_cache
def interval_rank(n, m):
    """Return k: the k-th smallest and the k-th largest pairwise difference bound the interval; 0: there is none.

    P(U < k) <= (1 - LEVEL) / 2 with the exact distribution of U, the rank sum of n of the ranks 0 to n + m - 1 less its
    smallest value. scipy has it only for given values.
    """
    ways = np.zeros((n + 1, n * (n + m)))
    ways[0, 0] = 1
    for rank in range(n + m):
        ways[1:, rank:] += ways[:-1, :ways.shape[1] - rank]
    sums = ways[n, n * (n - 1) // 2:]
    return int(np.searchsorted(np.cumsum(sums) / sums.sum(), (1 - LEVEL) / 2, side="right"))


def rank_test(a, b):
    """Return the two-sided p of the rank sum test: exact without ties; with ties of all permutations of few values, of
    random ones of many."""
    ties = len(np.unique([*a, *b])) < len(a) + len(b)
    method = PermutationMethod(n_resamples=9999, random_state=1) if ties else "exact"
    return float(mannwhitneyu(a, b, method=method).pvalue)


def ratio_and_interval(a, b):
    """Return the ratio of b to a (Hodges-Lehmann on logs) and its interval, or None for what has no value, for example
    with zeros."""
    if min(*a, *b) < 0:
        return None, None, None
    with np.errstate(divide="ignore", invalid="ignore"):
        differences = np.subtract.outer(np.log(b), np.log(a)).ravel()
        differences[np.isnan(differences)] = 0  # Both values are 0.
        differences.sort()
        ratio = float(np.exp(np.median(differences)))
        if not 0 < ratio < math.inf:
            return None, None, None
        k = interval_rank(len(a), len(b))
        low, high = np.exp(differences[[k - 1, -k]]) if k else (None, None)
        return ratio, low, high


def make_row(key, unit, a, b):
    """Return the row of a key (instrument, CPUs, threads, case, metric): the values of both sides, one for each
    boot."""
    row = Row(*key, unit, *(float(np.median(values)) if len(values) else None for values in (a, b)))
    if not len(a) or not len(b):
        return row
    if row.median_a and row.median_b:
        row.ratio, row.low, row.high = ratio_and_interval(a, b)
    far = row.median_a != row.median_b and (row.ratio is None or abs(row.ratio - 1) >= FLOOR)
    if min(len(a), len(b)) < FEW:
        row.verdict = "too few"
    elif not far or rank_test(a, b) >= ALPHA:
        row.verdict = "no difference"
    else:
        larger = row.median_b > row.median_a if row.ratio is None else row.ratio > 1
        row.verdict = "slower" if larger else "faster"
    return row


def samples(result):
    """Return for each key of a row the unit, and the values of good boots of each side: {key: (unit, {"a": [...], "b":
    [...]})}."""
    found = {}
    for boot in result["boots"]:
        for one in boot["results"] if boot["status"] == "ok" else ():
            key = (boot["instrument"], boot["cpus"], one["threads"], one["case"], one["metric"])
            # Where the clock counts instructions, a nanosecond is one.
            unit = "instr" if one["unit"] == "ns" and boot["instrument"] not in CLOCKS else one["unit"]
            found.setdefault(key, (unit, {"a": [], "b": []}))[1][boot["side"]].append(one["value"])
    return found


def losing_first(row):
    """Sort key: slower (largest ratio first), too few, no difference, faster (smallest ratio last)."""
    return (VERDICTS.index(row.verdict), -(row.ratio or 1), row.key)


def rows(result):
    """Return all rows of a result, losing ones first."""
    return sorted((make_row(key, unit, sides["a"], sides["b"]) for key, (unit, sides) in samples(result).items()),
                  key=losing_first)


def amount(value, unit=""):
    """Return a value for people: thousands separators, at least three digits."""
    if value is None:
        return "-"
    digits = 0 if value == int(value) or abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f} {unit}".rstrip()


def ratio_text(value):
    """Return the text of a ratio, or a dash where there is none."""
    return "-" if value is None else f"{value:.3f}" if value < 100 else f"{value:.0f}"
