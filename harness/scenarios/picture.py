# SPDX-License-Identifier: GPL-2.0
"""loads each allocator with processes, modules and test_vmalloc, and draws vmalloc space of both with tools/vmap-map

Prints figures and a map of the end of the load, and writes a page to zoom, picture-NAME.html in the folder of the logs.
Beside it, a picture (.svg) shows occupancy, lazy pages, blocks and page tables over the time of the load.
"""

import subprocess
import tempfile
from pathlib import Path

from ..console import read_files
from ..guest import boot_script
from ..initramfs import make_busybox
from ..options import whole
from ..samples import plot, read_samples
from ..settings import LOGS, REPO, say

DEFAULTS = {"allocators": (), "cpus": 2}


def options(parser):
    """Add the time of the load."""
    parser.add_argument("--seconds", type=whole(1, 3600), default=5, metavar="N",
                        help="seconds of load (default: %(default)s)")


def check(args):
    """Complete what follows from other options."""
    args.timeout = args.timeout or args.seconds * 20 + 300


def run(args, result):
    """Boot both, and draw them."""
    kernel, runs = args.kernel, {}
    initramfs = make_busybox(kernel)
    page = LOGS / f"picture-{kernel.name}.html"
    with tempfile.TemporaryDirectory() as folder:
        for allocator in ("rbtree", "rust"):
            log = boot_script(result, args, "picture", allocator, initramfs, f"PICTURE_SECONDS={args.seconds}",
                              log=LOGS / f"picture-{kernel.name}-{allocator}.log")
            runs[allocator] = read_samples(log)
            Path(folder, allocator).mkdir()
            for name, lines in read_files(log).get("picture", {}).items():
                Path(folder, allocator, name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        drawn = subprocess.run([REPO / "tools/vmap-map", *runs, "--html", page], cwd=folder, check=False)
    result.add(drawn.returncode == 0, "page", f"{'ok' if drawn.returncode == 0 else 'FAIL'} page {page}")
    if all(runs.values()):
        plot(runs, page.with_suffix(".svg"))
        say(f"plot: {page.with_suffix('.svg')}")
