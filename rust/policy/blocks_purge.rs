// SPDX-License-Identifier: GPL-2.0

//! What a purge does with blocks: it takes their lazy pages, and frees them when the TLBs are flushed.
//!
//! A dirty bit in the directory leads to each block with lazy pages, and a flushing bit to each block of which the
//! purge has taken some.

use crate::{
    base::bits::{
        self,
        UNITS, //
    },
    policy::{
        blocks::Blocks,
        percpu::Cpus, //
    },
    state::{
        block::Block,
        flush::{
            Flush,
            Plan, //
        },
        maps::Maps, //
    },
    sys::{
        grace::Guard,
        mm::{
            self,
            Tlb, //
        }, //
    }, //
};
use core::ops::Range;
use kernel::sync::atomic::Relaxed;

/// Proof that a purge has taken its lazy pages.
#[must_use = "pages that are not freed leak"]
pub(crate) struct Snapshot {
    units: usize,
    /// The slots of the parts of the directory in which it has found dirty blocks, and perhaps others between.
    slots: Range<usize>,
}

impl Snapshot {
    /// Returns whether the purge is large enough to estimate demand: it frees at least the units of a
    /// block.
    pub(crate) fn is_representative(&self) -> bool {
        self.units >= UNITS
    }
}

impl Blocks {
    /// Takes all pages that were retired before the call, and adds them to `plan`. Sleepable context, and
    /// only one purge at a time.
    pub(crate) fn snapshot(&self, cpus: &Cpus, plan: &mut Plan) -> Snapshot {
        // Relaxed: the count orders nothing. Retires read it, so do not store the same value.
        if self.lazy.load(Relaxed) != 0 {
            self.lazy.store(0, Relaxed);
        }
        let (mut units, slots) = self.take_dirty(plan, 0..usize::MAX, |_, _| {});
        if !slots.is_empty() && units < UNITS {
            // The bits of blocks in use stay set through large purges: CPUs that retire areas read them, and
            // need not fetch their cache line again. A small purge clears those of unused blocks, so that the
            // next one need not look at them. A full barrier is between clearing a bit and looking again, see
            // `Blocks::retire()`.
            let clear = |maps: &Maps, bit| {
                if !maps.flushing.has(bit) {
                    maps.dirty.remove_and_fence(bit);
                }
            };
            let (more, _) = self.take_dirty(plan, slots.clone(), clear);
            units = units.wrapping_add(more);
        }
        if units > 0 {
            // About: an area is counted after it was retired, and the count of a CPU may go back.
            let retired = cpus.retired();
            let before = self.retired.xchg(retired, Relaxed);
            plan.count(retired.wrapping_sub(before).clamp(1, units));
        }
        Snapshot { units, slots }
    }

    /// Takes the lazy pages of the blocks in `slots` whose dirty bit is set, and adds them to `plan`. Calls
    /// `before` with the maps and the bit of each block first. Returns how many units it took, and the slots
    /// with such blocks.
    fn take_dirty(
        &self,
        plan: &mut Plan,
        slots: Range<usize>,
        before: impl Fn(&Maps, usize),
    ) -> (usize, Range<usize>) {
        let mut units = 0_usize;
        let mut found = 0..0;
        for (slot, first, maps) in self.dir.maps_in(slots) {
            for bit in bits::set_bits(&maps.dirty.words()) {
                if found.is_empty() {
                    found.start = slot;
                }
                found.end = slot.saturating_add(1);
                before(maps, bit);
                let rcu = Guard::new();
                let block = self.dir.block(first.wrapping_add(bit), &rcu);
                // What this purge has taken of the block already must not be lost.
                let block = block.filter(|_| !maps.flushing.has(bit));
                let taken = block.and_then(Block::snapshot);
                drop(rcu);
                if let Some(taken) = taken {
                    maps.flushing.set_bit(bit);
                    plan.add(taken.cover);
                    units = units.wrapping_add(taken.units);
                }
                mm::cond_resched();
            }
        }
        (units, found)
    }

    /// Releases the KASAN shadow of the pages of a snapshot, before they become free. Sleepable context.
    pub(crate) fn release_shadow(&self, snapshot: &Snapshot, _flush: &Flush, tlb: &impl Tlb) {
        self.each_flushing(snapshot, false, |_, block| {
            for (first, pages) in bits::runs(&block.flushing()) {
                if let Some(span) = block.run(first, pages) {
                    tlb.release_shadow(span);
                }
            }
        });
    }

    /// Frees exactly the pages of a snapshot. Sleepable context.
    pub(crate) fn free(&self, cpus: &Cpus, snapshot: Snapshot, _flush: &Flush) {
        self.each_flushing(&snapshot, true, |index, block| {
            block.free_flushed();
            self.update(&mut self.pool.lock(), cpus, index);
        });
        // Partial blocks may have more room now.
        if snapshot.units > 0 {
            self.note_room();
        }
    }

    /// Calls `what` for each block with pages of a snapshot. If `done`, also ends their purge.
    fn each_flushing(&self, snapshot: &Snapshot, done: bool, what: impl Fn(usize, &Block)) {
        for (_, first, maps) in self.dir.maps_in(snapshot.slots.clone()) {
            let flushing = if done {
                maps.flushing.take()
            } else {
                maps.flushing.words()
            };
            for bit in bits::set_bits(&flushing) {
                let index = first.wrapping_add(bit);
                let rcu = Guard::new();
                if let Some(block) = self.dir.block(index, &rcu) {
                    what(index, block);
                }
                drop(rcu);
                mm::cond_resched();
            }
        }
    }

    /// Ends a purge. If it `is_representative`, the epoch ends, and each band may keep as many empty blocks as it
    /// needed since the last such purge: see `Pool::end_purge()`.
    pub(crate) fn end_purge(&self, is_representative: bool) {
        self.pool.lock().end_purge(is_representative);
    }
}
