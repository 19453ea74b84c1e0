# SPDX-License-Identifier: GPL-2.0
"""Measures: "scripts/bench [run]". Builds kernels, boots both sides, stores the result and shows it."""

import concurrent.futures
import datetime
import os
import shutil
import tempfile
import threading
import time

from harness import kernels
from harness.settings import CACHE, Refused, say

from . import build, facts, plan as plans, report, store, table
from .boot import boot, emulate, end_all

RESULTS = CACHE / "bench"


class Session:
    """All boots of one result."""

    def __init__(self, args, wanted, logs):
        """wanted: plans; logs: a folder."""
        self.args, self.wanted, self.logs = args, wanted, logs
        self.sides = {"a": args.a, "b": args.b}
        self.records, self.stop = [], None
        self.total, self.start, self.shown = len(self.jobs(wanted)), time.monotonic(), 0
        self.lock = threading.Lock()

    def jobs(self, wanted):
        """Return (plan, side, repetition) in the order of booting: plans and sides in turns, the side that goes first
        too."""
        times = {p.name: self.args.repetitions or p.repetitions for p in wanted}
        return [(p, side, repetition) for repetition in range(max(times.values(), default=0)) for p in wanted
                if repetition < times[p.name] for side in ("ab" if repetition % 2 == 0 else "ba")]

    def one(self, plan, side, repetition):
        """Boot once and keep the record."""
        if self.stop:
            return
        seed = (self.args.seed + 2 * repetition + (side == "b")) % 1000000000
        allocator, kernel = plans.on_side(self.sides[side], plans.kernel_of(plan.instrument, self.args))
        log = os.path.join(self.logs, f"{plan.instrument}-{plan.name}-{side}-{repetition}.log")
        take = emulate if plan.instrument == "lines" else boot
        record = take(plan, side, allocator, repetition, seed, kernel, log)
        with self.lock:
            self.keep(record)

    def keep(self, record):
        """Keep a record, and say how far it is: every ten seconds, and of each boot that does not count."""
        if self.stop == "interrupted":
            return
        self.records.append(record)
        if record["status"].startswith("refused"):
            self.stop = record["status"]
        now, done = time.monotonic(), len(self.records)
        if now - self.shown > 10 or record["status"] != "ok" or done == self.total:
            left = (now - self.start) / done * (self.total - done)
            say(f"boot {done} of {self.total}, about {left / 60:.0f} min left: {record['instrument']} {record['plan']} "
                f"{record['allocator']}: {record['status']}, {record['seconds']:.0f} s")
            self.shown = now

    def run(self):
        """Boot everything: first what disturbs nobody, as much in parallel as there are CPUs and memory for."""
        most = max(1, min(os.cpu_count() or 1, facts.memory_free() * 3 // 4 // max(p.mem for p in self.wanted)))
        for parallel in (True, False):
            wanted = [p for p in self.wanted if plans.INSTRUMENTS[p.instrument].absolute == parallel]
            pool = concurrent.futures.ThreadPoolExecutor(most if parallel else 1)
            try:
                for future in [pool.submit(self.one, *job) for job in self.jobs(wanted)]:
                    future.result()
            except BaseException:
                self.stop = self.stop or "interrupted"
                end_all()
                raise
            finally:
                pool.shutdown(cancel_futures=True)


def build_all(args, wanted):
    """Build what the plans boot; returns the names of all configurations."""
    made = {plans.on_side(side, plans.kernel_of(p.instrument, args))[1]: None
            for p in wanted for side in (args.a, args.b)}
    for kernel in map(kernels.get, made):
        kernel.build()
    for p in wanted:
        if p.instrument == "lines":
            build.build_model()
            build.types_of(kernels.get(plans.kernel_of("lines", args)).folder)
    build.build_plugin()
    return list(made)


def now():
    """Return the time in UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_logs(begun=None):
    """Make the folder of the logs of a run, and keep those of the last runs. begun: the time in names of files."""
    (CACHE / "log").mkdir(exist_ok=True)
    for old in sorted(path for path in (CACHE / "log").glob("bench-*") if path.is_dir())[:-5]:
        shutil.rmtree(old, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"bench-{begun or stamp()}-", dir=CACHE / "log")


def stamp():
    """Return the time in UTC, for names of files."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")


def measure(args, command, begun, output):
    """Take and store a result in the file output; returns the exit code and the result."""
    wanted = plans.wanted(args)
    for p in wanted:
        if p.mem > facts.memory_free() * 3 // 4:
            raise Refused(f"the guests of {p.name} need {p.mem} MiB and a third more; this machine has "
                          f"{facts.memory_free()} MiB free")
    started, names, logs = now(), build_all(args, wanted), new_logs(begun)
    session, interrupted = Session(args, wanted, logs), False
    try:
        session.run()
    except KeyboardInterrupt:
        interrupted = True
    if session.stop and not interrupted:
        raise Refused(session.stop)
    order = [p.name for p in wanted]
    boots = sorted(session.records, key=lambda r: (order.index(r["plan"]), r["repetition"], r["side"]))
    if not any(b["status"] == "ok" for b in boots):
        raise Refused(f"no boot counted; the first: {boots[0]['status'] if boots else 'interrupted'}; logs: {logs}")
    used = {p.instrument: plans.INSTRUMENTS[p.instrument] for p in wanted}
    result = {"kind": store.KIND, "started": started, "command": command, "set": args.set, "commit": facts.commit(),
              "host": facts.host(), "sides": session.sides, "kernels": {name: facts.kernel(name) for name in names},
              "instruments": {name: {"what": one.what, "absolute": one.absolute} for name, one in used.items()},
              "boots": boots}
    store.save(output, result)
    if interrupted:
        say(f"bench: interrupted; what there was is in {output}")
        return 130, result
    failed = sorted({f"{s['case']}: {s['reason']}" for b in boots for s in b["skips"]
                     if s["reason"].startswith("failed")})
    for line in failed:
        say(f"bench: case {line}")
    bad = sum(b["status"] != "ok" for b in boots)
    if bad:
        say(f"bench: {bad} of {len(boots)} boots do not count, see the table; logs: {logs}")
    return 1 if bad or failed else 0, result


def measure_and_show(args, command, begun, output):
    """Measure, print the tables and write the page; returns the exit code and the result."""
    code, result = measure(args, command, begun, output)
    table.show(report.result_parts(result))
    page = output.removesuffix(".json") + ".html"
    store.write(page, report.page(result).encode())
    say(f"result: {output}\npage:   {page}")
    return code, result


def main(args, words):
    """Measure as the options say; returns the exit code. words: the command line."""
    try:
        RESULTS.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise Refused(f"cannot write to {RESULTS}") from None
    begun = stamp()
    # What is stored names no folder of this machine.
    shown = [word for before, word in zip(["", *words], words) if before != "-o" and not word.startswith("-o")]
    command = os.environ.get("VMAP_RUST_BENCH_COMMAND") or " ".join(["scripts/bench", *shown])
    output = args.output or str(RESULTS / f"{begun}.json")
    if args.set != "sides":
        return measure_and_show(args, command, begun, output)[0]
    worst, results = 0, []
    for side in ("rbtree", "rust"):
        args.b = side
        code, result = measure_and_show(args, command, begun, f"{output.removesuffix('.json')}-{side}.json")
        worst = max(worst, code)
        results.append(result)
        if code == 130:
            return code
    table.show([report.sides(*results)])
    return worst
