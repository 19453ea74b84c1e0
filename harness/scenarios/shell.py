# SPDX-License-Identifier: GPL-2.0
"""boots to a shell, with busybox; or runs the commands that it reads from a pipe

The guest has /proc, /sys and debugfs. "exit" ends it. Commands from a pipe run without a terminal; the last line is then
their exit code. scripts/run ends with 1 if it is not 0, or if the log of the boot is not good.

    scripts/run shell arm64 --cpus 2
    echo 'cat /sys/kernel/debug/vmap_rust/allocator' | scripts/run shell uml --allocator rust
"""

import re
import subprocess
import sys

from ..console import read_text
from ..guest import NO_TESTS, boot, boot_of
from ..initramfs import make_busybox
from ..settings import Refused
from ..verdict import Expected

DEFAULTS = {"allocators": ("rbtree", "rust", "none"), "allocator": "rust", "cpus": 2, "timeout": 300, "totals": False}
OUTPUT = re.compile(r"shell: begin\n(.*)shell: exit code (\d+)", re.S)


def run(args, result):
    """Boot with the terminal as console, or pack what comes from a pipe and print what it printed."""
    commands = None if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    if commands is not None and not commands.strip():
        raise Refused("standard input is neither a terminal nor has commands; pipe commands in, or call this in a terminal")
    words = args, "shell", Expected(args.allocator, "shell: exit code"), f"{NO_TESTS} GUEST_RUN=shell"
    initramfs = make_busybox(args.kernel, commands, args.logs)
    if commands is None:
        # The monitor lets Ctrl-C through to the guest, and Ctrl-A x ends it.
        command = [{"stdio": "mon:stdio"}.get(word, word) for word in boot_of(*words, initramfs=initramfs).command()]
        result.add(subprocess.run(command, check=False).returncode == 0, "shell")
        return
    found = OUTPUT.search(read_text(boot(result, *words, initramfs=initramfs)))
    if found:
        print(f"{found[1]}exit code {found[2]}")
    result.add(bool(found) and found[2] == "0", "shell")
