# SPDX-License-Identifier: GPL-2.0
"""From a stored result to rows: two medians, the ratio with its interval, and a verdict. Lower is better, always.

One boot is one value: within a boot all values share its layout of memory and code, so they say nothing about the next.
"""

from dataclasses import dataclass
from functools import lru_cache
import math

import numpy as np
from scipy.stats import mannwhitneyu, rankdata

ALPHA = 0.01  # p below this is a difference...
FLOOR = 0.02  # ...when the ratio is also this far from 1.
FEW = 5  # Fewer values than this on a side are no base for a verdict.
LEVEL = 0.95  # of the interval
TIES = 60  # Up to this number of values in all, p is exact also when some of them are equal.

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


def subset_sums(weights, size):
    """How many subsets of `size` of the whole numbers have each sum: an array over the sums."""
    total = sum(weights)
    ways = np.zeros((size + 1, total + 1))
    ways[0, 0] = 1
    for weight in weights:
        ways[1:, weight:] += ways[:-1, :total + 1 - weight]
    return ways[size]


@lru_cache
def cut(n, m):
    """Which smallest and largest pairwise difference bound the interval: k counts from 1, 0 is none.

    P(U < k) <= (1 - LEVEL) / 2 with the exact distribution of U, which is the rank sum of n of the ranks 0 to n + m - 1
    less its smallest value.
    """
    sums = subset_sums(range(n + m), n)[n * (n - 1) // 2:]
    return int(np.searchsorted(np.cumsum(sums) / sums.sum(), (1 - LEVEL) / 2, side="right"))


def rank_test(a, b):
    """Two-sided p of the rank sum test, exact where it can be: always without ties, with ties up to TIES values."""
    both = np.concatenate([a, b])
    if len(np.unique(both)) == 1:
        return 1.0
    if len(np.unique(both)) == len(both):
        return float(mannwhitneyu(a, b, alternative="two-sided", method="exact").pvalue)
    if len(both) > TIES:
        return float(mannwhitneyu(a, b, alternative="two-sided", method="asymptotic").pvalue)
    ranks = np.rint(2 * rankdata(both)).astype(int)  # Twice the rank is whole with ties too.
    sums = subset_sums(ranks.tolist(), len(a))
    mean = len(a) * (len(both) + 1)
    extreme = np.abs(np.arange(len(sums)) - mean) >= abs(ranks[:len(a)].sum() - mean)
    return float(sums[extreme].sum() / sums.sum())


def shift(a, b):
    """Ratio of b to a (Hodges-Lehmann on logs) and its interval. None: it has no value, for example with zeros."""
    if min(*a, *b) < 0:
        return None, None, None
    with np.errstate(divide="ignore", invalid="ignore"):
        differences = np.subtract.outer(np.log(b), np.log(a)).ravel()
        differences[np.isnan(differences)] = 0  # Both values are 0.
        differences.sort()
        middle = float(np.exp(np.median(differences)))
        ratio = middle if 0 < middle < math.inf else None
        k = cut(len(a), len(b))
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
            ratio, low, high = shift(a, b)
    verdict = "no difference"
    if not len(a) or not len(b):
        verdict = "one side"
    elif len(a) < FEW or len(b) < FEW:
        verdict = "too few"
    elif p < ALPHA and median_a != median_b and (ratio is None or abs(ratio - 1) >= FLOOR):
        larger = median_b > median_a if ratio is None else ratio > 1
        verdict = "slower" if larger else "faster"
    return Row(*key, unit, list(a), list(b), median_a, median_b, ratio, low, high, p, verdict)


def unit_of(result, instrument, unit):
    """The unit of a value on this instrument: where the clock counts instructions, a nanosecond is one."""
    return "instr" if unit == "ns" and result["instruments"][instrument]["unit"] == "instructions" else unit


def samples(result):
    """Per key of a row the unit, and per side the value of each good boot by (plan, repetition, number of the boot)."""
    found = {}
    for number, boot in enumerate(result["boots"]):
        for one in boot["results"] if boot["status"] == "ok" else ():
            key = (boot["instrument"], boot["cpus"], one["threads"], one["case"], one["metric"])
            unit = unit_of(result, boot["instrument"], one["unit"])
            sides = found.setdefault(key, (unit, {"a": {}, "b": {}}))[1]
            sides[boot["side"]].setdefault((boot["plan"], boot["repetition"], number), []).append(one["value"])
    for _, sides in found.values():
        for values in sides.values():
            for boot, of_boot in values.items():
                values[boot] = float(np.median(of_boot))
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


def used(result):
    """Names of the instruments that measured."""
    return [name for name, instrument in result["instruments"].items() if instrument["used"]]


def skips(result, instrument):
    """Skipped cases of the good boots of an instrument: (case, CPUs x threads, reason), each once."""
    return list(dict.fromkeys((skip["case"], f"{boot['cpus']}x{skip['threads']}", skip["reason"])
                              for boot in result["boots"] if boot["instrument"] == instrument and boot["status"] == "ok"
                              for skip in boot["skips"]))


def dead(result, instrument):
    """Boots of an instrument that do not count: (which, how many, status), one for each status of a side."""
    found = {}
    for boot in result["boots"]:
        if boot["instrument"] == instrument and boot["status"] != "ok":
            which = f"{boot['plan']} {boot['side']} ({boot['allocator']})"
            found.setdefault((which, boot["status"]), []).append(str(boot["repetition"]))
    return [(f"{which} repetition {', '.join(repetitions)}", len(repetitions), status)
            for (which, status), repetitions in found.items()]


def summary(some, skipped):
    """One line: how many rows have which verdict."""
    count = {verdict: sum(row.verdict == verdict for row in some) for verdict in VERDICTS}
    said = [f"{count[verdict]} {verdict}" for verdict in ("faster", "slower", "no difference", "too few")]
    if count["one side"]:
        said.append(f"{count['one side']} on one side only")
    return ", ".join([*said, f"{skipped} skipped"])


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
