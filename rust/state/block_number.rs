// SPDX-License-Identifier: GPL-2.0

//! The number of a block: its start, in units of [`SIZE`]. So a count or an address is not mistaken for one, and kmemleak
//! takes none for a reference to the first area.
//!
//! A number may be stale: the block may have been freed since, and another one may be at its place.

use super::prelude::*;
use core::num::NonZero;

/// The number of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct BlockNumber(NonZero<usize>);

impl BlockNumber {
    /// Returns the number of a block that starts at `addr`; [`None`] if none can start there.
    pub(crate) fn at(addr: usize) -> Option<Self> {
        match is_aligned(addr, SIZE) {
            true => NonZero::new(addr / SIZE).map(Self),
            false => None,
        }
    }

    /// Returns the start of the block.
    pub(crate) const fn start(self) -> usize {
        self.0.get().wrapping_mul(SIZE)
    }
}

/// A place for the number of a block, or none. All accesses are relaxed: a number is only a hint unless a lock protects
/// the place.
#[repr(transparent)]
pub(crate) struct BlockHint(Atomic<usize>);

impl BlockHint {
    /// Returns a place without a number.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Returns the number.
    pub(crate) fn get(&self) -> Option<BlockNumber> {
        NonZero::new(self.0.load(Relaxed)).map(BlockNumber)
    }

    /// Stores a number, or none.
    pub(crate) fn set(&self, number: Option<BlockNumber>) {
        self.0
            .store(number.map_or(0, |number| number.0.get()), Relaxed);
    }
}
