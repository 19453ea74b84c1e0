# SPDX-License-Identifier: GPL-2.0
"""reads dumps of a guest with drgn, and compares with /proc/vmallocinfo

Boots each allocator under a load; QEMU writes a dump in the middle of the load and one after it. tools/vmap must find
every area of /proc/vmallocinfo in them, and nothing wrong. On x86_64-user, tools/vmap also reads the kernel on which it runs,
and tools/vmap-report and tools/vmap-bench must work.
"""

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from ..console import count_checks, read_files, read_text
from ..guest import NO_TESTS, boot_of
from ..initramfs import make_busybox, make_guest_image
from ...machine.lock import locked
from ...machine.settings import CACHE, REPO, Refused, Skipped, remove
from ...machine.step import Limit, Step
from ..verdict import Expected, judge
from ..vmallocinfo import STACK, UNPURGED

DEFAULTS = {"kernel": "arm64", "allocators": ("rbtree", "rust", "both"), "allocator": "both", "cpus": 2,
            "mem": 0, "timeout": 1800, "guest_image": True}
# Stacks that appear or go between a snapshot and what is compared with it: of the reader and of kernel threads.
STACK_SLACK = 8


def check(args):
    """Complete what follows from the kernel: what unpacks the guest image needs memory. Raise Refused without QEMU."""
    if args.kernel.arch == "um":
        raise Refused(f"configuration {args.kernel.name} is user-mode Linux, of which QEMU writes no dump; use arm64")
    args.mem = args.mem or (3072 if args.kernel.guest_image else 512)


def plain(line):
    """Return a line without the size of the symbol, which is another one in kallsyms, and without NUMA nodes."""
    return re.sub(r"( N\d+=\d+)+$", "", re.sub(r"(\+0x[0-9a-f]+)/0x[0-9a-f]+( \[\w+\])?", r"\1", line))


def compare(lines, files, moments):
    """Return what is wrong, or None: each area that /proc/vmallocinfo had at all of these moments is in ``lines``,
    except for a few stacks: a reader of the file may have had another one at the same address. If it is one moment,
    there are no others."""
    snapshots = [set(map(plain, files.get(when, {}).get("vmallocinfo", ()))) for when in moments]
    stays, found = ({line for line in some if not line.endswith(UNPURGED)}
                    for some in (set.intersection(*snapshots), map(plain, lines)))
    wrong = sorted(stays ^ found if len(moments) == 1 else stays - found, key=lambda line: bool(STACK.search(line)))
    if len(stays) < 300:
        return f"only {len(stays)} areas to compare"
    if wrong and (len(wrong) > STACK_SLACK or not STACK.search(wrong[0])):
        return f"{len(wrong)} of {len(stays)} differ, first: {wrong[0]}"
    return None


