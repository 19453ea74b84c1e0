// SPDX-License-Identifier: GPL-2.0

//! What a request without room, a purge and memory reclaim free, what they do when an allocation fails or another request
//! takes a gap, and what they say to tracepoints.

use crate::{prelude::*, state::class::MOST_PAGES, windows::serve};
use kernel::{
    hooks::{last_event, MEANWHILE, RESCHED},
    sync::rcu::{at_once, STEPS},
};
use std::cell::RefCell;

/// Pages of the largest areas of the smallest blocks, of which these have 16.
const PAGES: usize = 32;

fn nowait(request: Request) -> Request {
    Request {
        gfp: Gfp::NOWAIT,
        ..request
    }
}

/// The lock of the tree is released to allocate memory for a member. If another request takes the gap of a member meanwhile,
/// those that are reserved are given back, and the search is made again.
#[test]
fn members_are_searched_for_again_if_a_gap_is_taken() {
    let home = span_of(64 << 20, 16 * PAGE_SIZE);
    let offsets = [0, 3 * PAGE_SIZE, 5 * PAGE_SIZE];
    for (nth, page) in [(4, 10), (5, 13), (5, 15), (6, 15)] {
        let space = &*Box::leak(Box::new(World::new(home).space().expect("memory")));
        let take = Box::new(move || {
            reserve(space, span_of(home.first() + page * PAGE_SIZE, PAGE_SIZE));
        });
        // The lock is taken for the search, and again after memory was allocated. The highest base is page 10.
        MEANWHILE.set(vec![take, Box::new(|| ())]);
        let (result, has_failed) = Failing::Only(nth).run(|| alloc_set(space, home, &offsets, 1));
        assert!(has_failed && result.is_ok());
        assert!(MEANWHILE.take().is_empty());
        assert_eq!(space.validate().expect("sound").busy, 4);
        let base = home.first() + 9 * PAGE_SIZE;
        assert!(offsets
            .iter()
            .all(|offset| space.find(base + offset).is_some()));
        free_everything(space);
    }
}

/// Without memory for a block or its place in the directory, the tree serves the request. Its entry is tried again.
#[test]
fn only_the_entry_of_a_block_is_allocated_again() {
    let mut blocks = Vec::new();
    for nth in 1.. {
        let space = space_of(home_of(19), 4);
        let (area, has_failed) =
            Failing::Only(nth).run(|| space.alloc_bare(request(&space, PAGE_SIZE)));
        assert!(area.is_ok());
        blocks.push(space.blocks().live);
        free_everything(&space);
        if !has_failed {
            break;
        }
    }
    let (without, with) = blocks.split_at(blocks.len() - 2);
    assert!(without.len() > 1 && without.iter().all(|&live| live == 0));
    assert_eq!(with, [1, 1]);
}

/// A purge, memory reclaim and a request for all that must not sleep try once to free a block: without memory it stays for the
/// next one. A request that may sleep tries again.
#[test]
fn a_block_is_freed_at_once_or_later() {
    for way in 0..4 {
        let space = space_of(home_of(1), 1);
        release(&space, alloc(&space, &request(&space, PAGE_SIZE)));
        assert_eq!(space.blocks().live, 1);
        // The object of the area is allocated before its request drains.
        let nth = 1 + u32::from(way >= 2);
        let all = || request(&space, space.home().size());
        let (_, has_failed) = Failing::Only(nth).run(|| match way {
            0 => space.purge(None, true) > 0,
            1 => space.drain_for_reclaim(usize::MAX) > 0,
            2 => space.alloc_bare(nowait(all())).is_ok(),
            _ => space.alloc_bare(all()).is_ok(),
        });
        assert!(has_failed);
        let kept = usize::from(way < 3);
        assert_eq!(
            (space.blocks().live, space.counters().give_back_nomem),
            (kept, kept),
            "way {way}"
        );
        free_everything(&space);
    }
}

