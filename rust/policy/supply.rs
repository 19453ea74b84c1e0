// SPDX-License-Identifier: GPL-2.0

//! The supply of blocks: new ones when those of a class are full, and the way of empty ones back to the tree.
//!
//! ```text
//! reserve (count) - new block - range in the tree - adopt: in the directory, and current
//! empty, in the pool - removed from the directory - erased from the tree - grace period - freed
//! ```
//!
//! A block is removed from the directory before its range is erased. If there is no memory for that, it is inserted again.

use super::prelude::*;

/// Maximum number of removed blocks that wait for a grace period with one callback of RCU: about 1 MiB of memory.
const MOST_WAITING: usize = 64;

impl Blocks {
    /// Counts a new block of `class`, if the limits allow it. `others` is the number of bytes of areas that are in no block.
    pub(crate) fn reserve(&self, class: Class, others: usize) -> bool {
        // A space that is nearly full has fewer, but not fewer than a small space.
        let limit = self.share_of.map_or(self.limit, |size| {
            let share = size.saturating_sub(others) / SHARE;
            self.limit.min(share.max(LEAST_BLOCKS * SIZE / SHARE))
        });
        self.pool.lock().reserve(class, limit)
    }

    /// Inserts a new block, and makes it the current block of this CPU. Returns whether that worked. Takes the pool lock.
    pub(crate) fn adopt(&self, block: Placed) -> bool {
        let group = self.group(block.class());
        // It is held, so no other CPU takes it.
        block.links().set_owner(group);
        let class = block.class();
        let rcu = Guard::new();
        let number = self.dir.insert(block).ok();
        let Some(block) = number.and_then(|number| self.dir.block(number, &rcu)) else {
            // Cannot happen: it has its part of the directory, and no other CPU removes it.
            self.pool.lock().unreserve(class);
            return false;
        };
        let mut pool = self.pool();
        pool.hold(block);
        self.make_current(&mut pool, group, block, Event::Open);
        self.counters_here().block_new.one();
        true
    }

    /// Inserts a block again that [`PoolGuard::remove_empty`] has taken out. Takes the pool lock.
    pub(crate) fn restore(&self, removed: Placed) {
        let class = removed.class();
        let rcu = Guard::new();
        if let Ok(number) = self.dir.insert(removed) {
            let mut pool = self.pool();
            pool.pool.count(class);
            if let Some(block) = self.dir.block(number, &rcu) {
                pool.put(block);
            }
        }
    }
}

impl<T: Tlb> Space<T> {
    /// Makes a block of the pool, or a new one, the current one of `class`, if that is full, or if an empty one is asked
    /// for. Returns whether it may have room now. Sleeps if `gfp` allows it.
    pub(super) fn refill(&self, class: Class, from: Source, gfp: Gfp) -> bool {
        if self.blocks.refill_from_pool(class, from) || self.add_block(class, gfp) {
            return true;
        }
        // There can be no new block. An idle CPU may own partial ones. A set wants an empty block.
        from == Source::Pool && self.blocks.refill_from_pool(class, Source::Anyone)
    }

    /// Makes a new block of `class` the current one. Returns whether that worked.
    fn add_block(&self, class: Class, gfp: Gfp) -> bool {
        if !self.blocks.reserve(class, self.tree.index.bytes()) {
            return false;
        }
        match self.new_block(class, gfp) {
            Ok(block) => self.blocks.adopt(block),
            Err(_) => {
                self.blocks.pool.lock().unreserve(class);
                false
            }
        }
    }

