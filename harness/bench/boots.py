# SPDX-License-Identifier: GPL-2.0
"""One boot of a plan: to a record of the stored result."""

import contextlib
import io
import multiprocessing
import re
import time

from .. import kernels
from ..console import read_text
from ..guest import NO_TESTS, Boot
from ..settings import Refused
from ..verdict import Expected

from . import counts
from .plan import INSTRUMENTS

FORMAT = "2"
# Units that are thousandths of another.
THOUSANDTHS = {"mns": "ns", "mbytes": "bytes"}


class Guest:
    """What the benchmark of one boot printed, the lines of bench/report.c: results and skips as they are stored."""

    def __init__(self, text):
        """Read a console log. Refuses lines that no guest of this version prints."""
        self.results, self.skips = [], []
        self.refused = None  # why the guest did nothing
        self.ended = False
        self.last = None  # the last case that came to its end
        # Without the lines that the kernel broke off to print them again.
        broken = r"^.*\n.*\*\* replaying previous printk message \*\*.*\n"
        for line in re.sub(broken, "", text, flags=re.M).split("\n"):
            found = re.search(r"vmap_bench: (\w+):? ?(.*)", line)
            if found and "Kernel command line" not in line:
                try:
                    self._line(*found.groups())
                except (KeyError, ValueError, IndexError):
                    raise Refused(f"cannot read this line of the guest: {found[0]}") from None

    def _line(self, kind, rest):
        """Read one line: its first word, and what follows."""
        f = dict(word.split("=", 1) for word in rest.split() if "=" in word)
        if kind == "start" and f.get("format") != FORMAT:
            raise Refused(f"the guest's benchmark prints another format: {rest}")
        if kind == "result":
            divisor = 1000 if f["unit"] in THOUSANDTHS else 1
            self.results.append({
                "case": f["case"], "metric": f["metric"], "unit": THOUSANDTHS.get(f["unit"], f["unit"]),
                "threads": int(f["threads"]), **{key: int(f[key]) / divisor for key in ("value", "min", "max")},
                **{key: int(f[key]) for key in ("passes", "ops")}})
            self.last = f["case"]
        elif kind == "skip" or kind == "error" and rest.startswith("case="):
            reason = rest.split("reason=", 1)[1] if kind == "skip" else "failed: " + rest.split(": ", 1)[1]
            self.skips.append({"case": f["case"], "threads": int(f["threads"].rstrip(":")), "reason": reason})
        elif kind == "error":
            self.refused = rest
        elif kind == "end":
            self.ended = True

    def status(self, reasons):
        """Return "ok", or why the boot does not count, in one line. reasons: to fail, of harness.guest.Boot."""
        if self.refused:
            return f"refused: {self.refused}"
        after = f" after {self.last}" if self.last else ""
        if not reasons:
            return "ok" if self.ended else f"died: the benchmark did not come to its end{after}"
        if reasons[0].startswith("timeout"):
            return reasons[0] + after
        died = "emulator" in reasons[0] or not self.ended
        return f"died: {reasons[0]}{after}" if died else f"failed: {reasons[0]}"


def run_guest(plan, allocator, seed, kernel, log):
    """Boot a guest. Returns the status, and what it printed. Refuses lines that no guest of this version prints.

    kernel: a configuration; log: where the console log is kept."""
    instrument = INSTRUMENTS[plan.instrument]
    words = [NO_TESTS, f"vmap_bench.run={plan.run}", f"vmap_bench.threads={','.join(map(str, plan.threads))}",
             f"vmap_bench.scale={plan.scale}", f"vmap_bench.seed={seed}"]
    plugin = ""
    if instrument.plugin:
        # Functions are where the symbols of vmlinux are.
        words.append("nokaslr")
        plugin = counts.specification(counts.symbols_of(kernel), log, instrument.plugin, seed)
    reasons = Boot(kernels.get(kernel), Expected(allocator), cpus=plan.cpus, append=" ".join(words), timeout=1200,
                   seed=seed, log=log, plugin=plugin, **instrument.options).run()
    guest = Guest(read_text(log))
    return guest.status(reasons), guest


def boot(plan, side, allocator, repetition, seed, kernel, log):
    """Boot once; returns the record. kernel: a configuration; log: where the console log is
    kept."""
    start, status, results, skips = time.monotonic(), "ok", [], []
    try:
        status, guest = run_guest(plan, allocator, seed, kernel, log)
        results, skips = guest.results, guest.skips
        if INSTRUMENTS[plan.instrument].plugin and status == "ok":
            results = counts.results(log, plan.instrument, counts.symbols_of(kernel), max(plan.threads))
    except Refused as error:
        status, results = f"died: {error}", []
    return {"instrument": plan.instrument, "plan": plan.name, "side": side, "allocator": allocator,
            "repetition": repetition, "cpus": plan.cpus, "seconds": round(time.monotonic() - start, 1),
            "status": status, "results": results, "skips": skips}


def boot_quietly(words):
    """Boot once, with the words of boot(), without messages."""
    with contextlib.redirect_stderr(io.StringIO()):
        return boot(*words)


def boot_all(jobs, most):
    """Boot for each job, words of boot(), that many at once; yields the records in order. Each has a process of its
    own, so that what ends this program, such as an interrupt, ends all guests."""
    with multiprocessing.get_context("spawn").Pool(most, maxtasksperchild=1) as pool:
        yield from pool.imap(boot_quietly, jobs)
