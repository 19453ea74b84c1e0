// SPDX-License-Identifier: GPL-2.0

//! What a request without room, a purge and memory reclaim free, what they do when an allocation fails or another request
//! takes a gap, and what they say to tracepoints.

use crate::{
    base::{
        fit::Member,
        prelude::*, //
    },
    check::fixtures::{
        publish,
        Failing,
        FlushLog,
        World, //
    },
    cpu,
    policy::space::{
        Request,
        Space, //
    },
    spaces::{
        alloc,
        free_everything,
        home_of,
        request,
        retire, //
    },
    state::class::SIZE,
    sys::{
        mm::{
            self,
            Gfp, //
        },
        trace::{
            self,
            Cause,
            Purge, //
        }, //
    }, //
};

/// Pages of the largest areas of the smallest blocks, of which these have 16.
const PAGES: usize = 32;

fn nowait(request: Request) -> Request {
    Request {
        gfp: Gfp::NOWAIT,
        ..request
    }
}

/// Each failure leaves no space, and is noticed.
#[test]
fn every_allocation_of_a_new_space_fails_once() {
    let mut failed = 0;
    for nth in 1.. {
        let (space, has_failed) =
            Failing::Only(nth).run(|| World::new(home_of(20)).blocks(4).space());
        match space {
            Ok(space) => {
                assert!(!has_failed, "allocation {nth} failed, and nobody noticed");
                assert!(space.validate().is_ok());
                break;
            }
            Err(err) => assert_eq!(err, ENOMEM),
        }
        failed += 1;
    }
    // Each CPU needs at least one allocation.
    assert!(failed > mm::cpu_count());
}

const MEMBERS: [usize; 3] = [0, 3, 5];

/// Reserves the pages [`MEMBERS`] above a common base.
fn alloc_members(space: &Space<FlushLog>) -> Result {
    let members = MEMBERS.into_iter().map(|page| Member {
        offset: page * PAGE_SIZE,
        size: PAGE_SIZE,
    });
    space.alloc_congruent(space.home(), members, PAGE_SIZE, Gfp::KERNEL, publish)
}

/// A request that may sleep drops the lock and allocates again, so it is served.
#[test]
fn a_failed_allocation_under_a_lock_is_repeated_without_it() {
    let home = Span::with_size(64 << 20, 64 * PAGE_SIZE).expect("not empty");
    // In another space each time, since an entry that fills a gap takes no memory in the kernel's tree.
    let make = || World::new(home).space().expect("memory");
    let space = make();
    // The first allocation is the object, the second one the tree entry.
    let (result, has_failed) = Failing::Only(2).run(|| space.alloc(request(&space, PAGE_SIZE)));
    assert!(result.is_ok() && has_failed);
    free_everything(&space);
    for nth in 4..=6 {
        let space = make();
        let (result, has_failed) = Failing::Only(nth).run(|| alloc_members(&space));
        assert!(result.is_ok() && has_failed);
        assert_eq!(space.validate().expect("sound").busy, 3);
        free_everything(&space);
    }
    // A block allocates its memory, parts of the directory, and last its tree entry.
    let mut blocks = Vec::new();
    for nth in 1.. {
        let space = World::new(home_of(19)).blocks(4).space().expect("memory");
        let (result, has_failed) =
            Failing::Only(nth).run(|| space.alloc(request(&space, PAGE_SIZE)));
        assert!(result.is_ok());
        blocks.push(space.blocks().live);
        free_everything(&space);
        if !has_failed {
            break;
        }
    }
    // No block if its memory or directory fails; a block if only its entry fails, or nothing.
    assert!(blocks.len() > 3);
    let (without, with) = blocks.split_at(blocks.len() - 2);
    assert!(without.iter().all(|&live| live == 0));
    assert_eq!(with, [1, 1]);
}

/// The lock of the tree is released to allocate memory for a member. If another request takes the gap of a member meanwhile,
/// those that are reserved are given back, and the search is made again.
#[cfg(not(c_maple))]
#[test]
fn members_are_searched_for_again_if_a_gap_is_taken() {
    use kernel::hooks::MEANWHILE;
    let home = Span::with_size(64 << 20, 16 * PAGE_SIZE).expect("not empty");
    for (nth, page) in [(4, 10), (5, 13), (5, 15), (6, 15)] {
        let space = &*Box::leak(Box::new(World::new(home).space().expect("memory")));
        let take = Box::new(move || {
            let mut other = request(space, PAGE_SIZE);
            let start = home.first() + page * PAGE_SIZE;
            other.window = Span::with_size(start, PAGE_SIZE).expect("a page");
            alloc(space, &other);
        });
        // The lock is taken for the search, and again after memory was allocated. The highest base is page 10.
        MEANWHILE.set(vec![take, Box::new(|| ())]);
        let (result, has_failed) = Failing::Only(nth).run(|| alloc_members(space));
        assert!(has_failed && result.is_ok());
        assert!(MEANWHILE.take().is_empty());
        assert_eq!(space.validate().expect("sound").busy, 4);
        let pages = MEMBERS.map(|page| home.first() + (9 + page) * PAGE_SIZE);
        assert!(pages.iter().all(|&addr| space.find(addr).is_some()));
        free_everything(space);
    }
}

