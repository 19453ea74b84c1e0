// SPDX-License-Identifier: GPL-2.0

//! Areas of one space that are retired to another one: nothing is reused before its own flush.

use crate::prelude::*;

/// Creates two spaces that have blocks at the same addresses.
fn two_spaces() -> [Space<FlushLog>; 2] {
    [(); 2].map(|()| space_of(home_of(8), 8))
}

#[test]
fn an_area_of_a_block_returns_to_its_own_block() {
    let [one, two] = two_spaces();
    let page = request(&one, PAGE_SIZE);
    let [first, second] = [(); 2].map(|()| alloc(&one, &page));
    release(&one, first);
    assert_eq!(alloc(&two, &page), first);
    one.retire(two.unlink(first).expect("busy"));
    assert_eq!(one.next_lazy(None), None);
    assert_eq!(two.next_lazy(None), Span::with_size(first, PAGE_SIZE));
    assert_eq!(one.purge(None, false), 0);
    // It is free in `one`, where the next one is lazy.
    retire(&one, second);
    assert_eq!(alloc(&one, &page), first);
    assert_ne!(alloc(&one, &page), second);
    assert_eq!(two.purge(None, false), 1);
    free_everything(&one);
    free_everything(&two);
}

#[test]
fn an_area_of_the_tree_is_refused() {
    let [one, two] = two_spaces();
    let span = span_of(one.home().first(), PAGE_SIZE);
    for space in [&one, &two] {
        reserve(space, span);
    }
    one.retire(two.unlink(span.first()).expect("busy"));
    assert!(is_refused(|| one.purge(None, false)));
    // It stays reserved in both.
    assert!(one.find(span.first()).is_some());
    core::mem::forget((one, two));
}
