# SPDX-License-Identifier: GPL-2.0
"""loads and unloads a module, forks, and reads /proc/vmallocinfo, /proc/kcore and debugfs at the same time

The text format of /proc/vmallocinfo must be equal for both allocators. tools/vmap-map draws vmalloc space in the middle of
the load, a page to zoom beside the logs.
"""

import subprocess
import tempfile
from pathlib import Path

from ..console import read_files
from ..guest import boot_script, invariants
from ..initramfs import make_busybox
from ...machine.options import whole
from ...machine.settings import REPO
from ..vmallocinfo import judge

DEFAULTS = {"allocator": "both", "cpus": 2, "timeout": 600}


def options(parser):
    """Add the number of loads."""
    parser.add_argument("--loops", type=whole(1, 99999), default=200, metavar="N",
                        help="module loads (default: %(default)s)")


def checks_for(args, allocator):
    """Return the names of the checks that a guest of this kernel must report."""
    kernel = args.kernel
    options = {"kcore": "PROC_KCORE", "ptdump": "PTDUMP_DEBUGFS", "kmemleak": "DEBUG_KMEMLEAK"}
    names = ["modules", "info", "forks", "areas", "debugfs", *(name for name in options if kernel.has(options[name]))]
    if allocator == "rust":
        names += ["hidden"] if kernel.has("VMAP_RUST_DEBUG") else []
        names += invariants(args, allocator)
        names += ["kmemleak-lost", "kmemleak-others"] if kernel.has("VMAP_RUST_LEAK_TEST", "m") else []
    return names


def draw(result, logs, page):
    """Draw the snapshots of the load in logs, by allocator, on a page, and as the picture of a document."""
    with tempfile.TemporaryDirectory() as folder:
        for allocator, log in logs.items():
            Path(folder, allocator).mkdir()
            for name, lines in read_files(log).get("loaded", {}).items():
                Path(folder, allocator, name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        code = subprocess.run([REPO / "tools/vmap-map", *logs, "--html", page, "--svg", page.with_suffix(".svg")], cwd=folder,
                              stdout=subprocess.DEVNULL, check=False).returncode
    result.add(not code, "picture", str(page))


def run(args, result):
    """Boot each allocator with the load, then compare what they print."""
    kernel = args.kernel
    initramfs = make_busybox(kernel)
    leak = kernel.has("VMAP_RUST_LEAK_TEST", "m")
    # Stale content of memory that is not initialized would be a reference to a lost area. The checks kmemleak and
    # kmemleak-others say whether what kmemleak reports is all.
    logs = {allocator: boot_script(
        result, args, "load", allocator, initramfs, f"LOAD_LOOPS={args.loops}{' init_on_alloc=1' if leak else ''}",
        checks_for(args, allocator), ["kmemleak: [0-9]+ new suspected memory leaks"] if leak else [])
        for allocator in args.allocators}
    judge(result, logs)
    draw(result, logs, args.logs / f"load-{kernel.name}.html")