/// Creates a space without blocks of `count` pages that could not be freed for lack of memory: in the stand-in tree, each
/// takes one allocation.
#[cfg(not(c_maple))]
fn stuck_pages(count: usize) -> Space<FlushLog> {
    let home = Span::with_size(64 << 20, count * PAGE_SIZE).expect("not empty");
    let space = World::new(home).blocks(0).space().expect("memory");
    for _ in 0..count {
        alloc(&space, &request(&space, PAGE_SIZE));
    }
    Failing::From(1).run(|| {
        for page in 0..count {
            retire(&space, home.first() + page * PAGE_SIZE);
        }
        space.purge(None, false);
    });
    assert_eq!((space.stuck(), space.reclaimable()), (count, count));
    assert_eq!(space.counters().give_back_nomem, count);
    assert_eq!(space.validate().expect("sound").unlinked, count);
    space
}

/// A purge, memory reclaim and a request without room free the areas that were stuck. None is lost without memory, and a
/// request that must not sleep ends with the first one that it cannot free.
#[cfg(not(c_maple))]
#[test]
fn stuck_areas_are_freed_when_there_is_memory() {
    const AREAS: usize = 8;
    for way in 0..4 {
        for freed in 0..=AREAS {
            let space = stuck_pages(AREAS);
            let all = || request(&space, AREAS * PAGE_SIZE);
            let is_left = freed < AREAS;
            // CAST: A small number. The object of the area is allocated before its request drains.
            let nth = if is_left {
                freed as u32 + 1 + u32::from(way >= 2)
            } else {
                0
            };
            let (is_served, _) = Failing::Only(nth).run(|| match way {
                0 => space.purge(None, false) > 0,
                1 => space.drain_for_reclaim(usize::MAX) > 0,
                2 => space.alloc(nowait(all())).is_ok(),
                _ => space.alloc(all()).is_ok(),
            });
            // A request that may sleep tries again.
            let is_left = is_left && way < 3;
            assert_eq!(
                space.stuck(),
                if is_left { AREAS - freed } else { 0 },
                "way {way}"
            );
            assert_eq!(
                is_served,
                way == 3 || way == 2 && !is_left || way == 1 && freed > 0
            );
            free_everything(&space);
            assert_eq!(space.stuck(), 0);
        }
    }
}

/// A request that must not sleep frees at most 32, and the others stay in their list.
#[cfg(not(c_maple))]
#[test]
fn a_request_that_must_not_sleep_frees_few_stuck_areas() {
    const AREAS: usize = 40;
    const MOST: usize = 32;
    let space = stuck_pages(AREAS);
    assert!(space
        .alloc(nowait(request(&space, AREAS * PAGE_SIZE)))
        .is_err());
    assert_eq!(space.stuck(), AREAS - MOST);
    free_everything(&space);
}

/// One that must not sleep does not try again, and the block stays.
#[test]
fn a_request_that_may_sleep_retries_to_free_an_empty_block() {
    for gfp in [Gfp::KERNEL, Gfp::NOWAIT] {
        let space = World::new(home_of(1)).blocks(1).space().expect("memory");
        retire(&space, alloc(&space, &request(&space, PAGE_SIZE)));
        space.purge(None, false);
        assert_eq!(space.blocks().live, 1);
        let req = Request {
            gfp,
            ..request(&space, SIZE)
        };
        // The first allocation is the object of the area, the second one erases the entry of the block.
        let (result, has_failed) = Failing::Only(2).run(|| space.alloc(req));
        assert!(has_failed);
        let sleeps = gfp.may_block();
        assert_eq!(result.is_ok(), sleeps);
        let counts = [
            space.blocks().live,
            space.counters().give_back_nomem,
            space.reclaimable(),
        ];
        assert_eq!(counts, [usize::from(!sleeps); 3]);
        free_everything(&space);
    }
}

