// SPDX-License-Identifier: GPL-2.0

//! Bitmaps of the directory of blocks, for [`crate::policy::blocks`]: which blocks are dirty, held, partial or empty.
//!
//! Some of them belong to the pool, and its lock protects them. They are given out only with a proof that the lock
//! is held. It has no size, so this costs nothing at run time.

use crate::{
    base::{
        bits::{
            Bit,
            UNITS, //
        },
        map::Map, //
    },
    state::{
        block_number::BlockNumber,
        by_band::ByBand, //
    }, //
};
#[cfg(CONFIG_VMAP_RUST)]
use crate::{
    state::band::BANDS,
    sys::layout::small, //
};
#[cfg(CONFIG_VMAP_RUST)]
use core::mem::offset_of;
#[cfg(CONFIG_VMAP_RUST)]
use kernel::bindings;

/// Bitmaps with a bit for each entry of a part. The bit of a block is that of its first entry.
pub(crate) struct Maps {
    /// Blocks that had lazy pages lately, all those included that have some which no purge has taken. CPUs
    /// that retire areas read it, so it hardly ever changes.
    pub(crate) dirty: Map,
    /// Blocks with pages that the current purge has taken.
    pub(crate) flushing: Map,
    /// Used under the lock of the pool, see [`Maps::pool`].
    pool: PoolMaps,
}

impl Maps {
    /// Creates the bitmaps of a part without blocks.
    pub(super) fn new() -> Self {
        Self {
            dirty: Map::new(false),
            flushing: Map::new(false),
            pool: PoolMaps {
                held: Map::new(false),
                partial: ByBand::new(|_| Map::new(false)),
                empty: Map::new(false),
            },
        }
    }

    /// Describes the bitmaps of a part, which are at offset `at` of it, to debuggers.
    #[cfg(CONFIG_VMAP_RUST)]
    pub(super) const fn describe(info: &mut bindings::vmap_rust_debug_info, at: usize) {
        let pool = at + offset_of!(Self, pool);
        info.part_dirty = small(at + offset_of!(Self, dirty));
        info.part_flushing = small(at + offset_of!(Self, flushing));
        info.part_held = small(pool + offset_of!(PoolMaps, held));
        info.part_partial = small(pool + offset_of!(PoolMaps, partial));
        info.part_empty = small(pool + offset_of!(PoolMaps, empty));
        info.map_size = small(size_of::<Map>());
        info.bands = small(BANDS);
    }

    /// Returns the bitmaps that are used under the lock of the pool, as long as it is held.
    #[inline(always)]
    pub(crate) fn pool<'a>(&'a self, _locked: &'a PoolLocked) -> &'a PoolMaps {
        &self.pool
    }
}

/// An entry of the directory: the number of the block there, the bitmaps of its part, and its bit in them.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) number: BlockNumber,
    pub(crate) maps: &'a Maps,
    pub(crate) bit: Bit,
}

/// The bitmaps of a part.
#[derive(Clone, Copy)]
pub(crate) struct PartMaps<'a> {
    /// The slot of the part.
    pub(crate) slot: usize,
    pub(crate) maps: &'a Maps,
    /// The number of the part: that of its first entry, divided by the number of its entries.
    pub(super) number: usize,
}

impl<'a> PartMaps<'a> {
    /// Returns the entry that has bit `bit`.
    pub(crate) fn entry(self, bit: Bit) -> Entry<'a> {
        let first = self.number.wrapping_mul(UNITS);
        Entry {
            number: BlockNumber::of_entry(first.wrapping_add(bit.number())),
            maps: self.maps,
            bit,
        }
    }
}

/// Bitmaps of a part that are used under the lock of the pool.
pub(crate) struct PoolMaps {
    /// Blocks that a CPU allocates from, or that are about to be removed.
    pub(crate) held: Map,
    /// Blocks in the pool with room for an area of the band.
    pub(crate) partial: ByBand<Map>,
    /// Blocks in the pool with all units free.
    pub(crate) empty: Map,
}

/// Proof that the lock of the pool of blocks is held. The pool of a space has one among what its lock protects, so
/// only who holds the lock can borrow it.
pub(crate) struct PoolLocked(());

impl PoolLocked {
    /// Creates the proof for a new pool, which puts it under its lock. For nothing else: policy, where the pool is,
    /// is above this layer, so no type says so.
    pub(crate) const fn new() -> Self {
        Self(())
    }
}
