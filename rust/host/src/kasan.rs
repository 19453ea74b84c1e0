// SPDX-License-Identifier: GPL-2.0

//! The order in which a purge flushes the TLB and releases the KASAN shadow.

use crate::{check::fixtures::Done, prelude::*};

/// This holds for areas in blocks and in the tree. The KASAN shadow of busy areas is kept.
#[test]
fn kasan_shadow_is_released_between_tlb_flush_and_reuse() {
    for has_shadow in [false, true] {
        let world = World {
            has_shadow,
            ..World::new(home_of(19)).blocks(4)
        };
        let space = world.space().expect("memory");
        let take = || -> Vec<Done> {
            let done = space.tlb().take_all().done;
            let last = done.last().expect("not empty");
            assert!(last.is_none(), "there may be more");
            done.into_iter().flatten().collect()
        };
        // The second one is too large for a block here. The busy one is between two that are retired.
        let spans = [2, 200, 2, 2].map(|pages| {
            let area = space.alloc(request(&space, pages * PAGE_SIZE));
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
        assert!(matches!(first, Done::Flush(_)));
        if has_shadow {
            // All releases, then one flush of the KASAN shadow that covers them.
            let (last, releases) = rest.split_last().expect("KASAN shadow is released");
            let Done::FlushShadow(cover) = *last else {
                panic!("{last:?} is the last");
            };
            let released: Vec<Span> = releases
                .iter()
                .map(|what| match *what {
                    Done::Release(span) => span,
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
        let released = |what: &Done| matches!(what, Done::Release(span) if span.size() == SIZE);
        assert_eq!(take().iter().any(released), has_shadow);
        free_everything(&space);
    }
}
