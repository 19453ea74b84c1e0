// SPDX-License-Identifier: GPL-2.0

//! Drains: gives cached ranges and empty blocks back to the tree, to make room or to free memory.
//!
//! A [`Budget`] says how much a drain may free, and whether it may sleep: requests, purges and memory reclaim all
//! drain, and each can afford something else.

use crate::{
    base::range::Span,
    policy::{
        cache::Sweep,
        space::Space, //
    },
    state::table::TableGuard,
    sys::{
        maple::StoreError,
        mm::{
            self,
            Gfp,
            Tlb, //
        },
        trace::{
            self,
            Cause,
            Event, //
        }, //
    }, //
};
use kernel::sync::atomic::Relaxed;

/// Maximum number of cached ranges, and of empty blocks, that a request without sleeping drains to make room.
const MAX_ATOMIC: usize = 32;

/// At how many cached ranges a drain looks for each that it may free.
const LOOKS_PER_RANGE: usize = 16;

/// How much to drain, and how.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    /// Maximum number of cached ranges, and of empty blocks, to free.
    most: usize,
    /// Only cached ranges with pages in this window help, if it is given.
    window: Option<Span>,
    /// For memory to change the tree.
    gfp: Gfp,
    /// Whether the context is sleepable.
    may_sleep: bool,
    /// Why it drains. If memory is short, the reserves must not be used.
    cause: Cause,
}

impl Budget {
    /// Everything, in a purge that has to make room, without waiting for memory.
    pub(super) const ALL: Self = Self {
        most: usize::MAX,
        window: None,
        gfp: Gfp::NOWAIT,
        may_sleep: true,
        cause: Cause::Purge,
    };

    /// What a request with `gfp` may spend when it found no room in `window`.
    fn of_request(gfp: Gfp, window: Span) -> Self {
        let may_sleep = gfp.may_block();
        Self {
            most: if may_sleep { usize::MAX } else { MAX_ATOMIC },
            window: Some(window),
            gfp,
            may_sleep,
            cause: Cause::Request,
        }
    }

    /// Returns whether freeing `span` may make the room that is needed.
    fn is_helped_by(self, span: Option<Span>) -> bool {
        self.window
            .is_none_or(|window| span.and_then(|span| span.clip(window)).is_some())
    }

    /// At most `most`, in memory reclaim.
    fn of_reclaim(most: usize) -> Self {
        Self {
            most,
            window: None,
            gfp: Gfp::RECLAIM,
            may_sleep: true,
            cause: Cause::Reclaim,
        }
    }

    /// What a purge finds unused, in sleepable context, without waiting for memory.
    const TRIM: Self = Self {
        cause: Cause::Trim,
        ..Self::ALL
    };

    /// At most `most`, in any context, to make room for a block.
    pub(super) const fn atomic(most: usize) -> Self {
        Self {
            most,
            window: None,
            gfp: Gfp::NOWAIT,
            may_sleep: false,
            cause: Cause::Limit,
        }
    }
}

impl<T: Tlb> Space<T> {
    /// Returns whether draining can make room in `window`: blocks and almost all cached ranges are in `home`.
    pub(super) fn can_drain_help(&self, window: Span) -> bool {
        window.clip(self.home).is_some() || self.strays.load(Relaxed) != 0
    }

    /// Drains cached ranges and empty blocks for a request with `gfp` that found no room in `window`. Returns
    /// how many were freed.
    pub(super) fn drain(&self, gfp: Gfp, window: Span) -> usize {
        self.give_back_all(Budget::of_request(gfp, window))
    }

    /// Drains about `most` cached ranges and empty blocks during memory reclaim. Neither waits for memory nor
    /// takes it from the reserves. Sleepable context. Returns how many were freed.
    pub(crate) fn drain_for_reclaim(&self, most: usize) -> usize {
        let swept = self.sweep(Budget::of_reclaim(most));
        if swept >= most {
            return swept;
        }
        self.blocks.return_current(&self.cpus);
        let rest = Budget::of_reclaim(most.wrapping_sub(swept));
        swept.wrapping_add(self.free_blocks(true, rest))
    }

