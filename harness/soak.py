# SPDX-License-Identifier: GPL-2.0
"""Judges the samples of a soak (qemu/guest/soak.sh) in console logs: memory and counters have to stay flat.

Per log and value: fails when the median of the last quarter is above that of the second quarter by more than a bound
(below it, for free memory). The first quarter is for warming up.

As a program it draws the picture only.
"""

import io
import re
import statistics
import sys

from .options import Parser, program
from .settings import Refused

# Value: how much the last quarter may be above the second one, as a part of it and in units; then the unit.
BOUNDS = {
    "PageTables": (0.10, 1024, "kB"),
    "VmallocUsed": (0.10, 2048, "kB"),
    "SUnreclaim": (0.10, 4096, "kB"),
    "Slab": (0.10, 4096, "kB"),
    "MemFree": (-0.05, -16384, "kB"),
    "areas": (0.10, 32, ""),
    "stuck": (0.25, 32, "areas"),
    "lazy_pages": (0.25, 8192, "pages"),
    "blocks": (0.25, 8, ""),
    "blocks_partial": (0.25, 8, ""),
    "blocks_empty": (0.25, 8, ""),
}
SAMPLE = re.compile(r"soak: t=(\d+)((?: \w+=\d+)+)\s*$")
BOOT = re.compile(r"vmap allocator: (\w+)")
# Fewer samples have no quarters worth comparing.
FEWEST = 12


def read_samples(path):
    """The allocator of a boot, and a dictionary per sample: "t" and the values."""
    allocator, samples = "unknown", []
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            boot, sample = BOOT.search(line), SAMPLE.search(line)
            if boot:
                allocator = boot[1]
            if sample:
                values = {name: int(value) for name, value in (x.split("=") for x in sample[2].split())}
                samples.append({"t": int(sample[1]), **values})
    return allocator, samples


def quarters(samples, name):
    """Medians of a value in the four quarters of the time."""
    values = [s[name] for s in samples if name in s]
    size = len(values) // 4
    parts = [values[:size], values[size:2 * size], values[2 * size:3 * size], values[3 * size:]]
    return [statistics.median(part) for part in parts]


def judge(allocator, samples):
    """Yield (line, passed) for each value."""
    if len(samples) < FEWEST:
        yield f"{allocator}: {len(samples)} samples, {FEWEST} are the fewest that can be judged", False
        return
    for name, (part, units, unit) in BOUNDS.items():
        if name not in samples[0]:
            continue
        first, second, _, last = quarters(samples, name)
        limit = second + part * second + units
        flat = last >= limit if units < 0 else last <= limit
        yield (f"{allocator}: {'flat' if flat else 'NOT FLAT'} {name}: quarters 1, 2, 4: {first:,.0f}, {second:,.0f}, {last:,.0f} "
               f"{unit or 'pieces'}, {'at least' if units < 0 else 'at most'} {limit:,.0f}"), flat


def write_figure(figure, path):
    """Write the figure as PNG, or as a small SVG: text stays text, a curve is one line, coordinates have one
    decimal."""
    if not path.endswith(".svg"):
        figure.savefig(path)
        return
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Creator": None, "Date": None})
    head, body = text.getvalue().split("\n", 1)
    body = re.sub(r"(\.\d)\d+", r"\1", re.sub(r"\s*\n(?=[Lz\"])| +(?=<)", "", body))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{head}\n<!-- SPDX-License-Identifier: GPL-2.0 -->\n{body}")


def plot(runs, path, wanted=tuple(BOUNDS)):
    """One small picture per wanted value, a line per allocator."""
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.sans-serif": ["DejaVu Sans"], "svg.fonttype": "none",
                                "svg.hashsalt": "vmap-rust"})
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    names = [name for name in wanted if any(samples and name in samples[0] for _, samples in runs)]
    columns = 2 if len(names) in (2, 4) else 3
    rows = -(-len(names) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(14 * columns / 3, 2.6 * rows), squeeze=False)
    for axis, name in zip(axes.flat, names):
        for allocator, samples in runs:
            points = [(s["t"] / 60, s[name]) for s in samples if name in s]
            if points:
                axis.plot(*zip(*points), label=allocator,
                          color={"rbtree": "tab:gray", "rust": "tab:orange"}.get(allocator), linewidth=1)
        axis.set_title(f"{name} ({BOUNDS[name][2]})" if BOUNDS[name][2] else name, fontsize=9)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
        axis.locator_params(nbins=4)
    axes[0][0].legend(fontsize=7)
    for axis in list(axes.flat)[len(names):]:
        axis.axis("off")
    figure.supxlabel("minutes of load", fontsize=9)
    figure.tight_layout()
    write_figure(figure, path)


def judge_logs(result, logs, picture):
    """Count one check per value and log, and write the picture, .png or .svg."""
    runs = [read_samples(path) for path in logs]
    for line, flat in (one for allocator, samples in runs for one in judge(allocator, samples)):
        result.add(flat, line.split(":")[1], line)
    if any(samples for _, samples in runs):
        plot(runs, picture)


def main(arguments):
    """Draw the picture."""
    parser = Parser("Draws the samples of a soak, or of scripts/run picture.", "soak")
    parser.add_argument("--values", metavar="NAME,...",
                        help="values to draw, for example PageTables,VmallocUsed,blocks,lazy_pages "
                        "(default: all)", default=tuple(BOUNDS), type=lambda text: text.split(","))
    parser.add_argument("picture", metavar="FILE", help="picture to write, .png or .svg")
    parser.add_argument("logs", nargs="+", metavar="LOG")
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.values if name not in BOUNDS]:
        raise Refused(f"unknown value {unknown[0]}, known: {' '.join(BOUNDS)}")
    try:
        runs = [read_samples(log) for log in args.logs]
        if not any(samples for _, samples in runs):
            raise Refused(f"no sample in {' '.join(args.logs)}")
        plot(runs, args.picture, args.values)
    except OSError as error:
        raise Refused(f"cannot use {error.filename}: {error.strerror}") from None
    return 0


if __name__ == "__main__":
    program("soak", main, sys.argv[1:])
