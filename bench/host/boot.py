# SPDX-License-Identifier: GPL-2.0
"""One boot of a plan: through scripts/run boot, to a record of the stored result."""

import functools
import os
import re
import subprocess
import time

import counts
from lines import Broken, Guest
from plan import INSTRUMENTS

# Boots that run now, to be ended with the benchmark.
RUNNING = set()

REPO = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))


def arguments(plan, allocator, seed, kernel, initramfs, log, specify=None):
    """Return the command line of one boot. specify: returns what --plugin of scripts/run boot takes, for a kernel and the file of the counts."""
    specify = specify or (lambda name, out: counts.specification(symbols_of(name), out))
    # Other tests that a kernel may have built in stay out of the way.
    append = ["kunit.enable=0", "test_vmalloc.run_test_mask=0"]
    if INSTRUMENTS[plan.instrument].counted:
        # Functions are where the symbols of vmlinux are.
        append.append("nokaslr")
    if plan.run:
        append += [f"vmap_bench.run={plan.run}", f"vmap_bench.threads={','.join(map(str, plan.threads))}",
                   f"vmap_bench.scale={plan.scale}", f"vmap_bench.seed={seed}"]
    if needs_initramfs(plan):
        # All of what init writes to /dev/kmsg.
        append.append("printk.devkmsg=on")
    if plan.tables:
        append += ["vmap_bench.keep=1", "bench_tables=1"]
    if plan.sweep:
        append.append("bench_sweep=" + ",".join(f"{threads}:{mask:#x}:{loops}" for threads, mask, loops in plan.sweep))
        append += [f"bench_page_tables={int(plan.page_tables)}", f"bench_warm_up={int(plan.warm_up)}"]
    command = [os.path.join(REPO, "scripts/run"), "boot", kernel, "--allocator", allocator, "--cpus", str(plan.cpus), "--mem", str(plan.mem),
               "--timeout", str(plan.timeout), "--log", log, "--append", " ".join(append),
               *(INSTRUMENTS[plan.instrument].options if plan.options is None else plan.options)]
    if kernel.startswith("uml"):
        return command
    command += ["--seed", str(seed)]
    if INSTRUMENTS[plan.instrument].counted:
        command += ["--plugin", specify(kernel, counts_of(log))]
    if needs_initramfs(plan):
        command += ["--initramfs", initramfs, "--end-marker", "vmap_bench: guest end"]
    return command


@functools.cache
def symbols_of(kernel):
    """Return the functions of a kernel."""
    return counts.Symbols(kernel)


def counts_of(log):
    """Return the file that the plugin of QEMU writes beside a console log."""
    return log + ".counts"


def end_all():
    """End the boots that run."""
    for child in list(RUNNING):
        child.terminate()


def needs_initramfs(plan):
    """Tell whether the guest has work for user space."""
    return bool(plan.sweep) or plan.tables


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
    why = why[1] if why else (output.strip().split("\n")[-1] or f"exit code {code}")
    if why.startswith("timeout"):
        return why + after
    return f"died: {why}{after}" if "emulator" in why or not guest.ended else f"failed: {why}"


def boot(plan, side, allocator, repetition, seed, kernel, initramfs, log, specify=None):
    """Boot once; returns the record. kernel: a configuration; log: where the console log is kept; specify: as of arguments()."""
    command = arguments(plan, allocator, seed, kernel, initramfs, log, specify)
    start = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        RUNNING.add(child)
        output = child.communicate()[0].decode(errors="replace")
        RUNNING.discard(child)
    seconds = round(time.monotonic() - start, 1)
    record = {"instrument": plan.instrument, "plan": plan.name, "side": side, "allocator": allocator, "repetition": repetition,
              "seed": seed, "cpus": plan.cpus, "seconds": seconds, "command": shown(command)}
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            guest = Guest(file.read(), tests=not plan.page_tables)
    except OSError:
        # Nothing was booted.
        return {**record, "status": "died: " + (output.strip().split("\n") or [""])[-1], "results": [], "skips": [], "hists": []}
    except Broken as error:
        return {**record, "status": f"died: {error}", "results": [], "skips": [], "hists": []}
    status = status_of(plan, child.returncode, output, guest)
    if INSTRUMENTS[plan.instrument].counted and plan.options is None and status == "ok":
        symbols = symbols_of(kernel)
        try:
            guest.results = counts.results(counts.read(counts_of(log), symbols), plan.instrument, symbols, max(plan.threads))
        except counts.Bad as error:
            status = f"died: {error}"
    return {**record, "status": status, "results": guest.results, "skips": guest.skips + guest.errors, "hists": guest.hists}


def shown(command):
    """Return the command as one would type it in the repository, without folders of this machine."""
    words = []
    for word in command:
        word = word.replace(REPO + "/", "")
        if word.startswith(counts.PLUGIN):
            word = os.path.basename(counts.PLUGIN)
        if os.path.isabs(word):
            word = os.path.basename(word)
        words.append(f'"{word}"' if " " in word else word)
    return " ".join(words)
