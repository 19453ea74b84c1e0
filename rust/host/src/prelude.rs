// SPDX-License-Identifier: GPL-2.0

//! What almost every test uses, and what tests of whole spaces share: a home for blocks, requests, and the end of each
//! test.

pub(crate) use crate::{
    base::prelude::*,
    check::{
        fixtures::{publish, Failing, FlushLog, World},
        random::Random,
    },
    cpu,
    policy::{validate::Census, Request, Space},
    state::{
        area::Attributes,
        class::{Class, SIZE},
        flush::Tlb,
        objects::Busy,
    },
    sys::mm::{self, Gfp},
};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Returns the `size` bytes from `start` on.
pub(crate) fn span_of(start: usize, size: usize) -> Span {
    Span::with_size(start, size).expect("not empty")
}

/// Returns a home with room for `blocks` blocks of the smallest size, and for no other aligned range as large as a block.
pub(crate) fn home_of(blocks: usize) -> Span {
    let start = 31 * SIZE + PAGE_SIZE;
    Span::from_bounds(start, (32 + blocks) * SIZE + PAGE_SIZE).expect("not empty")
}

/// A space for `home` without KASAN shadow.
pub(crate) fn without_shadow(home: Span) -> World {
    World {
        has_shadow: false,
        ..World::new(home)
    }
}

/// Creates a space whose blocks have at most the size of `limit` of the smallest ones.
pub(crate) fn space_of(home: Span, limit: usize) -> Space<FlushLog> {
    World::new(home).blocks(limit).space().expect("memory")
}

/// Returns a request for `size` bytes anywhere in the space.
pub(crate) fn request(space: &Space<impl Tlb>, size: usize) -> Request {
    Request::bytes(space.home(), size)
}

/// Serves a request. Returns the first address of the area.
pub(crate) fn alloc(space: &Space<impl Tlb>, request: &Request) -> usize {
    space.alloc_bare(*request).expect("room").span().first()
}

/// Serves requests for `pages` pages with `count` areas. Returns their first addresses.
pub(crate) fn alloc_many(space: &Space<impl Tlb>, pages: usize, count: usize) -> Vec<usize> {
    let request = request(space, pages * PAGE_SIZE);
    (0..count).map(|_| alloc(space, &request)).collect()
}

/// Reserves exactly `span`, which is free.
pub(crate) fn reserve(space: &Space<impl Tlb>, span: Span) -> Busy {
    let area = space.alloc_bare(Request::bytes(span, span.size()));
    area.expect("all of it is free")
}

/// Reserves `pages` pages at each of these offsets above a common base in `window`.
pub(crate) fn alloc_set(
    space: &Space<FlushLog>,
    window: Span,
    offsets: &[usize],
    pages: usize,
) -> Result {
    let size = pages * PAGE_SIZE;
    let members = offsets.iter().map(|&offset| Member { offset, size });
    space.alloc_congruent(window, members, PAGE_SIZE, Gfp::KERNEL, publish)
}

/// Retires the busy area at `start`. Returns about how many pages are lazy.
pub(crate) fn retire(space: &Space<impl Tlb>, start: usize) -> usize {
    space.retire(space.unlink(start).expect("busy"))
}

/// Frees the busy area at `start` at once.
pub(crate) fn release(space: &Space<impl Tlb>, start: usize) {
    retire(space, start);
    space.purge(None, false);
}

/// Ends a test: frees all areas and blocks, and nothing is left.
pub(crate) fn free_everything(space: &Space<impl Tlb>) {
    let mut addr = 0;
    while let Some(area) = space.get(addr, usize::MAX).map(|pinned| pinned.area()) {
        addr = area.span().end();
        retire(space, area.span().first());
    }
    space.purge(None, true);
    assert_eq!(space.validate().ok(), Some(Census::default()));
}

/// Returns the smallest class whose slots have `pages` pages.
pub(crate) fn class_of(pages: usize) -> Class {
    let mut classes = Class::all();
    classes
        .find(|class| class.slot_pages() >= pages)
        .expect("not too large")
}

/// Calls `what`. Returns how often it has accessed an atomic, a measure of its work.
pub(crate) fn steps<T>(what: impl FnOnce() -> T) -> usize {
    let before = kernel::sync::ACCESSES.get();
    what();
    kernel::sync::ACCESSES.get() - before
}

/// Returns whether `what` is refused. On the build host a refusal is a panic.
pub(crate) fn is_refused<T>(what: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(what()))).is_err()
}
