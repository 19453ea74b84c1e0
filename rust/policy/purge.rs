// SPDX-License-Identifier: GPL-2.0

//! From the end of an area to its free range: areas become lazy, a purge flushes the TLBs for all of them, and then
//! their ranges are free again, cached, or back in their blocks.
//!
//! A purge also trims cached ranges and empty blocks.

use crate::{
    base::{
        cpu::CpuNumber,
        range::{
            Span,
            PAGE_SIZE, //
        }, //
    },
    policy::{
        drain::Budget,
        space::Space, //
    },
    state::{
        area::{
            Area,
            AreaList,
            Flushed,
            NeverMapped,
            Unlinked, //
        },
        flush::{
            FlushedPlan,
            Plan, //
        }, //
    },
    sys::{
        mm::{
            self,
            Tlb, //
        },
        trace, //
    }, //
};

/// Freed areas handled between two calls of `cond_resched()`.
const BATCH: usize = 32;

/// Maximum size of a cached range in pages: 32 MiB with 4 KiB pages.
const MAX_CACHED: usize = 8192;

impl<T: Tlb> Space<T> {
    /// Makes an unmapped area lazy. Returns about how many pages are lazy; 0, so that no purge begins, if
    /// this CPU has counted only few since it was asked last. Takes no lock for an area of a block.
    pub(crate) fn retire(&self, area: Area<Unlinked>) -> usize {
        let cpu = self.cpus.here();
        if area.is_in_block() {
            return match self.blocks.retire(cpu, area) {
                0 => 0,
                pages => pages.wrapping_add(self.lazy.estimate()),
            };
        }
        self.retire_large(area)
    }

    #[inline(never)]
    fn retire_large(&self, area: Area<Unlinked>) -> usize {
        self.cpus.here().counters.retire_tree.one();
        self.lazy
            .add(area.retire())
            .wrapping_add(self.blocks.lazy_estimate())
    }

    /// Frees an area that was never mapped.
    pub(crate) fn release(&self, area: Area<Unlinked>, proof: NeverMapped) {
        self.cpus.here().counters.release.one();
        if area.is_in_block() {
            self.blocks.release(&self.cpus, area, proof);
        } else {
            self.put_back(&mut self.table.lock(), area.never_mapped(proof));
        }
    }

    /// Flushes all areas retired before the call, and `also`, and frees these areas. Drains cached ranges
    /// and empty blocks too if `drain`. Returns how many areas were flushed; if 0, nothing was flushed.
    /// Sleepable context, with `vmap_purge_lock` held.
    pub(crate) fn purge(&self, also: Option<Span>, drain: bool) -> usize {
        let mut plan = Plan::new();
        let is_representative = self.blocks.snapshot(&self.cpus, &mut plan);
        let large = self.lazy.snapshot(&mut plan);
        if plan.is_empty() {
            // Flush nothing: vm_unmap_aliases() comes with every change of page attributes, and mostly
            // finds nothing to flush.
            if drain {
                self.give_back_all(Budget::ALL);
            }
            return 0;
        }
        let purged = plan.areas();
        if let (Some(also), true) = (also, purged > 0) {
            plan.add(also);
        }
        let trace = trace::Purge::begin(plan.cover(), purged, large);
        let block_pages = plan.block_pages();
        let flushed = plan.flush(&self.tlb);
        if purged > 0 {
            let counters = &self.cpus.here().counters;
            counters.purge.one();
            counters.purge_areas.add(purged);
        }
        let pages = self.free_flushed(flushed, drain);
        self.blocks.end_purge(is_representative);
        if drain {
            self.give_back_all(Budget::ALL);
        } else {
            self.trim();
        }
        trace.end(block_pages.wrapping_add(pages));
        purged
    }

    /// Frees or caches what a purge has taken and flushed. Returns the number of pages of areas that are in no block.
    fn free_flushed(&self, mut flushed: FlushedPlan, drain: bool) -> usize {
        let pages = flushed.take_pages();
        let mut clean = AreaList::new();
        if let (true, Some(cover)) = (self.tlb.has_shadow(), flushed.cover()) {
            if let Some(pages) = &pages {
                self.blocks.release_shadow(pages, &self.tlb);
            }
            for part in 0..self.lazy.parts() {
                let mut areas = flushed.take_list(part);
                while let Some(area) = areas.pop() {
                    if let Some(span) = area.span() {
                        self.tlb.release_shadow(span);
                    }
                    clean.push(area);
                    mm::cond_resched();
                }
            }
            self.tlb.flush_shadow(cover);
        }
        if let Some(pages) = pages {
            self.blocks.free(&self.cpus, pages);
        }
        let mut pages = self.free_areas(clean, None, drain);
        for part in 0..self.lazy.parts() {
            let cpu = Some(CpuNumber::new(part));
            let more = self.free_areas(flushed.take_list(part), cpu, drain);
            pages = pages.wrapping_add(more);
        }
        pages
    }

    /// Frees areas, or caches their ranges at CPU `cpu`, by default at this one. Returns the number of their pages.
    fn free_areas(
        &self,
        mut areas: AreaList<Flushed>,
        cpu: Option<CpuNumber>,
        drain: bool,
    ) -> usize {
        let mut all_pages = 0_usize;
        areas.prefetch();
        while !areas.is_empty() {
            let mut pages = 0_usize;
            let mut large = AreaList::new();
            for _ in 0..BATCH {
                let Some(area) = areas.pop() else {
                    break;
                };
                areas.prefetch();
                pages = pages.wrapping_add(area.pages());
                if !drain && self.is_cacheable(&area) {
                    self.keep(area, cpu);
                } else {
                    large.push(area);
                }
            }
            self.lazy.freed(pages);
            all_pages = all_pages.wrapping_add(pages);
            while let Some(area) = large.pop() {
                // One store for each hold of the lock: it can take thousands of instructions.
                self.put_back(&mut self.table.lock(), area);
                mm::cond_resched();
            }
            mm::cond_resched();
        }
        all_pages
    }

    /// Returns whether the range of `area` is cached: if requests for all of `home` could use it, and blocks do not serve
    /// them. The others come from requests with a window of their own, which no cached range serves: cached, they would
    /// fill the window.
    fn is_cacheable(&self, area: &Area<Flushed>) -> bool {
        let pages = area.pages();
        pages <= MAX_CACHED
            && area.span().is_some_and(|span| self.home.covers(span))
            && self
                .blocks
                .small(pages.wrapping_mul(PAGE_SIZE), PAGE_SIZE)
                .is_none()
    }
}
