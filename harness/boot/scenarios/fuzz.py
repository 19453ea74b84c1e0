# SPDX-License-Identifier: GPL-2.0
"""calls the kernel at random on both allocators: neither may print a report that the other one lacks

Three boots of each allocator share the time: trinity as a user, trinity as root, which may break the guest, and the stressors of
stress-ng of the classes vm, os, device, filesystem and interrupt, one after the other. A guest that root breaks is booted again,
until the time is over. What the kernel reports with the allocator in Rust alone is a failure. A report of another part of the
kernel that only one boot has may be chance: what is called differs from boot to boot.
"""

import re

from ..console import count_checks, read_text
from ..guest import NO_TESTS, boot_of, invariants
from ..initramfs import make_guest_image
from ...machine.options import whole
from ...machine.settings import Refused
from ..verdict import RULES, Expected, read_lines

DEFAULTS = {"kernel": "x86_64-user", "allocators": ("rbtree", "rust", "both"), "allocator": "both", "cpus": 2, "mem": 4096,
            "guest_image": True}
# Parts of the time.
PARTS = {"user": 0.25, "root": 0.25, "stress": 0.5}
# What the allocator itself says is always a failure.
OWN = re.compile(r"vmap_rust: refused|guest: FAIL")
# What a call of root gets as an answer, in the words of a report.
ANSWER = re.compile(r"The mand mount option has been deprecated")
# A guest that breaks early each time tells nothing new.
MOST_BOOTS = 30
TIME = re.compile(r"^guest: (\d+) s$", re.M)


def options(parser):
    """Add the time."""
    parser.add_argument("--minutes", type=whole(1, 1440), default=10, metavar="N",
                        help="minutes of the load for each allocator (default: %(default)s)")


def check(args):
    """Raise Refused without an image."""
    if not args.kernel.user_image:
        raise Refused(f"configuration {args.kernel.name} has no image with the programs of this load; use x86_64-user or arm64-fuzz")


def kinds(log):
    """Return the reports of a kernel's log, without numbers and addresses: {kind: the first line}."""
    rules, found = re.compile("|".join(RULES)), {}
    for line in read_lines(log):
        if rules.search(line) and not ANSWER.search(line):
            found.setdefault(re.sub(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+", "#", line), line)
    return found


def boot(args, result, allocator, part, seconds, initramfs, number):
    """Boot once with a part of the load. Returns the seconds of the load, and the kinds of the kernel's reports.

    number: of the boot, which is a seed, too."""
    log = args.logs / f"fuzz-{part}-{args.kernel.name}-{allocator}-{number}.log"
    one = boot_of(args, f"fuzz {part}", Expected(allocator, "^guest: done"),
                  f"{NO_TESTS} GUEST_RUN=fuzz ALLOCATOR={allocator} FUZZ={part} FUZZ_SECONDS={seconds} FUZZ_SEED={number}",
                  initramfs=initramfs, log=log, timeout=args.timeout or seconds * 3 + 900)
    wrong = [reason for reason in one.run() or () if reason.startswith("allocator line")]
    text, reports = read_text(log), kinds(log)
    done = [int(match) for match in TIME.findall(text.replace("\r", ""))]
    is_whole = "guest: done" in text
    if is_whole:
        count_checks(result, allocator, log, [f"{part}-calls", *(invariants(args, allocator))])
    elif part != "root":
        result.add(False, f"{allocator} {part}", f"the guest ended early; see {log}")
    own = [line for line in reports.values() if OWN.search(line)]
    if own + wrong:
        result.add(False, f"{allocator} {part} boot {number}", "\n".join(own + wrong))
    return seconds if is_whole else max(done, default=0), reports


def run(args, result):
    """Boot each allocator with all parts, and compare."""
    initramfs, found = make_guest_image(args.kernel), {}
    for allocator in args.allocators:
        found[allocator] = {}
        for part, share in PARTS.items():
            left, number = int(args.minutes * 60 * share), 0
            while left > 10 and number < (MOST_BOOTS if part == "root" else 1):
                number += 1
                spent, reports = boot(args, result, allocator, part, left, initramfs, number)
                found[allocator] |= reports
                left -= spent
            if part == "root":
                result.add(left <= 10, f"{allocator} root", f"{number} boots" if left <= 10 else
                           f"{number} boots, and {left} s are left")
    only = [line for kind, line in found.get("rust", {}).items() if kind not in found.get("rbtree", {})]
    counts = ", ".join(f"{len(kinds)} kinds with {name}" for name, kinds in found.items())
    result.add(not only, "no report with Rust alone", counts + "".join(f"\n{line}" for line in only))