    /// Creates a block of `class`, and reserves a low free range of its size. `EBUSY` without a range, `ENOMEM` without
    /// memory. Sleeps if `gfp` allows it.
    pub(super) fn new_block(&self, class: Class, gfp: Gfp) -> Result<Placed> {
        let size = class.block_size();
        let times = self.tree.may_have_gap(size).ok_or(EBUSY)?;
        // Allocate memory before the lock is taken.
        let flags = gfp.flags();
        let mut block = Block::new(class, self.options.is_randomized, flags)?;
        let mut window = self.blocks.dir.window().ok_or(EBUSY)?;
        let mut index = self.tree.index.lock();
        for _ in 0..MAX_RETRIES {
            // Try the lowest gap first: the gap that a freed block leaves has exactly this size.
            let span = lowest_gap_fit(&mut index, window, size, size)
                .or_else(|| lowest_fit(&mut index, window, size, size));
            let Some(span) = span else {
                self.tree.note_no_gap(&index, size, times);
                return Err(EBUSY);
            };
            if !self.blocks.dir.is_prepared(span.first()) {
                // Allocate memory without the lock. The gap may be taken meanwhile, so search again.
                drop(index);
                match self.blocks.dir.prepare(span.first(), flags) {
                    Ok(()) => {}
                    Err(EBUSY) => {
                        // There can be no block: search in parts where there can be.
                        let next = self.blocks.dir.next_usable(span.first());
                        let rest = next.and_then(|next| Span::from_bounds(next, window.end()));
                        if rest.is_none() {
                            let index = self.tree.index.lock();
                            self.tree.note_no_gap(&index, size, times);
                        }
                        window = rest.ok_or(EBUSY)?;
                    }
                    Err(err) => return Err(err),
                }
                index = self.tree.index.lock();
                continue;
            }
            block = match index.reserve_block(block, span.first()) {
                Ok(block) => return Ok(block),
                Err((_, StoreError::Mismatch)) => return Err(EBUSY),
                Err((block, StoreError::NoMemory)) => block,
            };
            // The lock may have been dropped: search again.
            if !index.nomem(gfp) {
                break;
            }
        }
        Err(ENOMEM)
    }

    /// See [`Tree::free_stuck`].
    pub(super) fn free_stuck(&self, gfp: Gfp, cause: Cause) -> usize {
        let cpus = &self.blocks.cpus;
        self.tree.free_stuck(usize::MAX, false, gfp, cause, cpus)
    }

    /// As [`Space::free_stuck`], and kept areas, too; `most` of both.
    pub(super) fn free_kept(&self, most: usize, gfp: Gfp, cause: Cause) -> usize {
        let cpus = &self.blocks.cpus;
        self.tree.free_stuck(most, true, gfp, cause, cpus)
    }

    /// Frees empty blocks, and stuck and kept areas, for a request with `gfp` that found no room.
    pub(super) fn drain(&self, gfp: Gfp) {
        self.free_kept(usize::MAX, gfp, Cause::Request);
        let most = if gfp.may_block() {
            usize::MAX
        } else {
            MAX_ATOMIC
        };
        self.free_blocks(most, gfp, Cause::Request);
    }

    /// Frees about `most` stuck and kept areas during memory reclaim, as far as there is memory for that, and about `most` empty
    /// blocks, current ones last. Neither waits for memory nor takes it from the reserves. Sleepable context. Returns how many of both were freed.
    /// Purges nothing. C calls this with `vmap_purge_lock` held, so reclaim waits for a purge, and a purge must not reclaim.
    pub(crate) fn drain_for_reclaim(&self, most: usize) -> usize {
        let stuck = self.free_kept(most, Gfp::RECLAIM, Cause::Reclaim);
        let free = |most| self.free_blocks(most, Gfp::RECLAIM, Cause::Reclaim);
        let mut freed = free(most);
        if freed < most {
            self.blocks.return_current(true, &Block::is_empty);
            freed = freed.wrapping_add(free(most.wrapping_sub(freed)));
        }
        freed.wrapping_add(stuck)
    }

    /// Frees empty blocks: those above the number to keep for [`Cause::Trim`], else all of them, but at most `most`. Returns
    /// how many were freed. Takes the locks of the pool and of the tree; sleeps for memory if `gfp` allows it, and between two
    /// blocks unless a request that may not sleep is the cause.
    pub(super) fn free_blocks(&self, most: usize, gfp: Gfp, cause: Cause) -> usize {
        // All together, for one flush of page tables; but few at a time if other requests may look for room meanwhile in vain.
        let batch = match cause {
            Cause::Request => MOST_AT_ONCE,
            _ => most,
        };
        let mut freed = 0_usize;
        while freed < most {
            let wanted = batch.min(most.wrapping_sub(freed));
            let removed = self.remove_blocks(wanted, gfp, cause);
            if cause != Cause::Request {
                self.flush_tables();
            }
            let count = self.free_removed(removed, gfp, cause);
            freed = freed.wrapping_add(count);
            if count < wanted {
                break;
            }
        }
        trace::drain(cause, freed);
        freed
    }

