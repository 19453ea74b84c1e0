// SPDX-License-Identifier: GPL-2.0

//! What has an entry of its own in the tree: areas that no block serves, areas at a common base, and blocks.
//!
//! A search for a gap and the store there must happen under one hold of the tree lock. If memory for the store can
//! be had only without the lock, the search is made again, because others may have changed the tree meanwhile.
//!
//! Freeing a range in the tree may need memory. Without memory, the area is *stuck* in a list until the next purge or
//! drain, so freeing an area never fails.

use super::prelude::*;

/// Maximum number of searches for one request. A search is repeated after memory was allocated without the
/// lock, because others may have changed the tree meanwhile.
pub(super) const MAX_RETRIES: u32 = 16;

/// Maximum number of removed blocks that wait for a grace period with one callback of RCU: about 1 MiB of memory.
const MOST_WAITING: usize = 64;

/// Maximum number of blocks that are freed with one store: each is looked up before, under the same hold of the lock.
/// More would hold it longer, fewer leave RCU more nodes of the tree to free.
pub(super) const MOST_AT_ONCE: usize = 16;

/// Removed blocks side by side, to be freed with one store.
struct Run {
    /// The range of all of them, [`None`] if there is none.
    span: Option<Span>,
    blocks: [Option<GraceBox<Block>>; MOST_AT_ONCE],
}

impl Run {
    /// Creates an empty run.
    const fn new() -> Self {
        Self {
            span: None,
            blocks: [const { None }; MOST_AT_ONCE],
        }
    }

    /// Adds a block. Returns it if it is not beside the others, or if there are too many.
    fn add(&mut self, block: GraceBox<Block>) -> Option<GraceBox<Block>> {
        let place = self.blocks.iter_mut().find(|place| place.is_none());
        let (Some(place), Some(span)) = (place, block.span()) else {
            return Some(block);
        };
        let run = self.span.unwrap_or(span);
        if self.span.is_some() && run.end() != span.first() && span.end() != run.first() {
            return Some(block);
        }
        self.span = Some(run.join(span));
        *place = Some(block);
        None
    }
}

impl<T: Tlb> Space<T> {
    /// Creates a block of `class`, and reserves the lowest free range of its size. Sleeps if `gfp` allows it.
    pub(super) fn new_block(&self, class: Class, gfp: Gfp) -> Result<Unpublished<Block>, Miss> {
        let size = class.block_size();
        let times = self.freed.may_have_gap(size).ok_or(Miss::NoRoom)?;
        // Allocate memory before the lock is taken.
        let flags = gfp.flags();
        let block = Block::new(class, self.tlb.is_randomized(), flags);
        let mut block = block.map_err(|_| Miss::NoMemory)?;
        let mut window = self.blocks.dir.window().ok_or(Miss::NoRoom)?;
        let mut table = self.table.lock();
        for _ in 0..MAX_RETRIES {
            // Try the lowest gap first: the gap that a freed block leaves has exactly this size.
            let span = lowest_gap_fit(&mut table, window, size, size)
                .or_else(|| lowest_fit(&mut table, window, size, size));
            let Some(span) = span else {
                self.freed.note_no_gap(&table, size, times);
                return Err(Miss::NoRoom);
            };
            if !self.blocks.dir.is_prepared(span.first()) {
                // Allocate memory without the lock. The gap may be taken meanwhile, so search again.
                drop(table);
                match self.blocks.dir.prepare(span.first(), flags) {
                    Ok(()) => {}
                    Err(EBUSY) => {
                        // There can be no block: search in parts where there can be.
                        let next = self.blocks.dir.next_usable(span.first());
                        window = next
                            .and_then(|next| Span::from_bounds(next, window.end()))
                            .ok_or(Miss::NoRoom)
                            .inspect_err(|_| {
                                self.freed.note_no_gap(&self.table.lock(), size, times)
                            })?;
                    }
                    Err(_) => return Err(Miss::NoMemory),
                }
                table = self.table.lock();
                continue;
            }
            match table.reserve_block(span) {
                Ok(()) => {
                    block.place_at(span.first());
                    return Ok(block);
                }
                Err(StoreError::Mismatch) => return Err(Miss::NoRoom),
                // The lock may have been dropped: search again.
                Err(StoreError::NoMemory) => {
                    if !table.nomem(gfp) {
                        return Err(Miss::NoMemory);
                    }
                }
            }
        }
        Err(Miss::NoMemory)
    }

