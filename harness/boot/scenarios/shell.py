# SPDX-License-Identifier: GPL-2.0
"""boots to a shell, with busybox; or runs the commands that it reads from a pipe

The guest has /proc, /sys and debugfs. "exit" ends it. Commands from a pipe run without a terminal. The exit code of the shell
is a check, and so is what the kernel has printed before the shell. What the commands print is not judged.

    scripts/run shell arm64 --cpus 2

    echo 'cat /sys/kernel/debug/vmap_rust/allocator' | scripts/run shell uml --allocator rust
"""

import os
import pty
import re
import sys

from ..console import read_text
from ..guest import NO_TESTS, boot_of
from ..initramfs import make_busybox
from ...machine.settings import Refused
from ..verdict import Expected, judge

DEFAULTS = {"allocators": ("rbtree", "rust", "none"), "allocator": "rust", "cpus": 2, "timeout": 300}
BEGIN = "shell: begin"
OUTPUT = re.compile(rf"{BEGIN}\n(.*)shell: exit code (\d+)", re.S)


def interact(command, log):
    """Run a command on this terminal, and write what it prints to a log, too."""
    with open(log, "wb") as file:
        def read(terminal):
            data = os.read(terminal, 65536)
            file.write(data)
            return data
        pty.spawn([str(word) for word in command], read)


def run(args, result):
    """Boot with the terminal as console, or pack what comes from a pipe and print what it printed."""
    commands = None if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    if commands is not None and not commands.strip():
        raise Refused("standard input is neither a terminal nor has commands; pipe commands in, or call this in a terminal")
    expected = Expected(args.allocator, "shell: exit code", until=BEGIN)
    boot = boot_of(args, "shell", expected, f"{NO_TESTS} GUEST_RUN=shell",
                   initramfs=make_busybox(args.kernel, commands, args.logs))
    if commands is None:
        # The monitor lets Ctrl-C through to the guest, and Ctrl-A x ends it.
        interact([{"stdio": "mon:stdio"}.get(word, word) for word in boot.command()], boot.log)
        for reason in judge(boot.log, expected):
            result.add(False, "shell", f"{reason}; log: {boot.log}")
        found = OUTPUT.search(read_text(boot.log))
    else:
        boot.run(result)
        found = OUTPUT.search(read_text(boot.log))
        print(found[1] if found else "", end="")
    # Without one, the end of the boot is missing in the log, which then has failed.
    if found:
        result.add(found[2] == "0", f"exit code {found[2]}", "")
