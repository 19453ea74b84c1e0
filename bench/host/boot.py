# SPDX-License-Identifier: GPL-2.0
"""One boot of a plan, through scripts/run boot, or one run of the emulator: to a record of the stored result."""

import functools
import json
import re
import subprocess
import sys
import time

from harness.settings import REPO

from . import counts
from .guest_lines import Broken, Guest
from .plan import INSTRUMENTS

# Boots that run now, to be ended with the benchmark.
RUNNING = set()
# What is stored of the emulator: the metric and its unit.
METRICS = {"misses": "misses", "read_misses": "misses", "write_misses": "misses", "worst_line": "misses", "rmw": "RMW",
           "barriers": "barriers", "lines": "lines", "lines_written": "lines", "instructions": "instr",
           "locks": "locks", "longest_hold": "instr"}


def new_record(plan, side, allocator, repetition, seconds, status, **more):
    """Return the record of a boot without results. more: of its values."""
    return {"instrument": plan.instrument, "plan": plan.name, "side": side, "allocator": allocator,
            "repetition": repetition, "cpus": plan.cpus, "seconds": seconds, "status": status, "results": [],
            "skips": [], **more}


def run_child(command):
    """Run a command that end_all() can end. Returns its exit code, its output, and the seconds it took."""
    start = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as child:
        RUNNING.add(child)
        output = child.communicate()[0]
        RUNNING.discard(child)
    return child.returncode, output, round(time.monotonic() - start, 1)


def end_all():
    """End the boots that run."""
    for child in list(RUNNING):
        child.terminate()


def last_line(output):
    """Return the last line of the output of a command."""
    return output.strip().split("\n")[-1]


def arguments(plan, allocator, seed, kernel, log, initramfs=None):
    """Return the command line of one boot."""
    # Other tests that a kernel may have built in stay out of the way.
    append = ["kunit.enable=0", f"vmap_bench.run={plan.run}", f"vmap_bench.threads={','.join(map(str, plan.threads))}",
              f"vmap_bench.scale={plan.scale}", f"vmap_bench.seed={seed}"]
    if INSTRUMENTS[plan.instrument].counted:
        # Functions are where the symbols of vmlinux are.
        append.append("nokaslr")
    if plan.tables:
        # All of what init writes to /dev/kmsg.
        append += ["vmap_bench.keep=1", "printk.devkmsg=on"]
    command = [f"{REPO}/scripts/run", "boot", kernel, "--allocator", allocator, "--cpus", str(plan.cpus),
               "--mem", str(plan.mem), "--timeout", str(plan.timeout), "--log", log, "--append", " ".join(append),
               *(INSTRUMENTS[plan.instrument].options if plan.options is None else plan.options)]
    if kernel.startswith("uml"):
        return command
    command += ["--seed", str(seed)]
    if INSTRUMENTS[plan.instrument].counted:
        command += ["--plugin", counts.specification(symbols_of(kernel), counts_of(log))]
    if plan.tables:
        command += ["--initramfs", str(initramfs), "--end-marker", "vmap_bench: guest end"]
    return command


@functools.cache
def symbols_of(kernel):
    """Return the functions of a kernel."""
    return counts.Symbols(kernel)


def counts_of(log):
    """Return the file that the plugin of QEMU writes beside a console log."""
    return log + ".counts"


def status_of(code, output, guest):
    """Return "ok", or why a boot does not count, in one line."""
    if guest.refused:
        return f"refused: {guest.refused}"
    after = f" after {guest.last}" if guest.last else ""
    if code == 0:
        return "ok" if guest.ended else f"died: the benchmark did not come to its end{after}"
    why = re.search(r"^FAIL (.*)", output, re.M)
    why = why[1] if why else (last_line(output) or f"exit code {code}")
    if why.startswith("timeout"):
        return why + after
    return f"died: {why}{after}" if "emulator" in why or not guest.ended else f"failed: {why}"


def boot(plan, side, allocator, repetition, seed, kernel, log, initramfs=None):
    """Boot once; returns the record. kernel: a configuration; log: where the console log is kept; initramfs: of a plan
    for page tables."""
    code, output, seconds = run_child(arguments(plan, allocator, seed, kernel, log, initramfs))
    made = functools.partial(new_record, plan, side, allocator, repetition, seconds)
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            guest = Guest(file.read())
        status = status_of(code, output, guest)
        if INSTRUMENTS[plan.instrument].counted and plan.options is None and status == "ok":
            windows = counts.read(counts_of(log), symbols_of(kernel))
            guest.results = counts.results(windows, plan.instrument, symbols_of(kernel), max(plan.threads))
    except OSError:
        # Nothing was booted.
        return made(f"died: {last_line(output)}")
    except Broken as error:
        return made(f"died: {error}")
    except counts.Bad as error:
        status = f"died: {error}"
    return made(status, results=guest.results, skips=guest.skips + guest.errors)


def emulate(plan, side, allocator, repetition, seed, kernel, log):
    """Run the cases of a plan in the emulator once; returns the record. kernel: a configuration, whose types are
    built; log: the file of the output."""
    code, output, seconds = run_child([
        sys.executable, "-P", "-m", __package__, "lines", "--allocator", allocator, "--cpus", str(plan.cpus), "--cases",
        plan.run, "--seed", str(seed), "--kernel", kernel, "--built", "-o", log])
    if code:
        return new_record(plan, side, allocator, repetition, seconds, f"died: {last_line(output) or code}")
    with open(log, encoding="utf-8") as file:
        results = [{"case": one["case"], "metric": metric, "unit": unit, "threads": plan.cpus,
                    "value": one["figures"][metric]} for one in json.load(file) for metric, unit in METRICS.items()]
    return new_record(plan, side, allocator, repetition, seconds, "ok", results=results)
