// SPDX-License-Identifier: GPL-2.0

//! The allocator: an address space with all its areas, the order in which blocks and the tree are asked to serve a request,
//! and the end of an area: it becomes lazy, a purge flushes the TLBs for all lazy ones, and their slots and ranges are free.
//!
//! The other operations of [`Space`] are in `supply`, `congruent`, `lookup`, and for debugging `listing` and `validate`.
//!
//! No unsafe code: `vmap_rust.rs` forbids it for this folder.

pub(crate) mod blocks;
mod congruent;
mod kept;
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
#[path = "../check/listing.rs"]
pub(crate) mod listing;
mod lookup;
pub(crate) mod pool;
mod supply;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[path = "../check/tests/policy.rs"]
mod tests;
mod tree;
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
#[path = "../check/validate.rs"]
pub(crate) mod validate;

use prelude::*;

/// What the modules of this layer and of those below offer.
pub(crate) mod prelude {
    pub(super) use super::MAX_ATOMIC;
    pub(crate) use super::{
        blocks::*,
        pool::*,
        tree::*,
        Options,
        Request,
        Space, //
    };
    pub(crate) use crate::state::prelude::*;
}

/// How often a request takes another block when tasks that moved to another CPU have used up the one before.
const MAX_REFILLS: u32 = 4;

/// Maximum number of empty blocks, and of stuck areas, that a request without sleeping frees to make room. It looks at the
/// current blocks of as many CPUs, and takes at most as many of them.
const MAX_ATOMIC: usize = 32;

/// A request for an area.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// The addresses where the area may be.
    pub(crate) window: Span,
    /// Size in bytes, a multiple of [`PAGE_SIZE`].
    pub(crate) size: usize,
    /// Alignment in bytes, a power of two.
    pub(crate) align: usize,
    /// Whether [`Space::alloc_current`] has just found no slot for the request. A wrong value costs time only: the current
    /// block is asked in vain once more, or the pool is locked although that block has room, and keeps it current.
    pub(crate) fast_path_failed: bool,
    /// For metadata.
    pub(crate) gfp: Gfp,
    /// NUMA node of the metadata, or -1 for any node.
    pub(crate) node: i32,
}

/// How a space serves requests.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    /// The most that all blocks together have, in blocks of the smallest size; [`None`] for a share of the space.
    pub(crate) limit: Option<usize>,
    /// Whether the placement of areas in their blocks is randomised.
    pub(crate) is_randomized: bool,
}

/// An address space and all areas in it.
pub(crate) struct Space<T: Tlb> {
    tree: Tree,
    blocks: Blocks,
    tlb: T,
    /// Blocks serve only requests for exactly this window.
    home: Span,
    options: Options,
}

impl<T: Tlb> Space<T> {
    /// Creates an empty space. Blocks, if `home` is large enough for them, serve requests for `home`. `ENOMEM` without memory.
    pub(crate) fn new(home: Span, tlb: T, options: Options) -> Result<Self> {
        Ok(Self {
            tree: Tree::new(home)?,
            blocks: Blocks::new(home, options.limit)?,
            tlb,
            home,
            options,
        })
    }

    /// Reserves a range and makes it a busy area with these attributes. Fails with `ENOMEM` without memory for metadata, with
    /// `EBUSY` without room. Sleeps only if the request's flags allow it.
    #[inline(always)]
    pub(crate) fn alloc(&self, req: &Request, attributes: Attributes) -> Result<Busy> {
        // Blocks lie anywhere in `home`: a request with a window of its own must not get a range outside it.
        let area = match self.blocks.class_of(req.size, req.align) {
            Some(class) if self.is_for_home(req) => self.reserve_by_class(req, class),
            _ => self.reserve_in_tree(req, None),
        };
        area?.busy(attributes).ok_or(EBUSY)
    }

    #[inline(always)]
    fn is_for_home(&self, req: &Request) -> bool {
        req.window == self.home
    }

    /// Serves a request for `size` bytes at a multiple of `align`, a power of two, anywhere in the space, if the current
    /// block of this CPU can. [`None`] if not, also for bad arguments. Takes no lock of the allocator. Not in NMIs, nor in
    /// interrupts with PREEMPT_RT.
    #[inline(always)]
    pub(crate) fn alloc_current(
        &self,
        size: usize,
        align: usize,
        attributes: Attributes,
    ) -> Option<Busy> {
        self.claim_current(size, align, |slot| slot.occupy(attributes))
    }

    /// [`Space::alloc_current`] with the `vm_struct` that has stayed with the slot. [`None`], too, if none has that is large
    /// enough.
    #[inline(always)]
    pub(crate) fn reuse_current(&self, size: usize, align: usize, new: VmFields) -> Option<Busy> {
        self.claim_current(size, align, |slot| slot.reuse(new))
    }

