# SPDX-License-Identifier: GPL-2.0
"""reads dumps of a guest with drgn, and the guest itself with gdb, and compares with /proc/vmallocinfo

Boots each allocator under a load; QEMU writes a dump in the middle of the load and one after it. tools/vmap must find
every area of /proc/vmallocinfo in them, and nothing wrong; lx-vmallocinfo of scripts/gdb must list the same areas. Then
gdb damages the allocator: each damage must be reported in a line about another dump, the last one after the panic to
which it leads. On x86_64-user, tools/vmap also reads the kernel on which it runs, and tools/vmap-report must work. What
the tools print is in the folder tools/KERNEL/ALLOCATOR of the cache.
"""

import re
import shutil
import subprocess
import time
from pathlib import Path

from ..console import count_checks, read_files, read_text
from ..damage import damages
from ..guest import NO_TESTS, Boot
from ..initramfs import make_busybox, make_guest_image
from ..monitor import Monitor
from ..run import each_allocator
from ..settings import CACHE, LOGS, REPO, Refused, Skipped
from ..step import Step
from ..verdict import Expected
from ..vmallocinfo import STACK, UNPURGED

DEFAULTS = {"kernel": "arm64", "allocators": ("rbtree", "rust", "both"), "allocator": "both", "cpus": 2,
            "mem": 0, "timeout": 1800, "guest_image": True}
MAKE_TEST = {"tools": (120, "arm64")}
FULL = ("tools", "")
USES = ("tools",)
# Stacks that appear or go between a snapshot and what is compared with it: of the reader and of kernel threads.
STACK_SLACK = 8
# Where a panic was, in its message, and names of functions of each allocator.
WHERE = re.compile(r"(?:pc : |RIP: 0010:)(\S+)")
INSIDE = {"rust": r"vmap_rust", "rbtree": r"vmap_area|va_links"}


def check(args):
    """Complete what follows from the kernel: what unpacks the guest image needs memory."""
    args.mem = args.mem or (3072 if args.kernel.guest_image else 512)


