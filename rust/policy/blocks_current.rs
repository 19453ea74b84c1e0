// SPDX-License-Identifier: GPL-2.0

//! How a block becomes the current block of a CPU, and goes back to the pool.
//!
//! A block is held or in the pool. One in the pool is marked partial if it has room, and empty if all its units are
//! free; a held one has no such mark. All this happens under the lock of the pool.

use crate::{
    policy::{
        blocks::{
            Blocks,
            IDLE_EPOCHS, //
        },
        percpu::Cpus,
        pool::Pool, //
    },
    state::{
        block::{
            Band,
            Small, //
        },
        block_number::BlockNumber,
        maps::Entry, //
    },
    sys::{
        grace::Guard,
        mm,
        trace::{
            self,
            Event, //
        }, //
    }, //
};
use kernel::sync::atomic::Relaxed;

impl Blocks {
    /// Marks a block held, which takes it out of the pool.
    pub(super) fn mark_held(&self, pool: &mut Pool, Entry { maps, bit, .. }: Entry<'_>) {
        let maps = maps.pool(&pool.locked);
        let empty = maps.empty.has(bit);
        if empty {
            maps.empty.clear_bit(bit);
            self.empty.fetch_sub(1, Relaxed);
        }
        for (map, band) in maps.partial.iter().zip(pool.bands.iter_mut()) {
            if map.has(bit) {
                map.clear_bit(bit);
                band.partial = band.partial.saturating_sub(1);
                // An empty block is also partial.
                band.empty = band.empty.saturating_sub(usize::from(empty));
                break;
            }
        }
        if !maps.held.has(bit) {
            maps.held.set_bit(bit);
        }
    }

    /// Marks a block of `band` held that is about to be a current block, and counts it.
    pub(super) fn take_into_use(&self, pool: &mut Pool, band: Band, entry: Entry<'_>) {
        self.mark_held(pool, entry);
        let band = pool.bands.of_mut(band);
        band.taken = band.taken.saturating_add(1);
    }

    /// Returns a held block to the pool.
    pub(super) fn return_to_pool(&self, pool: &mut Pool, cpus: &Cpus, entry: Entry<'_>) {
        let held = &entry.maps.pool(&pool.locked).held;
        if held.has(entry.bit) {
            held.clear_bit(entry.bit);
        }
        self.update(pool, cpus, entry);
    }

    /// Marks a block partial or empty, if it is in the pool and has the room.
    pub(super) fn update(&self, pool: &mut Pool, cpus: &Cpus, entry: Entry<'_>) {
        let rcu = Guard::new();
        let Entry { number, maps, bit } = entry;
        // It may have been freed since.
        let Some(block) = self.dir.block(number, &rcu) else {
            return;
        };
        block.note_room();
        if maps.pool(&pool.locked).held.has(bit) {
            return;
        }
        let partial = maps.pool(&pool.locked).partial.of(block.band());
        if !partial.has(bit) && block.is_useful() {
            partial.set_bit(bit);
            let band = pool.bands.of_mut(block.band());
            band.partial = band.partial.saturating_add(1);
            let owner = cpus.of(block.owner().0);
            if !owner.former.of(block.band()).push(number) {
                // It has many others: the CPU that comes first may take this one.
                block.disown();
            }
            self.note_room();
        }
        let empty = &maps.pool(&pool.locked).empty;
        if !empty.has(bit) && block.is_empty() {
            empty.set_bit(bit);
            let band = pool.bands.of_mut(block.band());
            band.empty = band.empty.saturating_add(1);
            self.empty.add(1, Relaxed);
            self.note_room();
        }
    }

    /// Makes a held block the current block for `band` of the CPU, or group of CPUs, on which this runs, and
    /// returns the previous one to the pool. `event` says where the block is from.
    pub(super) fn make_current(
        &self,
        pool: &mut Pool,
        cpus: &Cpus,
        small: Small,
        band: Band,
        entry: Entry<'_>,
        event: Event,
    ) {
        let seat = cpus.first_of_group(self.group_shift(small));
        let cpu = cpus.of(seat);
        cpu.former.of(band).forget(entry.number);
        let rcu = Guard::new();
        if let Some(block) = self.dir.block(entry.number, &rcu) {
            let before = match event {
                Event::Open => seat,
                _ => block.owner().0,
            };
            trace::block(
                event,
                block.start(),
                block.size(),
                block.band().number(),
                before,
            );
            block.set_owner(seat, pool.epoch);
        }
        drop(rcu);
        let before = cpu.current.of(band).replace(Some(entry.number));
        if let Some(before) = before {
            self.return_current_block(pool, cpus, before);
        }
    }

    /// Returns a block that was a current one to the pool.
    fn return_current_block(&self, pool: &mut Pool, cpus: &Cpus, number: BlockNumber) {
        match self.dir.entry(number) {
            Some(entry) => self.return_to_pool(pool, cpus, entry),
            None => mm::refuse!("block {} was current, but has no part", number.entry()),
        }
    }

    /// Returns the current blocks of all CPUs to the pool, including CPUs that are offline.
    pub(crate) fn return_current(&self, cpus: &Cpus) {
        self.return_if(cpus, usize::MAX);
    }

    /// Returns current blocks that are idle to the pool, at most once in an epoch.
    pub(crate) fn return_idle(&self, cpus: &Cpus) {
        let mut pool = self.pool.lock();
        let epoch = pool.epoch;
        if core::mem::replace(&mut pool.idle_taken, epoch) != epoch {
            drop(pool);
            // A CPU that still uses its block takes it again with the next refill.
            self.return_if(cpus, epoch.saturating_sub(IDLE_EPOCHS));
        }
    }

    /// Returns the current blocks that became that before epoch `before` to the pool.
    fn return_if(&self, cpus: &Cpus, before: usize) {
        for cpu in cpus.iter() {
            // Most CPUs have none: do not take the lock for them.
            if cpu.current.iter().all(|current| current.get().is_none()) {
                continue;
            }
            let mut pool = self.pool.lock();
            for current in cpu.current.iter() {
                let Some(number) = current.get() else {
                    continue;
                };
                let rcu = Guard::new();
                let since = self
                    .dir
                    .block(number, &rcu)
                    .map_or(0, |block| block.owner().1);
                drop(rcu);
                if since < before {
                    current.set(None);
                    self.return_current_block(&mut pool, cpus, number);
                }
            }
        }
    }
}
