# SPDX-License-Identifier: GPL-2.0
"""What to write to the memory of a guest to damage its allocator, and what "tools/vmap validate" must print about
it."""

import collections
import sys
from typing import NamedTuple

from .settings import REPO

MODULES = REPO / "tools/drgn"


class Damage(NamedTuple):
    """One damage: a regular expression of the line about it, and what is written where, in C."""

    name: str
    pattern: str
    type: str
    address: int
    value: int
    before: int = 0

    def write(self, value):
        """Return the command of gdb that writes the value, or what was there before."""
        return f"set {{{self.type}}}{self.address:#x} = {value:#x}"


def damages(vmlinux, core):
    """Return the damages of the allocator in Rust in a core. The last one is a pointer to nowhere that the next requests
    follow."""
    # Only the toolchain root has drgn, which these need.
    if str(MODULES) not in sys.path:
        sys.path.insert(0, str(MODULES))
    import vmap  # pylint: disable=import-outside-toplevel,import-error
    prog = vmap.open_core(core)
    prog.load_debug_info([str(vmlinux)])
    space = vmap.vmap_allocator(prog)
    current, stacks = space.current(), collections.Counter()
    blocks = {block: [area for area in block.areas() if area.state == "busy"] for block in space.blocks()}
    # The stacks of the sleepers are in more blocks of their class than anything else, and the next forks want their
    # class.
    for block, busy in blocks.items():
        stacks[block.number] += len(busy)
    most = max(stacks, key=stacks.get)
    block = next(block for block in blocks if block.start in current and block.number == most)
    part, index = space.place_of(block.start)
    full, area = next((some, busy[0]) for some, busy in blocks.items() if len(busy) > 8)
    byte = full.node + space.info["block_free"] + area.index // 8
    old = prog.read_u8(byte)
    return [Damage("bit of a busy slot",
                   rf"block {full.start:#x}: area {area.start:#x}-.* is busy, but slot {area.index} is free",
                   "unsigned char", byte, old | 1 << area.index % 8, old),
            Damage("pointer to nowhere", rf"block {block.start:#x}.*: cannot be read", "unsigned long",
                   part["table"] + index * 8, 0x1234567800)]
