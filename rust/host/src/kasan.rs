// SPDX-License-Identifier: GPL-2.0

//! The order in which a purge flushes the TLB and releases the KASAN shadow.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
    },
    check::fixtures::{
        Done,
        FlushLog,
        World, //
    },
    policy::{
        census::Census,
        space::Space, //
    },
    spaces::{
        home_of,
        request, //
    },
    state::{
        area::AreaPtr,
        block, //
    }, //
};

/// Allocates an area of each size, and retires all but the last. Returns their spans.
fn retire_some<const N: usize>(space: &Space<FlushLog>, sizes: [usize; N]) -> [Span; N] {
    let spans = sizes.map(|size| {
        let area = space.alloc(&request(space, size)).expect("room");
        space.span_of(area)
    });
    for span in &spans[..N - 1] {
        space.retire(space.unlink(span.first()).expect("busy"));
    }
    spans
}

impl Space<FlushLog> {
    fn span_of(&self, area: AreaPtr) -> Span {
        self.table_entry(area).expect("a busy area is in the index")
    }
}

/// This holds for areas in blocks and in the tree. The KASAN shadow of busy areas is kept.
#[test]
fn kasan_shadow_is_released_between_tlb_flush_and_reuse() {
    let home = home_of(19);
    for has_shadow in [false, true] {
        let world = World {
            has_shadow,
            ..World::new(home).blocks(4)
        };
        let space = world.space().expect("memory");
        let take = || -> Vec<Done> {
            let done = space.tlb().take_all().done;
            assert!(
                done.last().is_some_and(Option::is_none),
                "there may be more"
            );
            done.into_iter().flatten().collect()
        };
        let [low, large, middle, high] =
            retire_some(&space, [2, 200, 3, 2].map(|count| count * PAGE_SIZE));
        assert_eq!(take(), []);
        assert_eq!(space.purge(None, false), 3);
        let done = take();
        let flushed = |what: &Done| matches!(what, Done::Flush(_));
        assert!(done.iter().any(flushed));
        let first_shadow = done.iter().position(|what| !flushed(what));
        if !has_shadow {
            assert_eq!(first_shadow, None);
        } else {
            // First all TLB flushes, then all releases, then one flush of the KASAN shadow that covers them.
            let (flushes, rest) = done.split_at(first_shadow.expect("KASAN shadow is released"));
            assert!(flushes.iter().all(flushed) && !rest.iter().any(flushed));
            let (last, releases) = rest.split_last().expect("not empty");
            let covers = |what: &Done, span: Span| match *what {
                Done::Release(released) => released.covers(span),
                Done::FlushShadow(all) => all.covers(span),
                Done::Flush(_) => false,
            };
            assert!(matches!(last, Done::FlushShadow(_)));
            for span in [low, large, middle] {
                assert!(releases.iter().any(|what| covers(what, span)));
                assert!(covers(last, span));
            }
            for what in releases {
                assert!(matches!(what, Done::Release(span) if span.clip(high).is_none()));
            }
        }
        space.retire(space.unlink(high.first()).expect("busy"));
        // Removing a block releases the KASAN shadow of pages shared by its areas.
        space.purge(None, true);
        let released =
            |what: &Done| matches!(what, Done::Release(span) if span.size() >= block::SIZE);
        assert_eq!(take().iter().any(released), has_shadow);
        assert_eq!(space.validate().ok(), Some(Census::default()));
    }
}
