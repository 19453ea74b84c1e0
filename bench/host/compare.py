# SPDX-License-Identifier: GPL-2.0
"""Compare two results: did one side become slower from the old one to the new one?

Where an instrument counts absolutely (instructions), the values themselves are compared. Elsewhere another day is
another speed, so what is compared is the ratio of the side to the other side in each repetition.
"""

from collections import Counter

from . import stats, table

WORDS = {"slower": "regression", "faster": "improvement"}


def one_side(result, side, absolute):
    """Per key of a row (unit, values) of one side: as measured, or for each repetition divided by the other side's."""
    other = "a" if side == "b" else "b"
    found = {}
    for key, (unit, sides) in stats.samples(result).items():
        if absolute[key[0]]:
            values = list(sides[side].values())
        else:
            unit = f"{side}/{other}"
            base = {boot[:2]: value for boot, value in sides[other].items()}
            # A ratio to nothing is none: such a repetition does not count.
            values = [value / base[boot[:2]] for boot, value in sides[side].items() if base.get(boot[:2])]
        if values:
            found[key] = (unit, values)
    return found


def differences(old, new):
    """One line for each thing that makes the two results less comparable."""
    if old["host"]["cpu"] != new["host"]["cpu"]:
        yield f"host CPU differs: {old['host']['cpu']} -> {new['host']['cpu']}"
    if old["sides"] != new["sides"]:
        yield "sides differ: " + " -> ".join("A {a}, B {b}".format(**one["sides"]) for one in (old, new))
    for name in sorted(old["kernels"].keys() & new["kernels"].keys()):
        one, two = old["kernels"][name], new["kernels"][name]
        for key, text in (("version", "kernel version"), ("config_hash", "config hash"), ("compiler", "compiler")):
            if one[key] != two[key]:
                yield f"{name}: {text} differs: {one[key]} -> {two[key]}"
        options = [f"{option} {one['options'].get(option, 'not set')} -> {two['options'].get(option, 'not set')}"
                   for option in sorted(one["options"].keys() | two["options"].keys())
                   if one["options"].get(option) != two["options"].get(option)]
        if options:
            yield f"{name}: options differ: {', '.join(options)}"
    for name in sorted(set(stats.used(old)) & set(stats.used(new))):
        one, two = (result["instruments"][name] for result in (old, new))
        if one["kernel"] != two["kernel"]:
            yield f"{name}: kernel differs: {one['kernel']} -> {two['kernel']}"


def key_text(key):
    """A key of a row in words."""
    instrument, cpus, threads, case, metric = key
    return f"{instrument} {case}{'' if metric == 'cost' else ' ' + metric} {cpus}x{threads}"


def is_beyond(row):
    """Tell whether a row is a change to act on: with hundreds of rows one in a hundred differs without a cause.

    Then not only the ratio but its whole interval has to be outside of what counts as no difference.
    """
    if row.verdict not in WORDS or row.ratio is None:
        return row.verdict in WORDS
    return row.low is not None and (row.low >= 1 + stats.FLOOR or row.high <= 1 - stats.FLOOR)


def compare(old, new, side="b"):
    """Print what changed from old to new on one side. Returns 1 when something became slower, else 0."""
    console = table.make_console()
    both = set(stats.used(old)) & set(stats.used(new))
    absolute = {name: name in both and all(result["instruments"][name]["absolute"] for result in (old, new))
                for name in old["instruments"].keys() | new["instruments"].keys()}
    before, after = one_side(old, side, absolute), one_side(new, side, absolute)
    common = before.keys() & after.keys()
    if not common:
        table.say(console, "the two results have no row in common: nothing to compare")
        return 1
    rows = sorted((stats.make_row(key, after[key][0], before[key][1], after[key][1]) for key in common),
                  key=stats.losing_first)
    taken = [f"{result['started']}, commit {result['commit']}" for result in (old, new)]
    table.say(console, f"side {side} ({new['sides'][side]}): {taken[0]} -> {taken[1]}")
    for text in differences(old, new):
        table.say(console, f"warning: {text}", "yellow")
    changed = [row for row in rows if is_beyond(row)]
    if changed:
        cells = [[row.instrument, row.name, row.size, stats.amount(row.median_a, row.unit),
                  stats.amount(row.median_b, row.unit), stats.ratio_text(row.ratio), stats.interval_text(row),
                  WORDS[row.verdict]] for row in changed]
        columns = ["instrument", "case", "NxM", ">old", ">new", ">new/old", "interval", "verdict"]
        table.print_table(console, columns, cells, [table.STYLES[row.verdict] for row in changed])
    for name, mine, its in (("old", before, after), ("new", after, before)):
        only = sorted(mine.keys() - its.keys())
        if only:
            table.say(console, f"only in the {name} result ({len(only)}): {', '.join(map(key_text, only))}")
    count = Counter(row.verdict if row in changed or row.verdict not in WORDS else "no difference" for row in rows)
    table.say(console, f"{count['slower']} regressions, {count['faster']} improvements; "
                       f"the rest: {count['no difference']} no difference, {count['too few']} too few")
    return 1 if count["slower"] else 0
