// SPDX-License-Identifier: GPL-2.0

//! The order in which a purge flushes the TLB and releases the KASAN shadow, recorded by a TLB that knows both.

use crate::{
    base::range::{
        Span,
        PAGE_SIZE, //
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
    },
    sys::mm::Tlb, //
};
use std::sync::Mutex;

/// An operation on the KASAN shadow or the TLB.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Done {
    Flush(Span),
    Release(Span),
    FlushShadow(Span),
}

/// A TLB that records all operations in order, with or without KASAN shadow.
pub(super) struct ShadowLog {
    has_shadow: bool,
    done: Mutex<Vec<Done>>,
}

impl ShadowLog {
    pub(super) fn new(has_shadow: bool) -> Self {
        Self {
            has_shadow,
            done: Mutex::default(),
        }
    }

    fn push(&self, what: Done) {
        self.done.lock().expect("no panic").push(what);
    }

    fn take(&self) -> Vec<Done> {
        std::mem::take(&mut *self.done.lock().expect("no panic"))
    }
}

impl Tlb for ShadowLog {
    fn flush(&self, span: Span, _: usize) {
        self.push(Done::Flush(span));
    }

    fn has_shadow(&self) -> bool {
        self.has_shadow
    }

    fn release_shadow(&self, span: Span) {
        self.push(Done::Release(span));
    }

    fn flush_shadow(&self, span: Span) {
        self.push(Done::FlushShadow(span));
    }
}

/// Allocates an area of each size, and retires all but the last. Returns their spans.
fn retire_some<const N: usize>(space: &Space<ShadowLog>, sizes: [usize; N]) -> [Span; N] {
    let spans = sizes.map(|size| {
        let area = space.alloc(&request(space, size)).expect("room");
        space.span_of(area)
    });
    for span in &spans[..N - 1] {
        space.retire(space.unlink(span.first()).expect("busy"));
    }
    spans
}

impl Space<ShadowLog> {
    fn span_of(&self, area: AreaPtr) -> Span {
        self.table_entry(area).expect("a busy area is in the index")
    }
}

/// This holds for areas in blocks and in the tree. The KASAN shadow of busy areas is kept.
#[test]
fn kasan_shadow_is_released_between_tlb_flush_and_reuse() {
    let home = home_of(19);
    for has_shadow in [false, true] {
        let log = ShadowLog::new(has_shadow);
        let space = Space::with_blocks(home, log, Some(4)).expect("memory");
        let [low, large, middle, high] =
            retire_some(&space, [2, 200, 3, 2].map(|count| count * PAGE_SIZE));
        assert_eq!(space.tlb().take(), []);
        assert_eq!(space.purge(None, false), 3);
        let done = space.tlb().take();
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
        assert_eq!(space.tlb().take().iter().any(released), has_shadow);
        assert_eq!(space.validate().ok(), Some(Census::default()));
    }
}