    /// Frees cached ranges and empty blocks, as many of both as `budget` allows. Returns how many of both.
    pub(super) fn give_back_all(&self, budget: Budget) -> usize {
        self.blocks.return_current(&self.cpus);
        self.sweep(budget)
            .wrapping_add(self.free_blocks(true, budget))
    }

    /// Frees cached ranges, one each time it takes the lock. Ends at the first range that needs more memory
    /// than there is; that one stays cached. Returns how many were freed.
    pub(super) fn sweep(&self, budget: Budget) -> usize {
        let mut sweep = Sweep::default();
        let (mut given_back, mut looks) = (0_usize, 0_usize);
        while given_back < budget.most && looks < budget.most.saturating_mul(LOOKS_PER_RANGE) {
            looks = looks.wrapping_add(1);
            let mut table = self.lock_table(budget);
            // Under the lock: the index and the cache change together.
            let Some(area) = self.cache.sweep(&mut sweep) else {
                break;
            };
            if !budget.is_helped_by(area.span()) {
                self.cache.put_back(area, &sweep);
            } else if let Err(area) = self.give_back_cached(&mut table, area) {
                self.cache.put(area, None);
                if !budget.gfp.may_block() || !table.nomem(budget.gfp) {
                    break;
                }
            } else {
                given_back = given_back.wrapping_add(1);
            }
            drop(table);
            if budget.may_sleep {
                mm::cond_resched();
            }
        }
        trace::drain(budget.cause, given_back, 0);
        given_back
    }

    /// Trims after a purge: gives back the cached ranges and the empty blocks above those to keep. Ends at the first
    /// range, and at the first block, for which there is no memory; the next purge tries again. Sleepable context,
    /// with `vmap_purge_lock` held.
    pub(super) fn trim(&self) {
        let mut given_back = 0_usize;
        while self.cache.is_over_limit() {
            let mut table = self.table.lock();
            // Under the lock, as in `sweep()`: a request that drains finds the range in the cache or its gap.
            let Some(area) = self.cache.evict() else {
                break;
            };
            if let Err(area) = self.give_back_cached(&mut table, area) {
                self.cache.put(area, None);
                break;
            }
            drop(table);
            given_back = given_back.wrapping_add(1);
            mm::cond_resched();
        }
        trace::drain(Cause::Trim, given_back, 0);
        self.free_blocks(false, Budget::TRIM);
    }

    /// Locks the index for giving ranges back.
    fn lock_table(&self, budget: Budget) -> TableGuard<'_> {
        let mut table = self.table.lock();
        if let Cause::Reclaim = budget.cause {
            table.spare_reserves();
        }
        table
    }

    /// Frees empty blocks: all of them if `all`, else those above the number to keep. Returns how many were
    /// freed.
    pub(super) fn free_blocks(&self, all: bool, budget: Budget) -> usize {
        let mut freed = 0_usize;
        while freed < budget.most {
            let Some(removed) = self.blocks.take_empty(&self.cpus, all) else {
                break;
            };
            let Some(span) = removed.span() else {
                break;
            };
            if budget.may_sleep && self.tlb.has_shadow() {
                // KASAN shadow that several areas shared could not be released with one of them.
                self.tlb.release_shadow(span);
                self.tlb.flush_shadow(span);
            }
            let (band, owner) = (removed.band().number(), removed.owner().0);
            let mut table = self.lock_table(budget);
            let mut result = table.free_block(span);
            if result == Err(StoreError::NoMemory)
                && budget.gfp.may_block()
                && table.nomem(budget.gfp)
            {
                result = table.free_block(span);
            }
            if result.is_ok() {
                self.count(&table, span, false);
                // Under the lock: afterwards another CPU may open a block here, and its event must come later.
                trace::block(Event::Close, span.first(), span.size(), band, owner);
            }
            drop(table);
            let counters = &self.cpus.here().counters;
            if result.is_err() {
                counters.give_back_nomem.one();
                self.blocks.restore(&self.cpus, removed);
                break;
            }
            drop(removed);
            counters.block_freed.one();
            freed = freed.wrapping_add(1);
            self.blocks.note_room();
            if budget.may_sleep {
                mm::cond_resched();
            }
        }
        trace::drain(budget.cause, 0, freed);
        freed
    }
}
