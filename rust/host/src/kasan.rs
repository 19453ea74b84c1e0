// SPDX-License-Identifier: GPL-2.0

//! The order in which a purge flushes the TLB and releases the KASAN shadow.

use crate::{check::fixtures::Step, prelude::*, state::class::TABLE_PAGES};

/// This holds for areas in blocks and in the tree. The KASAN shadow of busy areas is kept.
#[test]
fn kasan_shadow_is_released_between_tlb_flush_and_reuse() {
    for has_shadow in [false, true] {
        let world = World {
            has_shadow,
            ..World::new(home_of(19)).blocks(4)
        };
        let space = world.space().expect("memory");
        let take = || -> Vec<Step> {
            let done = space.tlb().take_all().done;
            let last = done.last().expect("not empty");
            assert!(last.is_none(), "there may be more");
            done.into_iter().flatten().collect()
        };
        // The second one is too large for a block here. The busy one is between two that are retired.
        let spans = [2, 200, 2, 2].map(|pages| {
            let area = space.alloc_bare(request(&space, pages * PAGE_SIZE));
            area.expect("room").span()
        });
        assert_eq!(space.counters().alloc_tree, 1);
        let [low, large, busy, high] = spans;
        for span in [low, large, high] {
            retire(&space, span.first());
        }
        assert_eq!(take(), []);
        assert_eq!(space.purge(None, false), 3);
        let done = take();
        let (first, rest) = done.split_first().expect("not empty");
        assert!(matches!(first, Step::Flush(_)));
        if has_shadow {
            // All releases, then one flush of the KASAN shadow that covers them.
            let (last, releases) = rest.split_last().expect("KASAN shadow is released");
            let Step::FlushShadow(cover) = *last else {
                panic!("{last:?} is the last");
            };
            let released: Vec<Span> = releases
                .iter()
                .map(|what| match *what {
                    Step::Release(span) => span,
                    _ => panic!("{what:?} between releases"),
                })
                .collect();
            for span in [low, large, high] {
                assert!(released.iter().any(|other| other.covers(span)) && cover.covers(span));
            }
            assert!(released.iter().all(|span| span.clip(busy).is_none()));
        } else {
            assert_eq!(rest, []);
        }
        retire(&space, busy.first());
        // Removing a block releases the KASAN shadow of pages shared by its areas.
        space.purge(None, true);
        let released = |what: &Step| matches!(what, Step::Release(span) if span.size() == SIZE);
        assert_eq!(take().iter().any(released), has_shadow);
        free_everything(&space);
    }
}

/// One release takes as long as the range has KASAN shadow: a long run of slots and a large area are released in pieces.
#[test]
fn kasan_shadow_of_large_ranges_is_released_in_pieces() {
    const PIECE: usize = 8 * SIZE;
    let space = space_of(home_of(200), 160);
    // Slots of 4 blocks of the smallest size side by side, and a lone area.
    let pages = 4 * TABLE_PAGES;
    let mut spans: Vec<Span> = { alloc_many(&space, pages, 5).into_iter() }
        .map(|start| span_of(start, pages * PAGE_SIZE))
        .collect();
    spans.push(
        reserve(
            &space,
            span_of(space.home().last() + 1 - 2 * PIECE, 2 * PIECE),
        )
        .span(),
    );
    for span in &spans {
        retire(&space, span.first());
    }
    space.tlb().take();
    assert_eq!(space.purge(None, false), spans.len());
    let released: Vec<Span> = { space.tlb().take_all().done.into_iter().flatten() }
        .filter_map(|step| match step {
            Step::Release(span) => Some(span),
            _ => None,
        })
        .collect();
    assert!(released.iter().all(|span| span.size() <= PIECE));
    let bytes = |spans: &[Span]| spans.iter().map(|span| span.size()).sum::<usize>();
    assert_eq!(bytes(&released), bytes(&spans));
    for span in &spans {
        assert!(released.iter().any(|piece| piece.contains(span.first())));
    }
    free_everything(&space);
}
