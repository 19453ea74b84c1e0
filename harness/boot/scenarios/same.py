# SPDX-License-Identifier: GPL-2.0
"""runs tests of other kernel subsystems on both allocators: each must give the same result

The tests are those that the kernel has as modules. x86_64-user: lib/test_bpf, lib/test_maple_tree, and in a separate
boot the cases of lkdtm that misuse stacks and copies from and to user space. arm64-debug and arm64-tags: KASAN's KUnit
suite. With hardware tags, it boots three times, and a case passes if it passes in one of these boots: tags are random
numbers of 4 bits, so two tags that must differ are sometimes equal. At the end of each boot with the allocator in Rust, its
invariants must hold.
"""

import itertools
import re

from ..guest import boot_script, invariants
from ..initramfs import make_busybox, make_guest_image
from ...machine.settings import Refused
from ...machine.table import print_table
from ..verdict import read_lines

DEFAULTS = {"allocators": (), "cpus": 2, "mem": 3072, "timeout": 2400, "guest_image": True}
# These provoke reports of the kernel, which their results contain.
ANYTHING = ["^(?!vmap_rust: refused)"]
# Tests that run in one boot, a function of qemu/same.sh: the option that kernels with these tests have as a module, answers
# that the checker compares at least, expressions of lines that are no failure, kernel arguments.
TESTS = {
    "modules": ("TEST_BPF", 1001, [], ""),
    # Few cases need areas.
    "lkdtm": ("LKDTM", 101, ANYTHING, ""),
    "kasan": ("KASAN_KUNIT_TEST", 101, ANYTHING, "kunit.enable=1 kunit.filter_glob=kasan kasan_multi_shot log_buf_len=16M"),
}
RESULT = re.compile(r"result: (\S+) (.+)")
CASE = re.compile(r" {4}(not )?ok \d+ (\w+)( # SKIP.*)?")
PLAN = re.compile(r" {4}1\.\.(\d+)")


def read_results(log):
    """Map each test in a log to its result: what the guest says, or the state of a case of KUnit."""
    found, cases, plan = {}, 0, 0
    for line in read_lines(log):
        if match := RESULT.fullmatch(line):
            found[match[1]] = match[2]
        elif match := CASE.fullmatch(line):
            found[match[2]] = "fail" if match[1] else "skip" if match[3] else "pass"
            cases += 1
        elif match := PLAN.fullmatch(line):
            plan += int(match[1])
    if cases != plan:
        found["KUnit"] = f"fail, no result of {plan - cases} cases"
    return found


def same(rbtree, rust):
    """Tell whether two results are equal: True, False, or None where there is nothing to compare."""
    equal = rbtree == rust and not rbtree.startswith("fail, no")
    return None if equal and rbtree.startswith("skip") else equal


def compare(result, rbtree, rust):
    """Print the table, count each test, and print in full the results that differ."""
    found = {name: [some.get(name, "fail, no result") for some in (rbtree, rust)] for name in dict.fromkeys([*rbtree, *rust])}
    print_table("tests of other subsystems", ["test", "rbtree", "rust", "same?"], [
        [name, *(x if len(x) <= 36 else x[:33] + "..." for x in texts),
         {True: "yes", False: "NO", None: "skipped"}[same(*texts)]] for name, texts in found.items()])
    for name, texts in found.items():
        equal = same(*texts)
        result.add(equal, name, f"differs\nrbtree: {texts[0]}\nrust:   {texts[1]}" if equal is False else None)


def run(args, result):
    """Boot both allocators with each test that the kernel has, and compare."""
    kernel = args.kernel
    tests = {name: test for name, (option, *test) in TESTS.items() if kernel.has(option, "m")}
    if not tests:
        raise Refused(f"configuration {kernel.name} has none of these modules: "
                      f"{' '.join(option for option, *_ in TESTS.values())}; use x86_64-user, arm64-debug or arm64-tags")
    initramfs = make_guest_image(kernel) if kernel.guest_image else make_busybox(kernel)
    found = {"rbtree": {}, "rust": {}}
    for (name, (least, allow, append)), allocator in itertools.product(tests.items(), found):
        for number in range(3 if name == "kasan" and kernel.has("KASAN_HW_TAGS") else 1):
            log = boot_script(result, args, "same", allocator, initramfs,
                              f"TESTS={name} CHECKER_LEAST={least} {append}", invariants(args, allocator), allow,
                              f"{allocator} {name}", log=args.logs / f"{name}-{kernel.name}-{allocator}-{number + 1}.log")
            # The best of all boots.
            found[allocator] |= {case: text for case, text in read_results(log).items()
                                 if found[allocator].get(case, "fail") == "fail"}
    if not found["rbtree"]:
        raise Refused(f"no test ran; see {args.logs}")
    compare(result, found["rbtree"], found["rust"])
