// SPDX-License-Identifier: GPL-2.0

//! Cached ranges: each is kept for the next request of exactly its size.
//!
//! Freeing a range in the tree and searching for one are the expensive steps. A cached range needs
//! neither: its entry stays, and its object becomes busy again. A range that could not be freed for lack
//! of memory is cached as well, so freeing never fails.
//!
//! Each CPU has a part with cached ranges, of its own or shared with other CPUs, and a part has a list for
//! each size. The first of these lists is on the cache line of the lock, so that CPUs with ranges of one size
//! move only this line and the objects. A request uses the parts of other CPUs only if its own has no range
//! of the right size. It takes the locks of those parts alone that have one: a summary word for each group
//! of sizes has a bit for each part.
//!
//! A bit changes under the lock of its part, and requests read it without the lock, as they read the size in
//! the first list of their own part. If what they see is out of date, a request takes a lock in vain, or
//! searches the tree although a range was just cached.
//!
//! After each purge the cache holds at most [`limit`] pages. What is above is evicted by the CLOCK algorithm: a hand
//! goes round over the lists and takes the oldest range of each, but spares a list once if a request took a range
//! of it since the hand was there last. So sizes that are in use stay, and sizes that are not asked for again go.

use crate::{
    base::{
        cpu::CpuNumber,
        range::PAGE_SIZE, //
    },
    policy::cache_part::{
        group_of,
        Part,
        Summary,
        GROUPS,
        LISTS,
        MIXED, //
    },
    state::area::{
        Area,
        Cached, //
    },
    sys::{
        mm,
        per_cpu::{
            CacheAligned,
            PerCpu, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// Maximum number of parts, as in [`crate::policy::lazy`]; at most the number of bits of a summary word.
pub(super) const MAX_PARTS: usize = crate::policy::lazy::MAX_PARTS;

/// Maximum number of ranges that a request tries in vain because of their addresses, for example for lack
/// of alignment. They cost a cache miss each, with a lock held.
pub(super) const MAX_TRIES: usize = 16;

/// Bytes that stay cached after a purge, per power of two of the number of CPUs. A purge begins when
/// `lazy_max_pages()` in mm/vmalloc.c pages are lazy, a quarter as much: all requests until the next purge can be
/// served, also if that comes late. With half as much, a pair of 16 MiB takes 1.5 times as many instructions.
const KEPT: usize = 128 << 20;

/// Returns how many pages may be cached after a purge on a system with `cpus` CPUs.
pub(super) const fn limit(cpus: usize) -> usize {
    // CAST: A number of bits fits in a `usize`.
    KEPT / PAGE_SIZE * (usize::BITS - cpus.leading_zeros()) as usize
}

/// The CPU in whose lists a range was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Here,
    Elsewhere,
}

/// All cached ranges.
pub(crate) struct RangeCache {
    pub(super) parts: PerCpu<Part>,
    summary: CacheAligned<Summary>,
    /// Maximum number of pages after a purge.
    pub(super) limit: usize,
    /// The list at which the next eviction begins: its number among those of all parts. Purges alone use it, one at
    /// a time.
    hand: Atomic<usize>,
}

impl RangeCache {
    /// Creates an empty cache. After a purge it holds at most `most` pages, if the limit is not lower anyway.
    pub(crate) fn new(most: usize) -> Result<Self> {
        let mut cache = Self::for_cpus(mm::cpu_count())?;
        cache.limit = cache.limit.min(most);
        Ok(cache)
    }

    /// Creates an empty cache for `cpus` CPUs.
    pub(super) fn for_cpus(cpus: usize) -> Result<Self> {
        let mut bit = 1_usize;
        let parts = PerCpu::with_len(cpus.min(MAX_PARTS), |node| {
            let part = Part::new(node, bit);
            bit = bit.wrapping_shl(1);
            part
        })?;
        Ok(Self {
            parts,
            summary: CacheAligned::new([const { Atomic::new(0) }; GROUPS + 1]),
            limit: limit(cpus),
            hand: Atomic::new(0),
        })
    }

    /// Returns the memory of the part of CPU `cpu`; [`None`] if several CPUs share it and another one is the
    /// first of them. Spins.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) fn memory_of_cpu(&self, cpu: CpuNumber) -> Option<[*const c_void; 3]> {
        let part = (self.parts.sharer(cpu) == cpu).then(|| self.parts.get(cpu))?;
        Some(part.memory())
    }

    /// Returns the number of ranges. Reads a count of each part.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(Part::len).sum()
    }

    /// Returns the number of pages of all ranges. Reads a count of each part.
    pub(crate) fn pages(&self) -> usize {
        self.parts.iter().map(Part::pages).sum()
    }

    /// Returns whether there are more pages than may stay after a purge.
    pub(super) fn is_over_limit(&self) -> bool {
        self.pages() > self.limit
    }

    /// Takes out the oldest range of the next size that no request has used lately. Only one purge at a time.
    pub(super) fn evict(&self) -> Option<Area<Cached>> {
        // Relaxed: written by one purge at a time, and `vmap_purge_lock` is between two.
        let hand = self.hand.load(Relaxed);
        let (mut part, mut list) = (hand / LISTS, hand % LISTS);
        // A list is spared once: two rounds find any range.
        for _ in 0..=2 * self.parts.len().get() {
            let found = self
                .parts
                .get(CpuNumber::new(part))
                .evict(&mut list, &self.summary);
            if found.is_some() {
                self.hand.store(part * LISTS + list, Relaxed);
                return found;
            }
            part = part.wrapping_add(1) % self.parts.len();
            list = 0;
        }
        None
    }

    /// Checks the counts. Returns the number of ranges.
    pub(crate) fn validate(&self) -> Result<usize> {
        self.parts.iter().try_fold(0_usize, |total, part| {
            Ok(total.wrapping_add(part.validate(&self.summary)?))
        })
    }

    /// Adds a range to the part of CPU `cpu`, by default of this one.
    pub(crate) fn put(&self, area: Area<Cached>, cpu: Option<CpuNumber>) {
        let part = self.parts.get(cpu.unwrap_or_else(mm::cpu_hint));
        part.put(area, &self.summary);
    }

    /// Takes a range of `pages` pages that `fits`, of this CPU if it has one. Gives up after
    /// [`MAX_TRIES`] ranges of this size that do not fit.
    pub(crate) fn take(
        &self,
        pages: usize,
        fits: impl Fn(&Area<Cached>) -> bool,
    ) -> Option<(Area<Cached>, Place)> {
        self.take_at(mm::cpu_hint(), pages, fits)
    }

    /// Returns the parts that may have ranges of `pages` pages, as bits.
    pub(super) fn candidates(&self, pages: usize) -> usize {
        let groups = [group_of(pages), group_of(MIXED)];
        let words = groups.map(|group| self.summary.get(group));
        // Relaxed: a stale bit costs a search or a lock.
        let words = words.into_iter().flatten().map(|word| word.load(Relaxed));
        words.fold(0, |parts, word| parts | word)
    }

    /// [`RangeCache::take`] on CPU `cpu`.
    pub(super) fn take_at(
        &self,
        cpu: CpuNumber,
        pages: usize,
        fits: impl Fn(&Area<Cached>) -> bool,
    ) -> Option<(Area<Cached>, Place)> {
        let here = self.parts.sharer(cpu);
        let mut tries = MAX_TRIES;
        let own = self.parts.get(here);
        let is_own_first = own.has_first(pages);
        if is_own_first {
            // Without the summary, which others change.
            if let Some(area) = own.take(pages, &mut tries, &fits, &self.summary) {
                return Some((area, Place::Here));
            }
        }
        // Begin with this part. CPUs with other numbers begin elsewhere, so they take other locks first.
        // CAST: It is less than the number of bits, which is a `u32`.
        let mut left = self.candidates(pages).rotate_right(here.number() as u32);
        if is_own_first {
            left &= !1;
        }
        while left != 0 && tries != 0 {
            // CAST: A number of bits fits in a `usize`.
            let step = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            let part = here.number().wrapping_add(step) % MAX_PARTS;
            let part = self.parts.get(CpuNumber::new(part));
            if let Some(area) = part.take(pages, &mut tries, &fits, &self.summary) {
                let place = match step {
                    0 => Place::Here,
                    _ => Place::Elsewhere,
                };
                return Some((area, place));
            }
        }
        None
    }

    /// Adds the range again that a sweep took out last.
    pub(crate) fn put_back(&self, area: Area<Cached>, sweep: &Sweep) {
        self.put(area, Some(CpuNumber::new(sweep.part)));
    }

    /// Takes out the next range of a sweep.
    pub(crate) fn sweep(&self, sweep: &mut Sweep) -> Option<Area<Cached>> {
        while sweep.part < self.parts.len().get() {
            let part = self.parts.get(CpuNumber::new(sweep.part));
            if let Some(area) = part.sweep(sweep, &self.summary) {
                return Some(area);
            }
            *sweep = Sweep {
                part: sweep.part.wrapping_add(1),
                ..Sweep::default()
            };
        }
        None
    }
}

/// The position of a sweep over all lists. It takes at most as many ranges of a list as the list had when
/// the sweep reached it, so it ends even if all of them are added again.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Number of parts that are done.
    part: usize,
    /// Number of lists of the current part that are done.
    pub(super) list: usize,
    /// Number of ranges of the current list still to take.
    pub(super) left: Option<usize>,
}