/// A request that must not sleep frees at most 32, and the others stay in their list. In the stand-in tree, each takes one
/// allocation.
#[test]
fn stuck_areas_are_freed_as_far_as_there_is_memory() {
    const AREAS: usize = 40;
    const MOST: usize = 32;
    let space = space_of(span_of(64 << 20, AREAS * PAGE_SIZE), 0);
    let pages = alloc_many(&space, 1, AREAS);
    Failing::From(1).run(|| {
        for start in pages {
            retire(&space, start);
        }
        space.purge(None, false);
    });
    assert_eq!((space.stuck(), space.reclaimable()), (AREAS, AREAS));
    // A purge ends with the first one that it cannot free, and does not try again.
    for (nth, left) in [(1, AREAS), (3, AREAS - 2)] {
        Failing::Only(nth).run(|| space.purge(None, false));
        assert_eq!(space.stuck(), left);
    }
    let all = nowait(request(&space, AREAS * PAGE_SIZE));
    assert!(space.alloc_bare(all).is_err());
    assert_eq!(space.stuck(), AREAS - 2 - MOST);
    free_everything(&space);
    assert_eq!(space.stuck(), 0);
}

/// A purge leaves large areas in the tree for the next requests of their sizes, if these come again. A drain, reclaim, and a
/// request that finds no room free them.
#[test]
fn large_areas_are_kept_for_the_next_requests_of_their_sizes() {
    const LARGE: usize = (MOST_PAGES + 1) * PAGE_SIZE;
    let space = space_of(home_of(200_000), 64);
    let most = space.home().size() / 64 / LARGE;
    let large = request(&space, LARGE);
    let keep = |size| {
        let start = alloc(&space, &request(&space, size));
        release(&space, start);
        assert!(space.find(start).is_none());
        (start, space.kept())
    };
    // Blocks serve what is smaller.
    let smaller = LARGE - PAGE_SIZE;
    for (size, kept) in [(smaller, 0), (smaller, 0), (LARGE, 0), (LARGE, 1)] {
        assert_eq!(keep(size).1, kept);
    }
    for way in 0..3 {
        let (start, kept) = keep(LARGE);
        // Nothing waits for a purge.
        assert_eq!((kept, space.next_lazy(None)), (1, None));
        let above = Span::from_bounds(start + PAGE_SIZE, space.home().end()).expect("not empty");
        let other = match way {
            0 => request(&space, LARGE + PAGE_SIZE),
            1 => Request {
                align: 2 * (start & start.wrapping_neg()),
                ..large
            },
            _ => Request {
                window: above,
                ..large
            },
        };
        let other = alloc(&space, &other);
        assert_eq!((space.kept(), other == start), (1, false));
        retire(&space, other);
        space.purge(None, true);
    }
    let more = |pages| LARGE + pages * PAGE_SIZE;
    let sizes = [1, 2, 3, 4, 5, 6, 7].map(more);
    let starts = sizes.map(|size| [keep(size), keep(size)][1].0);
    assert_eq!(space.kept(), 7);
    // Sizes that come once leave no area, and those of others alone. The last one has the place of the first one above.
    for pages in (8..40).chain([62]) {
        assert_eq!(keep(more(pages)).1, 7);
    }
    for (size, start) in sizes.into_iter().zip(starts) {
        assert_eq!(alloc(&space, &request(&space, size)), start);
        retire(&space, start);
    }
    space.purge(None, true);
    let (start, kept) = keep(LARGE);
    assert_eq!(kept, 1);
    let (busy, stored) = (
        space.validate().expect("sound").busy,
        space.counters().give_back,
    );
    assert_eq!(alloc(&space, &large), start);
    let found = space.find(start).map(|area| area.span());
    assert_eq!(found, Some(span_of(start, LARGE)));
    assert_eq!(space.validate().expect("sound").busy, busy + 1);
    assert_eq!(space.counters().give_back, stored);
    for way in 0..3 {
        let starts = alloc_many(&space, LARGE / PAGE_SIZE, most + 3);
        for start in &starts {
            retire(&space, *start);
        }
        space.purge(None, false);
        // The first above the share, and two for it, were freed.
        assert_eq!((space.kept(), space.stuck()), (most, 0));
        match way {
            0 => assert_eq!(space.purge(None, true), 0),
            1 => assert!(space.drain_for_reclaim(most) >= most),
            _ => {
                let all = space.home().size() - LARGE;
                retire(&space, alloc(&space, &request(&space, all)));
            }
        }
        assert_eq!((space.kept(), space.stuck()), (0, 0), "way {way}");
    }
    free_everything(&space);
}

