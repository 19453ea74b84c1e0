// SPDX-License-Identifier: GPL-2.0

//! Readers see a state that others change at once.

use crate::prelude::*;
use kernel::{hooks::UNLOCKED, sync::rcu::elsewhere};

/// Reserves the pages `busy`, each for an area of its own, and pins the lowest area that ends above page `from`, which
/// is one of them. When a search of the tree has found this area, others free it and reserve the pages `new`: the object of
/// the freed area is that of the first of them. Returns the page of the pinned area.
fn pin_while_others_reserve(busy: &[usize], from: usize, new: &'static [usize]) -> usize {
    let home = span_of(64 << 20, 64 * PAGE_SIZE);
    let space = &*Box::leak(Box::new(World::new(home).space().expect("memory")));
    let addr_of = move |page: usize| home.first() + page * PAGE_SIZE;
    let reserve = move |page: usize| reserve(space, span_of(addr_of(page), PAGE_SIZE)).area();
    for &page in busy {
        reserve(page);
    }
    UNLOCKED.set(Some(Box::new(move || {
        let area = space.unlink(addr_of(from)).expect("busy");
        let object = area.ptr();
        space.retire(area);
        elsewhere(|| space.purge(None, true));
        let areas: Vec<_> = new.iter().map(|&page| reserve(page)).collect();
        assert_eq!(areas.first(), Some(&object));
    })));
    // Not from `from` on, which the page map knows: that needs no search.
    let pinned = space
        .get(addr_of(from - 1), usize::MAX)
        .expect("there are busy areas above");
    let area = pinned.area();
    assert!(UNLOCKED.take().is_none(), "the tree was not searched");
    drop(pinned);
    free_everything(space);
    (area.span().first() - home.first()) / PAGE_SIZE
}

/// A search finds a busy lone area, and others free it before it is pinned. Its object may have a new user at once,
/// anywhere: the slab cache is type-safe by RCU, and no more.
#[test]
fn a_search_survives_that_the_object_of_the_found_area_moves() {
    for (new, found) in [(&[40][..], 6), (&[2], 6), (&[40, 5], 5)] {
        let page = pin_while_others_reserve(&[5, 6, 9], 5, new);
        assert_eq!(page, found, "{new:?} are new");
    }
}

/// What a reader has listed last may be a part of a larger lazy area by now, which it must not list then: lists go up.
#[test]
fn a_lazy_area_that_begins_before_is_not_listed() {
    let space = without_shadow(span_of(SIZE, 8 * SIZE))
        .space()
        .expect("memory");
    let area = reserve(&space, span_of(SIZE, 4 * PAGE_SIZE)).span();
    retire(&space, area.first());
    assert_eq!(space.next_lazy(None), Some(area));
    let last = span_of(area.first(), PAGE_SIZE);
    assert_eq!(space.next_lazy(Some(last)), None);
    space.purge(None, true);
    assert_eq!(space.next_lazy(None), None);
}
