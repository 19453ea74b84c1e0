# SPDX-License-Identifier: GPL-2.0
"""Measures: "scripts/bench [run]". Builds kernels, boots both sides, stores the result and shows it."""

import datetime
import os
import shutil
import tempfile

from harness import kernels
from harness.settings import CACHE, Refused, say

from . import build, plan as plans, report, results, table
from .boot import boot_all
from .plan import INSTRUMENTS, on_side


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
    made = {on_side(side, INSTRUMENTS[p.instrument].kernel)[1]: None for p in wanted for side in sides}
    for kernel in map(kernels.get, made):
        kernel.build()
    if any(p.instrument == "lines" for p in wanted):
        build.cache_model()
        build.types_of(kernels.get(INSTRUMENTS["lines"].kernel).folder)
    build.plugin()
    return list(made)


def jobs_of(wanted, repetitions):
    """Return (plan, side, repetition) in the order of booting: plans and sides in turns, the side that goes first too.
    repetitions: instead of those of the plans, or None."""
    times = {p.name: repetitions or p.repetitions for p in wanted}
    return [(p, side, number) for number in range(max(times.values(), default=0)) for p in wanted
            if number < times[p.name] for side in ("ab" if number % 2 == 0 else "ba")]


def take(sides, wanted, repetitions, logs):
    """Boot everything: first what disturbs nobody, as much in parallel as there are CPUs. Returns the records. Refuses
    what a guest refuses. sides: names of a and b; logs: a folder."""
    records, total = [], len(jobs_of(wanted, repetitions))
    for parallel in (True, False):
        jobs = []
        for plan, side, number in jobs_of([p for p in wanted if INSTRUMENTS[p.instrument].absolute == parallel],
                                          repetitions):
            allocator, kernel = on_side(sides[side], INSTRUMENTS[plan.instrument].kernel)
            jobs.append((plan, side, allocator, number, 1 + 2 * number + (side == "b"), kernel,
                         f"{logs}/{plan.instrument}-{plan.name}-{side}-{number}.log"))
        for record in boot_all(jobs, os.cpu_count() if parallel else 1):
            records.append(record)
            say(f"boot {len(records)} of {total}: {record['instrument']} {record['plan']} {record['allocator']}: "
                f"{record['status']}, {record['seconds']:.0f} s")
            if record["status"].startswith("refused"):
                raise Refused(record["status"])
    return records


def measure(args, command, output):
    """Take a result, store it in the file output, print its tables and write its page; returns the exit code and the
    result. command: what it is called in the page and in documents."""
    wanted, sides, started, logs = plans.wanted(args), {"a": args.a, "b": args.b}, now("%Y-%m-%dT%H:%M:%SZ"), new_logs()
    names = build_all(sides.values(), wanted)
    boots = take(sides, wanted, args.repetitions, logs)
    if not any(b["status"] == "ok" for b in boots):
        raise Refused(f"no boot counted; the first: {boots[0]['status']}; logs: {logs}")
    used = {p.instrument: INSTRUMENTS[p.instrument] for p in wanted}
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


def main(_name, args):
    """Measure as the options say; returns the exit code: 1 if a boot or a case failed."""
    try:
        results.FOLDER.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise Refused(f"cannot write to {results.FOLDER}") from None
    command = os.environ.get("VMAP_RUST_BENCH_COMMAND") or " ".join(["scripts/bench", *args.words])
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
