# SPDX-License-Identifier: GPL-2.0
"""The areas of the rb-trees in mm/vmalloc.c (``vmap_nodes``), for :mod:`vmap`."""

from typing import Dict, Iterator, List, Tuple

from drgn import Object, Program
from drgn.helpers.linux.list import validate_list_for_each_entry
from drgn.helpers.linux.rbtree import validate_rbtree_inorder_for_each_entry

from vmap_area import DAMAGE, Area, Space


def _compare(a: Object, b: Object) -> int:
    """Compare two areas by their start."""
    first, second = a.va_start.value_(), b.va_start.value_()
    return (first > second) - (first < second)


def _area(va: Object, state: str) -> Area:
    return Area(va.va_start.value_(), va.va_end.value_(), state, va)


class RbtreeVmap(Space):
    """The nodes of the rb-trees."""

    name = "rbtree"

    def __init__(self, prog: Program):
        super().__init__(prog)
        nodes = prog["vmap_nodes"]
        self.free = prog["free_vmap_area_root"]
        self.nodes = [nodes[i] for i in range(prog["nr_vmap_nodes"].value_())]

    def _tree(self, root: Object, state: str) -> Iterator[Area]:
        found = validate_rbtree_inorder_for_each_entry("struct vmap_area", root.address_of_(), "rb_node", _compare, False)
        return (_area(va, state) for va in found)

    def areas(self) -> Iterator[Area]:
        """Iterate over all busy areas, node by node, then over the lazy ones, then over those kept for reuse."""
        lists = [("busy", node.busy.head) for node in self.nodes]
        for node in self.nodes:
            lists += [("lazy", node.lazy.head), ("flushed", node.purge_list)]
        lists += [("cached", pool.head) for node in self.nodes for pool in node.pool if pool.len]
        for state, head in lists:
            for va in validate_list_for_each_entry("struct vmap_area", head.address_of_(), "list"):
                yield _area(va, state)

    def gaps(self) -> Iterator[Tuple[int, int]]:
        """Iterate over the free ranges, also those outside of vmalloc space, which modules and others use."""
        for area in self._tree(self.free, "free"):
            yield area.start, area.end

    def stats(self) -> Dict[str, int]:
        """Return numbers: areas and bytes by state, and free ranges."""
        return {**super().stats(), "nodes": len(self.nodes), "free_ranges": len(list(self.gaps()))}

    def validate(self) -> Iterator[str]:
        """Iterate over what is wrong, one line each: trees that are damaged or not in order, and ranges that overlap."""
        trees = [(f"node {number}, {state} tree", state, tree.root) for number, node in enumerate(self.nodes)
                 for state, tree in (("busy", node.busy), ("lazy", node.lazy))]
        areas: List[Area] = []
        for where, state, root in [*trees, ("tree of free ranges", "free", self.free)]:
            try:
                areas += self._tree(root, state)
            except DAMAGE as error:
                yield f"{where}: cannot be read: {error}"
        areas.sort(key=lambda area: area[:3])
        for one, two in zip(areas, areas[1:]):
            if two.start < one.end:
                yield f"{one.state} {one.start:#x}-{one.end:#x} and {two.state} {two.start:#x}-{two.end:#x} overlap"
