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
        area::Flushed,
        block::Block,
        flush::{
            Pages,
            Plan, //
        },
        maps::Entry,
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

/// A purge that frees at least this many units, those of one block, is *representative* for blocks.
const REPRESENTATIVE_UNITS: usize = UNITS;

impl Blocks {
    /// Takes all pages that were retired before the call, and adds them to `plan`, which is new. Returns
    /// whether the purge is large enough to estimate demand: it frees at least the units of a block. Sleepable
    /// context, and only one purge at a time.
    pub(crate) fn snapshot(&self, cpus: &Cpus, plan: &mut Plan) -> bool {
        // Relaxed: the count orders nothing. Retires read it, so do not store the same value.
        if self.lazy.load(Relaxed) != 0 {
            self.lazy.store(0, Relaxed);
        }
        let slots = self.take_dirty(plan, 0..usize::MAX, |_| {});
        plan.set_slots(slots.clone());
        if !slots.is_empty() && plan.units() < UNITS {
            // The bits of blocks in use stay set through large purges: CPUs that retire areas read them, and
            // need not fetch their cache line again. A small purge clears those of unused blocks, so that the
            // next one need not look at them. A full barrier is between clearing a bit and looking again, see
            // `Blocks::retire()`.
            let clear = |Entry { maps, bit, .. }: Entry<'_>| {
                if !maps.flushing.has(bit) {
                    maps.dirty.remove_and_fence(bit);
                }
            };
            self.take_dirty(plan, slots, clear);
        }
        let units = plan.units();
        if units > 0 {
            // About: an area is counted after it was retired, and the count of a CPU may go back.
            let retired = cpus.retired();
            let before = self.retired.xchg(retired, Relaxed);
            plan.count(retired.wrapping_sub(before).clamp(1, units));
        }
        units >= REPRESENTATIVE_UNITS
    }

    /// Takes the lazy pages of the blocks in `slots` whose dirty bit is set, and adds them to `plan`. Calls
    /// `before` with the entry of each block first. Returns the slots of the parts of the directory in
    /// which it has found such blocks, and perhaps others between.
    fn take_dirty(
        &self,
        plan: &mut Plan,
        slots: Range<usize>,
        before: impl Fn(Entry<'_>),
    ) -> Range<usize> {
        let mut found = 0..0;
        for part in self.dir.maps_in(slots) {
            let maps = part.maps;
            for bit in bits::set_bits(&maps.dirty.words()) {
                if found.is_empty() {
                    found.start = part.slot;
                }
                found.end = part.slot.saturating_add(1);
                let entry = part.entry(bit);
                before(entry);
                let rcu = Guard::new();
                let block = self.dir.block(entry.number, &rcu);
                // What this purge has taken of the block already must not be lost.
                let block = block.filter(|_| !maps.flushing.has(bit));
                let taken = block.and_then(|block| block.snapshot(plan));
                drop(rcu);
                if taken.is_some() {
                    maps.flushing.set_bit(bit);
                }
                mm::cond_resched();
            }
        }
        found
    }

    /// Releases the KASAN shadow of the pages of a plan, before they become free. Sleepable context.
    pub(crate) fn release_shadow(&self, pages: &Pages<Flushed>, tlb: &impl Tlb) {
        self.each_flushing(pages, false, |_, block| {
            for units in bits::runs(&block.flushing()) {
                if let Some(span) = block.run(units) {
                    tlb.release_shadow(span);
                }
            }
        });
    }

    /// Frees exactly the pages of a plan. Sleepable context.
    pub(crate) fn free(&self, cpus: &Cpus, pages: Pages<Flushed>) {
        self.each_flushing(&pages, true, |entry, block| {
            block.free_flushed(&pages);
            self.update(&mut self.pool.lock(), cpus, entry);
        });
        pages.freed();
        // Partial blocks may have more room now.
        self.note_room();
    }

    /// Calls `what` for each block with pages of a plan. If `done`, also ends their purge.
    fn each_flushing(&self, pages: &Pages<Flushed>, done: bool, what: impl Fn(Entry<'_>, &Block)) {
        for part in self.dir.maps_in(pages.slots()) {
            let maps = part.maps;
            let flushing = if done {
                maps.flushing.take()
            } else {
                maps.flushing.words()
            };
            for bit in bits::set_bits(&flushing) {
                let entry = part.entry(bit);
                let rcu = Guard::new();
                if let Some(block) = self.dir.block(entry.number, &rcu) {
                    what(entry, block);
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
