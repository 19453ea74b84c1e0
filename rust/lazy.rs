// SPDX-License-Identifier: GPL-2.0

//! Areas that are unmapped but may still be in a TLB, and their way out of it.
//!
//! Flushing the TLBs of all CPUs is expensive, so freed areas are collected, and flushed all at
//! once. The order that keeps this safe is a chain of types: [`LazySet::snapshot`] takes out what
//! is there, [`Snapshot::flush`] flushes exactly that, and gives areas that can be made free.
//!
//! The set is split by CPU, so that CPUs that free areas do not meet here. The CPU number is a hint
//! only: a task that moves between reading it and taking the lock uses the part of another CPU.

use crate::{
    area::{
        Area,
        AreaList,
        Flushed,
        Lazy, //
    },
    lock::Locked,
    mm::{
        self,
        Tlb, //
    },
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

/// Number of parts; CPUs share them if there are more.
const PARTS: usize = 16;

/// Areas that wait for a flush, and what covers them.
struct Part {
    areas: AreaList<Lazy>,
    cover: Option<Span>,
}

impl Part {
    const fn new() -> Self {
        Self {
            areas: AreaList::new(),
            cover: None,
        }
    }
}

/// All areas that wait for a flush.
pub(crate) struct LazySet {
    parts: KVec<Locked<Part>>,
    pages: Atomic<usize>,
}

impl LazySet {
    /// An empty set.
    pub(crate) fn new() -> Result<Self> {
        let mut parts = KVec::with_capacity(PARTS, GFP_NOWAIT)?;
        for _ in 0..PARTS {
            let part = Locked::new(Part::new(), c"vmap_rust lazy", static_lock_class!())?;
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
        let (Some(span), Some(part)) = (area.span(), self.parts.get(mm::cpu_hint() % PARTS)) else {
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

    /// Takes out all areas that were added before the call.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let mut all = Part::new();
        for part in self.parts.iter() {
            let mut part = part.lock();
            let Some(cover) = part.cover.take() else {
                continue;
            };
            all.areas.append(part.areas.take());
            all.cover = Some(all.cover.map_or(cover, |other| other.join(cover)));
        }
        Some(Snapshot {
            areas: all.areas,
            cover: all.cover?,
        })
    }

    /// Says that `pages` pages that were taken out are flushed.
    pub(crate) fn flushed(&self, pages: usize) {
        // Relaxed: as in `pages()`.
        self.pages.fetch_sub(pages, Relaxed);
    }
}

/// Areas that were taken out to be flushed, and what covers them.
#[must_use = "the areas are lost if they are not flushed"]
pub(crate) struct Snapshot {
    areas: AreaList<Lazy>,
    cover: Span,
}

impl Snapshot {
    /// Number of areas.
    pub(crate) fn len(&self) -> usize {
        self.areas.len()
    }

    /// Flushes the TLB for all areas of the snapshot, and for `also`. Sleepable context. Returns
    /// the areas, and what covers them.
    pub(crate) fn flush(self, tlb: &impl Tlb, also: Option<Span>) -> (AreaList<Flushed>, Span) {
        (self.areas.flush_tlb(tlb, self.cover, also), self.cover)
    }
}
