// SPDX-License-Identifier: GPL-2.0

//! Blocks that have a range and are in no directory: new ones, and those that were removed. Only such a block can be
//! inserted, and only the range of such a block is freed.

use super::prelude::*;
use core::{
    mem::ManuallyDrop,
    ops::Deref, //
};

/// Maximum number of blocks that are freed with one store, which goes over all of them with the lock held. Fewer would leave
/// RCU more nodes of the tree to free.
pub(crate) const MOST_AT_ONCE: usize = 16;

/// A block that has a range and is in no directory.
///
/// # Invariants
///
/// - The index has an entry for exactly the range of the block, which is erased only with this token.
/// - The block is closed and holds no area: nobody uses an address in its range, and no TLB has a translation of one.
#[must_use = "dropping a block leaks its range"]
pub(crate) struct Placed(ManuallyDrop<GraceBox<Block>>);

impl Placed {
    /// Wraps a block.
    ///
    /// # Safety
    ///
    /// The type invariants hold.
    pub(super) unsafe fn new(block: GraceBox<Block>) -> Self {
        // INVARIANT: By the safety requirements.
        Self(ManuallyDrop::new(block))
    }

    /// Gives up the token.
    pub(super) fn into_block(self) -> GraceBox<Block> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: The token is neither used nor dropped afterwards.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl Deref for Placed {
    type Target = Block;

    fn deref(&self) -> &Block {
        &self.0
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // The range stays reserved: a leak is safe, reuse would not be.
        mm::refuse("a block was leaked", &[self.start()], &[]);
    }
}

/// Blocks without a range, for the drop of which lockless readers are waited for.
pub(crate) type Freed = [Option<GraceBox<Block>>; MOST_AT_ONCE];

/// Blocks side by side, to be freed with one store.
///
/// # Invariants
///
/// The ranges of the blocks fill `span`.
pub(crate) struct Run {
    span: Option<Span>,
    blocks: [Option<Placed>; MOST_AT_ONCE],
}

impl Run {
    pub(crate) const fn new() -> Self {
        // INVARIANT: There is no block.
        Self {
            span: None,
            blocks: [const { None }; MOST_AT_ONCE],
        }
    }

    /// Adds a block. Fails and returns it if it is not beside the others, or if there are too many.
    pub(crate) fn try_add(&mut self, block: Placed) -> Result<(), Placed> {
        let place = self.blocks.iter_mut().find(|place| place.is_none());
        let (Some(place), Some(span)) = (place, block.span()) else {
            return Err(block);
        };
        let is_below = |low: Span, high: Span| low.last().checked_add(1) == Some(high.first());
        let run = self.span.unwrap_or(span);
        if self.span.is_some() && !is_below(run, span) && !is_below(span, run) {
            return Err(block);
        }
        // INVARIANT: The block is beside the others, or the only one.
        self.span = Some(run.join(span));
        *place = Some(block);
        Ok(())
    }

    /// Returns the range of all blocks; [`None`] if there is none.
    pub(crate) fn span(&self) -> Option<Span> {
        self.span
    }

    /// Takes out the blocks, and gives up their tokens.
    pub(super) fn take_freed(&mut self) -> Freed {
        // INVARIANT: No block is left.
        self.span = None;
        self.blocks
            .each_mut()
            .map(|block| block.take().map(Placed::into_block))
    }

    /// Returns the blocks.
    pub(crate) fn into_blocks(self) -> impl Iterator<Item = Placed> {
        self.blocks.into_iter().flatten()
    }
}
