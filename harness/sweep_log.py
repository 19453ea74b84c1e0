# SPDX-License-Identifier: GPL-2.0
"""Reader of the lines that lib/test_vmalloc.c prints."""

import re

# In the order of the bits of run_test_mask.
CASES = ["fix_size_alloc", "full_fit_alloc", "long_busy_list_alloc", "random_size_alloc", "fix_align_alloc",
         "random_size_align_alloc", "align_shift_alloc", "pcpu_alloc", "kvfree_rcu_1_arg_vmalloc",
         "kvfree_rcu_2_arg_vmalloc", "vm_map_ram", "no_block_alloc", "vrealloc"]
EXPECTED_TO_FAIL = {"align_shift_alloc"}
SUMMARY = re.compile(r"Summary: (\w+)_test passed: (\d+) failed: (\d+) xfailed: (\d+) repeat: (\d+) loops: (\d+) avg: (\d+) usec")


def read_results(lines):
    """Return the results of each case's workers, by case, and the number of workers that reported their end."""
    workers, done = {}, 0
    for line in lines:
        found = SUMMARY.search(line)
        if found:
            passed, failed, xfailed, repeat, loops, usec = map(int, found.groups()[1:])
            workers.setdefault(found[1], []).append(
                {"passed": passed, "failed": failed, "xfailed": xfailed, "repeat": repeat, "loops": loops,
                 "usec": usec})
        done += bool(re.search(r"All test took worker\d+=\d+ cycles", line))
    return workers, done
