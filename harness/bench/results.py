# SPDX-License-Identifier: GPL-2.0
"""Measures and stores: "scripts/bench [run]". A result is a JSON file in the cache, with what is known of the host and
the kernels that it was taken with."""

import datetime
import json
import os
import platform
import re
import subprocess
from pathlib import Path

from .. import build as builds, kernels, step
from ..settings import BUILDS, CACHE, REPO, Refused, say, write

from . import build
from .boots import boot_all
from .plan import ICOUNT, INSTRUMENTS, on_side, wanted

# Tests have a folder of their own.
FOLDER = Path(os.environ.get("VMAP_RUST_RESULTS") or CACHE / "bench")
KIND = "vmap-rust-bench-2"


def named(name):
    """Return the path of a stored result: of "last", of "last~N", which is N before the newest, or of a name in the
    folder. Refuses one that is not there."""
    files = sorted(FOLDER.glob("*.json"), reverse=True)
    by_name = {path.stem: path for path in files} | {f"last~{back}": path for back, path in enumerate(files)}
    path = by_name.get("last~0" if name == "last" else name.removesuffix(".json"))
    if not path:
        raise Refused(f"there is no result {name} in {FOLDER}; run scripts/bench")
    return path


def load(path):
    """Return the result stored in a file. Refuses anything else with one line."""
    try:
        result = json.loads(path.read_bytes())
    except ValueError as error:
        raise Refused(f"{path}: is not JSON, or was cut off: {error}") from None
    if not isinstance(result, dict) or result.get("kind") != KIND:
        raise Refused(f"{path}: is no result of this version of the benchmark; take it again")
    return result


def save(path, result):
    """Store a result."""
    write(path, json.dumps(result, indent=1, allow_nan=False) + "\n")


def commit():
    """Return what is measured: the commit, with "-dirty" when files differ from it, or "unknown" without git."""
    git = ["git", "-c", "safe.directory=*", "-C", str(REPO)]
    head, changed = (subprocess.run([*git, *words], capture_output=True, text=True, check=False).stdout.strip()
                     for words in (["rev-parse", "HEAD"], ["status", "--porcelain"]))
    return head + "-dirty" * bool(changed) if head else "unknown"


def host():
    """Return what the host is, in one line without its name."""
    return f"{os.cpu_count()} CPUs, {platform.platform()}"


def kernel_facts(name):
    """Return the version and the compilers of a kernel that was built, in one line."""
    config = (BUILDS / name / ".config").read_text(encoding="utf-8")
    version = (BUILDS / name / "include/config/kernel.release").read_text(encoding="ascii").strip()
    compilers = re.findall(r'CONFIG_(?:CC|RUSTC)_VERSION_TEXT="(.*)"', config)
    return "; ".join([version, *compilers])


def now(form):
    """Return the time in UTC, in a form of strftime()."""
    return datetime.datetime.now(datetime.timezone.utc).strftime(form)


def build_all(sides, plans):
    """Build what the plans boot; returns the names of all configurations."""
    made = {on_side(side, INSTRUMENTS[p.instrument].kernel)[1]: None for p in plans for side in sides}
    for kernel in map(kernels.get, made):
        builds.build(kernel)
    for name in {INSTRUMENTS[p.instrument].plugin for p in plans} - {""}:
        build.plugin(name)
    return list(made)


def take(sides, plans, repetitions, logs):
    """Boot everything, plans and sides in turns, the side that goes first too: first guests that take one host thread
    each, as many at once as there are CPUs. Returns the records. Refuses what a guest refuses. sides: names of a and b;
    repetitions: instead of those of the plans, or None; logs: a folder."""
    records, jobs = [], {True: [], False: []}
    most = max(repetitions or p.repetitions for p in plans)
    for number, p, side in ((number, p, side) for number in range(most) for p in plans
                            for side in ("ab" if number % 2 == 0 else "ba")):
        if number < (repetitions or p.repetitions):
            instrument = INSTRUMENTS[p.instrument]
            allocator, kernel = on_side(sides[side], instrument.kernel)
            jobs[instrument.options == ICOUNT].append((
                p, side, allocator, number, 1 + 2 * number + (side == "b"), kernel,
                f"{logs}/{p.instrument}-{p.name}-{side}-{number}.log"))
    for parallel, some in jobs.items():
        for record in boot_all(some, os.cpu_count() if parallel else 1):
            records.append(record)
            say(f"boot {len(records)} of {sum(map(len, jobs.values()))}: {record['instrument']} {record['plan']} "
                f"{record['allocator']}: {record['status']}, {record['seconds']:.0f} s")
            if record["status"].startswith("refused"):
                raise Refused(record["status"])
    return records


def measure(args, command):
    """Take a result; returns it, and the folder of its logs. command: what it is called in the page and in
    documents."""
    plans, sides, started = wanted(args), {"a": args.a, "b": args.b}, now("%Y-%m-%dT%H:%M:%SZ")
    logs = step.new_logs("bench", 5)
    names = build_all(sides.values(), plans)
    boots = take(sides, plans, args.repetitions, logs)
    if not any(b["status"] == "ok" for b in boots):
        raise Refused(f"no boot counted; the first: {boots[0]['status']}; logs: {logs}")
    used = {p.instrument: INSTRUMENTS[p.instrument] for p in plans}
    return {"kind": KIND, "started": started, "command": command, "set": args.set, "commit": commit(), "host": host(),
            "sides": sides, "kernels": {name: kernel_facts(name) for name in names},
            "instruments": {name: {"what": one.what, "absolute": one.absolute} for name, one in used.items()},
            "boots": boots}, logs