    #[inline(always)]
    fn claim_current(
        &self,
        size: usize,
        align: usize,
        take: impl FnOnce(Claimed<'_>) -> Option<Busy>,
    ) -> Option<Busy> {
        let class = self.blocks.class_of(size, align)?;
        // `Space::alloc()` says what is wrong with another alignment.
        if align & align.wrapping_sub(1) != 0 {
            return None;
        }
        self.blocks.claim(class, size, take)
    }

    /// Reserves a slot of `class` in the current block of this CPU.
    #[inline(never)]
    fn reserve_in_block(&self, class: Class, size: usize) -> Option<Area<Reserved>> {
        self.blocks.claim(class, size, |slot| slot.reserve())
    }

    /// Serves a request of `class` from the current block of this CPU, or from one of the pool, or from a new one, or from the
    /// tree.
    #[inline(never)]
    fn reserve_by_class(&self, req: &Request, class: Class) -> Result<Area<Reserved>> {
        for refills in u32::from(req.fast_path_failed)..=MAX_REFILLS {
            if refills > 0 && !self.refill(class, Source::Pool, req.gfp) {
                break;
            }
            if let Some(area) = self.reserve_in_block(class, req.size) {
                return Ok(area);
            }
        }
        self.reserve_in_tree(req, Some(class))
    }

    /// Serves a request from a gap of the tree.
    fn reserve_gap(&self, req: &Request) -> Result<Area<Reserved>> {
        // Areas of modules have windows of their own. They are many in a region, and are looked up often.
        let all_pages = !self.is_for_home(req);
        let area = match self.tree.reserve_kept(req, all_pages) {
            Some(area) => area,
            None => self.tree.reserve(req, all_pages)?,
        };
        self.blocks.counters_here().alloc_tree.one();
        Ok(area)
    }

    /// Serves a request from a gap of the tree. If there is none, one of `class` from blocks of other CPUs.
    #[inline(never)]
    fn reserve_in_tree(&self, req: &Request, class: Option<Class>) -> Result<Area<Reserved>> {
        let times = self.tree.times_freed();
        let result = match self.reserve_gap(req) {
            Err(EBUSY) => self.reserve_without_room(req, class, times),
            // Without memory, blocks of other CPUs are left alone.
            result => result,
        };
        result.inspect_err(|&err| self.refused(req.size, req.align, req.window, req.gfp, err))
    }

    /// Counts and traces a request that gets no area.
    fn refused(&self, size: usize, align: usize, window: Span, gfp: Gfp, error: Error) {
        let counters = self.blocks.counters_here();
        if error == EBUSY {
            counters.no_room.one()
        } else {
            counters.no_memory.one()
        }
        trace::refuse(size, align, window, gfp, error);
    }

    /// Serves a request for which there was no gap: from any block with a large enough slot, or from what a drain frees, here
    /// or on another CPU. `times` is [`Tree::times_freed`] before the search.
    #[cold]
    #[inline(never)]
    fn reserve_without_room(
        &self,
        req: &Request,
        class: Option<Class>,
        times: usize,
    ) -> Result<Area<Reserved>> {
        // Larger classes serve the request, too, if their slots have its alignment.
        let pages = (req.align / PAGE_SIZE).max(1);
        let fits = |class: &Class| is_aligned(class.slot_pages(), pages);
        let serves = |block: &Block, class: Class| {
            let of = block.class();
            of.slot_pages() >= class.slot_pages() && fits(&of) && !block.is_full()
        };
        let window = req.window.clip(self.home);
        let may_help = window.is_some_and(|window| can_fit(window, req.size, req.align));
        if may_help {
            let may_sleep = req.gfp.may_block();
            self.blocks.return_current(may_sleep, &|block| {
                block.is_empty() || class.is_some_and(|class| serves(block, class))
            });
        }
        let larger = class.map(|class| self.blocks.classes_from(class));
        for class in larger.into_iter().flatten().filter(fits) {
            for _ in 0..MAX_REFILLS {
                if !self.blocks.refill_from_pool(class, Source::Anyone) {
                    break;
                }
                if let Some(area) = self.reserve_in_block(class, req.size) {
                    return Ok(area);
                }
            }
        }
        if may_help {
            self.drain(req.gfp);
        } else {
            // A stuck or a kept area may be anywhere.
            self.free_kept(usize::MAX, req.gfp, Cause::Request);
        }
        // Another CPU may have taken all that could be freed. If it has not freed it by now, this request fails.
        if self.tree.times_freed() == times {
            return Err(EBUSY);
        }
        self.reserve_gap(req)
    }

    /// Makes an unmapped area lazy. Returns about how many pages are lazy; 0, so that no purge begins, if the area waits in the
    /// batch of this CPU. Takes locks if it does not.
    #[inline(always)]
    pub(crate) fn retire(&self, area: UnlinkedArea<'_>) -> usize {
        match area.retire() {
            Ok(None) => 0,
            Ok(Some(noted)) => {
                let lazy = self.blocks.noted(noted);
                lazy.wrapping_add(self.tree.lazy_pages())
            }
            // No failure: the area is in no block.
            Err(area) => self.retire_in_tree(area),
        }
    }

    #[inline(never)]
    fn retire_in_tree(&self, area: Area<Unlinked>) -> usize {
        self.blocks.counters_here().retire_tree.one();
        let pages = self.tree.retire(area);
        // Relaxed: the count says when to purge, and orders nothing.
        pages.wrapping_add(self.blocks.lazy.retired.read_once())
    }

    /// Flushes all areas retired before the call, and `also`, and frees these areas. Frees all empty blocks, too, if
    /// `drain`. Returns how many areas were flushed; if 0, nothing was flushed.
    /// Sleepable context, with `vmap_purge_lock` held.
    pub(crate) fn purge(&self, also: Option<Span>, drain: bool) -> usize {
        self.free_stuck(Gfp::NOWAIT, Cause::Purge);
        let mut plan = Plan::new(&self.blocks.dir, &self.tlb);
        let retired = &self.blocks.lazy.retired;
        // Relaxed: the count orders nothing. Retires read it, so do not store the same value.
        if retired.read_once() != 0 {
            retired.write_once(0);
        }
        plan.take_slots();
        if self.tree.lazy_pages() != 0 {
            plan.add_list(self.tree.take_lazy());
        }
        let (areas, in_tree) = plan.areas();
        // Flush nothing if there is nothing: vm_unmap_aliases() comes with every change of page attributes, and mostly
        // finds nothing to flush.
        if !plan.is_empty() {
            if let Some(also) = also {
                plan.add(also);
            }
            let began = trace::purge_clock();
            let (cover, slot_pages) = (plan.cover(), plan.slot_pages());
            // Relaxed: for users, who see no order.
            self.blocks.lazy.flushing.write_once(slot_pages);
            // Relaxed: only purges use it, one at a time.
            let has_surplus = self.blocks.lazy.has_surplus.read_once() != 0;
            let removed =
                has_surplus.then(|| self.remove_blocks(usize::MAX, Gfp::NOWAIT, Cause::Trim));
            plan.take_tables();
            let flushed = plan.flush();
            let counters = self.blocks.counters_here();
            counters.purge.one();
            counters.purge_areas.add(areas);
            self.count_tables(flushed.tables());
            let pages = self.free_flushed(flushed);
            trace::purge(began, cover, areas, in_tree, slot_pages.wrapping_add(pages));
            let (mut has_surplus, idle) = self.blocks.pool.lock().end_purge();
            if idle != ClassSet::EMPTY {
                let is_idle = |block: &Block| block.is_empty() && idle.contains(block.class());
                self.blocks.return_current(true, &is_idle);
                has_surplus = true;
            }
            self.blocks.lazy.has_surplus.write_once(has_surplus.into());
            if let Some(removed) = removed {
                let freed = self.free_removed(removed, Gfp::NOWAIT, Cause::Trim);
                trace::drain(Cause::Trim, freed);
            }
        }
        if drain {
            self.free_kept(usize::MAX, Gfp::NOWAIT, Cause::Purge);
            self.blocks.return_current(true, &Block::is_empty);
            self.free_blocks(usize::MAX, Gfp::NOWAIT, Cause::Purge);
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
        self.blocks.lazy.flushing.write_once(0);
        self.tree.free_flushed(areas, &self.blocks.cpus)
    }

    /// Counts and traces page tables that were freed.
    pub(super) fn count_tables(&self, tables: usize) {
        if tables != 0 {
            self.blocks.counters_here().tables_freed.add(tables);
            trace::tables(tables);
        }
    }

    /// Returns the space: with a checker, it is inside another one.
    #[cfg(all(CONFIG_VMAP_RUST, not(CONFIG_VMAP_RUST_DEBUG)))]
    #[inline(always)]
    pub(crate) fn space(&self) -> &Self {
        self
    }

    /// Returns the number of empty blocks, and of stuck and kept areas, which reclaim can free.
    pub(crate) fn reclaimable(&self) -> usize {
        let empty = self.blocks.pool.lock().empty();
        empty
            .wrapping_add(self.tree.stuck())
            .wrapping_add(self.tree.kept())
    }

    pub(crate) fn stuck(&self) -> usize {
        self.tree.stuck()
    }

    pub(crate) fn kept(&self) -> usize {
        self.tree.kept()
    }

    /// Returns the number of lazy pages. Sleepable context.
    pub(crate) fn lazy_pages(&self) -> usize {
        self.blocks
            .lazy_pages()
            .wrapping_add(self.tree.lazy_pages())
    }

    /// Returns how many blocks exist, are partial, and are empty.
    pub(crate) fn blocks(&self) -> PoolCensus {
        self.blocks.pool.lock().census()
    }

    /// Returns the sums of the counters of all CPUs.
    pub(crate) fn counters(&self) -> Counters<usize> {
        let mut totals = Counters::default();
        for cpu in self.blocks.cpus.iter() {
            totals.add(&cpu.counters);
        }
        totals.retire_block = self.blocks.dir.retired();
        totals
    }
}