class Guest:
    """A guest that runs qemu/tools.sh, until it is ended."""

    def __init__(self, args, allocator, work, initramfs):
        """work: folder of the sockets and of the dump."""
        self.core, self.sockets = work / "core", {name: work / f"{name}.socket" for name in ("qmp", "gdb")}
        for path in self.sockets.values():
            path.unlink(missing_ok=True)
        boot = Boot(args.kernel, Expected(allocator), cpus=args.cpus, nodes=args.nodes, mem=args.mem,
                    initramfs=str(initramfs), accel=args.accel,
                    log=args.log or LOGS / f"tools-{args.kernel.name}-{allocator}.log",
                    append=f"nokaslr panic=0 {NO_TESTS} GUEST_RUN=tools ALLOCATOR={allocator} {args.append}")
        self.log, self.timeout, self.until = boot.log, args.timeout, time.monotonic() + args.timeout
        self.step = Step(f"tools {args.kernel.name}, {allocator}", boot.log, [
            *boot.command(), "-qmp", f"unix:{self.sockets['qmp']},server=on,wait=off",
            "-chardev", f"socket,id=gdb,path={self.sockets['gdb']},server=on,wait=off", "-gdb", "chardev:gdb"])

    def wait(self, text):
        """Wait until the console has a line with ``text``."""
        while text not in (printed := read_text(self.log)):
            if not self.step.running() or "end Kernel panic" in printed:
                raise RuntimeError(f"the guest ended before \"{text}\"; see {self.log}")
            if time.monotonic() > self.until:
                raise RuntimeError(f"no \"{text}\" in {self.timeout} s; see {self.log}")
            time.sleep(0.2)

    def monitor(self, command, **arguments):
        """Run a command of QEMU's monitor."""
        monitor = Monitor(str(self.sockets["qmp"]), self.timeout)
        monitor(command, **arguments)
        monitor.socket.close()

    def dump(self):
        """Write a dump in place of the last one; returns its path."""
        # QEMU makes it read-only.
        self.core.unlink(missing_ok=True)
        self.monitor("dump-guest-memory", paging=False, protocol=f"file:{self.core}")
        return self.core


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
        """Run tools/vmap on a dump. Returns its exit code, output and errors."""
        done = self.command("-".join(words), REPO / "tools/vmap", "--core", core, "--symbols", self.vmlinux, *words)
        return done.returncode, done.stdout.splitlines(), done.stderr.strip()

    def expect(self, name, pattern, core, *words, code=0):
        """Check that tools/vmap ends with this code and prints a line that matches."""
        got, lines, errors = self.vmap(core, *words)
        found = [line for line in lines if re.search(pattern, line)]
        good = got == code and found and not errors
        self.check(name, "" if good else f"exit {got}: {lines[:2]} {errors}", (found or [""])[0])

    def listing(self, name, core):
        """Return the lines of ``vmap list``, and check validate."""
        code, lines, errors = self.vmap(core, "validate")
        self.check(f"{name}: validate", "" if code == 0 and not errors else f"exit {code}: {(lines + [errors])[0]}",
                   lines[-1] if lines else "")
        code, lines, errors = self.vmap(core, "list")
        if code or errors:
            self.check(f"{name}: list", f"exit {code}: {errors}")
        return lines

    def areas(self, name, lines, files, moments):
        """Each area that /proc/vmallocinfo had at all of these moments is in ``lines``, except for a few stacks: a
        reader of the file may have had another one at the same address. If it is one moment, there are no others."""
        snapshots = [set(map(plain, files.get(when, {}).get("vmallocinfo", ()))) for when in moments]
        found = set(map(plain, lines))
        stays = {line for line in set.intersection(*snapshots) if not line.endswith(UNPURGED)}
        wrong = stays - found
        if len(moments) == 1:
            wrong |= {line for line in found - stays if not line.endswith(UNPURGED)}
        others = sorted(line for line in wrong if not STACK.search(line))
        problem = ""
        if len(stays) < 300:
            problem = f"only {len(stays)} areas to compare"
        elif others or len(wrong) > STACK_SLACK:
            problem = f"{len(wrong)} of {len(stays)} differ, first: {[*others, *wrong][0]}"
        self.check(f"{name}: areas", problem,
                   f"{len(stays & found)} of {len(stays)} are in the list, which has {len(found)} lines")

    def other_commands(self, core, lines):
        """The other commands answer, and the owner of an inner address is right."""
        stack = next(line.split()[0] for line in lines if STACK.search(line))
        start = int(stack.split("-")[0], 16)
        self.expect("owner", f"0x1234 into {stack}", core, "owner", f"{start + 0x1234:x}")
        self.expect("owner of nothing", "in no area", core, "owner", "1000", code=1)
        self.expect("users", r"[\d,]+ +\d+ \w+", core, "users")
        self.expect("gaps", r"\d+ gaps, \d+ bytes", core, "gaps")
        self.expect("stats", r"busy +\d+", core, "stats")
        if self.allocator == "rust":
            self.expect("pins", stack, core, "pins", f"{start:x}")

    def gdb(self, socket, *commands):
        """Run commands of gdb on the guest, which stands still and does not go on."""
        words = [word for command in ("set auto-load safe-path /", "set pagination off", f"file {self.vmlinux}",
                                      f"target remote {socket}", *commands, "disconnect") for word in ("-ex", command)]
        return self.command("gdb", "gdb-multiarch", "-batch", "-nx", *words).stdout.splitlines()

    def with_gdb(self, text, lines):
        """gdb and drgn list the same areas of the same moment."""
        found, wanted = ({(int(m[1], 16), int(m[2], 16), int(m[3])) for m in
                          (re.match(r"(0x[0-9a-f]+)-(0x[0-9a-f]+) +(\d+)", line) for line in some) if m}
                         for some in (text, [line for line in lines if not line.endswith(UNPURGED)]))
        self.check("gdb: lx-vmallocinfo",
                   "" if found and found == wanted else f"{len(found ^ wanted)} areas differ from drgn's",
                   f"the same {len(found)} areas as drgn")

    def reported(self, name, core, pattern):
        """validate has a line about a damage, and list one line, if any."""
        code, lines, errors = self.vmap(core, "validate")
        listed = self.vmap(core, "list")[2]
        found = [line for line in lines if re.search(pattern, line)]
        problem = ""
        if "Traceback" in errors or len(listed.splitlines()) > 1:
            problem = f"not one line: {errors} {listed}"
        elif code != 1 or not found:
            problem = f"exit {code}, not reported: {lines[:2]} {errors}"
        self.check(name, problem, (found or [""])[0])


