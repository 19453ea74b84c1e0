# SPDX-License-Identifier: GPL-2.0
"""One boot of a plan: to a record of the stored result."""

import contextlib
import io
import multiprocessing
import re

from ..boot import kernels
from ..boot.console import read_text
from ..boot.guest import Boot
from ..machine.settings import Refused
from ..boot.verdict import Expected

from . import counts
from .plan import INSTRUMENTS

# Units that are thousandths of another.
THOUSANDTHS = {"mns": "ns", "mbytes": "bytes"}


def read(text):
    """Return the results and the skips that the benchmark has printed, the lines of bench/report.c, as they are stored.
    Refuses lines that have another form."""
    results, skips = [], []
    # Without the lines that the kernel broke off to print them again.
    text = re.sub(r"^.*\n.*\*\* replaying previous printk message \*\*.*\n", "", text, flags=re.M)
    for kind, rest in re.findall(r"vmap_bench: (result|skip|error:) (.*)", text):
        f = dict(word.split("=", 1) for word in rest.split() if "=" in word)
        try:
            if kind == "result":
                divisor = 1000 if f["unit"] in THOUSANDTHS else 1
                results.append({
                    "case": f["case"], "metric": f["metric"], "unit": THOUSANDTHS.get(f["unit"], f["unit"]),
                    "threads": int(f["threads"]), **{key: int(f[key]) / divisor for key in ("value", "min", "max")}})
            else:
                reason = rest.split("reason=", 1)[1] if kind == "skip" else "failed: " + rest.split(": ", 1)[1]
                skips.append({"case": f["case"], "threads": int(f["threads"].rstrip(":")), "reason": reason})
        except (KeyError, ValueError, IndexError):
            raise Refused(f"cannot read this line of the guest: {kind} {rest}") from None
    return results, skips


def run_guest(plan, allocator, seed, kernel, log):
    """Boot a guest. Returns "ok" or why the boot does not count, and what read() does.

    kernel: a configuration; log: where the console log is kept."""
    instrument = INSTRUMENTS[plan.instrument]
    words = [plan.append, f"vmap_bench.run={plan.run}", f"vmap_bench.threads={','.join(map(str, plan.threads))}",
             f"vmap_bench.scale={plan.scale}", f"vmap_bench.seed={seed}",
             # With a plugin, the rest of the boot takes longer than what is measured: on a busy host, ticks take all the time.
             "vmap_bench.restart=1"]
    plugin = ""
    if instrument.plugin:
        # Functions are where the symbols of vmlinux are.
        words.append("nokaslr")
        plugin = counts.specification(counts.symbols_of(kernel), log, instrument.plugin, seed, max(plan.threads))
    reasons = Boot(kernels.get(kernel), Expected(allocator, "vmap_bench: end "), cpus=plan.cpus, mem=plan.mem, append=" ".join(words),
                   timeout=1200, seed=seed, log=log, plugin=plugin, **instrument.options).run()
    return (reasons[0], [], []) if reasons else ("ok", *read(read_text(log)))


def boot(job):
    """Boot once, without messages; returns the record. job: the plan, the side, its allocator, the repetition, the seed,
    the configuration, and where the console log is kept."""
    plan, side, allocator, repetition, seed, kernel, log = job
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            status, results, skips = run_guest(plan, allocator, seed, kernel, log)
        instrument = INSTRUMENTS[plan.instrument]
        if instrument.plugin and status == "ok":
            found = counts.results(log, instrument.counts, counts.symbols_of(kernel), max(plan.threads))
            # The plugin sees softirqs, the benchmark itself how long its tasks wait.
            results = found + [one for one in results if instrument.counts == "latency"]
    except Refused as error:
        status, results, skips = str(error), [], []
    return {"instrument": plan.instrument, "plan": plan.name, "side": side, "allocator": allocator,
            "repetition": repetition, "cpus": plan.cpus, "status": status, "results": results, "skips": skips}


def boot_all(jobs, most):
    """Boot for each job of boot(), that many at once; yields the records in order. Each has a process of its own, so that
    what ends this program, such as an interrupt, ends all guests."""
    with multiprocessing.get_context("spawn").Pool(most, maxtasksperchild=1) as pool:
        yield from pool.imap(boot, jobs)
