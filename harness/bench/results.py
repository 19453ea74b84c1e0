# SPDX-License-Identifier: GPL-2.0
"""Measures and stores: "scripts/bench [run]". A result is a JSON file in the cache, with what is known of the kernels that
it was taken with."""

import datetime
import json
import os
from pathlib import Path

from ..boot import build as builds, kernels
from ..machine import step
from ..machine.settings import BUILDS, CACHE, Refused, commit, cpus, say, write

from .boots import boot_all
from .plan import ICOUNT, INSTRUMENTS, on_side

# Tests have a folder of their own.
FOLDER = Path(os.environ.get("VMAP_RUST_RESULTS") or CACHE / "bench")
KIND = "vmap-rust-bench-2"


def load(name):
    """Return a stored result: "last", "last~N", which is N before the newest, a name in the folder, or a path of one, as a
    benchmark prints it. Refuses one that is not there, and anything else than a result, with one line."""
    files = sorted(FOLDER.glob("*.json"), reverse=True)
    by_name = {path.stem: path for path in files} | {f"last~{back}": path for back, path in enumerate(files)}
    path = by_name.get("last~0" if name == "last" else name.removesuffix(".json"), Path(name) if Path(name).is_file() else None)
    if not path:
        raise Refused(f"there is no result {name} in {FOLDER}; run scripts/bench")
    try:
        result = json.loads(path.read_bytes())
    except ValueError as error:
        raise Refused(f"{path}: is not JSON, or was cut off: {error}") from None
    if not isinstance(result, dict) or result.get("kind") != KIND:
        raise Refused(f"{path}: is no result of this version of the benchmark; take it again")
    return result


def store(result, suffix=""):
    """Store a result under the time at which it began, with a suffix; returns the path."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    return write(FOLDER / f"{result['started']}{suffix}.json", json.dumps(result, indent=1) + "\n")


def has_failed(result):
    """Tell whether a boot or a case failed."""
    return any(boot["status"] != "ok" or any(skip["reason"].startswith("failed") for skip in boot["skips"])
               for boot in result["boots"])


def take(sides, plans, repetitions, logs):
    """Boot everything, plans and sides in turns, the side that goes first too: first guests that take one host thread
    each, as many at once as there are CPUs. Returns the records. sides: names of a and b; repetitions: instead of those of
    the plans, or None; logs: a folder."""
    jobs, records = {True: [], False: []}, []
    for number in range(max(repetitions or p.repetitions for p in plans)):
        for p in (p for p in plans if number < (repetitions or p.repetitions)):
            for side in "ab" if number % 2 == 0 else "ba":
                allocator, kernel = on_side(sides[side], INSTRUMENTS[p.instrument].kernel)
                jobs[INSTRUMENTS[p.instrument].options == ICOUNT].append((
                    p, side, allocator, number, 1 + 2 * number + (side == "b"), kernel,
                    f"{logs}/{p.instrument}-{p.name}-{side}-{number}.log"))
    for parallel, some in jobs.items():
        for record in boot_all(some, cpus() if parallel else 1):
            records.append(record)
            say(f"boot {len(records)} of {sum(map(len, jobs.values()))}: {record['instrument']} {record['plan']} "
                f"{record['allocator']}: {record['status']}")
    return records


def measure(args, command):
    """Build what the plans boot, and take a result; returns it. command: what it is called in documents."""
    plans, sides = args.plans, {"a": args.a, "b": args.b}
    started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")
    names = list({on_side(side, INSTRUMENTS[p.instrument].kernel)[1]: None for p in plans for side in sides.values()})
    for name in names:
        builds.build(kernels.get(name))
    logs = step.new_logs("bench", 5)
    say(f"logs: {logs}")
    return {"kind": KIND, "started": started, "command": command, "commit": commit(), "sides": sides,
            "kernels": {name: (BUILDS / name / "include/config/kernel.release").read_text().strip() for name in names},
            "instruments": list(dict.fromkeys(p.instrument for p in plans)),
            "boots": take(sides, plans, args.repetitions, logs)}