/// Above their share of the space, large areas of one size make way for those of another, and leave areas of windows alone.
#[test]
fn large_areas_have_a_share_of_the_space() {
    const LARGE: usize = (MOST_PAGES + 1) * PAGE_SIZE;
    let space = space_of(home_of(200_000), 64);
    let most = space.home().size() / 64 / LARGE;
    let kept_after = |req: Request, count| {
        assert_eq!(serve(&space, &vec![req; count]).len(), count);
        space.kept()
    };
    let window = Request::bytes(span_of(1 << 30, 4 << 20), PAGE_SIZE);
    assert_eq!(kept_after(window, 3), 3);
    assert_eq!(kept_after(request(&space, LARGE + PAGE_SIZE), 2), 5);
    let large = request(&space, LARGE);
    assert_eq!(kept_after(large, most - 2), most + 3);
    // One more is freed, with the two of the other size. Then there is room for two.
    assert_eq!(kept_after(large, most - 1), most + 1);
    assert_eq!(kept_after(large, most), most + 3);
    assert_eq!(kept_after(window, 3), most + 3);
    free_everything(&space);
}

/// That share is kept to the byte.
#[test]
fn the_share_of_large_areas_is_exact() {
    let home = span_of(1 << 42, 1 << 42);
    let space = space_of(home, 4);
    let most = home.size() / 64;
    for (bytes, kept) in [(most + PAGE_SIZE, 0), (most, 1), (most + PAGE_SIZE, 1)] {
        for _ in 0..3 {
            serve(&space, &[request(&space, bytes)]);
        }
        assert_eq!(space.kept(), kept, "{bytes:#x}");
    }
    free_everything(&space);
}

/// Creates a space that is full of empty blocks.
fn empty_blocks(count: usize) -> Space<FlushLog> {
    cpu::be_on(0, 4);
    let space = space_of(home_of(count), count);
    for start in alloc_many(&space, PAGES, count * (SIZE / PAGE_SIZE / PAGES)) {
        retire(&space, start);
    }
    // As many as were taken are kept.
    space.purge(None, false);
    let counts = space.blocks();
    assert_eq!((counts.live, counts.empty), (count, count - 1));
    assert_eq!(counts.partial, counts.empty);
    space
}

#[test]
fn empty_blocks_are_freed_for_whoever_needs_them() {
    const BLOCKS: usize = 72;
    const ATOMIC: usize = 32;
    // A request that must not sleep frees 32.
    for (gfp, left) in [(Gfp::NOWAIT, BLOCKS - ATOMIC), (Gfp::KERNEL, 0)] {
        let space = empty_blocks(BLOCKS);
        let large = request(&space, 2 * SIZE);
        assert!(space.alloc_bare(Request { gfp, ..large }).is_ok());
        assert_eq!(space.blocks().live, left);
        free_everything(&space);
    }
    // One that can never fit frees none.
    let space = empty_blocks(BLOCKS);
    let never = request(&space, space.home().size() + PAGE_SIZE);
    assert_eq!(space.alloc_bare(never).err(), Some(EBUSY));
    assert_eq!(space.blocks().live, BLOCKS);
    // Memory reclaim frees as many as it says, the current one included if there are no others.
    assert_eq!(space.drain_for_reclaim(5), 5);
    assert_eq!(space.blocks().live, BLOCKS - 5);
    assert_eq!(space.blocks().empty, BLOCKS - 5 - 1);
    assert_eq!(space.drain_for_reclaim(usize::MAX), BLOCKS - 5);
    // A purge that drains frees all, also without lazy areas.
    let space = empty_blocks(BLOCKS);
    assert_eq!(space.purge(None, true), 0);
    assert_eq!(space.blocks(), Default::default());
    assert_eq!(space.counters().block_freed, BLOCKS);
    free_everything(&space);
}

