# SPDX-License-Identifier: GPL-2.0
"""Logs that must pass and logs that must fail. Each rule has a bad log here, so that no rule can match nothing."""

import re

import pytest

from harness.boot.verdict import RULES, Expected, judge

RUST, RBTREE = "vmap allocator: rust (mm/vmap_rust)", "vmap allocator: rbtree"
WARN = "[    0.400000] WARNING: mm/vmalloc.c:3345 at vfree+0x1c/0x20"
UNKNOWN = 'unknown value "foo", use "rbtree" or "rust"'
KTAP = ["KTAP version 1", "1..1", "    KTAP version 1", "    # Subtest: vmap_area", "    1..2", "    ok 1 first", WARN,
        "    ok 2 vfree_twice",
        "# vmap_area: pass:2 fail:0 skip:0 total:2", "ok 1 vmap_area"]

BAD = [
    "Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b",
    "KASAN: null-ptr-deref in range [0x0000000000000000-0x0000000000000007]",
    "BUG: KASAN: vmalloc-out-of-bounds in vmalloc_test+0x10/0x20",
    "BUG: KFENCE: use-after-free read in area_free+0x10/0x20",
    "UBSAN: array-index-out-of-bounds in mm/vmalloc.c:1:2",
    "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [vmalloc_test/0:44]",
    "INFO: trying to register non-static key.",
    "INFO: task kworker/0:1:12 blocked for more than 120 seconds.",
    "WARNING: possible circular locking dependency detected",
    "WARNING: suspicious RCU usage",
    "rcu: INFO: rcu_preempt self-detected stall on CPU",
    "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
    "BUG at mas_wr_store_type:4250 (1)",
    "BUG vmap_area (Not tainted): Object already free",
    "BUG: sleeping function called from invalid context at mm/slab.c:1",
    "kernel BUG at mm/vmalloc.c:2093!",
    "WARNING: mm/vmalloc.c:3345 at vfree+0x1c/0x20, CPU#0: kunit_try_catch/57",
    "Internal error: Oops: 0000000096000004 [#1] SMP",
    "Unable to handle kernel paging request at virtual address ffff800080000000",
    "refcount_t: underflow; use-after-free.",
    "list_del corruption. prev->next should be ffff0000, but was 0",
    "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
    "kmemleak: Kernel memory leak detector disabled",
    "Booting kernel: `maybe' invalid for parameter `vmap_rust.randomize'",
    "vmap_rust: refused free of 0xffff800080000000: no area there",
    "guest: FAIL modules 200 loads and unloads, 1 failed",
]
# What the log has in its middle, what is expected, and a pattern that the first reason matches; None: it passes.
LOGS = {
    "good, rust": ([RUST], Expected("rust"), None),
    "good, without the option": ([], Expected("none"), None),
    "rust instead of rbtree": ([RUST], Expected("rbtree"), "allocator line: expected rbtree"),
    "rbtree instead of rust": ([RBTREE], Expected("rust"), "allocator line: expected rust"),
    "a line without the option": ([RBTREE], Expected("none"), "allocator line: expected none"),
    "no allocator line": ([], Expected("rust"), "printed 0 times"),
    "allocator line twice": ([RUST, "[    0.1] " + RUST], Expected("rust"), "printed 2 times"),
    "unknown value, required": ([RBTREE, f"vmap allocator: {UNKNOWN}; using rbtree"],
                                Expected("rbtree", require=[UNKNOWN]), None),
    "required line missing": ([RBTREE], Expected("rbtree", require=["unknown value"]), "required line"),
    "end marker missing": ([RUST], Expected("rust", "All test took worker1="), "end marker"),
    "allowed in its case": ([RUST, *KTAP], Expected("rust", allow_in=[("vmap_area.vfree_twice", "at vfree")]), None),
    "allowed in another case": ([RUST, *KTAP], Expected("rust", allow_in=[("vmap_area.first", "at vfree")]),
                                "^line .*WARNING"),
    "allowed after a case with parameters": (
        [RUST, "    # Subtest: vmap_area", "        # Subtest: vmap_each", "        ok 1 first", "    ok 1 vmap_each", *KTAP[-4:]],
        Expected("rust", allow_in=[("vmap_area.vfree_twice", "at vfree")]), None),
    "after what is judged": ([RUST, "shell: begin", "vmap allocator: rbtree", WARN], Expected("rust", until="^shell: begin"), None),
    "before what is not judged": ([WARN, RUST, "shell: begin"], Expected("rust", until="^shell: begin"), "^line .*WARNING"),
    "end marker missing after it": ([RUST, "shell: begin"], Expected("rust", "shell: exit", until="^shell: begin"), "end marker"),
    "after its suite": ([RUST, "    # Subtest: vmap_area", "    ok 1 vfree_twice", "ok 1 vmap_area", WARN],
                        Expected("rust", allow_in=[("vmap_area.vfree_twice", "at vfree")]), "^line .*WARNING"),
}


def boot_log(path, middle, end=True):
    """Write a boot log with the given lines in the middle."""
    lines = ["[    0.000000] Booting Linux on physical CPU 0x0", "[    0.000000] Linux version 7.3.4", *middle,
             "[    0.000000] kasan: KernelAddressSanitizer initialized (generic)", "[    0.010000] kfence: initialized",
             "[    0.011000] debug: unmapping init memory", "[    0.726696] All test took worker0=29182096 cycles"]
    if end:
        lines += ['[    0.743055] Kernel panic - not syncing: VFS: Unable to mount root fs on "" or unknown-block(0,0)',
                  "[    0.743765]  show_stack+0x18/0x24 (C)"]
    path.write_text("\r\n".join(lines) + "\r\n")
    return path


@pytest.mark.parametrize("middle, expected, pattern", LOGS.values(), ids=LOGS)
def test_log(tmp_path, middle, expected, pattern):
    """A log passes, or fails for the expected reason."""
    reasons = judge(boot_log(tmp_path / "log", middle), expected)
    assert not reasons if pattern is None else re.search(pattern, "\n".join(reasons)), reasons


@pytest.mark.parametrize("line", BAD)
def test_rule(tmp_path, line):
    """A bad line fails, and passes if it is allowed."""
    log = boot_log(tmp_path / "log", [RUST, f"[    0.500000] {line}"])
    assert re.match(r"line \d+: ", judge(log, Expected("rust"))[0])
    assert not judge(log, Expected("rust", allow=[re.escape(line)]))


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_has_a_bad_log(rule):
    """No rule matches nothing."""
    assert any(re.search(rule, line) for line in BAD)


def test_log_that_is_not_whole(tmp_path):
    """A log without the end of the boot, an empty one, and one that is not there fail."""
    log = boot_log(tmp_path / "log", [RUST], end=False)
    assert judge(log, Expected("rust"))[0].startswith("end marker")
    log.write_text("")
    assert "empty" in judge(log, Expected("rust"))[0]
    log.unlink()
    assert "cannot read" in judge(log, Expected("rust"))[0]
