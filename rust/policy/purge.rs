// SPDX-License-Identifier: GPL-2.0

//! From the end of an area to its free range: areas become lazy, a purge flushes the TLBs for all of them, and then
//! their slots and ranges are free again.
//!
//! A purge also frees empty blocks that are no longer needed.

use super::prelude::*;

impl<T: Tlb> Space<T> {
    /// Makes an unmapped area lazy. Returns about how many pages are lazy; 0, so that no purge begins, if
    /// this CPU has counted only few since it was asked last. Takes no lock for an area of a block.
    #[inline(always)]
    pub(crate) fn retire(&self, area: UnlinkedArea<'_>) -> usize {
        match area.retire() {
            Ok(pages) => match self.blocks.retired(pages) {
                0 => 0,
                lazy => lazy.wrapping_add(self.tree.lazy_pages()),
            },
            Err(area) => self.retire_in_tree(area),
        }
    }

    #[inline(never)]
    fn retire_in_tree(&self, area: Area<Unlinked>) -> usize {
        self.counters_here().retire_tree.one();
        let pages = self.tree.retire(area);
        pages.wrapping_add(self.blocks.lazy_estimate())
    }

    /// Flushes all areas retired before the call, and `also`, and frees these areas. Frees all empty blocks, too, if
    /// `drain`. Returns how many areas were flushed; if 0, nothing was flushed.
    /// Sleepable context, with `vmap_purge_lock` held.
    pub(crate) fn purge(&self, also: Option<Span>, drain: bool) -> usize {
        self.free_stuck(Gfp::NOWAIT, Cause::Purge);
        let mut plan = Plan::new(&self.blocks.dir, &self.tlb);
        self.blocks.reset_lazy();
        plan.take_slots();
        if self.tree.lazy_pages() != 0 {
            plan.add_list(self.tree.take_lazy());
        }
        let (areas, in_tree) = plan.areas();
        let mut has_surplus = false;
        // Flush nothing if there is nothing: vm_unmap_aliases() comes with every change of page attributes, and mostly
        // finds nothing to flush.
        if !plan.is_empty() {
            if let Some(also) = also {
                plan.add(also);
            }
            let began = trace::purge_clock();
            let (cover, slot_pages) = (plan.cover(), plan.slot_pages());
            // Relaxed: for users, who see no order.
            self.blocks.lazy.flushing.store(slot_pages, Relaxed);
            let flushed = plan.flush();
            let counters = self.counters_here();
            counters.purge.one();
            counters.purge_areas.add(areas);
            let pages = self.free_flushed(flushed);
            trace::purge(began, cover, areas, in_tree, slot_pages.wrapping_add(pages));
            let mut pool = self.blocks.pool.lock();
            has_surplus = pool.end_purge();
            drop(pool);
        }
        if drain {
            self.blocks.return_current(true, &Block::is_empty);
            self.free_blocks(usize::MAX, Gfp::NOWAIT, Cause::Purge);
        } else if has_surplus {
            self.free_blocks(usize::MAX, Gfp::NOWAIT, Cause::Trim);
        }
        areas
    }

    /// Frees what a purge has taken and flushed. Returns the number of pages of areas that are in no block.
    fn free_flushed(&self, mut flushed: FlushedPlan<'_, T>) -> usize {
        flushed.release_shadow();
        let areas = flushed.take_list();
        flushed.free_slots(|block, count| {
            let mut pool = self.blocks.pool();
            pool.pool.purged(block.class(), count);
            pool.update(block);
        });
        self.blocks.lazy.flushing.store(0, Relaxed);
        self.tree.free_flushed(areas, &self.blocks.cpus)
    }
}
