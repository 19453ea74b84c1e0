# SPDX-License-Identifier: GPL-2.0
"""One boot of a plan, through scripts/run boot, or one run of the emulator: to a record of the stored result."""

import concurrent.futures
import functools
import json
import re
import subprocess
import sys
import time

from harness.settings import REPO, Refused

from . import counts
from .guest_lines import Guest
from .plan import INSTRUMENTS

# MiB of a guest, and seconds after which it is ended.
MEMORY, TIMEOUT = "2048", "1200"
# Children that run now, to be ended with the benchmark.
RUNNING = set()


def run_child(command):
    """Run a command that run_all() can end. Returns its exit code and its output."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as child:
        RUNNING.add(child)
        output = child.communicate()[0]
        RUNNING.discard(child)
    return child.returncode, output


def run_all(one, jobs, most):
    """Call one(*job) for each job, for that many at once; returns the results in order. What ends it, such as an
    interrupt or the first exception, ends all children, too."""
    with concurrent.futures.ThreadPoolExecutor(most) as pool:
        futures = [pool.submit(one, *job) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in list(RUNNING):
                child.terminate()
            raise


def last_line(output):
    """Return the last line of the output of a command."""
    return output.strip().split("\n")[-1]


def arguments(plan, allocator, seed, kernel, log, append="", options=None):
    """Return the command line of one boot. append: more of the kernel's command line; options: of scripts/run boot,
    instead of those of the instrument."""
    instrument = INSTRUMENTS[plan.instrument]
    # Other tests that a kernel may have built in stay out of the way.
    words = ["kunit.enable=0", f"vmap_bench.run={plan.run}", f"vmap_bench.threads={','.join(map(str, plan.threads))}",
             f"vmap_bench.scale={plan.scale}", f"vmap_bench.seed={seed}", *append.split()]
    more = list(instrument.options if options is None else options)
    if not kernel.startswith("uml"):
        more += ["--seed", str(seed)]
    if instrument.counted:
        # Functions are where the symbols of vmlinux are.
        words.append("nokaslr")
        more += ["--plugin", counts.specification(symbols_of(kernel), counts_of(log))]
    return [f"{REPO}/scripts/run", "boot", kernel, "--allocator", allocator, "--cpus", str(plan.cpus), "--mem",
            MEMORY, "--timeout", TIMEOUT, "--log", log, "--append", " ".join(words), *more]


@functools.cache
def symbols_of(kernel):
    """Return the functions of a kernel."""
    return counts.Symbols(kernel)


def counts_of(log):
    """Return the file that the plugin of QEMU writes beside a console log."""
    return log + ".counts"


def status_of(code, output, guest):
    """Return "ok", or why a boot does not count, in one line. code, output: of scripts/run boot. Refuses for what the
    guest refuses."""
    if guest.refused:
        raise Refused(guest.refused)
    after = f" after {guest.last}" if guest.last else ""
    if code == 0:
        return "ok" if guest.ended else f"died: the benchmark did not come to its end{after}"
    why = re.search(r"^FAIL (.*)", output, re.M)
    why = why[1] if why else (last_line(output) or f"exit code {code}")
    if why.startswith("timeout"):
        return why + after
    return f"died: {why}{after}" if "emulator" in why or not guest.ended else f"failed: {why}"


def run_guest(*words, **more):
    """Boot a guest with the words of arguments(). Returns the status and what the guest printed, or None for a log that
    cannot be read."""
    command = arguments(*words, **more)
    code, output = run_child(command)
    try:
        with open(command[command.index("--log") + 1], encoding="utf-8", errors="replace") as file:
            guest = Guest(file.read())
    except OSError:
        return f"died: {last_line(output)}", None  # Nothing was booted.
    except Refused as error:
        return f"died: {error}", None
    return status_of(code, output, guest), guest


def emulate(plan, allocator, seed, kernel):
    """Run the cases of a plan in the emulator once. Returns the status, and results. kernel: a configuration, whose
    types are built."""
    # In a process of its own: the model of caches is one for a process.
    code, output = run_child([sys.executable, "-P", "-m", f"{__package__}.cachelines", kernel, allocator, plan.run,
                              str(plan.cpus), str(seed)])
    return ("ok", json.loads(last_line(output))) if code == 0 else (f"died: {last_line(output) or code}", [])


def boot(plan, side, allocator, repetition, seed, kernel, log):
    """Boot once, or run the emulator once; returns the record. kernel: a configuration; log: where the console log is
    kept."""
    start, skips = time.monotonic(), []
    if plan.instrument == "lines":
        status, results = emulate(plan, allocator, seed, kernel)
    else:
        status, guest = run_guest(plan, allocator, seed, kernel, log)
        results, skips = (guest.results, guest.skips + guest.errors) if guest else ([], [])
        if INSTRUMENTS[plan.instrument].counted and status == "ok":
            try:
                results = counts.results(counts_of(log), plan.instrument, symbols_of(kernel), max(plan.threads))
            except Refused as error:
                status, results = f"died: {error}", []
    return {"instrument": plan.instrument, "plan": plan.name, "side": side, "allocator": allocator,
            "repetition": repetition, "cpus": plan.cpus, "seconds": round(time.monotonic() - start, 1),
            "status": status, "results": results, "skips": skips}
