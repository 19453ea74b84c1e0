// SPDX-License-Identifier: GPL-2.0

//! Lazy areas with an entry of their own: unmapped, but perhaps still in a TLB.
//!
//! Flushing the TLBs of all CPUs is expensive, so lazy areas are collected and flushed together.
//! [`LazySet::snapshot`] selects the areas of a purge, and only areas that were selected and then flushed
//! can be taken out and freed.
//!
//! The set has a part for each CPU, so that CPUs that free areas do not contend, and a freed range is
//! cached for the CPU that freed it. If there are more than [`MAX_PARTS`] CPUs, several share a part: large
//! areas reach the limit of lazy pages after a few frees, so with many parts a purge would visit more parts
//! than it finds areas.

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
    mm::{
        self,
        Node, //
    },
    per_cpu::{
        CacheAligned,
        PerCpu, //
    },
    range::{
        Span,
        PAGE_SIZE, //
    },
};
use kernel::{
    prelude::*,
    static_lock_class,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// Maximum number of parts.
pub(crate) const MAX_PARTS: usize = 8;

/// Bytes that the counts of all CPUs together may hide from [`LazySet::estimate`], per power of two of the
/// number of CPUs: a quarter of `lazy_max_pages()` in mm/vmalloc.c.
const UNCOUNTED: usize = 8 << 20;

/// Returns how many pages a CPU counts for itself before it adds them to the total.
///
/// `lazy_max_pages()` is proportional to `fls(online)`, which `ilog2(possible) / possible * online` does not
/// exceed.
pub(crate) fn batch(cpus: usize) -> usize {
    // CAST: A logarithm fits in a `usize`.
    let log = cpus.checked_ilog2().unwrap_or(0).max(1) as usize;
    UNCOUNTED / PAGE_SIZE * log / cpus.max(1)
}

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
    /// Pages that are not yet in the total of all CPUs, written under the lock.
    uncounted: Atomic<usize>,
}

impl Part {
    fn new(node: Node) -> Result<Self> {
        let lists = Lists {
            areas: AreaList::new(),
            cover: None,
            flushing: AreaList::new(),
        };
        Ok(Self {
            lists: Locked::new_on(node, lists, c"vmap_rust lazy", static_lock_class!())?,
            len: Atomic::new(0),
            uncounted: Atomic::new(0),
        })
    }

    /// Returns whether there are no areas. The caller sees areas that were retired before it began.
    fn is_empty(&self) -> bool {
        // Relaxed: the order between a retire and a later purge comes from their callers.
        self.len.load(Relaxed) == 0
    }

    /// Adds an area. Adds what this CPU has counted to `total` once it is `batch` pages.
    fn add(&self, area: Area<Lazy>, span: Span, batch: usize, total: &Atomic<usize>) {
        let mut lists = self.lists.lock();
        // Relaxed, here and below: both counts are written only under the lock.
        let len = self.len.load(Relaxed).wrapping_add(1);
        self.len.store(len, Relaxed);
        let pages = span.size() / PAGE_SIZE;
        let uncounted = self.uncounted.load(Relaxed).wrapping_add(pages);
        self.uncounted.store(uncounted, Relaxed);
        if uncounted >= batch {
            self.count(total);
        }
        let pages = span.in_pages();
        lists.cover = Some(lists.cover.map_or(pages, |cover| cover.join(pages)));
        lists.areas.push(area);
    }

    /// Adds what this CPU has counted to `total`. The caller holds the lock.
    fn count(&self, total: &Atomic<usize>) {
        let uncounted = self.uncounted.load(Relaxed);
        // Relaxed: the count says when to purge, and orders nothing.
        total.fetch_add(uncounted, Relaxed);
        self.uncounted.store(0, Relaxed);
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
    /// Maximum number of pages that a CPU counts for itself.
    batch: usize,
    /// Number of lazy pages, without those that CPUs count for themselves. It includes all pages that a
    /// purge has selected, so subtracting these does not wrap.
    total: CacheAligned<Atomic<usize>>,
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
            parts: PerCpu::with_len(mm::cpu_count().min(MAX_PARTS), Part::new)?,
            batch: batch(mm::cpu_count()),
            total: CacheAligned::new(Atomic::new(0)),
        })
    }

    /// Returns about how many pages are lazy: all but those that CPUs still count for themselves.
    pub(crate) fn estimate(&self) -> usize {
        // Relaxed: the count says when to purge, and orders nothing.
        self.total.load(Relaxed)
    }

    /// Returns the number of lazy pages, summed over all CPUs. Exact if nobody frees areas meanwhile.
    pub(crate) fn pages(&self) -> usize {
        // Relaxed: as in `estimate()`.
        let uncounted = self.parts.iter().map(|part| part.uncounted.load(Relaxed));
        uncounted.fold(self.estimate(), usize::wrapping_add)
    }

    /// Adds an area. Returns about how many pages are lazy.
    pub(crate) fn add(&self, area: Area<Lazy>) -> usize {
        // There always is one: a span is not empty.
        if let Some(span) = area.span() {
            let part = self.parts.here();
            part.add(area, span, self.batch, &self.total);
        }
        self.estimate()
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
            part.count(&self.total);
            let taken = lists.areas.take();
            plan.add(cover);
            plan.count(taken.len());
            areas = areas.wrapping_add(taken.len());
            lists.flushing.append(taken);
        }
        Snapshot { areas }
    }

    /// Returns the memory of the part of CPU `cpu`; [`None`] if several CPUs share it and another one is the
    /// first of them. Spins.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn memory_of_cpu(&self, cpu: usize) -> Option<[*const c_void; 2]> {
        let part = (self.parts.index(cpu) == cpu).then(|| self.parts.get(cpu))?;
        let lists = core::ptr::from_ref(&*part.lists.lock()).cast();
        Some([core::ptr::from_ref(part).cast(), lists])
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
        self.total.fetch_sub(pages, Relaxed);
    }
}

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[kernel::prelude::kunit_tests(vmap_rust_lazy)]
mod tests {
    use super::*;

    /// With any number of possible CPUs, of which any number is online.
    #[test]
    fn uncounted_pages_stay_below_a_quarter_of_the_limit() {
        for possible in 1_usize..=300 {
            for online in 1..=possible {
                // CAST: A logarithm fits in a `usize`.
                let fls = online.ilog2() as usize + 1;
                let limit = fls * ((32 << 20) / PAGE_SIZE);
                assert!(online * batch(possible) <= limit / 4);
            }
        }
        assert_eq!(batch(1), UNCOUNTED / PAGE_SIZE);
        assert_eq!(batch(4), UNCOUNTED / PAGE_SIZE / 2);
        assert_eq!(batch(0), batch(1));
    }
}