/// Another CPU may drain all there is after a request has found no room, and before it drains itself.
#[test]
fn a_request_searches_again_for_what_another_cpu_has_freed() {
    for is_set in [false, true] {
        let space = &*Box::leak(Box::new(empty_blocks(4)));
        RESCHED.set(Some(Box::new(|| {
            assert_eq!(space.drain_for_reclaim(usize::MAX), 4);
        })));
        let (all, pages) = (space.home(), space.home().size() / PAGE_SIZE);
        let served = if is_set {
            alloc_set(space, all, &[0], pages).is_ok()
        } else {
            space.alloc_bare(request(space, all.size())).is_ok()
        };
        assert!(served && RESCHED.take().is_none(), "set: {is_set}");
        free_everything(space);
    }
}

/// A block that is being removed is in the tree, but no longer in the directory. A lookup there goes on behind it.
#[test]
fn a_block_that_is_being_removed_has_no_areas() {
    const BLOCKS: usize = 4;
    let space = &*Box::leak(Box::new(empty_blocks(BLOCKS)));
    let behind = reserve(space, span_of(space.home().end() - PAGE_SIZE, PAGE_SIZE)).span();
    RESCHED.set(Some(Box::new(move || {
        assert_eq!(space.blocks().live, BLOCKS - 1);
        for block in 1..=BLOCKS {
            let start = behind.first() - block * SIZE;
            for addr in [start, start + PAGE_SIZE] {
                let next = space.get(addr, usize::MAX).map(|next| next.area().span());
                assert_eq!(next, Some(behind));
                let before = span_of(addr - PAGE_SIZE, PAGE_SIZE);
                assert_eq!(space.next_lazy(Some(before)), None);
            }
        }
    })));
    assert_eq!(space.drain_for_reclaim(1), 1);
    assert!(RESCHED.take().is_none());
    free_everything(space);
}

/// A request takes few empty blocks from the pool at once: others that look there meanwhile find the rest.
#[test]
fn a_request_without_room_takes_few_blocks_at_once() {
    const BLOCKS: usize = 48;
    const AT_ONCE: usize = 16;
    let space = &*Box::leak(Box::new(space_of(home_of(BLOCKS), BLOCKS)));
    for start in alloc_many(space, PAGES, (BLOCKS - 1) * SIZE / PAGE_SIZE / PAGES) {
        retire(space, start);
    }
    space.purge(None, false);
    space.return_all();
    let left = &*Box::leak(Box::new(RefCell::new(vec![space.blocks().empty])));
    assert!(left.borrow()[0] > 2 * AT_ONCE);
    let look =
        |_| -> Box<dyn FnOnce()> { Box::new(|| left.borrow_mut().push(space.blocks().empty)) };
    MEANWHILE.set((0..BLOCKS).map(look).collect());
    retire(space, alloc(space, &request(space, BLOCKS / 2 * SIZE)));
    assert!(!MEANWHILE.take().is_empty());
    let steps = left.borrow();
    assert!(
        steps.windows(2).all(|two| two[0] - two[1] <= AT_ONCE),
        "{steps:?}"
    );
    assert_eq!(steps.last(), Some(&0));
    drop(steps);
    free_everything(space);
}

/// A lookup in one page goes down the tree without its lock: no other area begins there.
#[test]
fn a_lookup_in_one_page_takes_no_lock() {
    let space = space_of(home_of(1), 1);
    let addr = space.home().first() + SIZE;
    for pages in [1, 2] {
        MEANWHILE.set(vec![Box::new(|| ())]);
        let found = space.get(addr, addr + pages * PAGE_SIZE - 1);
        assert!(found.is_none());
        assert_eq!(MEANWHILE.take().is_empty(), pages == 2, "{pages} pages");
    }
    free_everything(&space);
}

