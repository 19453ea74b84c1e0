# SPDX-License-Identifier: GPL-2.0
"""boots to a shell, with busybox; or runs the commands that it reads from a pipe

The guest has /proc, /sys and debugfs. "exit" ends it. Commands from a pipe run without a terminal; the last line is then
their exit code. scripts/run ends with 1 if it is not 0, or if the guest has to be ended after --timeout.

    scripts/run shell arm64 --cpus 2
    echo 'cat /sys/kernel/debug/vmap_rust/allocator' | scripts/run shell uml --allocator rust
"""

import re
import subprocess
import sys

from ..guest import NO_TESTS, Boot
from ..initramfs import make_busybox
from ..settings import Refused
from ..verdict import Expected

DEFAULTS = {"allocators": ("rbtree", "rust", "none"), "allocator": "rust", "cpus": 2, "timeout": 300, "totals": False}
OUTPUT = re.compile(r"shell: begin\r?\n(.*)shell: exit code (\d+)", re.S)


def run(args, result):
    """Boot with the terminal as console, or pack what comes from a pipe and print what it printed."""
    commands = None if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    if commands is not None and not commands.strip():
        raise Refused("standard input is neither a terminal nor has commands")
    boot = Boot(args.kernel, Expected(args.allocator, ""), cpus=args.cpus, mem=args.mem, nodes=args.nodes,
                append=f"{NO_TESTS} GUEST_RUN=shell {args.append}", accel=args.accel,
                initramfs=make_busybox(args.kernel, commands=commands))
    # The monitor lets Ctrl-C through to the guest, and Ctrl-A x ends it.
    command = [{"stdio": "mon:stdio"}.get(word, word) if commands is None else word for word in boot.command()]
    if commands is None:
        result.add(subprocess.run(command, check=False).returncode == 0, "shell")
        return
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=args.timeout, check=False)
    except subprocess.TimeoutExpired:
        raise Refused(f"the guest was still running after {args.timeout} s and was ended; see --timeout") from None
    text = done.stdout.decode(errors="replace")
    found = OUTPUT.search(text)
    print(found[1].replace("\r", "") if found else text, end="")
    print(f"exit code {found[2]}" if found else "the guest ended before the commands did")
    result.add(bool(found) and found[2] == "0", "shell")
