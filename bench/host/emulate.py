# SPDX-License-Identifier: GPL-2.0
"""One run of the instrument "lines": through cachelines/run.py, to a record of the stored result, as boot.py makes them."""

import json
import os
import subprocess
import sys
import time

from boot import REPO, RUNNING

# What is stored: the metric, its unit, and its name in the output of run.py.
METRICS = (
    ("misses", "misses", "misses"), ("read_misses", "misses", "read_misses"), ("write_misses", "misses", "write_misses"),
    ("worst_line", "misses", "worst_line"), ("rmw", "RMW", "rmw"), ("barriers", "barriers", "barriers"), ("lines", "lines", "touched"),
    ("lines_written", "lines", "written"), ("instructions", "instr", "insns"), ("locks", "locks", "locks"), ("longest_hold", "instr", "longest_hold"))


def emulate(plan, side, allocator, repetition, seed, files, log):
    """Run the cases of a plan once; returns the record. files: the model, the folder of the types and vmlinux; log: the file of the output."""
    model, types, vmlinux = files
    words = ["--allocator", allocator, "--cpus", str(plan.cpus), "--cases", plan.run, "--seed", str(seed)]
    command = [sys.executable, "-B", os.path.join(REPO, "bench/host/cachelines/run.py"), *words,
               "--model", model, "--types", types, "--vmlinux", vmlinux, "--worst", "0", "-o", log]
    start = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        RUNNING.add(child)
        output = child.communicate()[0].decode(errors="replace")
        RUNNING.discard(child)
    record = {"instrument": plan.instrument, "plan": plan.name, "side": side, "allocator": allocator, "repetition": repetition, "seed": seed,
              "cpus": plan.cpus, "seconds": round(time.monotonic() - start, 1), "command": " ".join(["scripts/bench lines", *words]),
              "status": "ok", "results": [], "skips": [], "hists": []}
    if child.returncode:
        return {**record, "status": f"died: {output.strip().split(chr(10))[-1] or child.returncode}"}
    with open(log, encoding="utf-8") as file:
        for one in json.load(file):
            record["results"] += [{"case": one["case"], "metric": metric, "unit": unit, "threads": plan.cpus, "ops": one["ops"],
                                   "value": one["figures"][name]} for metric, unit, name in METRICS]
    return record
