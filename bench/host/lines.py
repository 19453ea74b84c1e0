# SPDX-License-Identifier: GPL-2.0
"""What a benchmark guest prints: the lines of bench/report.c, of bench/init.sh and of lib/test_vmalloc.c."""

import re

from harness.sweep_log import CASES, EXPECTED_TO_FAIL, read_results

FORMAT = "1"
# Units that are thousandths of another.
THOUSANDTHS = {"mns": "ns", "mbytes": "bytes"}


class Broken(Exception):
    """The log has lines that no guest of this version prints."""


def _fields(words):
    """key=value words as a dict."""
    return dict(word.split("=", 1) for word in words if "=" in word)


def _result(f):
    """One result line."""
    unit, divisor = (THOUSANDTHS[f["unit"]], 1000) if f["unit"] in THOUSANDTHS else (f["unit"], 1)
    return {"case": f["case"], "metric": f["metric"], "unit": unit, "threads": int(f["threads"]),
            **{key: int(f[key]) / divisor for key in ("value", "min", "max") if key in f},
            **{key: int(f[key]) for key in ("passes", "ops") if key in f}}


def whole_lines(text):
    """The lines of a console log, without those that the kernel broke off to print them again."""
    broken = r"^.*\n.*\*\* replaying previous printk message \*\*.*\n"
    return re.sub(broken, "", text.replace("\r", ""), flags=re.M).split("\n")


class Guest:
    """What one boot printed."""

    def __init__(self, text, tests=True):
        """Read a console log; with tests the times of test_vmalloc count."""
        self._tests = tests
        self.results, self.skips, self.hists, self.errors = [], [], [], []
        self.refused = None  # why the guest did nothing
        self.ended = self.guest_ended = False
        self.last = None  # the last case that came to its end
        sweep, sweep_lines = None, []
        for line in whole_lines(text):
            found = re.search(r"vmap_bench: ([\w-]+)(:? ?)(.*)", line)
            if not found or "Kernel command line" in line:
                sweep_lines.append(line)
                continue
            kind, rest = found[1], found[3]
            if kind in ("sweep", "warm-up", "guest") and sweep:
                self._sweep(sweep, sweep_lines)
                sweep = None
            if kind == "sweep":
                sweep, sweep_lines = _fields(rest.split()), []
                continue
            try:
                self._line(kind, rest)
            except (KeyError, ValueError) as error:
                raise Broken(f"cannot read this line of the guest: {found[0]}") from error

    def _line(self, kind, rest):
        """One line of the benchmark."""
        f = _fields(rest.split())
        if kind == "start" and f.get("format") != FORMAT:
            raise Broken(f"the guest's benchmark prints another format: {rest}")
        if kind == "result":
            self.results.append(_result(f))
            self.last = f["case"]
        elif kind == "hist":
            self._hist(f)
        elif kind == "skip":
            reason = rest.split("reason=", 1)[1]
            self.skips.append({"case": f["case"], "threads": int(f["threads"]), "reason": reason})
        elif kind == "error" and rest.startswith("case="):
            reason = "failed: " + rest.split(": ", 1)[1]
            self.errors.append({"case": f["case"], "threads": int(f["threads"].rstrip(":")), "reason": reason})
        elif kind == "error":
            self.refused = rest
        elif kind == "end":
            self.ended = True
        elif kind == "guest":
            self.guest_ended = True

    def _hist(self, f):
        """One part of a histogram, which may go on in the next line."""
        buckets = [[int(x) for x in word.split(":")] for word in f["buckets"].split(",")]
        key = {"case": f["case"], "metric": f["metric"], "unit": f["unit"], "threads": int(f["threads"])}
        for hist in self.hists:
            if all(hist[k] == v for k, v in key.items()):
                hist["buckets"] += buckets
                return
        self.hists.append({**key, "buckets": buckets})

    def _sweep(self, point, text):
        """The results of one run of test_vmalloc: the time of one worker for all loops of a test, preparation included.

        Two of the tests fill the space before they loop, so the time of one loop would depend on their number.
        """
        threads, loops, mask = int(point["threads"]), int(point["loops"]), int(point["mask"], 0)
        workers, done = read_results(text)
        for bit, case in enumerate(CASES):
            if not mask >> bit & 1:
                continue
            # Doing the impossible: only the failing is expected, and it is over at once.
            if case in EXPECTED_TO_FAIL:
                continue
            results = workers.get(case, [])
            key = {"case": f"test:{case}", "threads": threads}
            if len(results) != threads or done != threads or any(r["failed"] or r["xfailed"] for r in results):
                reason = f"failed: {len(results)} of {threads} workers reported, or a worker failed"
                self.errors.append({**key, "reason": reason})
                continue
            self.last = key["case"]
            if not self._tests:
                continue
            value = sum(r["usec"] for r in results) / len(results) * 1000
            self.results.append({**key, "metric": f"loops_{loops}", "unit": "ns", "value": value, "ops": loops})
