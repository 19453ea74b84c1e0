# SPDX-License-Identifier: GPL-2.0
"""The areas of the rb-trees in mm/vmalloc.c (``vmap_nodes``), for :mod:`vmap`."""

from typing import Iterator

from drgn import Program
from drgn.helpers.linux.list import validate_list_for_each_entry

from vmap_area import DAMAGE, Area, Space


class RbtreeVmap(Space):
    """The nodes of the rb-trees."""

    name = "rbtree"

    def __init__(self, prog: Program):
        super().__init__(prog)
        nodes = prog["vmap_nodes"]
        self.nodes = [nodes[i] for i in range(prog["nr_vmap_nodes"].value_())]

    def areas(self) -> Iterator[Area]:
        """Iterate over all busy areas, node by node, then over the lazy ones, then over those kept for reuse."""
        lists = [("busy", node.busy.head) for node in self.nodes]
        for node in self.nodes:
            lists += [("lazy", node.lazy.head), ("flushed", node.purge_list)]
        lists += [("cached", pool.head) for node in self.nodes for pool in node.pool if pool.len]
        for state, head in lists:
            for va in validate_list_for_each_entry("struct vmap_area", head.address_of_(), "list"):
                yield Area(va.va_start.value_(), va.va_end.value_(), state, va)

    def validate(self) -> Iterator[str]:
        """Iterate over what is wrong, one line at most: a list that cannot be read to its end."""
        try:
            list(self.areas())
        except DAMAGE as error:
            yield f"areas: cannot be read: {error}"
