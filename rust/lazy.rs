// SPDX-License-Identifier: GPL-2.0

//! Areas with an entry of their own that are unmapped but may still be in a TLB.
//!
//! Flushing the TLBs of all CPUs is expensive, so freed areas are collected, and flushed all at once.
//! [`LazySet::snapshot`] sets apart what is there, and only what was set apart and flushed can be taken
//! out again, to be made free.
//!
//! The set is split by CPU, so that CPUs that free areas do not meet here, and so that a range is free
//! again where it was used. The CPU number is a hint only: a task that moves between reading it and
//! taking the lock uses the part of another CPU.

use crate::{
    area::{
        Area,
        AreaList,
        Flushed,
        Lazy, //
    },
    flush::{
        Flush,
        Plan, //
    },
    lock::Locked,
    mm,
    range::Span,
};
use kernel::{
    prelude::*,
    static_lock_class,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// Areas that wait for a flush, and what covers them.
struct Part {
    areas: AreaList<Lazy>,
    cover: Option<Span>,
    /// Set apart by the purge that is at work.
    flushing: AreaList<Lazy>,
}

/// All areas that wait for a flush.
pub(crate) struct LazySet {
    parts: KVec<Locked<Part>>,
    pages: Atomic<usize>,
}

/// Areas that were set apart to be flushed.
#[must_use = "the areas are lost if they are not freed"]
pub(crate) struct Snapshot {
    areas: usize,
}

impl Snapshot {
    /// Number of areas.
    pub(crate) fn areas(&self) -> usize {
        self.areas
    }
}

impl LazySet {
    /// An empty set.
    pub(crate) fn new() -> Result<Self> {
        let count = mm::cpu_count();
        let mut parts = KVec::with_capacity(count, GFP_NOWAIT)?;
        for _ in 0..count {
            let part = Part {
                areas: AreaList::new(),
                cover: None,
                flushing: AreaList::new(),
            };
            let part = Locked::new(part, c"vmap_rust lazy", static_lock_class!())?;
            parts.push(part, GFP_NOWAIT)?;
        }
        Ok(Self {
            parts,
            pages: Atomic::new(0),
        })
    }

    /// Number of pages that wait, of which some may just have been taken out.
    pub(crate) fn pages(&self) -> usize {
        // Relaxed: a count that says when it is time to purge, and orders nothing.
        self.pages.load(Relaxed)
    }

    /// Adds an area. Returns how many pages wait now.
    pub(crate) fn add(&self, area: Area<Lazy>) -> usize {
        let pages = area.pages();
        let part = self.parts.get(mm::cpu_hint()).or(self.parts.first());
        let (Some(span), Some(part)) = (area.span(), part) else {
            // Both are there: a span is never empty, nor is the vector.
            return self.pages();
        };

        // First count, then add: who takes the area out subtracts it, and must not be early.
        // Relaxed: as in `pages()`.
        let before = self.pages.fetch_add(pages, Relaxed);

        let mut part = part.lock();
        part.cover = Some(part.cover.map_or(span, |cover| cover.join(span)));
        part.areas.push(area);
        before.wrapping_add(pages)
    }

    /// Sets all areas apart that were added before the call, and plans to flush them. Only one purge at
    /// a time.
    pub(crate) fn snapshot(&self, plan: &mut Plan) -> Snapshot {
        let mut areas = 0_usize;
        for part in self.parts.iter() {
            let mut part = part.lock();
            let Some(cover) = part.cover.take() else {
                continue;
            };
            let taken = part.areas.take();
            plan.add(cover, taken.len());
            areas = areas.wrapping_add(taken.len());
            part.flushing.append(taken);
        }
        Snapshot { areas }
    }

    /// Number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Takes the areas of one part out that were set apart and then flushed.
    pub(crate) fn take_flushed(
        &self,
        part: usize,
        _snapshot: &Snapshot,
        flush: &Flush,
    ) -> AreaList<Flushed> {
        match self.parts.get(part) {
            Some(part) => part.lock().flushing.take().flushed(flush),
            None => AreaList::new(),
        }
    }

    /// Says that `pages` pages that were taken out are free.
    pub(crate) fn freed(&self, pages: usize) {
        // Relaxed: as in `pages()`.
        self.pages.fetch_sub(pages, Relaxed);
    }
}