    /// Serves a request from the lowest gap of the tree that fits. Sleeps if the request allows it.
    pub(super) fn reserve_gap(&self, req: &Request) -> Result<Area<Reserved>, Miss> {
        // A request that can never fit allocates nothing.
        if !can_fit(req.window, req.size, req.align) {
            return Err(Miss::NoRoom);
        }
        let mut area = Area::alloc(req.gfp, req.node).ok_or(Miss::NoMemory)?;
        // Areas of the kernel image and of modules have windows of their own. They are many in a region, and are looked
        // up often.
        let all_pages = req.window != self.home;
        let mut may_prepare = true;
        let mut table = self.table.lock();
        for _ in 0..MAX_RETRIES {
            let span = lowest_fit(&mut table, req.window, req.size, req.align);
            let span = span.ok_or(Miss::NoRoom)?;
            if core::mem::take(&mut may_prepare) && table.lacks(span, all_pages) {
                // Allocate memory without the lock. The gap may be taken meanwhile, so search again.
                drop(table);
                self.table.prepare(span, all_pages, req.gfp.flags());
                table = self.table.lock();
                continue;
            }
            area = match table.reserve(area, span) {
                Ok(area) => {
                    self.counters_here().alloc_tree.one();
                    return Ok(area);
                }
                Err((_, StoreError::Mismatch)) => {
                    mm::refuse("a gap is not free", &[span.first(), span.end()], &[]);
                    return Err(Miss::NoRoom);
                }
                Err((area, StoreError::NoMemory)) => area,
            };
            // The lock may have been dropped: search again.
            if !table.nomem(req.gfp) {
                break;
            }
        }
        Err(Miss::NoMemory)
    }

    /// Frees the range of a flushed area. Without memory for that, the next purge tries again. Spins.
    pub(super) fn give_back(&self, area: Area<Flushed>) {
        let result = self.try_give_back(&mut self.table.lock(), area);
        if let Err(area) = result {
            let mut areas = AreaList::new();
            areas.push(area);
            self.freed.add_stuck(areas);
        }
    }

    /// Frees the range of a flushed area. Returns the area if there is no memory for that.
    fn try_give_back(
        &self,
        table: &mut TableGuard<'_>,
        area: Area<Flushed>,
    ) -> Result<(), Area<Flushed>> {
        let counters = self.counters_here();
        match table.give_back(area) {
            Ok(area) => {
                drop(area);
                self.freed.times.add(1, Relaxed);
                counters.give_back.one();
                Ok(())
            }
            Err((area, StoreError::NoMemory)) => {
                counters.give_back_nomem.one();
                Err(area)
            }
            Err((area, StoreError::Mismatch)) => {
                mm::refuse(
                    "an area is not in the index",
                    &[area.span().map_or(0, Span::first)],
                    &[],
                );
                // Leak it: a range without an entry must not be reused. The drop reports the leak.
                drop(area);
                Ok(())
            }
        }
    }

