# SPDX-License-Identifier: GPL-2.0
"""Judges and draws the samples that a guest prints during a load: memory and counters have to stay flat.

A value fails when its median of the last quarter is above that of the second quarter by more than a bound (below it,
for free memory). The first quarter is for warming up.
"""

import io
import re
import statistics

from .console import read_text

# Value: how much the last quarter may be above the second one, as a part of it and in units; then the unit.
BOUNDS = {
    "PageTables": (0.10, 1024, "kB"), "VmallocUsed": (0.10, 2048, "kB"), "SUnreclaim": (0.10, 4096, "kB"),
    "Slab": (0.10, 4096, "kB"), "MemFree": (-0.05, -16384, "kB"), "areas": (0.10, 32, "pieces"),
    "stuck": (0.25, 32, "areas"), "lazy_pages": (0.25, 8192, "pages"), "blocks": (0.25, 8, "pieces"),
    "blocks_partial": (0.25, 8, "pieces"), "blocks_empty": (0.25, 8, "pieces"),
}
SAMPLE = re.compile(r"^.*sample: t=(\d+)((?: \w+=\d+)+)$", re.M)
# Fewer samples have no quarters worth comparing.
FEWEST = 12


def read_samples(path):
    """Return the samples in a log, a dictionary each: "t" in seconds, and the values."""
    return [{"t": int(t), **{name: int(value) for name, value in (x.split("=") for x in values.split())}}
            for t, values in SAMPLE.findall(read_text(path))]


def judge(result, allocator, samples):
    """Count one check for each value of the samples."""
    if len(samples) < FEWEST:
        result.add(False, f"{allocator} samples",
                   f"{allocator}: FAIL {len(samples)} samples; {FEWEST} are the fewest that can be judged")
        return
    for name in (name for name in BOUNDS if name in samples[0]):
        part, units, unit = BOUNDS[name]
        values, size = [sample[name] for sample in samples if name in sample], len(samples) // 4
        first, second, last = map(statistics.median, (values[:size], values[size:2 * size], values[-size:]))
        limit = second + part * second + units
        flat = last >= limit if units < 0 else last <= limit
        result.add(flat, f"{allocator} {name}",
                   f"{allocator}: {'ok' if flat else 'FAIL'} {name}: quarters 1, 2, 4: {first:,.0f}, {second:,.0f}, "
                   f"{last:,.0f} {unit}, {'at least' if units < 0 else 'at most'} {limit:,.0f}")


def plot(runs, path):
    """Write a figure (.svg) with one small picture for each value, a line for each allocator. runs: samples by
    allocator."""
    import matplotlib  # pylint: disable=import-outside-toplevel
    from matplotlib.figure import Figure  # pylint: disable=import-outside-toplevel
    matplotlib.rcParams.update({"font.sans-serif": ["DejaVu Sans"], "svg.fonttype": "none", "svg.hashsalt": "vmap-rust"})
    names = [name for name in BOUNDS if any(name in sample for samples in runs.values() for sample in samples)]
    columns = 2 if len(names) in (2, 4) else 3
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(14 * columns / 3, 2.6 * rows), layout="tight")
    for place, name in enumerate(names, 1):
        axis = figure.add_subplot(rows, columns, place)
        for allocator, samples in runs.items():
            points = [(sample["t"] / 60, sample[name]) for sample in samples if name in sample]
            axis.plot(*zip(*points), label=allocator, linewidth=1,
                      color="tab:orange" if allocator == "rust" else "tab:gray")
        axis.set_title(f"{name} ({BOUNDS[name][2]})", fontsize=9)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
        axis.locator_params(nbins=4)
    figure.axes[0].legend(fontsize=7)
    figure.supxlabel("minutes of load", fontsize=9)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Creator": None, "Date": None})
    # A small file: a curve is one line, and coordinates have one decimal.
    head, body = text.getvalue().split("\n", 1)
    body = re.sub(r"(\.\d)\d+", r"\1", re.sub(r"\s*\n(?=[Lz\"])| +(?=<)", "", body))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{head}\n<!-- SPDX-License-Identifier: GPL-2.0 -->\n{body}")
