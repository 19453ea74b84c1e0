// SPDX-License-Identifier: GPL-2.0

//! What tests of whole spaces share: a home for blocks, a request, and the end of each test.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::fixtures::{
        FlushLog,
        World, //
    },
    policy::{
        census::Census,
        space::{
            Request,
            Space, //
        }, //
    },
    state::block,
    sys::mm::Tlb, //
};

/// Returns a home with room for `blocks` fine blocks, and for no other aligned range as large as a block.
pub(super) fn home_of(blocks: usize) -> Span {
    let start = 31 * block::SIZE + PAGE_SIZE;
    Span::from_bounds(start, (32 + blocks) * block::SIZE).expect("not empty")
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
    let area = space.alloc(request).expect("room");
    space.start_of_busy(area).expect("busy")
}

/// Retires the busy area at `start`. Returns about how many pages are lazy.
pub(super) fn retire(space: &Space<impl Tlb>, start: usize) -> usize {
    space.retire(space.unlink(start).expect("busy"))
}

pub(super) fn free_everything(space: &Space<impl Tlb>) {
    while let Some((area, pin)) = space.get(0) {
        let span = space
            .table_entry(area)
            .expect("a busy area is in the index");
        drop(pin);
        retire(space, span.first());
    }
    space.purge(None, true);
    assert_eq!(space.validate().ok(), Some(Census::default()));
}

/// Makes a space of `pages` pages, each of which is a cached range. A drain looks at the lowest one last.
pub(super) fn cached_pages(pages: usize) -> Space<FlushLog> {
    let home = Span::with_size(64 << 20, pages * PAGE_SIZE).expect("not empty");
    let space = World::new(home).blocks(0).space().expect("memory");
    for _ in 0..pages {
        alloc(&space, &request(&space, PAGE_SIZE));
    }
    for page in 0..pages {
        retire(&space, home.first() + page * PAGE_SIZE);
    }
    space.purge(None, false);
    assert_eq!(space.cached(), pages);
    space
}
