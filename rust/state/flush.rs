// SPDX-License-Identifier: GPL-2.0

//! What a purge flushes from the TLBs, and the proof that it was flushed.
//!
//! A purge collects in a [`Plan`] all ranges that it wants to free. [`Plan::run`] flushes them and returns
//! a [`Flush`], and without a [`Flush`] no lazily freed range becomes free.
//!
//! The plan is flushed as one range that covers everything, as `__purge_vmap_area_lazy()` in mm/vmalloc.c
//! does. Several smaller ranges would cost more: without TLB instructions that reach all CPUs, each flush
//! is a round of interrupts (`flush_tlb_kernel_range()` in arch/x86/mm/tlb.c), which isolated CPUs pay for
//! as well.

use crate::{
    base::range::Span,
    sys::mm::Tlb, //
};

/// The ranges to flush.
pub(crate) struct Plan {
    cover: Option<Span>,
    areas: usize,
}

/// Proof that all ranges of a plan were flushed.
pub(crate) struct Flush {
    cover: Option<Span>,
}

impl Flush {
    /// Returns the range that was flushed.
    pub(crate) fn cover(&self) -> Option<Span> {
        self.cover
    }
}

impl Plan {
    /// Returns a plan with nothing to flush.
    pub(crate) const fn new() -> Self {
        Self {
            cover: None,
            areas: 0,
        }
    }

    /// Counts `areas` lazily freed areas.
    pub(crate) fn count(&mut self, areas: usize) {
        self.areas = self.areas.wrapping_add(areas);
    }

    /// Adds a range to flush.
    pub(crate) fn add(&mut self, span: Span) {
        self.cover = Some(self.cover.map_or(span, |cover| cover.join(span)));
    }

    /// Returns whether there is nothing to flush.
    pub(crate) fn is_empty(&self) -> bool {
        self.cover.is_none()
    }

    /// Returns the number of lazily freed areas to flush.
    pub(crate) fn areas(&self) -> usize {
        self.areas
    }

    /// Flushes all ranges of the plan with one call. Sleepable context, with `vmap_purge_lock` held.
    pub(crate) fn run(self, tlb: &impl Tlb) -> Flush {
        if let Some(cover) = self.cover {
            tlb.flush(cover, self.areas);
        }
        Flush { cover: self.cover }
    }
}
