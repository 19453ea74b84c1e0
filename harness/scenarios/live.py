# SPDX-License-Identifier: GPL-2.0
"""runs tools/vmap in the guest, on the kernel that runs there, and compares with /proc/vmallocinfo

The guest image has drgn and the debug info of its kernel. Under a load, tools/vmap must list every area that
/proc/vmallocinfo had before and after; after the load, the same areas. All its commands and tools/vmap-report must work.
What they print is in the folder live/ALLOCATOR of the cache.
"""

import re

from ..guest import boot
from ..initramfs import make_guest_image
from ..run import each_allocator
from ..settings import CACHE
from ..verdict import Expected, read_lines
from ..vmallocinfo import read_snapshots
from .tools import Session

DEFAULTS = {"kernel": "x86_64-user", "allocators": ("rbtree", "rust", "both"), "allocator": "both", "cpus": 2,
            "mem": 3072, "timeout": 3600, "prepare": ["guest-image"]}
FULL = ("live", "")
USES = ("tools",)


class Printed(Session):
    """The checks of what was printed in the guest."""

    def __init__(self, args, result, allocator, log):
        """log: of the guest."""
        work = CACHE / "live" / allocator
        work.mkdir(parents=True, exist_ok=True)
        super().__init__(args, result, allocator, work)
        self.runs, current = {}, None
        for line in read_lines(log):
            if begin := re.fullmatch(r"tool: begin (.+?) *", line):
                current = self.runs[begin[1]] = {"|": [], "!": [], "code": None, "seconds": 0}
            elif (end := re.fullmatch(r"tool: end (\d+) (\d+)", line)) and current:
                current["code"], current["seconds"] = int(end[1]), int(end[2])
                current = None
            elif current and line[:1] in ("|", "!"):
                current[line[0]].append(line[2:])
        for words, run_of in self.runs.items():
            (work / (re.sub(r"\W+", "-", words) + ".txt")).write_text("".join(f"{line}\n" for line in run_of["|"] + run_of["!"]),
                                                                     encoding="utf-8")

    def printed(self, words):
        """Return the exit code, output and errors of a command in the guest."""
        one = self.runs.get(words, {"|": [], "!": ["not in the log"], "code": None})
        return one["code"], one["|"], "\n".join(one["!"])

    def vmap(self, core, *words):
        """What ran in the guest takes the place of a run on a dump; core: busy or quiet."""
        return self.printed(" ".join([core, "vmap", *words]))

    def report(self):
        """tools/vmap-report has written its archive."""
        code, out, errors = self.printed("quiet vmap-report -o /tmp/report.tar.gz")
        self.check("vmap-report", "" if code == 0 and out and " files." in out[0] else f"exit {code}: {out[:1]} {errors}",
                   out[0] if out else "")


def run(args, result):
    """Boot each allocator."""
    initramfs = make_guest_image(args.kernel, debuggers=True)
    for allocator in each_allocator(args):
        log = boot(result, args, "live", Expected(allocator, "^live: done"), "kunit.enable=0 tsc=reliable GUEST_RUN=live",
                   initramfs=initramfs)
        session, snapshots = Printed(args, result, allocator, log), read_snapshots(log)
        if not {"early", "before", "after", "quiet"} <= set(snapshots):
            session.check("snapshots", f"only {', '.join(snapshots) or 'none'} in the log")
            continue
        session.during("in the load", session.listing("in the load", "busy"), snapshots)
        lines = session.listing("after the load", "quiet")
        session.after(lines, snapshots)
        session.other_commands("quiet", lines)
        session.report()