def plain(line):
    """Return a line without the size of the symbol, which is another one in kallsyms, and without NUMA nodes."""
    return re.sub(r"( N\d+=\d+)+$", "", re.sub(r"(\+0x[0-9a-f]+)/0x[0-9a-f]+( \[\w+\])?", r"\1", line))


def check_allocator(args, result, allocator, initramfs):
    """Boot one allocator, and check what the tools print about it."""
    work = CACHE / "tools" / args.kernel.name / allocator
    work.mkdir(parents=True, exist_ok=True)
    session, guest = Session(args, result, allocator, work), Guest(args, allocator, work, initramfs)
    try:
        guest.wait("tools: busy")
        busy = session.listing("in the load", guest.dump())
        guest.wait("tools: quiet")
        guest.monitor("stop")
        lines = session.listing("after the load", guest.dump())
        session.with_gdb(session.gdb(guest.sockets["gdb"], "lx-vmallocinfo"), lines)
        session.other_commands(guest.core, lines)
        *undone, last = damages(session.vmlinux, guest.core)
        for damage in undone:
            session.gdb(guest.sockets["gdb"], damage.write(damage.value))
            session.reported(f"damaged: {damage.name}", guest.dump(), damage.pattern)
            session.gdb(guest.sockets["gdb"], damage.write(damage.before))
        session.gdb(guest.sockets["gdb"], last.write(last.value))
        guest.monitor("cont")
        guest.wait("end Kernel panic")
        where = WHERE.search(read_text(guest.log).partition("tools: quiet")[2])
        session.check("panic in the allocator", "" if where and re.search(INSIDE[allocator], where[1])
                      else f"in {where and where[1]}; see {guest.log}", where[1] if where else "")
        session.reported(f"after the panic: {last.name}", guest.dump(), last.pattern)
    finally:
        guest.step.stop()
        guest.core.unlink(missing_ok=True)
    result.logs.append(guest.log)
    files, moments = read_files(guest.log), ("early", "before", "after")
    session.areas("in the load", busy, files, moments)
    session.areas("after the load", lines, files, ["quiet"])
    if args.kernel.guest_image:
        session.areas("inside, in the load", files.get("busy", {}).get("list", ()), files, moments)
        session.areas("inside, after the load", files.get("quiet", {}).get("list", ()), files, ["quiet"])
        count_checks(result, allocator, guest.log, ["busy-validate", "quiet-validate", "vmap-report"])


def run(args, result):
    """Check each allocator; one that cannot be checked to the end is a failure."""
    initramfs = make_guest_image(args.kernel, debuggers=True) if args.kernel.guest_image else make_busybox(args.kernel)
    if shutil.disk_usage(CACHE).free >> 20 < args.mem + 100:
        raise Refused(f"a dump needs {args.mem + 100} MiB of disk in {CACHE}")
    for allocator in each_allocator(args):
        try:
            check_allocator(args, result, allocator, initramfs)
        except (Refused, Skipped):
            raise
        # drgn, QEMU's monitor and the commands have errors of their own.
        except Exception as error:  # pylint: disable=broad-exception-caught
            result.add(False, f"{allocator} ended early",
                       f"tools: FAIL {allocator}: ended early: {type(error).__name__}: {error}")
