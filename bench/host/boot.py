# SPDX-License-Identifier: GPL-2.0
"""One boot of a plan, or one run of the emulator: to a record of the stored result."""

import contextlib
import functools
import io
import multiprocessing
import time

from harness import kernels
from harness.guest import NO_TESTS, Boot
from harness.settings import Refused
from harness.verdict import END_OF_BOOT, Expected

from . import counts
from .guest_lines import Guest
from .plan import INSTRUMENTS


@functools.cache
def symbols_of(kernel):
    """Return the functions of a kernel."""
    return counts.Symbols(kernel)


def counts_of(log):
    """Return the file that the plugin of QEMU writes beside a console log."""
    return log + ".counts"


def status_of(reasons, guest):
    """Return "ok", or why a boot does not count, in one line. reasons: to fail, of harness.guest.Boot."""
    if guest.refused:
        return f"refused: {guest.refused}"
    after = f" after {guest.last}" if guest.last else ""
    if not reasons:
        return "ok" if guest.ended else f"died: the benchmark did not come to its end{after}"
    if reasons[0].startswith("timeout"):
        return reasons[0] + after
    died = "emulator" in reasons[0] or not guest.ended
    return f"died: {reasons[0]}{after}" if died else f"failed: {reasons[0]}"


def run_guest(plan, allocator, seed, kernel, log, append="", end=END_OF_BOOT, **more):
    """Boot a guest. Returns the status, and what it printed. Refuses lines that no guest of this version prints.

    kernel: a configuration; log: where the console log is kept; append: more of the kernel's command line; end: the
    line that ends the boot; more: of Boot."""
    instrument = INSTRUMENTS[plan.instrument]
    words = [NO_TESTS, f"vmap_bench.run={plan.run}", f"vmap_bench.threads={','.join(map(str, plan.threads))}",
             f"vmap_bench.scale={plan.scale}", f"vmap_bench.seed={seed}", append]
    if instrument.counted:
        # Functions are where the symbols of vmlinux are.
        words.append("nokaslr")
        more["plugin"] = counts.specification(symbols_of(kernel), counts_of(log))
    reasons = Boot(kernels.get(kernel), Expected(allocator, end), cpus=plan.cpus, append=" ".join(words), timeout=1200,
                   seed=seed, log=log, **instrument.options, **more).run()
    with open(log, encoding="utf-8", errors="replace") as file:
        guest = Guest(file.read())
    return status_of(reasons, guest), guest


def emulate(plan, allocator, seed, kernel):
    """Run the cases of a plan in the emulator once; returns the results. kernel: a configuration, whose types are
    built."""
    from .cachelines.show import UNITS, Lines  # pylint: disable=import-outside-toplevel # nothing else needs unicorn
    lines, results = Lines(kernel), []
    for case in plan.run.split(","):
        _, figures, _ = lines.measure(case, plan.cpus, allocator, seed)
        results += [{"case": case, "metric": metric, "unit": unit, "threads": plan.cpus, "value": figures[metric]}
                    for metric, unit in UNITS.items()]
    return results


def boot(plan, side, allocator, repetition, seed, kernel, log):
    """Boot once, or run the emulator once; returns the record. kernel: a configuration; log: where the console log is
    kept."""
    start, status, results, skips = time.monotonic(), "ok", [], []
    try:
        if plan.instrument == "lines":
            results = emulate(plan, allocator, seed, kernel)
        else:
            status, guest = run_guest(plan, allocator, seed, kernel, log)
            results, skips = guest.results, guest.skips + guest.errors
        if INSTRUMENTS[plan.instrument].counted and status == "ok":
            results = counts.results(counts_of(log), plan.instrument, symbols_of(kernel), max(plan.threads))
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
    own: the emulator needs that, and what ends this program, such as an interrupt, ends all guests."""
    with multiprocessing.get_context("spawn").Pool(most, maxtasksperchild=1) as pool:
        yield from pool.imap(boot_quietly, jobs)
