// SPDX-License-Identifier: GPL-2.0

//! What tests of whole spaces share: a home for blocks, a request, and the end of each test.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::fixtures::World,
    policy::{
        space::{
            Request,
            Space, //
        }, //
        validate::Census,
    },
    state::class::{
        Class,
        SIZE, //
    },
    sys::mm::Tlb, //
};
use std::panic::{
    catch_unwind,
    resume_unwind,
    AssertUnwindSafe, //
};

/// Returns a home with room for `blocks` blocks of the smallest size, and for no other aligned range as large as a block.
pub(super) fn home_of(blocks: usize) -> Span {
    let start = 31 * SIZE + PAGE_SIZE;
    Span::from_bounds(start, (32 + blocks) * SIZE + PAGE_SIZE).expect("not empty")
}

/// A space for `home` without KASAN shadow.
pub(super) fn without_shadow(home: Span) -> World {
    World {
        has_shadow: false,
        ..World::new(home)
    }
}

pub(super) fn request(space: &Space<impl Tlb>, size: usize) -> Request {
    Request::bytes(space.home(), size)
}

/// Serves a request. Returns the first address of the area.
pub(super) fn alloc(space: &Space<impl Tlb>, request: &Request) -> usize {
    space.alloc(request.again()).expect("room").span().first()
}

/// Retires the busy area at `start`. Returns about how many pages are lazy.
pub(super) fn retire(space: &Space<impl Tlb>, start: usize) -> usize {
    space.retire(space.unlink(start).expect("busy"))
}

pub(super) fn free_everything(space: &Space<impl Tlb>) {
    while let Some((area, pin)) = space.get(0) {
        drop(pin);
        retire(space, area.span().first());
    }
    space.purge(None, true);
    assert_eq!(space.validate().ok(), Some(Census::default()));
}

/// Returns the smallest class whose slots have `pages` pages.
pub(super) fn class_of(pages: usize) -> Class {
    let mut classes = Class::all();
    classes
        .find(|class| class.slot_pages() >= pages)
        .expect("not too large")
}

/// Returns whether `what` is refused. On the build host a refusal is a panic.
pub(super) fn is_refused<T>(what: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(what()))).is_err()
}

/// Calls `what`, in which refusals are only reports, as in the kernel: a thread that unwinds does not panic.
pub(super) fn despite_refusals<T>(what: impl FnOnce() -> T) -> T {
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
