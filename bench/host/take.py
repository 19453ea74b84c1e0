# SPDX-License-Identifier: GPL-2.0
"""Measures: "scripts/bench [run]". Builds kernels, boots both sides, stores the result and shows it."""

import concurrent.futures
import datetime
import os
import shutil
import sys
import tempfile
import threading
import time

from harness import initramfs, kernels
from harness.settings import CACHE, Refused, say

from . import build, facts, plan as plans, report, store
from .boot import boot, emulate, end_all, new_record

RESULTS = CACHE / "bench"


class Progress:
    """A line about how far it is: over itself on a terminal, else every ten seconds."""

    def __init__(self, total):
        """Begin with that many boots to go."""
        self.total, self.done, self.start, self.shown = total, 0, time.monotonic(), 0
        self.lock = threading.Lock()

    def step(self, record):
        """Count one boot."""
        with self.lock:
            self.done += 1
            now = time.monotonic()
            left = (now - self.start) / self.done * (self.total - self.done)
            text = (f"boot {self.done} of {self.total}, about {left / 60:.0f} min left: {record['instrument']} "
                    f"{record['plan']} {record['allocator']}: {record['status']}, {record['seconds']:.0f} s")
            if sys.stderr.isatty():
                end = "" if self.done < self.total else "\n"
                print(f"\r\033[K{text[:110]}", end=end, file=sys.stderr, flush=True)
            elif now - self.shown > 10 or record["status"] != "ok" or self.done == self.total:
                say(text)
                self.shown = now


class Session:
    """All boots of one result."""

    def __init__(self, args, wanted, used, archives, logs):
        """wanted: plans; used: instrument -> configuration; archives: configuration -> initramfs; logs: a folder."""
        self.args, self.wanted, self.used, self.archives, self.logs = args, wanted, used, archives, logs
        self.sides = {"a": args.a, "b": args.b}
        self.records, self.stop, self.progress = [], None, None
        # MiB of guest memory of the boots that run, and how much it may become.
        self.memory, self.taken, self.budget = threading.Condition(), 0, facts.memory_free() * 3 // 4

    def repetitions(self, plan):
        """How often each side of a plan is booted."""
        return self.args.repetitions or plan.repetitions

    def jobs(self, wanted):
        """(plan, side, repetition) in the order of booting: plans and sides in turns, the side that goes first too."""
        most = max((self.repetitions(p) for p in wanted), default=0)
        return [(p, side, repetition) for repetition in range(most) for p in wanted if repetition < self.repetitions(p)
                for side in ("ab" if repetition % 2 == 0 else "ba")]

    def one(self, plan, side, repetition):
        """Boot once and keep the record."""
        if self.stop:
            return
        seed = (self.args.seed + 2 * repetition + (side == "b")) % 1000000000
        allocator, kernel = plans.on_side(self.sides[side], self.used[plan.instrument])
        log = os.path.join(self.logs, f"{plan.instrument}-{plan.name}-{side}-{repetition}.log")
        if plans.INSTRUMENTS[plan.instrument].emulated:
            record = emulate(plan, side, allocator, repetition, seed, kernel, log)
        else:
            record = boot(plan, side, allocator, repetition, seed, kernel, self.archives.get(kernel), log)
        if self.stop == "interrupted":
            return
        self.records.append(record)
        if record["status"].startswith("refused"):
            self.stop = record["status"]
        self.progress.step(record)

    def beside_others(self, plan, side, repetition):
        """Boot once, as soon as there is memory for it beside the boots that run."""
        with self.memory:
            self.memory.wait_for(lambda: not self.taken or self.taken + plan.mem <= self.budget)
            self.taken += plan.mem
        try:
            self.one(plan, side, repetition)
        finally:
            with self.memory:
                self.taken -= plan.mem
                self.memory.notify_all()

    def run(self):
        """Boot everything: first, in parallel, what disturbs nobody."""
        self.progress = Progress(sum(2 * self.repetitions(p) for p in self.wanted))
        for parallel in (True, False):
            wanted = [p for p in self.wanted if plans.INSTRUMENTS[p.instrument].parallel == parallel]
            pool = concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) if parallel else 1)
            try:
                for future in [pool.submit(self.beside_others, *job) for job in self.jobs(wanted)]:
                    future.result()
            except BaseException:
                self.stop = self.stop or "interrupted"
                end_all()
                raise
            finally:
                pool.shutdown(cancel_futures=True)


