# SPDX-License-Identifier: GPL-2.0
"""One boot of a plan, through scripts/run boot, or one run of the emulator: to a record of the stored result."""

import functools
import json
import os
import re
import subprocess
import sys
import time

from harness.settings import CACHE, REPO

from . import build, counts
from .lines import Broken, Guest
from .plan import INSTRUMENTS

# Boots that run now, to be ended with the benchmark.
RUNNING = set()
# What is stored of the emulator: the metric, its unit, and its name in the output of "scripts/bench lines".
METRICS = (
    ("misses", "misses", "misses"), ("read_misses", "misses", "read_misses"),
    ("write_misses", "misses", "write_misses"), ("worst_line", "misses", "worst_line"), ("rmw", "RMW", "rmw"),
    ("barriers", "barriers", "barriers"), ("lines", "lines", "touched"), ("lines_written", "lines", "written"),
    ("instructions", "instr", "insns"), ("locks", "locks", "locks"), ("longest_hold", "instr", "longest_hold"))


def new_record(plan, side, allocator, repetition, seed, **more):
    """Return the record of a boot without results. more: of its values."""
    return {"instrument": plan.instrument, "plan": plan.name, "side": side, "allocator": allocator,
            "repetition": repetition, "seed": seed, "cpus": plan.cpus, "seconds": 0, "command": "none", "status": "ok",
            "results": [], "skips": [], "hists": [], **more}


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


def arguments(plan, allocator, seed, kernel, initramfs, log, specify=None):
    """Return the command line of one boot. specify: returns what --plugin of scripts/run boot takes, for a kernel and
    the file of the counts."""
    specify = specify or (lambda name, out: counts.specification(symbols_of(name), out))
    # Other tests that a kernel may have built in stay out of the way.
    append = ["kunit.enable=0", "test_vmalloc.run_test_mask=0"]
    if INSTRUMENTS[plan.instrument].counted:
        # Functions are where the symbols of vmlinux are.
        append.append("nokaslr")
    if plan.run:
        append += [f"vmap_bench.run={plan.run}", f"vmap_bench.threads={','.join(map(str, plan.threads))}",
                   f"vmap_bench.scale={plan.scale}", f"vmap_bench.seed={seed}"]
    if plan.user_space:
        # All of what init writes to /dev/kmsg.
        append.append("printk.devkmsg=on")
    if plan.tables:
        append += ["vmap_bench.keep=1", "bench_tables=1"]
    if plan.sweep:
        points = (f"{threads}:{mask:#x}:{loops}" for threads, mask, loops in plan.sweep)
        append += [f"bench_sweep={','.join(points)}", f"bench_page_tables={int(plan.page_tables)}",
                   f"bench_warm_up={int(plan.warm_up)}"]
    command = [f"{REPO}/scripts/run", "boot", kernel, "--allocator", allocator, "--cpus", str(plan.cpus),
               "--mem", str(plan.mem), "--timeout", str(plan.timeout), "--log", log, "--append", " ".join(append),
               *(INSTRUMENTS[plan.instrument].options if plan.options is None else plan.options)]
    if kernel.startswith("uml"):
        return command
    command += ["--seed", str(seed)]
    if INSTRUMENTS[plan.instrument].counted:
        command += ["--plugin", specify(kernel, counts_of(log))]
    if plan.user_space:
        command += ["--initramfs", str(initramfs), "--end-marker", "vmap_bench: guest end"]
    return command


@functools.cache
def symbols_of(kernel):
    """Return the functions of a kernel."""
    return counts.Symbols(kernel)


def counts_of(log):
    """Return the file that the plugin of QEMU writes beside a console log."""
    return log + ".counts"


def status_of(plan, code, output, guest):
    """Return "ok", or why a boot does not count, in one line."""
    if guest.refused:
        return f"refused: {guest.refused}"
    after = f" after {guest.last}" if guest.last else ""
    if code == 0:
        if plan.run and not guest.ended:
            return f"died: the benchmark did not come to its end{after}"
        return "ok"
    why = re.search(r"^FAIL (.*)", output, re.M)
    why = why[1] if why else (last_line(output) or f"exit code {code}")
    if why.startswith("timeout"):
        return why + after
    return f"died: {why}{after}" if "emulator" in why or not guest.ended else f"failed: {why}"


def boot(plan, side, allocator, repetition, seed, kernel, initramfs, log, specify=None):
    """Boot once; returns the record. kernel: a configuration; log: where the console log is kept; specify: as of
    arguments()."""
    command = arguments(plan, allocator, seed, kernel, initramfs, log, specify)
    code, output, seconds = run_child(command)
    record = new_record(plan, side, allocator, repetition, seed, seconds=seconds, command=shown(command))
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            guest = Guest(file.read(), tests=not plan.page_tables)
        status = status_of(plan, code, output, guest)
        if INSTRUMENTS[plan.instrument].counted and plan.options is None and status == "ok":
            windows = counts.read(counts_of(log), symbols_of(kernel))
            guest.results = counts.results(windows, plan.instrument, symbols_of(kernel), max(plan.threads))
    except OSError:
        # Nothing was booted.
        return {**record, "status": f"died: {last_line(output)}"}
    except Broken as error:
        return {**record, "status": f"died: {error}"}
    except counts.Bad as error:
        status = f"died: {error}"
    return {**record, "status": status, "results": guest.results, "skips": guest.skips + guest.errors,
            "hists": guest.hists}


def emulate(plan, side, allocator, repetition, seed, kernel, log):
    """Run the cases of a plan in the emulator once; returns the record. kernel: a configuration, whose types are
    built; log: the file of the output."""
    words = ["--allocator", allocator, "--cpus", str(plan.cpus), "--cases", plan.run, "--seed", str(seed)]
    code, output, seconds = run_child([sys.executable, "-P", "-m", __package__, "lines", *words, "--worst", "0",
                                       "--vmlinux", CACHE / "build" / kernel / "vmlinux", "-o", log])
    record = new_record(plan, side, allocator, repetition, seed, seconds=seconds,
                        command=" ".join(["scripts/bench lines", *words]))
    if code:
        return {**record, "status": f"died: {last_line(output) or code}"}
    with open(log, encoding="utf-8") as file:
        for one in json.load(file):
            record["results"] += [{"case": one["case"], "metric": metric, "unit": unit, "threads": plan.cpus,
                                   "ops": one["ops"], "value": one["figures"][name]} for metric, unit, name in METRICS]
    return record


def shown(command):
    """Return the command as one would type it in the repository, without folders of this machine."""
    words = []
    for word in command:
        word = word.replace(f"{REPO}/", "")
        if word.startswith(str(build.PLUGIN)):
            word = build.PLUGIN.name
        if os.path.isabs(word):
            word = os.path.basename(word)
        words.append(f'"{word}"' if " " in word else word)
    return " ".join(words)
