# SPDX-License-Identifier: GPL-2.0
"""reads dumps of a guest with drgn, and the guest itself with gdb, and compares with /proc/vmallocinfo

Boots each allocator under a load; QEMU writes a dump in the middle of the load and one after it. tools/vmap must find
every area of /proc/vmallocinfo in them, and in the memory of the guest while it runs, and nothing wrong;
lx-vmallocinfo of scripts/gdb must list the same areas.
Then a bad pointer makes the allocator panic, and a third dump must tell which it is. At last, the second dump is damaged in
several ways: each must be reported in a line. What the tools print is in the folder tools/KERNEL/ALLOCATOR of the cache.
"""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from ..damage import BAD, damages, exchange, trap
from ..guest import Boot
from ..initramfs import make_busybox
from ..monitor import Monitor
from ..run import each_allocator
from ..settings import CACHE, LOGS, REPO, Refused, Skipped
from ..step import Step
from ..verdict import Expected
from ..vmallocinfo import STACK, UNPURGED, read_snapshots

DEFAULTS = {"kernel": "arm64", "allocators": ("rbtree", "rust", "both"), "allocator": "both", "cpus": 2,
            "mem": 512, "timeout": 900}
MAKE_TEST = {"tools": (120, "arm64")}
FULL = ("tools", "")
USES = ("tools",)
TOOL = REPO / "tools/vmap"
# Where the guest's memory begins in its file: tools/vmap writes the head of a core before it.
RAM_OFFSET = 2 << 20
# Stacks that appear or go between a snapshot and the dump: of the reader and of kernel threads.
STACK_SLACK = 8
# Where a panic was, in its message, and names of functions of each allocator.
WHERE = re.compile(r"(?:pc : |RIP: 0010:)(\S+)")
INSIDE = {"rust": r"vmap_rust", "rbtree": r"vmap_area|va_links"}


class Guest:
    """A guest that runs qemu/tools.sh, until it is ended."""

    def __init__(self, args, allocator, work, initramfs):
        """work: folder of the sockets."""
        self.ram = f"{work}/ram.core"
        with open(self.ram, "wb") as ram:
            ram.truncate(RAM_OFFSET + (args.mem << 20))
        self.timeout, self.sockets = args.timeout, {name: f"{work}/{name}.socket" for name in ("qmp", "gdb")}
        for path in self.sockets.values():
            Path(path).unlink(missing_ok=True)
        boot = Boot(args.kernel, Expected(allocator), cpus=args.cpus, nodes=args.nodes, mem=args.mem,
                    initramfs=str(initramfs), accel=args.accel,
                    append=f"nokaslr panic=0 LOAD_SCRIPT=/tools.sh kunit.enable=0 test_vmalloc.run_test_mask=0 {args.append}",
                    log=args.log or LOGS / f"tools-{args.kernel.name}-{allocator}.log")
        self.log, self.until = boot.log, time.monotonic() + args.timeout
        self.step = Step(f"tools {args.kernel.name}, {allocator}", boot.log, [
            *boot.command(), "-object", f"memory-backend-file,id=ram,size={args.mem}M,mem-path={self.ram},share=on,"
            f"offset={RAM_OFFSET}", "-machine", "memory-backend=ram", "-qmp", f"unix:{self.sockets['qmp']},server=on,wait=off",
            "-chardev", f"socket,id=gdb,path={self.sockets['gdb']},server=on,wait=off", "-gdb", "chardev:gdb"])

    def wait(self, text):
        """Wait until the console has a line with ``text``."""
        while text not in (printed := Path(self.log).read_text(encoding="utf-8", errors="replace")):
            if not self.step.running() or "end Kernel panic" in printed:
                raise RuntimeError(f"the guest ended before \"{text}\"; see {self.log}")
            if time.monotonic() > self.until:
                raise RuntimeError(f"no \"{text}\" in {self.timeout} s; see {self.log}")
            time.sleep(0.2)

    def dump(self, path, then=lambda: None):
        """Write a dump while the guest stands still; calls ``then`` before the guest goes on. Returns what that
        returns."""
        monitor = Monitor(self.sockets["qmp"], self.timeout)
        monitor("stop")
        monitor("dump-guest-memory", paging=False, protocol=f"file:{path}")
        result = then()
        monitor("cont")
        monitor.socket.close()
        return result


