# SPDX-License-Identifier: GPL-2.0
"""runs the kernel's KUnit suite of KASAN on both allocators: it must find the same bugs in vmalloc memory

Needs CONFIG_KASAN_KUNIT_TEST=m (arm64-tags and arm64-debug have it). A case of mm/kasan/kasan_test_c.c must have the
same result on both; a failure on both is a fault of the kernel. With tags, each allocator boots three times, and a case
passes if it passes in one of these boots: tags are random numbers of 4 bits, so two tags that must differ are sometimes
equal.
"""

import re

from ..guest import boot
from ..initramfs import make_busybox
from ..result import Result
from ..settings import LOGS, Refused
from ..table import print_table
from ..verdict import Expected, read_lines

DEFAULTS = {"allocators": (), "timeout": 1200}
FULL = ("peers", "")
CASE = re.compile(r"    (not )?ok \d+ ([a-z0-9_]+)( # SKIP.*)?")


def read_cases(logs):
    """Map each case of the suite to ok, not_ok or skipped: the best of all boots."""
    best, order = {}, ("not_ok", "ok", "skipped")
    for match in (CASE.fullmatch(line) for log in logs for line in read_lines(log)):
        if match:
            state = "not_ok" if match[1] else "skipped" if match[3] else "ok"
            # A case is skipped in all boots or in none.
            best[match[2]] = max(best.get(match[2], "not_ok"), state, key=order.index)
    return best


def run(args, result):
    """Boot both allocators and compare their cases."""
    kernel, cases = args.kernel, []
    if not (kernel.folder / "mm/kasan/kasan_test.ko").is_file():
        raise Refused(f"configuration {kernel.name} has no CONFIG_KASAN_KUNIT_TEST=m; use arm64-tags or arm64-debug")
    initramfs = make_busybox(kernel)
    for allocator in ("rbtree", "rust"):
        # The cases provoke reports of KASAN and check them. The verdict still shows a boot that did not end, and is no
        # case.
        boots = Result()
        for number in range(3 if kernel.has("KASAN_HW_TAGS") else 1):
            boot(boots, args, "kasan", Expected(allocator, "^kasan: done", [".*"]),
                 "kunit.filter_glob=kasan kasan_multi_shot "
                 "test_vmalloc.run_test_mask=0 LOAD_SCRIPT=/kasan.sh", initramfs=initramfs,
                 log=LOGS / f"kasan-{kernel.name}-{allocator}-{number + 1}.log")
        result.failed += boots.failed
        result.failures += boots.failures
        result.logs += boots.logs
        cases.append(read_cases(boots.logs))
    if not cases[0]:
        raise Refused(f"no case of KASAN's suite ran; see {result.logs[0]}")
    rows = []
    for name in sorted(set(cases[0]) | set(cases[1])):
        rbtree, rust = (some.get(name, "missing") for some in cases)
        same = rbtree == rust
        result.add(None if same and rust == "skipped" else same, name)
        if "vm" in name or not same:
            rows.append([name, rbtree, rust, "same" if same else "FAIL"])
    print_table("KASAN; of the cases that are not about vmalloc only those that differ",
                ["case", "rbtree", "rust", "verdict"], rows)
