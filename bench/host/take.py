# SPDX-License-Identifier: GPL-2.0
"""Measures: "scripts/bench [run]". Builds kernels, boots both sides, stores the result and shows it."""

import datetime
import os
import shutil
import tempfile

from harness import kernels
from harness.settings import CACHE, Refused, say

from . import build, plan as plans, report, results, table
from .boot import boot, run_all


def now(form):
    """Return the time in UTC, in a form of strftime()."""
    return datetime.datetime.now(datetime.timezone.utc).strftime(form)


def new_logs():
    """Make the folder of the logs of a run, and keep those of the last runs."""
    (CACHE / "log").mkdir(exist_ok=True)
    for old in sorted(path for path in (CACHE / "log").glob("bench-*") if path.is_dir())[:-5]:
        shutil.rmtree(old, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"bench-{now('%Y%m%d-%H%M%S')}-", dir=CACHE / "log")


def build_all(sides, wanted):
    """Build what the plans boot; returns the names of all configurations."""
    made = {plans.on_side(side, plans.INSTRUMENTS[p.instrument].kernel)[1]: None for p in wanted for side in sides}
    for kernel in map(kernels.get, made):
        kernel.build()
    if any(p.instrument == "lines" for p in wanted):
        build.cache_model()
        build.types_of(kernels.get(plans.INSTRUMENTS["lines"].kernel).folder)
    build.plugin()
    return list(made)


def jobs_of(wanted, repetitions):
    """Return (plan, side, repetition) in the order of booting: plans and sides in turns, the side that goes first too.
    repetitions: instead of those of the plans, or None."""
    times = {p.name: repetitions or p.repetitions for p in wanted}
    return [(p, side, number) for number in range(max(times.values(), default=0)) for p in wanted
            if number < times[p.name] for side in ("ab" if number % 2 == 0 else "ba")]


def boot_all(sides, wanted, repetitions, logs):
    """Boot everything: first what disturbs nobody, as much in parallel as there are CPUs. Returns the records. sides:
    names of a and b; logs: a folder."""
    total, done = len(jobs_of(wanted, repetitions)), []

    def one(plan, side, repetition):
        allocator, kernel = plans.on_side(sides[side], plans.INSTRUMENTS[plan.instrument].kernel)
        log = f"{logs}/{plan.instrument}-{plan.name}-{side}-{repetition}.log"
        record = boot(plan, side, allocator, repetition, 1 + 2 * repetition + (side == "b"), kernel, log)
        done.append(record)
        say(f"boot {len(done)} of {total}: {plan.instrument} {plan.name} {allocator}: {record['status']}, "
            f"{record['seconds']:.0f} s")
        return record

    records = []
    for parallel in (True, False):
        some = [p for p in wanted if plans.INSTRUMENTS[p.instrument].absolute == parallel]
        records += run_all(one, jobs_of(some, repetitions), os.cpu_count() if parallel else 1)
    return records


def measure(args, command, output):
    """Take a result, store it in the file output, print its tables and write its page; returns the exit code and the
    result. command: what it is called in the page and in documents."""
    wanted, sides, started, logs = plans.wanted(args), {"a": args.a, "b": args.b}, now("%Y-%m-%dT%H:%M:%SZ"), new_logs()
    names = build_all(sides.values(), wanted)
    boots = boot_all(sides, wanted, args.repetitions, logs)
    if not any(b["status"] == "ok" for b in boots):
        raise Refused(f"no boot counted; the first: {boots[0]['status']}; logs: {logs}")
    used = {p.instrument: plans.INSTRUMENTS[p.instrument] for p in wanted}
    result = {"kind": results.KIND, "started": started, "command": command, "set": args.set,
              "commit": results.commit(), "host": results.host(), "sides": sides,
              "kernels": {name: results.kernel(name) for name in names},
              "instruments": {name: {"what": one.what, "absolute": one.absolute} for name, one in used.items()},
              "boots": boots}
    results.save(output, result)
    table.show(report.result_parts(result))
    page = output.with_suffix(".html")
    results.write(page, report.page(result))
    say(f"result: {output}\npage:   {page}\nlogs:   {logs}")
    bad = any(b["status"] != "ok" or any(skip["reason"].startswith("failed") for skip in b["skips"]) for b in boots)
    return int(bad), result


def main(args, words):
    """Measure as the options say; returns the exit code: 1 if a boot or a case failed. words: the command line."""
    try:
        results.FOLDER.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise Refused(f"cannot write to {results.FOLDER}") from None
    command = os.environ.get("VMAP_RUST_BENCH_COMMAND") or " ".join(["scripts/bench", *words])
    name = now("%Y%m%d-%H%M%S")
    if args.set != "sides":
        return measure(args, command, results.FOLDER / f"{name}.json")[0]
    codes, made = [], []
    for args.b in ("rbtree", "rust"):
        code, result = measure(args, command, results.FOLDER / f"{name}-{args.b}.json")
        codes.append(code)
        made.append(result)
    table.show([report.sides(*made)])
    return max(codes)
