// SPDX-License-Identifier: GPL-2.0

//! Lazy areas with an entry of their own: unmapped, but perhaps still in a TLB.
//!
//! Flushing the TLBs of all CPUs is expensive, so lazy areas are collected and flushed together.
//! [`LazySet::snapshot`] selects the areas of a purge, and only areas that were selected and then flushed
//! can be taken out and freed.
//!
//! The set has a part for each CPU, so that CPUs that free areas do not contend, and a freed range is
//! cached for the CPU that used it.

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
    per_cpu::PerCpu,
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

/// The lazy areas of one CPU, and a span that covers them.
struct Lists {
    areas: AreaList<Lazy>,
    /// In pages: kmemleak would take an address for a reference to the area that starts there.
    cover: Option<Span>,
    /// Areas that the current purge has selected.
    flushing: AreaList<Lazy>,
}

/// The areas that one CPU has freed.
struct Part {
    lists: Locked<Lists>,
    /// Number of areas in the lists, written under their lock. A purge reads it without the lock, to skip
    /// CPUs that have freed nothing.
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

    /// Returns whether there are no areas. The caller sees areas that were retired before it began.
    fn is_empty(&self) -> bool {
        // Relaxed: the order between a retire and a later purge comes from their callers.
        self.len.load(Relaxed) == 0
    }

    fn add(&self, area: Area<Lazy>, span: Span) {
        let mut lists = self.lists.lock();
        // Relaxed, here and in `take_flushed()`: it is written only under the lock.
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

/// All lazy areas with an entry of their own.
pub(crate) struct LazySet {
    parts: PerCpu<Part>,
    pages: Atomic<usize>,
}

/// Proof that a purge has selected its areas.
#[must_use = "areas that are not freed leak"]
pub(crate) struct Snapshot {
    areas: usize,
}

impl Snapshot {
    /// Returns the number of areas.
    pub(crate) fn areas(&self) -> usize {
        self.areas
    }
}

impl LazySet {
    /// Creates an empty set.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            parts: PerCpu::new(Part::new)?,
            pages: Atomic::new(0),
        })
    }

    /// Returns the number of lazy pages. It may include pages that were just freed.
    pub(crate) fn pages(&self) -> usize {
        // Relaxed: the count says when to purge, and orders nothing.
        self.pages.load(Relaxed)
    }

    /// Adds an area. Returns the number of lazy pages.
    pub(crate) fn add(&self, area: Area<Lazy>) -> usize {
        let pages = area.pages();
        let Some(span) = area.span() else {
            // Cannot happen: a span is not empty.
            return self.pages();
        };

        // Count the pages before adding the area: a purge subtracts them when it takes the area out.
        // Relaxed: the count orders nothing.
        let before = self.pages.fetch_add(pages, Relaxed);
        self.parts.here().add(area, span);
        before.wrapping_add(pages)
    }

    /// Selects all areas that were added before the call, and adds them to `plan`. Only one purge at a
    /// time.
    pub(crate) fn snapshot(&self, plan: &mut Plan) -> Snapshot {
        let mut areas = 0_usize;
        for part in self.parts.iter().filter(|part| !part.is_empty()) {
            let mut lists = part.lists.lock();
            let Some(cover) = lists.cover.take().and_then(Span::from_pages) else {
                continue;
            };
            let taken = lists.areas.take();
            plan.add(cover);
            plan.count(taken.len());
            areas = areas.wrapping_add(taken.len());
            lists.flushing.append(taken);
        }
        Snapshot { areas }
    }

    /// Returns the number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Takes the areas of one part that were selected and then flushed.
    pub(crate) fn take_flushed(
        &self,
        part: usize,
        _snapshot: &Snapshot,
        flush: &Flush,
    ) -> AreaList<Flushed> {
        let part = self.parts.get(part);
        if part.is_empty() {
            return AreaList::new();
        }
        part.take_flushed(flush)
    }

    /// Subtracts `pages` pages that were taken out and are no longer lazy.
    pub(crate) fn freed(&self, pages: usize) {
        // Relaxed: the count orders nothing.
        self.pages.fetch_sub(pages, Relaxed);
    }
}