def with_kernels(args, wanted):
    """Return the plans that can be measured, the configuration of each instrument, and the instruments that are not
    used, with the reason."""
    unused = {name: "not in this set" for name in plans.INSTRUMENTS if name not in {p.instrument for p in wanted}}
    used = {name: plans.kernel_of(name, args) for name in plans.INSTRUMENTS}
    if "kvm" not in unused:
        used["kvm"], why = facts.kvm_kernel()
        if why:
            unused["kvm"] = why
            wanted = [p for p in wanted if p.instrument != "kvm"]
            if not wanted:
                raise Refused(f"nothing to measure: {why}")
    return wanted, used, unused


def build_all(args, wanted, used):
    """Build what the plans boot, and what the full set weighs. Returns the initramfs of each configuration that needs
    one, and the names of all configurations."""
    some_on, archives, names = {}, {}, []
    for p in wanted:
        for side in (args.a, args.b):
            some_on.setdefault(plans.on_side(side, used[p.instrument])[1], []).append(p)
    for name in sorted(some_on):
        names += [name, *([plans.WITHOUT[name]] if args.set == "full" and name in plans.WITHOUT else [])]
    for kernel in map(kernels.get, names):
        kernel.build()
        some = some_on.get(kernel.name, ())
        if any(p.user_space for p in some):
            archives[kernel.name] = initramfs.make_busybox(kernel, bench=True)
        if any(plans.INSTRUMENTS[p.instrument].emulated for p in some):
            build.build_model()
            build.build_types(kernel.folder / "vmlinux")
    build.build_plugin()
    return archives, names


def with_memory(wanted, records, args):
    """Drop the plans whose guest this machine has no memory for, with a record that says so."""
    free = facts.memory_free()
    fits = []
    for p in wanted:
        if p.mem <= free * 3 // 4:
            fits.append(p)
            continue
        why = f"skipped: the guest needs {p.mem} MiB and a third more; this machine has {free} MiB free"
        records += [new_record(p, side, getattr(args, side), 0, args.seed, status=why) for side in "ab"]
    return fits


def now():
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def kvm_works(session, wanted):
    """Boot once with KVM; without success the plans are dropped. Returns the remaining plans and a reason or None."""
    if "kvm" not in {p.instrument for p in wanted}:
        return wanted, None
    trial = plans.Plan("trial", "kvm", 1, 1, "kmalloc_pair", timeout=60)
    log = os.path.join(session.logs, "kvm-trial.log")
    record = boot(trial, "a", session.args.a, 0, 1, session.used["kvm"], None, log)
    if record["status"] == "ok":
        return wanted, None
    return [p for p in wanted if p.instrument != "kvm"], f"a boot with KVM failed: {record['status']}"