class Session:
    """The checks of one allocator."""

    def __init__(self, args, result, allocator, work):
        """work: folder of what the tools print."""
        self.timeout, self.result, self.allocator, self.work = args.timeout, result, allocator, work
        self.vmlinux = args.kernel.folder / "vmlinux"

    def check(self, name, problem, detail=""):
        """Count one check; ``problem`` is empty if it passed."""
        text = problem or detail
        self.result.add(not problem, f"{self.allocator} {name}",
                        f"tools: {'FAIL' if problem else 'ok'} {self.allocator}: {name}{': ' + text if text else ''}")

    def command(self, transcript, *words):
        """Run a command whose output is also written to a file of ``work``."""
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=self.timeout)
        Path(self.work, transcript + ".txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        return done

    def vmap(self, core, *words):
        """Run tools/vmap and return its exit code, output and errors."""
        live = ["--live"] * core.endswith("/ram.core")
        transcript = "-".join([Path(core).stem, *(Path(word).name for word in words)])[:50]
        done = self.command(transcript, TOOL, "--core", core, *live, "--symbols", self.vmlinux, *words)
        return done.returncode, done.stdout.splitlines(), done.stderr.strip()

    def gdb(self, path, core):
        """Return the lines of lx-vmallocinfo, from the guest that stands still, and the line that validate must print after
        the damage that gdb then does to it. core: a dump of the same moment."""
        address, wanted = trap(self.vmlinux, core)
        lines = self.command("gdb", "gdb-multiarch", "-batch", "-nx", "-iex", "set auto-load safe-path /", "-ex",
                             "set pagination off",
                             "-ex", f"target remote {path}", "-ex", "lx-vmallocinfo",
                             "-ex", f"set {{unsigned long}}{address:#x} = {BAD:#x}", "-ex", "detach",
                             self.vmlinux).stdout.splitlines()
        return lines, wanted

    # Checks of a dump.

    def listing(self, name, core):
        """Return the lines of ``vmap list`` as /proc/vmallocinfo has them, without the size of the symbol, and check
        validate."""
        code, lines, errors = self.vmap(core, "validate")
        self.check(f"{name}: validate", "" if code == 0 and not errors else f"exit {code}: {(lines + [errors])[0]}",
                   lines[-1] if lines else "")
        code, lines, errors = self.vmap(core, "list")
        if code or errors:
            self.check(f"{name}: list", f"exit {code}: {errors}")
        return [plain(line) for line in lines]

    def during(self, name, lines, snapshots):
        """Each area that was there before the load, and before and after ``lines`` were read, is in them, except for a few stacks: a
        reader of the file may have had another one at the same address."""
        stays = set.intersection(*({plain(line) for line in snapshots[name].lines}
                                   for name in ("early", "before", "after")))
        stays = {line for line in stays if not line.endswith(UNPURGED)}
        lost = sorted(stays - set(lines))
        others = [line for line in lost if not STACK.search(line)]
        problem = f"only {len(stays)} areas stayed" if len(stays) < 300 else ""
        if others or len(lost) > STACK_SLACK:
            problem = f"{len(lost)} of {len(stays)} are missing, first: {(others + lost)[0]}"
        self.check(f"{name}: areas", problem,
                   f"{len(stays) - len(lost)} of the {len(stays)} that stayed are in the list, which has {len(lines)} lines")

    def after(self, lines, snapshots):
        """Nothing runs: the dump has the areas of the snapshot, except for a few stacks."""
        wanted = {plain(line) for line in snapshots["quiet"].lines if not line.endswith(UNPURGED)}
        found = {line for line in lines if not line.endswith(UNPURGED)}
        differ = sorted(wanted ^ found)
        others = [line for line in differ if not STACK.search(line)]
        problem = f"differ in {len(differ)} stacks" if len(differ) > STACK_SLACK else ""
        problem = f"differ in {others[0]}" if others else problem
        self.check("after the load: areas", problem,
                   f"{len(wanted & found)} lines are the same, {len(differ)} stacks came or went")

    def other_commands(self, core, lines):
        """The other commands answer, and the owner of an inner address is right."""
        line = next((line for line in lines if STACK.search(line)), None)
        if line is None:
            self.check("owner", "there is no stack in the list")
            return
        start = int(line[2:].split("-")[0], 16)
        code, out, errors = self.vmap(core, "owner", f"{start + 0x1234:x}")
        self.check("owner", "" if code == 0 and f"0x1234 into {line.split()[0]}" in out[0]
                   else f"exit {code}: {out} {errors}", out[0] if out else "")
        code, out, errors = self.vmap(core, "owner", "1000")
        self.check("owner of nothing", "" if code == 1 and "in no area" in out[0] else f"exit {code}: {out} {errors}")
        for command, pattern in (("users", r"[\d,]+ +\d+ \w+"), ("gaps", r"\d+ gaps, \d+ bytes"),
                                 ("stats", r"busy +\d+")):
            code, out, errors = self.vmap(core, command)
            good = code == 0 and not errors and any(re.search(pattern, line) for line in out)
            self.check(command, "" if good else f"exit {code}: {out[:2]} {errors}",
                       next((text for text in out if re.search(pattern, text)), ""))
        if self.allocator == "rust":
            code, out, errors = self.vmap(core, "pins", f"{start:x}")
            good = code == 0 and any(line.split()[0] in text for text in out)
            self.check("pins", "" if good else f"exit {code}: {out[:1]} {errors}", out[0] if out else "")

    def with_gdb(self, text, lines):
        """gdb and drgn list the same areas of the same moment."""
        found, wanted = ({(int(m[1], 16), int(m[2], 16), int(m[3])) for m in
                          (re.match(r"(0x[0-9a-f]+)-(0x[0-9a-f]+) +(\d+)", line) for line in some) if m}
                         for some in (text, [line for line in lines if not line.endswith(UNPURGED)]))
        self.check("gdb: lx-vmallocinfo", f"{len(found ^ wanted)} areas differ from drgn's" if found != wanted else "",
                   f"the same {len(found)} areas as drgn")

    def panicked(self, core, log, wanted):
        """The panic was in the allocator, and its dump tells what is damaged. core: the dump; wanted: a regular expression
        of the line."""
        trace = Path(log).read_text(encoding="utf-8", errors="replace").partition("tools: quiet")[2]
        where = WHERE.search(trace)
        code, out, errors = self.vmap(core, "validate")
        listed = self.vmap(core, "list")
        found = [line for line in out if re.search(wanted, line)]
        problem = ""
        if not where or not re.search(INSIDE[self.allocator], where[1]):
            problem = f"in {where and where[1]}, not in the allocator; see {log}"
        elif "Traceback" in errors + listed[2] or len(listed[2].splitlines()) > 1:
            problem = f"not one line: {errors} {listed[2]}"
        elif code != 1 or not found:
            problem = f"exit {code}, not reported: {out[:2]} {errors}"
        self.check("panic in the allocator", problem, found[0] if found else "")

    def damage(self, core):
        """Damages the dump in several ways, one at a time, and expects a line for each."""
        # QEMU makes it read-only.
        os.chmod(core, 0o600)
        for name, pattern, changes in damages(self.vmlinux, core):
            undo = exchange(core, changes)
            code, out, errors = self.vmap(core, "validate")
            listed = self.vmap(core, "list")
            exchange(core, undo)
            found = [line for line in out if re.search(pattern, line)]
            problem = ""
            if "Traceback" in errors + listed[2]:
                problem = "a traceback"
            elif code != 1 or not found:
                problem = f"exit {code}, not reported: {out[:2]} {errors}"
            elif len(listed[2].splitlines()) > 1:
                problem = "list prints more than a line"
            self.check(f"damaged: {name}", problem, found[0] if found else "")
        self.check("restored", "" if self.vmap(core, "validate")[0] == 0 else "validate fails")


def plain(line):
    """Return a line without the size of the symbol, which is another one in kallsyms, and without NUMA nodes."""
    return re.sub(r"( N\d+=\d+)+$", "", re.sub(r"(\+0x[0-9a-f]+)/0x[0-9a-f]+( \[\w+\])?", r"\1", line))


def check_allocator(args, result, allocator, initramfs):
    """Boot one allocator, and check what the tools print about it."""
    work = CACHE / "tools" / args.kernel.name / allocator
    work.mkdir(parents=True, exist_ok=True)
    cores = busy, quiet, panic = [str(work / f"{name}.core") for name in ("busy", "quiet", "panic")]
    # A run that was ended may have left them, and QEMU makes them read-only.
    for core in cores:
        Path(core).unlink(missing_ok=True)
    session, guest = Session(args, result, allocator, work), Guest(args, allocator, work, initramfs)
    try:
        guest.wait("tools: busy")
        guest.dump(busy)
        code, _, errors = session.vmap(busy, "head", guest.ram)
        session.check("head of the guest's memory", f"exit {code}: {errors}" if code else "")
        running = session.listing("running", guest.ram)
        guest.wait("tools: quiet")
        text, wanted = guest.dump(quiet, lambda: session.gdb(guest.sockets["gdb"], quiet))
        guest.wait("end Kernel panic")
        guest.dump(panic)
    finally:
        guest.step.stop()
    result.logs.append(guest.log)
    snapshots = read_snapshots(guest.log)
    session.during("running", running, snapshots)
    session.during("in the load", session.listing("in the load", busy), snapshots)
    lines = session.listing("after the load", quiet)
    session.after(lines, snapshots)
    session.with_gdb(text, lines)
    session.other_commands(quiet, lines)
    session.panicked(panic, guest.log, wanted)
    session.damage(quiet)
    for core in (*cores, guest.ram):
        Path(core).unlink(missing_ok=True)


def run(args, result):
    """Check each allocator; one that cannot be checked to the end is a failure."""
    initramfs = make_busybox(args.kernel)
    # Three dumps of the guest's memory, and the memory.
    needed = 4 * args.mem + 100
    if shutil.disk_usage(CACHE).free < needed << 20:
        raise Refused(f"the memory of the guest and the dumps need {needed} MiB of disk in {CACHE}")
    for allocator in each_allocator(args):
        try:
            check_allocator(args, result, allocator, initramfs)
        except (Refused, Skipped):
            raise
        # drgn, QEMU's monitor and the commands have errors of their own.
        except Exception as error:  # pylint: disable=broad-exception-caught
            result.add(False, f"{allocator} ended early",
                       f"tools: FAIL {allocator}: ended early: {type(error).__name__}: {error}")
