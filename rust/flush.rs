// SPDX-License-Identifier: GPL-2.0

//! What to flush from the TLBs, and that it was done.
//!
//! A purge collects what it wants to make free in a [`Plan`], and gets a [`Flush`] for it, without
//! which nothing lazy becomes free. Few pages in few places are flushed place by place. Otherwise one
//! range that covers all is cheaper: each flush may be a round of interrupts to all CPUs, and long
//! ranges empty the TLB anyway (arm64: above `MAX_DVM_OPS` pages, arch/arm64/include/asm/tlbflush.h;
//! x86: above `tlb_single_page_flush_ceiling`, arch/x86/mm/tlb.c).

use crate::{
    mm::Tlb,
    range::{
        Span,
        PAGE_SIZE, //
    },
};

/// At most so many ranges are flushed one by one.
pub(crate) const MAX_RANGES: usize = 4;

/// At most so many pages in all are flushed range by range.
pub(crate) const MAX_PAGES: usize = 32;

/// What is to be flushed.
pub(crate) struct Plan {
    /// The ranges, as long as there are few.
    ranges: [Option<Span>; MAX_RANGES],
    len: usize,
    /// Pages in `ranges`.
    pages: usize,
    cover: Option<Span>,
    areas: usize,
}

/// Shows that all that was planned was flushed.
pub(crate) struct Flush {
    cover: Option<Span>,
    /// How many ranges were flushed.
    pub(crate) ranges: usize,
    /// Were they covered by one, though they were more?
    pub(crate) covered: bool,
}

impl Flush {
    /// What covers all that was flushed.
    pub(crate) fn cover(&self) -> Option<Span> {
        self.cover
    }
}

impl Plan {
    /// Nothing to flush.
    pub(crate) const fn new() -> Self {
        Self {
            ranges: [None; MAX_RANGES],
            len: 0,
            pages: 0,
            cover: None,
            areas: 0,
        }
    }

    /// Plans to flush `span`, which has `areas` lazily freed areas in it.
    pub(crate) fn add(&mut self, span: Span, areas: usize) {
        self.areas = self.areas.wrapping_add(areas);
        self.cover = Some(self.cover.map_or(span, |cover| cover.join(span)));
        self.pages = self.pages.saturating_add(span.size() / PAGE_SIZE);
        if let Some(range) = self.ranges.get_mut(self.len) {
            *range = Some(span);
        }
        self.len = self.len.saturating_add(1);
    }

    /// Is there anything lazy to flush?
    pub(crate) fn areas(&self) -> usize {
        self.areas
    }

    /// Flushes what was planned. Sleepable context, with `vmap_purge_lock` held.
    pub(crate) fn run(self, tlb: &impl Tlb) -> Flush {
        let few = self.len <= MAX_RANGES && self.pages <= MAX_PAGES;
        let mut flush = Flush {
            cover: self.cover,
            ranges: 0,
            covered: !few,
        };
        if few {
            let mut areas = self.areas;
            for span in self.ranges.into_iter().flatten() {
                // The areas are told with the first range: the number is for a tracepoint.
                tlb.flush(span, core::mem::take(&mut areas));
                flush.ranges = flush.ranges.wrapping_add(1);
            }
        } else if let Some(cover) = self.cover {
            tlb.flush(cover, self.areas);
            flush.ranges = 1;
        }
        flush
    }
}