/// Creates a space that is full of empty blocks.
fn empty_blocks(count: usize) -> Space<FlushLog> {
    cpu::be_on(0, 4);
    let space = World::new(home_of(count))
        .blocks(count)
        .space()
        .expect("memory");
    let areas = (0..count * (SIZE / PAGE_SIZE / PAGES))
        .map(|_| alloc(&space, &request(&space, PAGES * PAGE_SIZE)));
    for start in areas.collect::<Vec<_>>() {
        retire(&space, start);
    }
    // As many as were taken are kept.
    space.purge(None, false);
    let counts = space.blocks();
    assert_eq!(
        (counts.live, counts.empty, counts.partial),
        (count, count - 1, count - 1)
    );
    space
}

#[test]
fn empty_blocks_are_freed_for_whoever_needs_them() {
    const BLOCKS: usize = 72;
    const ATOMIC: usize = 32;
    let large = |space: &Space<FlushLog>| request(space, 2 * SIZE);
    // A request that must not sleep frees 32.
    let space = empty_blocks(BLOCKS);
    assert!(space.alloc(nowait(large(&space))).is_ok());
    assert_eq!(space.blocks().live, BLOCKS - ATOMIC);
    free_everything(&space);
    let space = empty_blocks(BLOCKS);
    assert!(space.alloc(large(&space)).is_ok());
    assert_eq!(space.blocks().live, 0);
    free_everything(&space);
    // One that can never fit frees none.
    let space = empty_blocks(BLOCKS);
    let never = request(&space, space.home().size() + PAGE_SIZE);
    assert_eq!(space.alloc(never).err(), Some(EBUSY));
    assert_eq!(space.blocks().live, BLOCKS);
    // Memory reclaim frees as many as it says, the current one included.
    assert_eq!(space.drain_for_reclaim(5), 5);
    assert_eq!(space.blocks().live, BLOCKS - 5);
    assert_eq!(space.drain_for_reclaim(usize::MAX), BLOCKS - 5);
    // A purge that drains frees all, also without lazy areas.
    let space = empty_blocks(BLOCKS);
    assert_eq!(space.purge(None, true), 0);
    assert_eq!(space.blocks(), Default::default());
    assert_eq!(space.counters().block_freed, BLOCKS);
    free_everything(&space);
}

/// An eighth less with each purge, except two.
#[test]
fn purges_keep_fewer_and_fewer_blocks_that_nobody_takes() {
    const BLOCKS: usize = 40;
    let space = empty_blocks(BLOCKS);
    let mut keep = BLOCKS;
    let mut empty = BLOCKS - 1;
    for _ in 0..40 {
        // Of another class.
        retire(
            &space,
            alloc(&space, &request(&space, PAGES * PAGE_SIZE / 2)),
        );
        space.purge(None, false);
        keep = (keep - keep.div_ceil(8)).max(2);
        empty = empty.min(keep);
        assert_eq!(space.blocks().empty, empty);
    }
    assert_eq!(empty, 2);
    free_everything(&space);
}

/// Calls `what`, and returns the cause of the last drain meanwhile.
fn cause_of<T>(what: impl FnOnce() -> T) -> Option<Cause> {
    trace::forget();
    what();
    trace::last_cause()
}

#[test]
fn a_trace_of_a_drain_has_its_cause() {
    let space = empty_blocks(4);
    let small = request(&space, PAGES * PAGE_SIZE);
    let start = alloc(&space, &small);
    assert_eq!(cause_of(|| space.purge(None, false)), None);
    retire(&space, start);
    assert_eq!(cause_of(|| space.purge(None, false)), Some(Cause::Trim));
    assert_eq!(
        cause_of(|| space.drain_for_reclaim(1)),
        Some(Cause::Reclaim)
    );
    assert_eq!(
        cause_of(|| space.alloc(request(&space, space.home().size()))),
        Some(Cause::Request)
    );
    assert_eq!(cause_of(|| space.purge(None, true)), Some(Cause::Purge));
    free_everything(&space);
}

/// A purge of nothing has no event.
#[test]
fn a_trace_of_a_purge_says_what_it_flushes() {
    let space = World::new(home_of(19)).blocks(4).space().expect("memory");
    let purged = || {
        trace::forget();
        space.purge(None, false);
        trace::last_purge()
    };
    assert_eq!(purged(), None);
    // The first one has a slot of 10 pages, and the second one is in the tree.
    let spans = [9, 40].map(|pages| {
        let area = space.alloc(request(&space, pages * PAGE_SIZE));
        area.expect("room").span()
    });
    for span in spans {
        retire(&space, span.first());
    }
    let slot = Span::with_size(spans[0].first(), 10 * PAGE_SIZE).expect("not empty");
    let expected = Purge {
        cover: Some(slot.join(spans[1])),
        areas: spans.len(),
        ranges: 1,
        pages: 10 + 40,
    };
    assert_eq!(purged(), Some(expected));
    assert_eq!(purged(), None);
    free_everything(&space);
}
