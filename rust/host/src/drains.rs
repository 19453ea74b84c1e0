// SPDX-License-Identifier: GPL-2.0

//! What a request without room drains, at how much it looks, and what drains and purges say to tracepoints.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::fixtures::{
        Failing,
        FlushLog,
        World, //
    },
    policy::space::{
        Request,
        Space, //
    },
    spaces::{
        alloc,
        cached_pages,
        free_everything,
        home_of,
        request,
        retire, //
    },
    state::band::SIZE,
    sys::{
        mm::Gfp,
        trace::{
            self,
            Cause,
            Purge, //
        }, //
    }, //
};
use kernel::prelude::*;

/// Serves a request, and retires the area.
fn alloc_and_retire(space: &Space<FlushLog>, request: &Request) {
    retire(space, alloc(space, request));
}

/// Returns a request that must not sleep for one page at `addr`.
fn page_at(addr: usize) -> Request {
    Request {
        gfp: Gfp::NOWAIT,
        ..Request::any_page(Span::with_size(addr, PAGE_SIZE).expect("a page"))
    }
}

/// A range outside the home is cached only if there is no memory for freeing it. Requests there drain only then: blocks and other
/// cached ranges would not help.
#[test]
fn a_cached_range_outside_the_home_is_drained_for_requests_there() {
    let home = home_of(19);
    let outside = home.end() + 16 * PAGE_SIZE;
    for is_cached in [true, false] {
        let space = World::new(home).blocks(4).space().expect("memory");
        // A drain puts the current block into the pool.
        space.alloc(&request(&space, PAGE_SIZE)).expect("room");
        assert_eq!(space.blocks().partial, 0);
        if is_cached {
            alloc_and_retire(&space, &page_at(outside));
            let (areas, has_failed) = Failing::From(1).run(|| space.purge(None, false));
            assert_eq!((areas, has_failed), (1, true));
        } else {
            space.alloc(&page_at(outside)).expect("room");
        }
        assert_eq!(space.cached(), usize::from(is_cached));
        assert!(space.validate().is_ok());
        let result = space.alloc(&page_at(outside));
        assert_eq!(result.is_ok(), is_cached);
        assert_eq!(space.cached(), 0);
        assert_eq!(space.blocks().partial, usize::from(is_cached));
        // The range is no longer counted.
        assert!(space.alloc(&page_at(outside)).is_err());
        assert!(space.validate().is_ok());
        free_everything(&space);
    }
}

/// It frees at most 32 ranges, and looks at 16 for each of them.
#[test]
fn a_request_that_must_not_sleep_looks_at_512_ranges() {
    const LOOKS: usize = 512;
    for others in [LOOKS - 1, LOOKS] {
        let space = cached_pages(others + 1);
        let lowest = space.home().first();
        assert_eq!(space.alloc(&page_at(lowest)).is_ok(), others < LOOKS);
        free_everything(&space);
    }
}

/// Without memory for one range, a request that must not sleep leaves the others.
#[test]
fn a_request_that_must_not_sleep_ends_its_drain_without_memory() {
    const AREAS: usize = 8;
    for freed in 0..AREAS {
        let space = cached_pages(AREAS);
        let mut all = request(&space, space.home().size());
        all.gfp = Gfp::NOWAIT;
        // The first allocation is the object of the area.
        let nth = 2 + freed as u32;
        let (result, has_failed) = Failing::Only(nth).run(|| space.alloc(&all));
        assert!(has_failed);
        assert_eq!(result.err(), Some(EBUSY));
        assert_eq!(space.cached(), AREAS - freed);
        free_everything(&space);
    }
}

/// Calls `what`, and returns the cause of the last drain meanwhile.
fn cause_of<T>(what: impl FnOnce() -> T) -> Option<Cause> {
    trace::forget();
    what();
    trace::last_cause()
}

#[test]
fn a_trace_of_a_drain_has_its_cause() {
    const PAGES: usize = 32;
    const BLOCKS: usize = 2;
    let space = World::new(home_of(19)).blocks(BLOCKS);
    let space = space.space().expect("memory");
    let small = request(&space, PAGES * PAGE_SIZE);
    // The first block is full, so it is no CPU's current one.
    let areas = 0..=SIZE / small.size;
    let starts: Vec<_> = areas.map(|_| alloc(&space, &small)).collect();
    assert_eq!(space.blocks().live, BLOCKS);
    // A band without a block. Nothing can be drained for it.
    let other = request(&space, PAGE_SIZE);
    assert_eq!(cause_of(|| alloc_and_retire(&space, &other)), None);
    for &start in &starts[1..] {
        retire(&space, start - small.size);
    }
    assert_eq!(cause_of(|| space.purge(None, false)), Some(Cause::Trim));
    assert_eq!(space.blocks().empty, 1);
    let limit = cause_of(|| alloc_and_retire(&space, &other));
    assert_eq!(limit, Some(Cause::Limit));
    let counters = space.counters();
    assert_eq!((counters.block_freed, counters.block_new), (1, BLOCKS + 1));
    let reclaim = cause_of(|| space.drain_for_reclaim(1));
    assert_eq!(reclaim, Some(Cause::Reclaim));
    let all = request(&space, space.home().size());
    let full = cause_of(|| space.alloc(&all));
    assert_eq!(full, Some(Cause::Request));
    assert_eq!(cause_of(|| space.purge(None, true)), Some(Cause::Purge));
    free_everything(&space);
}

/// A purge of nothing has no event.
#[test]
fn a_trace_of_a_purge_says_what_it_flushes() {
    const PAGES: usize = 40;
    let space = World::new(home_of(19)).blocks(4).space().expect("memory");
    let purged = || {
        trace::forget();
        space.purge(None, false);
        trace::last_purge()
    };
    assert_eq!(purged(), None);
    let sizes = [2, PAGES].map(|pages| pages * PAGE_SIZE);
    let areas = sizes.map(|size| space.alloc(&request(&space, size)).expect("room"));
    let spans = areas.map(|area| space.span_of_busy(area).expect("busy"));
    for span in spans {
        retire(&space, span.first());
    }
    let expected = Purge {
        cover: spans.into_iter().reduce(Span::join),
        areas: spans.len(),
        ranges: 1,
        pages: 2 + PAGES,
    };
    assert_eq!(purged(), Some(expected));
    assert_eq!(purged(), None);
    free_everything(&space);
}