/// What a purge does for classes depends only on those that have changed.
#[test]
fn a_purge_looks_only_at_classes_that_have_changed() {
    let [one, all] = [1, 32].map(|most| {
        let space = without_shadow(home_of(4000)).space().expect("memory");
        for pages in 1..=most {
            release(&space, alloc(&space, &request(&space, pages * PAGE_SIZE)));
        }
        space.return_all();
        release(&space, alloc(&space, &request(&space, PAGE_SIZE)));
        retire(&space, alloc(&space, &request(&space, PAGE_SIZE)));
        let count = steps(|| space.purge(None, false));
        // Now nothing is to do.
        let nothing = steps(|| space.purge(None, false));
        free_everything(&space);
        [count, nothing]
    });
    assert_eq!(one, all);
    assert!(one[0] < 2 * Class::all().count(), "{one:?}");
}

/// Up to 64 blocks that a purge removes wait for one callback of RCU, a softirq. It looks at none of their objects: a worker
/// does, which lets other tasks run after each block.
#[test]
fn removed_blocks_are_taken_apart_in_a_worker() {
    for (blocks, lists) in [(24, 1), (65, 2)] {
        let space = empty_blocks(blocks);
        STEPS.take();
        at_once(|| space.purge(None, true));
        let [callbacks, works] = STEPS.take();
        assert_eq!(space.counters().block_freed, blocks);
        assert_eq!(callbacks, (lists, 0));
        let objects = SIZE / PAGE_SIZE / PAGES;
        assert!(works.0 == lists && works.1 >= blocks * objects, "{works:?}");
        free_everything(&space);
    }
}

/// Calls `what`. Returns why it has freed empty blocks, if it has, in the words of the tracepoint.
fn cause_of<T>(what: impl FnOnce() -> T) -> Option<&'static str> {
    let event = last_event("vmap_rust_drain", what)?;
    Some(["request", "purge", "trim", "reclaim"][event[0]])
}

#[test]
fn a_trace_of_a_drain_has_its_cause() {
    let space = empty_blocks(4);
    // Of another class, for which there may be no block.
    let other = request(&space, PAGES * PAGE_SIZE / 2);
    let purge = |drain| {
        retire(&space, alloc(&space, &other));
        cause_of(|| space.purge(None, drain))
    };
    // Three are kept, and then two. A purge of nothing frees none, though there is one more now.
    assert_eq!(purge(false), None);
    space.return_all();
    assert_eq!(space.blocks().empty, 4);
    assert_eq!(cause_of(|| space.purge(None, false)), None);
    // One finds that there are too many now, and the next one frees these.
    assert_eq!(purge(false), None);
    assert_eq!(purge(false), Some("trim"));
    assert_eq!(cause_of(|| space.drain_for_reclaim(1)), Some("reclaim"));
    let all = request(&space, space.home().size());
    assert_eq!(cause_of(|| alloc(&space, &all)), Some("request"));
    release(&space, space.home().first());
    assert_eq!(purge(true), Some("purge"));
    free_everything(&space);
}

/// A purge of nothing has no event.
#[test]
fn a_trace_of_a_purge_says_what_it_flushes() {
    let space = space_of(home_of(19), 4);
    let purged = || last_event("vmap_rust_purge", || space.purge(None, false));
    assert_eq!(purged(), None);
    // The first one has a slot of 10 pages, and the second one is in the tree.
    let spans = [9, 40].map(|pages| {
        let area = space.alloc_bare(request(&space, pages * PAGE_SIZE));
        area.expect("room").span()
    });
    for span in spans {
        retire(&space, span.first());
    }
    let cover = span_of(spans[0].first(), 10 * PAGE_SIZE).join(spans[1]);
    let expected = vec![cover.first(), cover.end(), 2, 1, 10 + 40, 0];
    assert_eq!(purged(), Some(expected));
    assert_eq!(purged(), None);
    free_everything(&space);
}
