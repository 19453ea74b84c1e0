# SPDX-License-Identifier: GPL-2.0
"""From a stored result to rows: two medians, the ratio with its interval, and a verdict. Lower is better, always.

One boot is one value: within a boot all values share its layout of memory and code, so they say nothing about the next.
"""

from dataclasses import dataclass
from functools import lru_cache
import math

import numpy as np
from scipy.stats import PermutationMethod, mannwhitneyu

ALPHA = 0.01  # p below this is a difference...
FLOOR = 0.02  # ...when the ratio is also this far from 1.
FEW = 5  # Fewer values than this on a side are no base for a verdict.
LEVEL = 0.95  # of the interval

# In the order in which rows are shown.
VERDICTS = ["slower", "too few", "one side", "no difference", "faster"]


@dataclass
class Row:
    """One case and metric on one instrument, with its CPUs and threads: side B against side A."""

    instrument: str
    cpus: int
    threads: int
    case: str
    metric: str
    unit: str
    a: list
    b: list
    median_a: float | None
    median_b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    verdict: str

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


@lru_cache
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
    random ones of many. 1 where they show nothing: all values are equal, or a side has one."""
    values = len(np.unique(np.concatenate([a, b])))
    if values == 1 or min(len(a), len(b)) == 1:
        return 1.0
    method = "exact" if values == len(a) + len(b) else PermutationMethod(n_resamples=9999, random_state=1)
    return float(mannwhitneyu(a, b, method=method).pvalue)


def ratio_and_interval(a, b):
    """Return the ratio of b to a (Hodges-Lehmann on logs) and its interval, or None for what has no value, for example with
    zeros."""
    if min(*a, *b) < 0:
        return None, None, None
    with np.errstate(divide="ignore", invalid="ignore"):
        differences = np.subtract.outer(np.log(b), np.log(a)).ravel()
        differences[np.isnan(differences)] = 0  # Both values are 0.
        differences.sort()
        middle = float(np.exp(np.median(differences)))
        ratio = middle if 0 < middle < math.inf else None
        k = interval_rank(len(a), len(b))
        if ratio is None or not k:
            return ratio, None, None
        return ratio, float(np.exp(differences[k - 1])), float(np.exp(differences[-k]))


def make_row(key, unit, a, b):
    """The row of the values of both sides."""
    median_a, median_b = (float(np.median(v)) if len(v) else None for v in (a, b))
    ratio = low = high = p = None
    if len(a) and len(b):
        p = rank_test(a, b)
        if median_a == median_b == 0:
            ratio = 1.0
        elif median_a and median_b:
            ratio, low, high = ratio_and_interval(a, b)
    verdict = "no difference"
    if not len(a) or not len(b):
        verdict = "one side"
    elif len(a) < FEW or len(b) < FEW:
        verdict = "too few"
    elif p < ALPHA and median_a != median_b and (ratio is None or abs(ratio - 1) >= FLOOR):
        larger = median_b > median_a if ratio is None else ratio > 1
        verdict = "slower" if larger else "faster"
    return Row(*key, unit, list(a), list(b), median_a, median_b, ratio, low, high, p, verdict)


def samples(result):
    """Per key of a row the unit, and per side the value of each good boot by (plan, repetition, number of the boot)."""
    found = {}
    for number, boot in enumerate(result["boots"]):
        for one in boot["results"] if boot["status"] == "ok" else ():
            key = (boot["instrument"], boot["cpus"], one["threads"], one["case"], one["metric"])
            # Where the clock counts instructions, a nanosecond is one.
            counted = one["unit"] == "ns" and result["instruments"][boot["instrument"]]["absolute"]
            sides = found.setdefault(key, ("instr" if counted else one["unit"], {"a": {}, "b": {}}))[1]
            sides[boot["side"]][boot["plan"], boot["repetition"], number] = one["value"]
    return found


def losing_first(row):
    """Sort key: slower (largest ratio first), too few, no difference, faster (smallest ratio last)."""
    without = {"slower": math.inf, "faster": 0}.get(row.verdict, 1)
    return (VERDICTS.index(row.verdict), -(without if row.ratio is None else row.ratio), row.key)


def rows(result):
    """All rows of a result, losing ones first."""
    made = [make_row(key, unit, list(sides["a"].values()), list(sides["b"].values()))
            for key, (unit, sides) in samples(result).items()]
    return sorted(made, key=losing_first)


def summary(some):
    """Return how many rows have which verdict."""
    return ", ".join(f"{sum(row.verdict == verdict for row in some)} {verdict}" for verdict in reversed(VERDICTS))


def amount(value, unit=""):
    """A value for people: thousands separators, at least three digits."""
    if value is None:
        return "-"
    digits = 0 if value == int(value) or abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f} {unit}".rstrip()


def ratio_text(value):
    """A ratio, or a dash where there is none."""
    return "-" if value is None else f"{value:.3f}" if value < 100 else f"{value:.0f}"


def interval_text(row):
    """The interval of the ratio, or a dash."""
    return "-" if row.low is None else f"{ratio_text(row.low)} to {ratio_text(row.high)}"
