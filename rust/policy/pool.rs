// SPDX-License-Identifier: GPL-2.0

//! What the lock of the pool protects: the counts and the limits of each band, and where its searches go on.
//!
//! The pool is the blocks that are not held. Which blocks these are, and which of them have room, is in bitmaps of
//! the directory, which change under the same lock.

use crate::{
    policy::blocks::IDLE_EPOCHS,
    state::{
        block::{
            Block,
            BANDS,
            SIZE, //
        },
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
    pub(super) bands: [Band; BANDS],
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
pub(super) struct Band {
    /// Where in the directory the next search starts, among blocks of this CPU or idle ones, and among all.
    pub(super) cursors: [Position; 2],
    /// The value of `Blocks::room` before the search among all blocks began at the first one.
    pub(super) room: usize,
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

/// Which blocks of the pool a search may take.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    /// Those of CPU `.0`, and those of its NUMA node that their owner has not used since before epoch `.1`.
    OwnOrIdle(usize, usize),
    Anyones,
    /// The same, also those in which earlier searches found no room: a task that gives claimed units back makes
    /// room without a note.
    AnyonesAgain,
}

impl Whose {
    /// Returns the number of the cursor of such searches.
    pub(super) fn cursor(self) -> usize {
        usize::from(!matches!(self, Self::OwnOrIdle(..)))
    }

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
        let band = Band {
            cursors: [(0, 0); 2],
            room: 0,
            partial: 0,
            empty: 0,
            taken: 0,
            keep: MIN_KEEP,
        };
        Self {
            locked: PoolLocked::new(),
            bands: [band; BANDS],
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

    /// Sets where the next search of a kind starts.
    pub(super) fn set_cursor(&mut self, band: usize, which: usize, to: Position) {
        if let Some(cursor) = self
            .bands
            .get_mut(band)
            .and_then(|band| band.cursors.get_mut(which))
        {
            *cursor = to;
        }
    }

    /// Lets the next search among all blocks of `band` start at the first one.
    pub(super) fn rewind(&mut self, band: usize) {
        self.set_cursor(band, Whose::Anyones.cursor(), (0, 0));
    }

    /// Returns whether the next search among all blocks of `band` starts at the first one: the last one has
    /// reached the end and found nothing, or there was none.
    pub(super) fn has_searched_all(&self, band: usize) -> bool {
        let cursors = self.bands.get(band).map(|band| band.cursors);
        cursors.and_then(|cursors| cursors.get(Whose::Anyones.cursor()).copied()) == Some((0, 0))
    }

    /// Calls `what` with the band `band`, which exists.
    pub(super) fn change(&mut self, band: usize, what: impl FnOnce(&mut Band)) {
        if let Some(band) = self.bands.get_mut(band) {
            what(band);
        }
    }

    /// Ends a purge. If it `is_representative`, each band may keep as many empty blocks as were taken into
    /// use since the last such purge, plus a quarter, plus [`MIN_KEEP`]; but at least half of what it
    /// could keep before.
    pub(super) fn end_purge(&mut self, is_representative: bool) {
        if is_representative {
            self.epoch = self.epoch.wrapping_add(1);
        }
        for band in &mut self.bands {
            if band.cursors != [(0, 0); 2] {
                // Not the same value again: that would move the cache line.
                band.cursors = [(0, 0); 2];
            }
            if is_representative {
                let taken = core::mem::take(&mut band.taken);
                let needed = taken.saturating_add(taken / 4);
                band.keep = needed.saturating_add(MIN_KEEP).max(band.keep / 2);
            }
        }
    }
}
