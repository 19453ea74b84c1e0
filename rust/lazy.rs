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
struct Lists {
    areas: AreaList<Lazy>,
    /// In pages: an address would be a reference to the next area there for kmemleak.
    cover: Option<Span>,
    /// Set apart by the purge that is at work.
    flushing: AreaList<Lazy>,
}

/// The areas that one CPU has freed.
struct Part {
    lists: Locked<Lists>,
    /// Number of areas in the lists. Changes under their lock; a purge reads it without, so that it does
    /// not take the lock of a CPU that has freed nothing.
    len: Atomic<usize>,
}

impl Part {
    fn new() -> Result<Self> {
        let lists = Lists {
            areas: AreaList::new(),
            cover: None,
            flushing: AreaList::new(),
        };
        Ok(Self {
            lists: Locked::new(lists, c"vmap_rust lazy", static_lock_class!())?,
            len: Atomic::new(0),
        })
    }

    /// Is there no area? An area that was retired before the caller began is seen: whoever knows of that
    /// is ordered after it.
    fn is_empty(&self) -> bool {
        // Relaxed: by the order that the caller has.
        self.len.load(Relaxed) == 0
    }

    fn add(&self, area: Area<Lazy>, span: Span) {
        let mut lists = self.lists.lock();
        // Relaxed, here and in `take_flushed()`: it only changes under the lock.
        let len = self.len.load(Relaxed).wrapping_add(1);
        self.len.store(len, Relaxed);
        let pages = span.in_pages();
        lists.cover = Some(lists.cover.map_or(pages, |cover| cover.join(pages)));
        lists.areas.push(area);
    }

    fn take_flushed(&self, flush: &Flush) -> AreaList<Flushed> {
        let mut lists = self.lists.lock();
        let flushed = lists.flushing.take().flushed(flush);
        let len = self.len.load(Relaxed).wrapping_sub(flushed.len());
        self.len.store(len, Relaxed);
        flushed
    }
}

/// All areas that wait for a flush.
pub(crate) struct LazySet {
    parts: KVec<Part>,
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
            parts.push(Part::new()?, GFP_NOWAIT)?;
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
        part.add(area, span);
        before.wrapping_add(pages)
    }

    /// Sets all areas apart that were added before the call, and plans to flush them. Only one purge at
    /// a time.
    pub(crate) fn snapshot(&self, plan: &mut Plan) -> Snapshot {
        let mut areas = 0_usize;
        for part in self.parts.iter().filter(|part| !part.is_empty()) {
            let mut lists = part.lists.lock();
            let Some(cover) = lists.cover.take().and_then(Span::from_pages) else {
                continue;
            };
            let taken = lists.areas.take();
            plan.add(cover, taken.len());
            areas = areas.wrapping_add(taken.len());
            lists.flushing.append(taken);
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
            Some(part) if !part.is_empty() => part.take_flushed(flush),
            _ => AreaList::new(),
        }
    }

    /// Says that `pages` pages that were taken out are free.
    pub(crate) fn freed(&self, pages: usize) {
        // Relaxed: as in `pages()`.
        self.pages.fetch_sub(pages, Relaxed);
    }
}