    /// Frees the ranges of stuck areas until there is no memory for one. Returns how many. Spins; sleeps for memory if
    /// `gfp` allows it.
    pub(super) fn give_back_stuck(&self, gfp: Gfp, cause: Cause) -> usize {
        let mut areas = self.freed.take_stuck();
        let may_sleep = cause != Cause::Request || gfp.may_block();
        let most = if may_sleep { usize::MAX } else { MAX_ATOMIC };
        let mut given_back = 0_usize;
        while given_back < most {
            let Some(area) = areas.pop() else {
                break;
            };
            let mut table = self.lock_table(cause);
            let result = match self.try_give_back(&mut table, area) {
                Err(area) if gfp.may_block() && table.nomem(gfp) => {
                    self.try_give_back(&mut table, area)
                }
                result => result,
            };
            drop(table);
            if let Err(area) = result {
                areas.push(area);
                break;
            }
            given_back = given_back.wrapping_add(1);
            if may_sleep {
                mm::cond_resched();
            }
        }
        if !areas.is_empty() {
            self.freed.add_stuck(areas);
        }
        given_back
    }

    /// Returns the number of stuck areas.
    pub(crate) fn stuck(&self) -> usize {
        self.freed.stuck()
    }

    /// Locks the index for giving ranges back.
    fn lock_table(&self, cause: Cause) -> TableGuard<'_> {
        let mut table = self.table.lock();
        if cause == Cause::Reclaim {
            table.spare_reserves();
        }
        table
    }

    /// Removes an empty block from the pool, unless `all` only one above the number to keep. Spins; if `may_sleep`, also
    /// releases its KASAN shadow, and may sleep.
    fn remove_empty(&self, all: bool, may_sleep: bool) -> Option<GraceBox<Block>> {
        let block = self.blocks.remove_empty(all)?;
        if may_sleep {
            release_shadow(&block, &self.tlb);
            mm::cond_resched();
        }
        Some(block)
    }

    /// Frees empty blocks: all of them if `all`, else those above the number to keep, but at most `most`. Returns how many
    /// were freed. Spins; sleeps for memory if `gfp` allows it, and between two blocks if `may_sleep`.
    pub(super) fn free_blocks(
        &self,
        all: bool,
        most: usize,
        gfp: Gfp,
        may_sleep: bool,
        cause: Cause,
    ) -> usize {
        let mut freed = 0_usize;
        let mut blocks = GraceList::<Block>::new();
        let mut removed = core::iter::from_fn(|| self.remove_empty(all, may_sleep)).take(most);
        // A removed block that is not beside those of the run before.
        let mut next = None;
        loop {
            let mut run = Run::new();
            next = Iterator::chain(next.take().into_iter(), &mut removed)
                .find_map(|block| run.add(block));
            let Some(span) = run.span else {
                break;
            };
            let mut table = self.lock_table(cause);
            let mut result = table.free_blocks(span);
            if result == Err(StoreError::NoMemory) && gfp.may_block() && table.nomem(gfp) {
                result = table.free_blocks(span);
            }
            if result.is_ok() {
                self.freed.times.add(1, Relaxed);
                // Under the lock: afterwards another CPU may open a block here, and its event must come later.
                for block in run.blocks.iter().flatten() {
                    trace::block(
                        Event::Close,
                        block.start(),
                        block.class().block_size(),
                        block.class().number(),
                        block.links().owner(),
                    );
                }
            }
            drop(table);
            let counters = self.counters_here();
            if result == Err(StoreError::NoMemory) {
                counters.give_back_nomem.one();
                for block in Iterator::chain(run.blocks.into_iter(), [next]).flatten() {
                    self.blocks.restore(block);
                }
                break;
            }
            if result.is_err() {
                // The range stays reserved: it may be in use.
                mm::refuse("a block is not in the index", &[span.first()], &[]);
            }
            for block in run.blocks.into_iter().flatten() {
                blocks.push(block);
                counters.block_freed.one();
                freed = freed.wrapping_add(1);
                if freed % MOST_WAITING == 0 {
                    // RCU counts callbacks to see how much memory waits for it.
                    drop(core::mem::replace(&mut blocks, GraceList::new()));
                }
            }
            if may_sleep {
                mm::cond_resched();
            }
        }
        trace::drain(cause, freed);
        freed
    }
}
