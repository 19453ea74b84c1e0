// SPDX-License-Identifier: GPL-2.0

//! What the lock of the pool protects: the counts and the limits of each band, and where its searches go on.
//!
//! The pool is the blocks that are not held. Which blocks these are, and which of them have room, is in bitmaps of
//! the directory, which change under the same lock.

use crate::{
    base::cpu::CpuNumber,
    policy::blocks::IDLE_EPOCHS,
    state::{
        block::{
            Block,
            SIZE, //
        },
        by_band::ByBand,
        lack::Lack,
        maps::PoolLocked, //
    },
    sys::mm::Node, //
};

/// Minimum number of empty blocks of a band that a purge keeps.
const MIN_KEEP: usize = 2;

/// What the pool lock protects.
pub(super) struct Pool {
    /// The proof with which the lock protects the maps `held`, `partial` and `empty` of the directory, too.
    pub(super) locked: PoolLocked,
    pub(super) bands: ByBand<BandPool>,
    /// Number of blocks that exist or are being made.
    pub(super) live: usize,
    /// Bytes of all blocks, and of the coarse blocks among them.
    pub(super) bytes: usize,
    pub(super) coarse_bytes: usize,
    /// Whether `Blocks::reserve()` has refused a block since `Blocks::unreserve()` last noted room.
    pub(super) has_refused: bool,
    /// Number of representative purges.
    pub(super) epoch: usize,
    /// The epoch in which idle current blocks were last taken back.
    pub(super) idle_taken: usize,
}

/// What the pool knows of the blocks of one band.
#[derive(Clone, Copy)]
pub(super) struct BandPool {
    /// Where in the directory the next search starts among blocks of this CPU or idle ones.
    pub(super) cursor_own: Position,
    /// Where in the directory the next search starts among all blocks.
    pub(super) cursor_all: Position,
    /// The value of `Blocks::room` before the search among all blocks began at the first one.
    pub(super) room: usize,
    /// What each block lacks at which that search has looked.
    pub(super) lack: Lack,
    /// Number of blocks in the map `partial`; if it is 0, there is no search.
    pub(super) partial: usize,
    /// Number of blocks in the map `empty`.
    pub(super) empty: usize,
    /// Number of blocks taken into use since the last representative purge.
    pub(super) taken: usize,
    /// Number of empty blocks that a purge keeps.
    pub(super) keep: usize,
}

/// A place in a walk over the bitmaps of the directory: slot of the part, and bit.
pub(super) type Position = (usize, usize);

/// The place where a walk over all blocks starts.
pub(super) const START: Position = (0, 0);

impl BandPool {
    /// Returns whether the next search among all blocks starts at the first one: the last one has reached the end
    /// and found nothing, or there was none.
    pub(super) fn has_searched_all(&self) -> bool {
        self.cursor_all == START
    }
}

/// A search among the blocks of a band in the pool.
pub(super) struct Search {
    pub(super) whose: Whose,
    /// The most blocks that are searched while the lock is held.
    pub(super) tries: usize,
    /// Where it goes on; [`START`] after the last block.
    pub(super) from: Position,
}

/// Which blocks of the pool a search may take.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    /// Those of CPU `.0`, and those of its NUMA node that their owner has not used since before epoch `.1`.
    OwnOrIdle(CpuNumber, usize),
    Anyones,
    /// The same, also those in which earlier searches found no room: a task that gives claimed units back makes
    /// room without a note.
    AnyonesAgain,
}

impl Whose {
    pub(super) fn may_take(self, block: &Block) -> bool {
        match self {
            Self::Anyones | Self::AnyonesAgain => true,
            Self::OwnOrIdle(cpu, before) => {
                let (owner, since) = block.owner();
                owner == cpu || since < before && Node::of_cpu(owner) == Node::of_cpu(cpu)
            }
        }
    }
}

/// Returns how many bytes a block of `bytes` bytes adds to the count of coarse blocks.
pub(super) fn coarse_part(bytes: usize) -> usize {
    if bytes > SIZE {
        bytes
    } else {
        0
    }
}

impl Pool {
    /// Creates the pool of a space without blocks.
    pub(super) fn new() -> Self {
        let band = BandPool {
            cursor_own: START,
            cursor_all: START,
            room: 0,
            lack: Lack::ALL,
            partial: 0,
            empty: 0,
            taken: 0,
            keep: MIN_KEEP,
        };
        Self {
            locked: PoolLocked::new(),
            bands: ByBand::new(|_| band),
            live: 0,
            bytes: 0,
            coarse_bytes: 0,
            has_refused: false,
            // So that epoch 0 is long ago.
            epoch: IDLE_EPOCHS + 1,
            idle_taken: 0,
        }
    }

    /// Counts a block of `bytes` bytes.
    pub(super) fn add(&mut self, bytes: usize) {
        self.live = self.live.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.coarse_bytes = self.coarse_bytes.saturating_add(coarse_part(bytes));
    }

    /// Stops counting a block of `bytes` bytes.
    pub(super) fn subtract(&mut self, bytes: usize) {
        self.live = self.live.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.coarse_bytes = self.coarse_bytes.saturating_sub(coarse_part(bytes));
    }

    /// Ends a purge. If it `is_representative`, each band may keep as many empty blocks as were taken into
    /// use since the last such purge, plus a quarter, plus [`MIN_KEEP`]; but at least half of what it
    /// could keep before.
    pub(super) fn end_purge(&mut self, is_representative: bool) {
        if is_representative {
            self.epoch = self.epoch.wrapping_add(1);
        }
        for band in self.bands.iter_mut() {
            for cursor in [&mut band.cursor_own, &mut band.cursor_all] {
                // Not the same value again: that would move the cache line.
                if *cursor != START {
                    *cursor = START;
                }
            }
            if is_representative {
                let taken = core::mem::take(&mut band.taken);
                let needed = taken.saturating_add(taken / 4);
                band.keep = needed.saturating_add(MIN_KEEP).max(band.keep / 2);
            }
        }
    }
}
