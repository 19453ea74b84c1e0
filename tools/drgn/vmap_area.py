# SPDX-License-Identifier: GPL-2.0
"""What the readers of both allocators share, for :mod:`vmap`."""

import collections
from typing import Callable, Dict, Iterator, NamedTuple, Optional, TypeVar

from drgn import FaultError, Object, Program, ProgramFlags
from drgn.helpers import ValidationError

# What reading a damaged structure raises.
DAMAGE = (FaultError, ValueError, OverflowError, LookupError, NotImplementedError, ValidationError)
# A running kernel changes while it is read. So often something is read, at most, until a read comes to its end.
READS = 10
# An address in a struct vm_struct may have a tag of KASAN in its top byte.
WITHOUT_TAG = (1 << 56) - 1
# What to do without debug information.
NEEDED = "build the kernel with CONFIG_DEBUG_INFO_DWARF5, without CONFIG_DEBUG_INFO_REDUCED, and name its vmlinux with -s"

_T = TypeVar("_T")


def read_to_end(live: bool, read: Callable[[], _T]) -> _T:
    """
    Return what ``read()`` returns. In a running kernel, what raises :data:`DAMAGE` is read again, :data:`READS` times at most.

    :param live: whether the kernel is running
    """
    for _ in range(READS - 1) if live else ():
        try:
            return read()
        except DAMAGE:
            pass
    return read()


def variable(prog: Program, name: str) -> Object:
    """
    Return a variable of the kernel, or of Rust, whose names have ``::`` in them.

    :raises ValueError: if there is no debug information of it; says which option the kernel needs
    """
    try:
        return prog[name]
    except LookupError:
        raise ValueError(f"no debug information has {name}; {NEEDED}") from None


class Area(NamedTuple):
    """A reserved range: its bounds, its state, its ``struct vmap_area *``, and the number of its slot in a block."""

    start: int
    end: int
    state: str
    va: Object
    index: int = 0

    def line(self, text: str) -> str:
        """Return a line as in /proc/vmallocinfo, with a text behind the range."""
        return f"0x{self.start:016x}-0x{self.end:016x} {self.end - self.start:7d} {text}"


class Space:
    """The areas of an allocator."""

    name = ""

    def __init__(self, prog: Program):
        """prog: also a running kernel, which changes while it is read."""
        self.prog, self.live = prog, bool(prog.flags & ProgramFlags.IS_LIVE)

    def areas(self) -> Iterator[Area]:
        """Iterate over all areas, also those that are no longer in use."""
        raise NotImplementedError

    def find(self, address: int) -> Optional[Area]:
        """Return the area that contains ``address``, in whatever state it is."""
        return next((area for area in self.areas() if area.start <= address < area.end), None)

    def stats(self) -> Dict[str, int]:
        """Return numbers: areas and bytes by state."""
        numbers: Dict[str, int] = collections.Counter()
        for area in self.areas():
            numbers[area.state] += 1
            numbers[area.state + "_bytes"] += area.end - area.start
        return numbers
