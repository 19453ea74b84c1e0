// SPDX-License-Identifier: GPL-2.0

//! The number of a block: that of its first entry in the directory ([`crate::state::dir`]).
//!
//! The directory makes these numbers of addresses and of the bits of its maps, and nobody else does. So a count or an
//! address is not mistaken for one. A number may be stale: the block may have been freed since, and another one may be
//! at its place.

use core::num::NonZero;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// The number of a block.
///
/// # Invariants
///
/// It is one more than the number, so that 0 is left for no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct BlockNumber(NonZero<usize>);

impl BlockNumber {
    /// Returns the number of entry `entry` of the directory.
    #[inline(always)]
    pub(super) const fn of_entry(entry: usize) -> Self {
        // INVARIANT: One more. Entries are for `SIZE` bytes each, so they are far fewer, and nothing saturates.
        Self(NonZero::<usize>::MIN.saturating_add(entry))
    }

    /// Returns the number of the entry.
    #[inline(always)]
    pub(crate) const fn entry(self) -> usize {
        // By the type invariants, this does not wrap.
        self.0.get().wrapping_sub(1)
    }
}

/// A place for the number of a block, or none. All accesses are relaxed: readers use the number as a hint, and it is
/// written only under the lock of the pool.
#[repr(transparent)]
pub(crate) struct BlockHint(Atomic<usize>);

impl BlockHint {
    /// Returns a place without a number.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Returns the number.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<BlockNumber> {
        // INVARIANT: Only `set()` and `replace()` have stored it, from a number.
        NonZero::new(self.0.load(Relaxed)).map(BlockNumber)
    }

    /// Stores a number, or none.
    pub(crate) fn set(&self, number: Option<BlockNumber>) {
        self.0.store(Self::bits(number), Relaxed);
    }

    /// Stores a number, or none, and returns the one that was there.
    pub(crate) fn replace(&self, number: Option<BlockNumber>) -> Option<BlockNumber> {
        // INVARIANT: Only `set()` and `replace()` have stored it, from a number.
        NonZero::new(self.0.xchg(Self::bits(number), Relaxed)).map(BlockNumber)
    }

    fn bits(number: Option<BlockNumber>) -> usize {
        number.map_or(0, |number| number.0.get())
    }
}
