# SPDX-License-Identifier: GPL-2.0
"""The areas of the rb-trees in mm/vmalloc.c (``vmap_nodes``), for :mod:`vmap`."""

from typing import Dict, Iterator, List, Optional, Tuple

from drgn import Object, Program
from drgn.helpers import ValidationError
from drgn.helpers.linux.list import validate_list_for_each_entry
from drgn.helpers.linux.rbtree import rb_find, validate_rbtree_inorder_for_each_entry

from vmap_rust import DAMAGE, Area


def _compare(a: Object, b: Object) -> int:
    """Compare two areas by their start."""
    first, second = a.va_start.value_(), b.va_start.value_()
    return (first > second) - (first < second)


def _contains(address: int, va: Object) -> int:
    """Compare an address with an area."""
    if address < va.va_start.value_():
        return -1
    return int(address >= va.va_end.value_())


class RbtreeVmap:
    """The nodes of the rb-trees."""

    name = "rbtree"

    def __init__(self, prog: Program):
        self.prog = prog
        nodes = prog["vmap_nodes"]
        self.nodes = [nodes[i] for i in range(prog["nr_vmap_nodes"].value_())]

    def _tree(self, root: Object) -> Iterator[Object]:
        return validate_rbtree_inorder_for_each_entry("struct vmap_area", root.address_of_(), "rb_node", _compare, False)

    def _list(self, head: Object) -> Iterator[Object]:
        return validate_list_for_each_entry("struct vmap_area", head.address_of_(), "list")

    @staticmethod
    def _area(va: Object, state: str) -> Area:
        return Area(va.va_start.value_(), va.va_end.value_(), state, va)

    def areas(self) -> Iterator[Area]:
        """Iterate over all busy areas, node by node, then over the lazy ones, then over those kept for reuse."""
        for node in self.nodes:
            for va in self._list(node.busy.head):
                yield self._area(va, "busy")
        for node in self.nodes:
            for va in self._list(node.lazy.head):
                yield self._area(va, "lazy")
            for va in self._list(node.purge_list):
                yield self._area(va, "flushed")
        for node in self.nodes:
            for pool in node.pool:
                if pool.len:
                    for va in self._list(pool.head):
                        yield self._area(va, "cached")

    def find(self, address: int) -> Optional[Area]:
        """Return the area that contains ``address``, in whatever state it is."""
        for node in self.nodes:
            va = rb_find("struct vmap_area", node.busy.root.address_of_(), "rb_node", address, _contains)
            if va:
                return self._area(va, "busy")
        return next((area for area in self.areas() if area.start <= address < area.end), None)

    def gaps(self) -> Iterator[Tuple[int, int]]:
        """Iterate over the free ranges, also those outside of vmalloc space, which modules and others use."""
        for va in self._tree(self.prog["free_vmap_area_root"]):
            yield va.va_start.value_(), va.va_end.value_()

    def stats(self) -> Dict[str, int]:
        """Return numbers: ranges and bytes by state, and free ranges."""
        numbers: Dict[str, int] = {}
        for start, end, state, _ in self.areas():
            numbers[state] = numbers.get(state, 0) + 1
            numbers[state + "_bytes"] = numbers.get(state + "_bytes", 0) + end - start
        numbers["nodes"] = len(self.nodes)
        numbers["free_ranges"] = len(list(self.gaps()))
        return numbers

    def validate(self) -> Iterator[str]:
        """Iterate over what is wrong, one line each: trees that are damaged or not in order, and ranges that overlap."""
        trees = [(f"node {number}, {state} tree", state, tree.root) for number, node in enumerate(self.nodes)
                 for state, tree in (("busy", node.busy), ("lazy", node.lazy))]
        ranges: List[Tuple[int, int, str]] = []
        for where, state, root in [*trees, ("tree of free ranges", "free", self.prog["free_vmap_area_root"])]:
            try:
                ranges += [self._area(va, state)[:3] for va in self._tree(root)]
            except (*DAMAGE, ValidationError) as error:
                yield f"{where}: cannot be read: {error}"
        ranges.sort()
        for (start, end, state), (other, behind, second) in zip(ranges, ranges[1:]):
            if other < end:
                yield f"{state} {start:#x}-{end:#x} and {second} {other:#x}-{behind:#x} overlap"