class Session:
    """The guest of an allocator, which runs qemu/tools.sh, and the checks of what the tools print about it."""

    def __init__(self, args, result, allocator, initramfs, folder):
        """folder: for the sockets and the dump."""
        self.args, self.result, self.allocator, self.folder = args, result, allocator, folder
        self.vmlinux = args.kernel.folder / "vmlinux"
        boot = boot_of(args, "tools", Expected(allocator, "^tools: quiet"),
                       f"nokaslr {NO_TESTS} GUEST_RUN=tools ALLOCATOR={allocator}", initramfs=initramfs)
        self.log, self.expected, self.limit = boot.log, boot.expected, Limit(args.timeout)
        self.step = Step(f"tools on {args.kernel.name}, {allocator}", boot.log, [
            *boot.command(), "-chardev", f"socket,id=gdb,path={folder}/gdb,server=on,wait=off", "-gdb", "chardev:gdb"],
            stdin=subprocess.PIPE)

    def wait(self, text):
        """Wait until the console has a line with ``text``."""
        while text not in (printed := read_text(self.log)):
            if not self.step.running() or "end Kernel panic" in printed or self.limit.is_over():
                raise RuntimeError(f"the guest ended before \"{text}\", or took too long; see {self.log}")
            time.sleep(0.2)

    def go_on(self):
        """Let the guest go on, which waits for a line."""
        self.step.child.stdin.write(b"\n")
        self.step.child.stdin.flush()

    def output(self, *words):
        """Run a command and return its result."""
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=self.args.timeout)

    def check(self, name, problem, detail=""):
        """Count one check; ``problem`` is empty if it passed."""
        self.result.add(not problem, f"{self.allocator} {name}", problem or detail)

    def vmap(self, name, pattern, *words):
        """Check that tools/vmap has nothing wrong to say about the dump, and prints a line that matches. Returns its lines."""
        done = self.output(REPO / "tools/vmap", "--core", self.folder / "core", "--symbols", self.vmlinux, *words)
        lines = done.stdout.splitlines()
        found = [line for line in lines if re.search(pattern, line)]
        self.check(name, "" if found and not done.returncode and not done.stderr
                   else f"exit {done.returncode}: {lines[:2]} {done.stderr}", (found or [""])[0])
        return lines

    def listing(self, name):
        """Write a dump in place of the last one, check that nothing is wrong in it, and return its areas. The guest stands
        still meanwhile."""
        # QEMU makes it read-only.
        (self.folder / "core").unlink(missing_ok=True)
        # A dump of a large guest takes longer than the two seconds for which gdb waits.
        commands = ("set remotetimeout 600", f"target remote {self.folder}/gdb",
                    f"monitor dump-guest-memory {self.folder}/core", "detach")
        self.output("gdb-multiarch", "-batch", "-nx", *(f"-ex={command}" for command in commands))
        self.vmap(f"{name}: validate", "ok$", "validate")
        return self.vmap(f"{name}: list", " vmalloc", "list")

    def commands(self, lines):
        """The other commands answer, and the owner of an inner address is right."""
        stack = next(line.split()[0] for line in lines if STACK.search(line))
        start = int(stack.split("-")[0], 16)
        self.vmap("owner", f"0x1234 into {stack}", "owner", f"{start + 0x1234:x}")
        self.vmap("stats", r"busy +\d+", "stats")


def check_allocator(args, result, allocator, initramfs):
    """Boot one allocator, and check what the tools print about it."""
    with tempfile.TemporaryDirectory(prefix="tools-", dir=CACHE) as folder:
        session = Session(args, result, allocator, initramfs, Path(folder))
        try:
            session.wait("tools: busy")
            lists = {"busy": session.listing("in the load")}
            session.go_on()
            session.wait("tools: quiet")
            lists["quiet"] = session.listing("after the load")
            session.commands(lists["quiet"])
        finally:
            session.step.stop()
    files = read_files(session.log)
    session.check("log", "\n".join(judge(session.log, session.expected)))
    if args.kernel.guest_image:
        lists |= {f"{when} inside": files.get(when, {}).get("list", ()) for when in lists}
        count_checks(result, allocator, session.log, ["busy-validate", "quiet-validate", "vmap-report", "vmap-bench"])
    for name, lines in lists.items():
        moments = ("early", "before", "after") if name.startswith("busy") else ("quiet",)
        session.check(f"{name}: areas", compare(lines, files, moments), f"{len(lines)} lines")


@locked("tools", "tools.lock")
def run(args, result):
    """Check each allocator; one that cannot be checked to the end is a failure."""
    # Dumps of a run that was killed.
    for left in CACHE.glob("tools-*"):
        remove(left)
    initramfs = make_guest_image(args.kernel, debuggers=True) if args.kernel.guest_image else make_busybox(args.kernel)
    if shutil.disk_usage(CACHE).free >> 20 < args.mem + 100:
        raise Refused(f"a dump needs {args.mem + 100} MiB of disk in {CACHE}")
    for allocator in args.allocators:
        try:
            check_allocator(args, result, allocator, initramfs)
        except (Refused, Skipped):
            raise
        # drgn and the commands have errors of their own.
        except Exception as error:  # pylint: disable=broad-exception-caught
            result.add(False, f"{allocator} ended early", f"{type(error).__name__}: {error}")