def stamp():
    """The time in UTC, for names of files."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")


def new_logs(begun):
    """Make the folder of the logs of a run that began at a stamp(), and keep those of the last runs."""
    (CACHE / "log").mkdir(exist_ok=True)
    for old in sorted(path for path in (CACHE / "log").glob("bench-*") if path.is_dir())[:-5]:
        shutil.rmtree(old, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"bench-{begun}-", dir=CACHE / "log")


def instruments(used, unused, measured):
    """Return what the result says of each instrument. used, unused: as of with_kernels(); measured: those of plans."""
    return {name: {"used": True, "kernel": used[name], "absolute": one.absolute, "unit": one.unit, "what": one.what}
            if name in measured else {"used": False, "reason": unused.get(name, "none of its plans could run")}
            for name, one in plans.INSTRUMENTS.items()}


def measure(args, command, begun, output):
    """Take and store a result, in the file output or, if that is None, in a new one; returns the exit code, the file
    and the result."""
    wanted, used, unused = with_kernels(args, plans.wanted(args))
    archives, names = build_all(args, wanted, used)
    head, logs = facts.commit(), new_logs(begun)
    output = output or str(RESULTS / f"{begun}-{head[:10]}.json")
    is_custom = args.cases or args.instruments or args.threads or args.repetitions or args.kernel
    result = {"kind": store.KIND, "format": store.FORMAT, "started": now(), "finished": now(), "command": command,
              "set": "custom" if is_custom else args.set, "commit": head, "host": facts.host(),
              "sides": {"a": args.a, "b": args.b}, "kernels": {}, "instruments": {}, "boots": []}
    session = Session(args, with_memory(wanted, result["boots"], args), used, archives, logs)
    session.wanted, why = kvm_works(session, session.wanted)
    if why:
        unused["kvm"] = why
    result["kernels"] = {name: facts.kernel(name) for name in names}
    result["instruments"] = instruments(used, unused, {p.instrument for p in session.wanted})
    interrupted = False
    try:
        session.run()
    except KeyboardInterrupt:
        interrupted = True
    if session.stop and not interrupted:
        raise Refused(session.stop)
    order = {p.name: i for i, p in enumerate(session.wanted)}
    result["boots"] += sorted(session.records,
                              key=lambda r: (order[r["plan"]], r["instrument"], r["repetition"], r["side"]))
    result["finished"] = now()
    if not any(b["status"] == "ok" for b in result["boots"]):
        first = result["boots"][0]["status"] if result["boots"] else "interrupted"
        raise Refused(f"no boot counted; the first: {first}; logs: {logs}")
    store.save(output, result)
    if interrupted:
        say(f"bench: interrupted; what there was is in {output}")
        return 130, output, result
    bad = [b for b in result["boots"] if b["status"] != "ok" and not b["status"].startswith("skipped")]
    failed = sorted({f"{s['case']}: {s['reason']}" for b in result["boots"] for s in b["skips"]
                     if s["reason"].startswith("failed")})
    for line in failed:
        say(f"bench: case {line}")
    if bad:
        say(f"bench: {len(bad)} of {len(result['boots'])} boots do not count, see the table; logs: {logs}")
    return 1 if bad or failed else 0, output, result


def measure_and_show(args, command, begun, output=None):
    """Measure, print the tables and write the page; returns the exit code and the result."""
    code, output, result = measure(args, command, begun, output)
    report.show("table", [result])
    if args.set in ("quick", "figures"):
        report.show("figures", [result])
    page = output.removesuffix(".json") + ".html"
    report.show("html", [result], page)
    say(f"result: {output}\npage:   {page}")
    return code, result


def main(_name, args, words):
    """Measure as the options say; returns the exit code. words: the command line."""
    try:
        RESULTS.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise Refused(f"cannot write to {RESULTS}") from None
    begun = stamp()
    # What is stored names no folder of this machine.
    shown = [word for before, word in zip(["", *words], words) if before != "-o" and not word.startswith("-o")]
    command = os.environ.get("VMAP_RUST_BENCH_COMMAND") or " ".join(["scripts/bench", *shown])
    if args.set != "sides":
        return measure_and_show(args, command, begun, args.output)[0]
    output = (args.output or str(RESULTS / f"{begun}-sides.json")).removesuffix(".json")
    worst, results = 0, []
    for side in ("rbtree", "rust"):
        args.b = side
        code, result = measure_and_show(args, command, begun, f"{output}-{side}.json")
        worst = max(worst, code)
        results.append(result)
        if code == 130:
            return code
    report.show("sides", results)
    return worst
