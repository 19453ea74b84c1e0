// SPDX-License-Identifier: GPL-2.0

//! What a request or a drain does when an allocation fails or another request takes a gap: whether it tries
//! again, and what it leaves. Also how much a request that must not sleep drains.

use crate::{
    base::{
        fit::Member,
        range::{
            Span,
            PAGE_SIZE, //
        }, //
    },
    check::fixtures::{
        Failing,
        World, //
    },
    spaces::{
        cached_pages,
        free_everything,
        home_of,
        request, //
    },
    state::{
        band::MAX_UNITS,
        block, //
    },
    sys::mm::{
        self,
        Gfp, //
    }, //
};
use kernel::{
    hooks::MEANWHILE,
    prelude::*, //
};

/// Each failure leaves no space, and is noticed.
#[test]
fn every_allocation_of_a_new_space_fails_once() {
    let home = Span::with_size(block::SIZE, 20 * block::SIZE).expect("not empty");
    let mut failed = 0;
    for nth in 1.. {
        let (space, has_failed) = Failing::Only(nth).run(|| World::new(home).blocks(4).space());
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

/// A request that may sleep drops the lock and allocates again, so it is served.
#[test]
fn a_failed_allocation_under_a_lock_is_repeated_without_it() {
    let home = Span::with_size(64 << 20, 64 * PAGE_SIZE).expect("not empty");
    let space = World::new(home).space().expect("memory");
    // The first allocation is the object, the second one the tree entry.
    let (result, has_failed) = Failing::Only(2).run(|| space.alloc(&request(&space, PAGE_SIZE)));
    assert!(result.is_ok() && has_failed);
    free_everything(&space);
    let members = [0, 3, 9].map(|page| Member {
        offset: page * PAGE_SIZE,
        size: PAGE_SIZE,
    });
    for nth in 4..=6 {
        // In another space, since an entry that fills a gap takes no memory in the kernel's tree.
        let space = World::new(home).space().expect("memory");
        let (result, has_failed) = Failing::Only(nth).run(|| {
            let members = members.into_iter();
            space.alloc_congruent(home, members, PAGE_SIZE, Gfp::KERNEL, |_, _| ())
        });
        assert!(result.is_ok() && has_failed);
        assert_eq!(space.validate().expect("sound").busy, 3);
        free_everything(&space);
    }

    // A block allocates its memory, parts of the directory, and last its tree entry.
    let home = home_of(19);
    let mut blocks = Vec::new();
    for nth in 1.. {
        let space = World::new(home).blocks(4).space().expect("memory");
        let (result, has_failed) =
            Failing::Only(nth).run(|| space.alloc(&request(&space, PAGE_SIZE)));
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

/// The tree lock is released before each member. If another request takes the gap of a member meanwhile, those that
/// are reserved are given back, and the search is made again.
#[test]
fn members_are_searched_for_again_if_a_gap_is_taken() {
    let home = Span::with_size(64 << 20, 16 * PAGE_SIZE).expect("not empty");
    let space = &*Box::leak(Box::new(World::new(home).space().expect("memory")));
    let members = [0, 3, 5].map(|page| Member {
        offset: page * PAGE_SIZE,
        size: PAGE_SIZE,
    });
    // The highest base is that of page 10.
    let take = |page: usize| -> Box<dyn FnOnce()> {
        Box::new(move || {
            let mut other = request(space, PAGE_SIZE);
            other.window =
                Span::with_size(home.first() + page * PAGE_SIZE, PAGE_SIZE).expect("a page");
            assert!(space.alloc(&other).is_ok());
        })
    };
    let nothing = || -> Box<dyn FnOnce()> { Box::new(|| ()) };
    // The lock is taken for the search, for each member, and for each that is given back. Before the second member its
    // page is taken, and in the second attempt (at page 9) before the third one.
    let mut meanwhile = vec![nothing(), nothing(), take(13), nothing()];
    meanwhile.extend([nothing(), nothing(), nothing(), take(14)]);
    // Called from the last to the first.
    meanwhile.reverse();
    MEANWHILE.set(meanwhile);
    let result =
        space.alloc_congruent(home, members.into_iter(), PAGE_SIZE, Gfp::KERNEL, |_, _| ());
    assert!(result.is_ok());
    assert!(MEANWHILE.take().is_empty());
    assert_eq!(space.validate().expect("sound").busy, 5);
    free_everything(space);
}

/// The drain returns all cached ranges to the tree, except the one whose erase has no memory.
#[test]
fn a_drain_continues_after_a_range_without_memory() {
    const AREAS: usize = 8;
    for nth in 2..2 + AREAS as u32 {
        let space = cached_pages(AREAS);
        let (result, has_failed) =
            Failing::Only(nth).run(|| space.alloc(&request(&space, AREAS * PAGE_SIZE)));
        assert!(has_failed);
        assert_eq!(result.err(), Some(EBUSY));
        assert_eq!(space.cached(), 1);
        assert_eq!(space.counters().give_back_nomem, 1);
        free_everything(&space);
    }
}

/// A request that must not sleep does not try again, and the block stays.
#[test]
fn a_request_that_may_sleep_retries_to_free_an_empty_block() {
    let home = home_of(1);
    for gfp in [Gfp::KERNEL, Gfp::NOWAIT] {
        let space = World::new(home).blocks(1).space().expect("memory");
        let area = space.alloc(&request(&space, PAGE_SIZE)).expect("room");
        let start = space.start_of_busy(area).expect("busy");
        space.retire(space.unlink(start).expect("busy"));
        space.purge(None, false);
        assert_eq!(space.blocks().live, 1);
        let mut req = request(&space, block::SIZE);
        req.gfp = gfp;
        // The first allocation is the object of the area, the second one erases the entry of the block.
        let (result, has_failed) = Failing::Only(2).run(|| space.alloc(&req));
        assert!(has_failed);
        let sleeps = gfp.may_block();
        assert_eq!(result.is_ok(), sleeps);
        assert_eq!(space.blocks().live, usize::from(!sleeps));
        assert_eq!(space.counters().give_back_nomem, usize::from(!sleeps));
        assert_eq!(space.reclaimable(), usize::from(!sleeps));
        free_everything(&space);
    }
}

#[test]
fn a_request_that_must_not_sleep_drains_32_ranges_or_blocks() {
    const MOST: usize = 32;
    const PLACES: usize = MOST + 40;
    let pages = Span::with_size(block::SIZE, PLACES * PAGE_SIZE).expect("not empty");
    for (home, limit, unit) in [
        (pages, 0, PAGE_SIZE),
        (home_of(PLACES), PLACES, block::SIZE),
    ] {
        let space = World::new(home).blocks(limit).space().expect("memory");
        let kept = || match limit {
            0 => space.cached(),
            _ => space.blocks().live,
        };
        let size = unit.min(MAX_UNITS * PAGE_SIZE);
        let mut starts = Vec::new();
        while let Ok(area) = space.alloc(&request(&space, size)) {
            starts.push(space.start_of_busy(area).expect("busy"));
        }
        for start in starts {
            space.retire(space.unlink(start).expect("busy"));
        }
        space.purge(None, false);
        assert_eq!(kept(), PLACES);
        let mut req = request(&space, 2 * unit);
        req.gfp = Gfp::NOWAIT;
        assert!(space.alloc(&req).is_ok());
        assert_eq!(kept(), PLACES - MOST);
        free_everything(&space);
    }
}
