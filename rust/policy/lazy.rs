// SPDX-License-Identifier: GPL-2.0

//! Lazy areas with an entry of their own: unmapped, but perhaps still in a TLB.
//!
//! Flushing the TLBs of all CPUs is expensive, so lazy areas are collected and flushed together.
//! [`LazySet::snapshot`] takes out the areas of a purge, and adds them to the plan of what it flushes.
//!
//! The set has a part for each CPU, so that CPUs that free areas do not contend, and a freed range is
//! cached for the CPU that freed it. If there are more than [`MAX_PARTS`] CPUs, several share a part: large
//! areas reach the limit of lazy pages after a few frees, so with many parts a purge would visit more parts
//! than it finds areas.

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
use crate::base::cpu::CpuNumber;
use crate::{
    base::range::PAGE_SIZE,
    state::{
        area::{
            Area,
            Lazy, //
        },
        flush::{
            Plan,
            MAX_LISTS, //
        },
        list::{
            LazyArea,
            LazyList, //
        }, //
    },
    sys::{
        lock::Locked,
        mm::{
            self,
            Node, //
        },
        per_cpu::{
            CacheAligned,
            PerCpu, //
        }, //
    }, //
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
pub(crate) const MAX_PARTS: usize = MAX_LISTS;

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

/// What others read of a part without its lock.
struct Counts {
    /// Number of areas in the list. A purge reads it to skip CPUs that have freed nothing.
    len: Atomic<usize>,
    /// Pages that are not yet in the total of all CPUs.
    uncounted: Atomic<usize>,
}

/// The areas that one CPU has freed: one cache line, so that freeing an area moves only this one from a CPU
/// that shares the part.
struct Part(Locked<LazyList, Counts>);

impl Part {
    fn new(node: Node) -> Result<Self> {
        let counts = Counts {
            len: Atomic::new(0),
            uncounted: Atomic::new(0),
        };
        let name = c"vmap_rust lazy";
        let list = Locked::with_beside(node, LazyList::EMPTY, counts, name, static_lock_class!())?;
        Ok(Self(list))
    }

    /// Returns whether there are no areas. The caller sees areas that were retired before it began.
    fn is_empty(&self) -> bool {
        // Relaxed: the order between a retire and a later purge comes from their callers.
        self.0.beside().len.load(Relaxed) == 0
    }

    /// Returns the number of pages that are not yet in the total of all CPUs.
    fn uncounted(&self) -> usize {
        // Relaxed: written only under the lock; without it, an estimate.
        self.0.beside().uncounted.load(Relaxed)
    }

    /// Adds an area. Adds what this CPU has counted to `total` once it is `batch` pages.
    fn add(&self, area: LazyArea, batch: usize, total: &Atomic<usize>) {
        let mut list = self.0.lock();
        let pages = area.span().size() / PAGE_SIZE;
        list.push_first(area);
        let counts = self.0.beside();
        // Relaxed: both counts are written only under the lock.
        counts.len.store(list.len(), Relaxed);
        let uncounted = self.uncounted().wrapping_add(pages);
        counts.uncounted.store(uncounted, Relaxed);
        if uncounted >= batch {
            self.count(total);
        }
    }

    /// Adds what this CPU has counted to `total`. The caller holds the lock.
    fn count(&self, total: &Atomic<usize>) {
        // Relaxed: the count says when to purge, and orders nothing.
        total.fetch_add(self.uncounted(), Relaxed);
        self.0.beside().uncounted.store(0, Relaxed);
    }

    /// Takes all areas, if there are some, and adds what was counted of them to `total`.
    fn take(&self, total: &Atomic<usize>) -> Option<LazyList> {
        if self.is_empty() {
            return None;
        }
        let mut list = self.0.lock();
        self.count(total);
        // Relaxed: written only under the lock.
        self.0.beside().len.store(0, Relaxed);
        Some(list.take())
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
        let uncounted = self.parts.iter().map(Part::uncounted);
        uncounted.fold(self.estimate(), usize::wrapping_add)
    }

    /// Adds an area. Returns about how many pages are lazy.
    pub(crate) fn add(&self, area: Area<Lazy>) -> usize {
        if let Some(area) = LazyArea::new(area) {
            self.parts.here().add(area, self.batch, &self.total);
        }
        self.estimate()
    }

    /// Moves all areas that were added before the call to `plan`, those of each part as a list of their own.
    /// Only one purge at a time. Returns how many they are.
    pub(crate) fn snapshot(&self, plan: &mut Plan) -> usize {
        let mut areas = 0_usize;
        let some = self.estimate() > 0;
        for (index, part) in self.parts.iter().enumerate() {
            if some {
                // Mostly it has areas, so that its lock is taken next.
                part.0.prefetch();
            }
            if let Some(list) = part.take(&self.total) {
                areas = areas.wrapping_add(list.len());
                plan.add_list(index, list);
            }
        }
        plan.count(areas);
        areas
    }

    /// Returns the memory of the part of CPU `cpu`; [`None`] if several CPUs share it and another one is the
    /// first of them. Spins.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn memory_of_cpu(&self, cpu: CpuNumber) -> Option<[*const c_void; 2]> {
        let part = (self.parts.sharer(cpu) == cpu).then(|| self.parts.get(cpu))?;
        let lists = core::ptr::from_ref(&*part.0.lock()).cast();
        Some([core::ptr::from_ref(part).cast(), lists])
    }

    /// Returns the number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len().get()
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
