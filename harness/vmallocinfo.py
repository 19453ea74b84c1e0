# SPDX-License-Identifier: GPL-2.0
"""Judges the snapshots of /proc/vmallocinfo in the console logs of the user-space load.

In each log, every line must have a known shape, each area must appear once, none may overlap another, sizes must agree,
every task must have a stack, and no mapping of a device or of the kernel image may be lost. Two logs (one per
allocator) must have the same set of line shapes.
"""

import re

UNPURGED = " unpurged vm_area"
SYMBOL = r"(?: (?:[\w.$]+\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w+\])?|0x[0-9a-f]+))?"
DETAIL = (r"(?: pages=\d+)?(?: phys=0x[0-9a-f]+)?(?: ioremap)?(?: sparse)?(?: vmalloc)?(?: vmap)?(?: user)?"
          r"(?: dma-coherent)?(?: vpages)?(?: N\d+=\d+)*")
LINE = re.compile(rf"0x([0-9a-f]{{8}}|[0-9a-f]{{16}})-0x([0-9a-f]{{8}}|[0-9a-f]{{16}}) +(\d+)({SYMBOL}{DETAIL}| vm_map_ram|{UNPURGED})")
STACK = re.compile(r" (dup_task_struct|copy_process|alloc_thread_stack\w*|kernel_clone)\+")
BEGIN = re.compile(r"vmallocinfo: begin (\w+) tasks (\d+) cpus (\d+)")
# A kernel message, which may be in the middle of a line.
MESSAGE = re.compile(r"\[ *\d+\.\d{6}\] .*$")
PAGE = 4096
# Stacks beyond those of tasks and the two that each CPU caches: of the reader, and of tasks whose grace period has not
# ended.
STACK_SLACK = 12


class Snapshot:
    """One reading of the file: its lines, tasks and CPUs of the guest at that time."""

    def __init__(self, tasks, cpus):
        self.tasks, self.cpus, self.complete = tasks, cpus, False
        self.lines = []

    def areas(self):
        """Return (start, end, size, rest of the line) of every line of a known shape, by address."""
        matches = (LINE.fullmatch(line) for line in self.lines)
        return sorted((int(m[1], 16), int(m[2], 16), int(m[3]), m[4]) for m in matches if m)


def read_snapshots(path):
    """Map "before" and "after" to the snapshots in the log."""
    found, current, broken = {}, None, None
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            line = line.rstrip("\r\n")
            begin = BEGIN.search(line)
            if begin:
                current = found[begin[1]] = Snapshot(int(begin[2]), int(begin[3]))
            elif line.startswith("vmallocinfo: end") and current:
                current.complete, current = True, None
            elif current and (line.startswith("vmi| ") or broken is not None):
                # After a kernel message in the middle of a line, the rest of the line follows.
                text = MESSAGE.sub("", line)
                broken = text[5:] if text.startswith("vmi| ") else (broken or "") + text
                if broken.endswith(" |"):
                    current.lines.append(broken[:-2])
                    broken = None
    return found


def shape(rest):
    """Return a line without its numbers and names."""
    return re.sub(r"\d+", "N", re.sub(r"0x[0-9a-f]+", "H", re.sub(SYMBOL, " SYMBOL", rest, count=1)))


def check_snapshot(snapshot):
    """Yield (name, problem or None) for one snapshot of a kernel with CONFIG_VMAP_STACK."""
    yield "complete", None if snapshot.complete and snapshot.lines else "the end marker or every line is missing"
    bad = [line for line in snapshot.lines if not LINE.fullmatch(line)]
    yield "shape", f"{len(bad)} lines, first: {bad[0]}" if bad else None
    areas = snapshot.areas()
    bad = [a for a in areas if a[1] - a[0] != a[2] or a[0] % PAGE or a[1] % PAGE or a[1] <= a[0]]
    yield "sizes", f"{len(bad)} areas, first: {bad[0][0]:#x}-{bad[0][1]:#x} {bad[0][2]}" if bad else None
    # Reading the file takes time: an area that is freed meanwhile is in it twice, as busy and, at the end, as unpurged.
    kinds = [[a for a in areas if (a[3] == UNPURGED) == lazy] for lazy in (False, True)]
    bad = [(a, b) for kind in kinds for a, b in zip(kind, kind[1:]) if b[0] < a[1]]
    yield "overlap", (f"{len(bad)} pairs, first: {bad[0][0][0]:#x}-{bad[0][0][1]:#x}{bad[0][0][3]} and "
                      f"{bad[0][1][0]:#x}-{bad[0][1][1]:#x}{bad[0][1][3]}") if bad else None
    stacks = sum(1 for a in areas if STACK.match(a[3]))
    low, high = snapshot.tasks, snapshot.tasks + 2 * snapshot.cpus + STACK_SLACK
    yield "stacks", None if low <= stacks <= high else f"{stacks} stacks for {snapshot.tasks} tasks, expected {low} to {high}"


def check_log(path, with_fixed):
    """Yield (name, problem or None) for one log; with_fixed: of a kernel that maps devices."""
    snapshots = read_snapshots(path)
    for when in ("before", "after"):
        if when not in snapshots:
            yield f"{when}: snapshot", "not in the log"
            continue
        for name, problem in check_snapshot(snapshots[when]):
            yield f"{when}: {name}", problem
    if len(snapshots) == 2:
        fixed = [line for line in snapshots["before"].lines if re.search(r" (ioremap|vmap|dma-coherent)$", line)]
        lost = sorted(set(fixed) - set(snapshots["after"].lines))
        if fixed or with_fixed:
            yield "fixed mappings", f"{len(lost)} lost, first: {lost[0]}" if lost else None if fixed else "found none"


def check_shapes(paths):
    """Yield one comparison of the line shapes of two logs, without the kinds that come and go."""
    passing = {" vm_map_ram", UNPURGED}
    sets = []
    for path in paths:
        snapshots = read_snapshots(path).values()
        sets.append({shape(a[3]) for s in snapshots for a in s.areas() if a[3] not in passing})
    only = [f"only in {path}: {', '.join(sorted(mine - other))}"
            for path, mine, other in zip(paths, sets, reversed(sets)) if mine - other]
    yield f"same {len(sets[0])} shapes", "; ".join(only) if only else None if sets[0] else "found none"


def judge(result, logs, with_fixed):
    """Count each check of each log, and for two logs the comparison of their shapes."""
    results = [(f"{log.rsplit('/', 1)[-1]}: {name}", problem) for log in logs for name,
               problem in check_log(log, with_fixed)]
    if len(logs) == 2:
        results += check_shapes(logs)
    for name, problem in results:
        result.add(not problem, f"vmallocinfo {name}",
                   f"vmallocinfo: {'FAIL' if problem else 'ok'} {name}" + (f": {problem}" if problem else ""))
