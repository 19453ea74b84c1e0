// SPDX-License-Identifier: GPL-2.0

//! What almost every test uses, and what tests of whole spaces share: a home for blocks, requests, and the end of each
//! test.

pub(crate) use crate::{
    base::{fit::Member, prelude::*},
    check::{
        fixtures::{publish, Failing, FlushLog, World},
        random::Random,
    },
    cpu,
    policy::{
        space::{Request, Space},
        validate::Census,
    },
    state::{
        area::{Attributes, Busy},
        class::{Class, SIZE},
    },
    sys::mm::{self, Gfp, Tlb},
};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

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
    space.alloc(request.again()).expect("room").span().first()
}

/// Serves requests for `pages` pages with `count` areas. Returns their first addresses.
pub(crate) fn alloc_many(space: &Space<impl Tlb>, pages: usize, count: usize) -> Vec<usize> {
    let request = request(space, pages * PAGE_SIZE);
    (0..count).map(|_| alloc(space, &request)).collect()
}

/// Reserves exactly `span`, which is free.
pub(crate) fn reserve(space: &Space<impl Tlb>, span: Span) -> Busy {
    let area = space.alloc(Request::bytes(span, span.size()));
    area.expect("all of it is free")
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
    while let Some((area, pin)) = space.get(0) {
        drop(pin);
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

/// Returns whether `what` is refused. On the build host a refusal is a panic.
pub(crate) fn is_refused<T>(what: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(what()))).is_err()
}

/// Calls `what`, in which refusals are only reports, as in the kernel: a thread that unwinds does not panic.
pub(crate) fn despite_refusals<T>(what: impl FnOnce() -> T) -> T {
    struct Last<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Last<F> {
        fn drop(&mut self) {
            self.0();
        }
    }
    let (mut what, mut result) = (Some(what), None);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _last = Last(|| result = what.take().map(|what| what()));
        resume_unwind(Box::new(()))
    }));
    assert!(unwound.is_err());
    result.expect("it was called")
}
