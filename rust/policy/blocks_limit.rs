// SPDX-License-Identifier: GPL-2.0

//! How many blocks there are: which new ones the limits allow, and which empty ones leave the directory.
//!
//! The limits are in bytes. All blocks together leave room for large areas, and coarse blocks leave room for
//! fine ones. A purge frees empty blocks above a number for each band; a drain frees all of them.

use crate::{
    base::bits,
    policy::{
        blocks::{
            Blocks,
            MIN_BLOCKS,
            SHARE, //
        },
        percpu::Cpus,
        pool::{
            coarse_part,
            BandPool,
            Pool, //
        }, //
    },
    state::{
        block::{
            Band,
            Block,
            COARSE_SIZE,
            SIZE, //
        },
        maps::Entry, //
    },
    sys::{
        grace::{
            GraceBox,
            Guard, //
        },
        mm, //
    }, //
};
use kernel::sync::atomic::Relaxed;

/// Maximum number of blocks that are tried while the lock is held until one is found that is still empty.
const MAX_CLOSES: usize = 16;

impl Blocks {
    /// Counts one more block of `bytes` bytes, if the limits allow it. Returns whether they do. `reserved` is
    /// the number of bytes of all entries of the tree.
    pub(crate) fn reserve(&self, bytes: usize, reserved: usize) -> bool {
        let mut pool = self.pool.lock();
        // A space that is nearly full has fewer, but not fewer than a small space.
        let large = reserved.saturating_sub(pool.bytes);
        let limit = match self.share {
            Some(size) => {
                let share = size.saturating_sub(large) / SHARE;
                self.limit.min(share.max(MIN_BLOCKS * SIZE))
            }
            None => self.limit,
        };
        let coarse_bytes = pool.coarse_bytes.saturating_add(coarse_part(bytes));
        let ok = pool.bytes.saturating_add(bytes) <= limit
            // Coarse blocks leave room for fine ones.
            && coarse_bytes <= (limit / 2).max(COARSE_SIZE);
        if ok {
            pool.add(bytes);
        } else {
            pool.has_refused = true;
        }
        ok
    }

    /// Undoes [`Blocks::reserve`].
    pub(crate) fn unreserve(&self, bytes: usize) {
        let mut pool = self.pool.lock();
        pool.subtract(bytes);
        // Only if another request may have found no room: the caller may be about to note that there is none.
        if core::mem::take(&mut pool.has_refused) {
            self.note_room();
        }
    }

    /// Takes out the highest empty block of a band with more than it may keep, or of any band if `all`.
    /// The range of the block stays reserved.
    pub(crate) fn take_empty(&self, cpus: &Cpus, all: bool) -> Option<GraceBox<Block>> {
        let mut pool = self.pool.lock();
        for _ in 0..MAX_CLOSES {
            let entry = self.find_empty(&pool, all)?;
            self.mark_held(&mut pool, entry);
            let rcu = Guard::new();
            let block = self.dir.block(entry.number, &rcu);
            let Some(block) = block.filter(|block| block.close()) else {
                // A task that moved to another CPU has allocated from it, so it is no longer empty. Others may be.
                self.return_to_pool(&mut pool, cpus, entry);
                continue;
            };
            pool.subtract(block.size());
            self.note_room();
            let removed = self.dir.remove(entry.number);
            // Clear it before another block can have this number.
            entry.maps.pool(&pool.locked).held.clear_bit(entry.bit);
            return removed;
        }
        None
    }

    /// Returns the highest empty block in the pool, of a band with more than it may keep, or of any band if `all`.
    fn find_empty(&self, pool: &Pool, all: bool) -> Option<Entry<'_>> {
        let has_too_many = |band: &BandPool| band.empty > if all { 0 } else { band.keep };
        let mut bands = Band::ALL.into_iter();
        let band = bands.find(|&band| has_too_many(pool.bands.of(band)))?;
        self.dir.all_maps().rev().find_map(|part| {
            let pooled = part.maps.pool(&pool.locked);
            let partial = pooled.partial.of(band).words();
            let both = bits::and(&partial, &pooled.empty.words());
            bits::last_set(&both).map(|bit| part.entry(bit))
        })
    }

    /// Inserts a block again that [`Blocks::take_empty`] has taken out.
    pub(crate) fn restore(&self, cpus: &Cpus, removed: GraceBox<Block>) {
        // Under the lock from the beginning: a CPU that allocates from the block and frees the area again makes it
        // empty, and it must be counted before another one takes it.
        let mut pool = self.pool.lock();
        let entry = match self.dir.insert(removed) {
            Ok(entry) => entry,
            Err(block) => {
                mm::refuse!("there are two blocks at {:?}", block.span());
                return;
            }
        };
        let rcu = Guard::new();
        // Open it only after inserting it: a CPU that found the block earlier may allocate from it, and
        // its areas must be found.
        let block = self.dir.block(entry.number, &rcu);
        if let Some(block) = block {
            block.open();
        }
        pool.add(block.map_or(0, Block::size));
        self.update(&mut pool, cpus, entry);
    }

    /// Returns the number of empty blocks. Takes no lock.
    pub(crate) fn empty(&self) -> usize {
        self.empty.load(Relaxed)
    }
}