    /// Removes empty blocks from the directory, as [`Space::free_blocks`], with their page tables, which wait for a flush.
    pub(super) fn remove_blocks(&self, most: usize, gfp: Gfp, cause: Cause) -> Removed {
        let mut removed = Removed::new();
        for block in core::iter::from_fn(|| self.remove_empty(gfp, cause)).take(most) {
            removed.push(block);
        }
        removed
    }

    /// Frees the ranges of removed blocks, whose page tables were flushed. Returns how many were freed.
    pub(super) fn free_removed(&self, mut removed: Removed, gfp: Gfp, cause: Cause) -> usize {
        let mut waiting = GraceList::<Block>::new();
        let mut freed = 0_usize;
        loop {
            let mut run = removed.pop_run();
            if run.span().is_none() {
                break;
            }
            let counters = self.blocks.counters_here();
            let freed_blocks = match self.free_run(&mut run, gfp, cause) {
                Ok(blocks) => blocks,
                Err(err) => {
                    if err == StoreError::Mismatch {
                        mm::refuse("a block is not in the index", &[], &[]);
                    }
                    counters.give_back_nomem.one();
                    let others = core::iter::from_fn(|| removed.pop());
                    for block in Iterator::chain(run.into_blocks(), others) {
                        self.blocks.restore(block);
                    }
                    break;
                }
            };
            for block in freed_blocks.into_iter().flatten() {
                waiting.push(block);
                counters.block_freed.one();
                freed = freed.wrapping_add(1);
                if freed % MOST_WAITING == 0 {
                    // RCU counts callbacks to see how much memory waits for it.
                    drop(core::mem::replace(&mut waiting, GraceList::new()));
                }
            }
            if may_sleep(cause, gfp) {
                mm::cond_resched();
            }
        }
        freed
    }

    /// Flushes and counts page tables that were taken.
    fn flush_tables(&self) {
        self.count_tables(self.tlb.flush_tables());
    }

    /// Removes an empty block from the directory: one above the number to keep for [`Cause::Trim`]. Takes its page tables, but
    /// for a request: its caller does not hold `vmap_purge_lock`. If the caller may sleep, also releases its KASAN shadow, and may
    /// sleep. Otherwise the pages of it that areas have shared stay when the range becomes free: the next areas there use them,
    /// and a release of a range that covers them frees them.
    fn remove_empty(&self, gfp: Gfp, cause: Cause) -> Option<Placed> {
        let block = self.blocks.pool().remove_empty(cause != Cause::Trim)?;
        if may_sleep(cause, gfp) {
            release_shadow(&block, &self.tlb);
            mm::cond_resched();
        }
        if cause != Cause::Request {
            take_tables(&block, &self.tlb);
        }
        Some(block)
    }

    /// Frees the ranges of removed blocks, and takes them out of the run, unless there is no memory for that.
    fn free_run(&self, run: &mut Run, gfp: Gfp, cause: Cause) -> Result<Freed, StoreError> {
        let mut index = self.tree.lock_to_free(cause);
        let mut result = index.free_blocks(run);
        if result.as_ref().err() == Some(&StoreError::NoMemory)
            && gfp.may_block()
            && index.nomem(gfp)
        {
            result = index.free_blocks(run);
        }
        let blocks = result?;
        self.tree.has_more_room();
        // Under the lock: afterwards another CPU may open a block here, and its event must come later.
        for block in blocks.iter().flatten() {
            let (start, class) = (block.start(), block.class());
            let owner = block.links().owner();
            let size = class.block_size();
            trace::block(Event::Close, start, size, class.number(), owner);
        }
        Ok(blocks)
    }
}
