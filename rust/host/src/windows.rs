// SPDX-License-Identifier: GPL-2.0

//! Requests with a window of their own, such as module space: areas that are kept for the next ones, and for how long.

use crate::prelude::*;
use kernel::hooks;

/// The least window for which areas are kept.
const WINDOW: usize = 4 << 20;

/// A space, and a request for `pages` pages in a window of `bytes` bytes beside it.
fn make(pages: usize, bytes: usize) -> (Space<FlushLog>, Request) {
    let space = space_of(home_of(19), 4);
    let window = span_of((1 << 30) + PAGE_SIZE, bytes);
    (space, Request::bytes(window, pages * PAGE_SIZE))
}

/// Serves `requests` one after the other, and frees all of them together. Returns the first addresses.
pub(crate) fn serve(space: &Space<FlushLog>, requests: &[Request]) -> Vec<usize> {
    let starts: Vec<_> = requests.iter().map(|req| alloc(space, req)).collect();
    starts.iter().for_each(|&start| _ = retire(space, start));
    space.purge(None, false);
    starts
}

fn pages(req: Request, pages: usize) -> Request {
    Request {
        size: pages * PAGE_SIZE,
        ..req
    }
}

#[test]
fn areas_of_a_window_are_kept_for_requests_of_their_size() {
    let (space, three) = make(3, WINDOW);
    let first = serve(&space, &[three; 4]);
    assert_eq!((space.kept(), space.next_lazy(None)), (4, None));
    let (erased, searched) = (space.counters().give_back, hooks::SEARCHES.get());
    let found = alloc(&space, &three);
    assert!(first.contains(&found) && space.kept() == 3);
    let area = space.find(found + PAGE_SIZE).map(|area| area.span());
    assert_eq!(area, Some(span_of(found, three.size)));
    retire(&space, found);
    assert_eq!(serve(&space, &[three; 3]).len(), 3);
    assert_eq!((space.counters().give_back, space.kept()), (erased, 4));
    assert_eq!(hooks::SEARCHES.get(), searched);
    free_everything(&space);
}

#[test]
fn areas_of_other_requests_are_not_kept() {
    let (space, three) = make(3, WINDOW);
    // A size must come again.
    for kept in [0, 1] {
        serve(&space, &[three]);
        assert_eq!(space.kept(), kept);
    }
    let small =
        Span::new(three.window.first(), three.window.last() - PAGE_SIZE).expect("not empty");
    let odd = Request {
        window: small,
        ..three
    };
    // Nor do they take a place from others.
    serve(
        &space,
        &[pages(odd, 3 + 61), request(&space, 3 * PAGE_SIZE)],
    );
    assert_eq!(space.kept(), 1);
    let found = serve(&space, &[three])[0];
    assert!(!is_aligned(found, 4 * PAGE_SIZE));
    let aligned = Request {
        align: 4 * PAGE_SIZE,
        ..three
    };
    let above = span_of(three.window.first() + WINDOW / 2, WINDOW);
    let above = Request {
        window: above,
        ..three
    };
    for other in [aligned, above] {
        let start = alloc(&space, &other);
        assert!(start != found && space.kept() == 1);
        retire(&space, start);
        assert!(is_aligned(start, other.align) && start >= other.window.first());
        space.purge(None, true);
        assert_eq!(space.kept(), 0);
        assert_eq!((serve(&space, &[three])[0], space.kept()), (found, 1));
    }
    // An area outside the window of the last request of its size.
    let low = alloc(&space, &three);
    let high = alloc(&space, &above);
    for start in [low, high] {
        release(&space, start);
    }
    assert_eq!((space.kept(), alloc(&space, &above)), (1, high));
    free_everything(&space);
}

/// Sizes with one place free what is kept for each other when one of theirs is flushed, two at a time, and no sooner.
#[test]
fn sizes_may_have_the_same_place() {
    let (space, three) = make(3, WINDOW);
    let other = pages(three, 3 + 61);
    let first = serve(&space, &[three; 4]);
    let start = alloc(&space, &other);
    assert_eq!(space.kept(), 4);
    let again = alloc(&space, &three);
    assert!(first.contains(&again));
    // The last request was for another size than this area.
    release(&space, start);
    assert_eq!(space.kept(), 3);
    for left in [0, 2] {
        assert_eq!(serve(&space, &[other, other]).len(), 2);
        assert_eq!((space.kept(), space.stuck()), (left, 0));
    }
    retire(&space, again);
    free_everything(&space);
}

#[test]
fn kept_areas_are_so_many_at_most() {
    const MOST: usize = 16384;
    let (space, one) = make(1, 2 * MOST * PAGE_SIZE);
    let two = pages(one, 2);
    serve(&space, &[two]);
    serve(&space, &[two]);
    serve(&space, &vec![one; MOST - 1]);
    assert_eq!(space.kept(), MOST);
    // One more, which is not kept, nor is the one of another size.
    let starts: Vec<_> = (0..MOST).map(|_| alloc(&space, &one)).collect();
    assert_eq!(space.kept(), 1);
    starts.iter().for_each(|&start| _ = retire(&space, start));
    space.purge(None, false);
    assert_eq!((space.kept(), space.stuck()), (MOST - 1, 0));
    free_everything(&space);
}

/// Whoever needs their room or their memory frees them.
#[test]
fn kept_areas_are_in_the_way_of_nobody() {
    const ATOMIC: usize = 32;
    const AREAS: usize = 40;
    let count = WINDOW / AREAS / PAGE_SIZE;
    let (space, part) = make(count, WINDOW);
    let all = pages(part, WINDOW / PAGE_SIZE);
    let blocks = |space: &Space<FlushLog>| space.blocks().live;
    for way in 0..4 {
        // A block is in the way of no window.
        release(&space, alloc(&space, &request(&space, PAGE_SIZE)));
        serve(&space, &[part; AREAS]);
        assert_eq!((space.kept(), space.reclaimable()), (AREAS, AREAS));
        match way {
            0 => {
                let start = alloc(&space, &all);
                assert_eq!((space.kept(), blocks(&space)), (0, 1));
                retire(&space, start);
                assert_eq!(space.purge(None, true), 1);
            }
            1 => {
                let nowait = Request {
                    gfp: Gfp::NOWAIT,
                    ..all
                };
                assert!(space.alloc_bare(nowait).is_err());
                assert_eq!(space.stuck() + space.kept(), AREAS - ATOMIC);
                assert_eq!(blocks(&space), 1);
            }
            2 => {
                assert!((3..AREAS).contains(&space.drain_for_reclaim(3)));
                assert_eq!((space.kept(), space.stuck()), (AREAS - 3, 0));
            }
            _ => {
                retire(&space, alloc(&space, &part));
                assert_eq!(space.purge(None, true), 1);
                assert_eq!((space.kept(), space.stuck()), (0, 0));
            }
        }
        free_everything(&space);
    }
}
