// SPDX-License-Identifier: GPL-2.0

//! Where a block is, besides in the directory: in a seat, from which a CPU allocates, or in no directory.
//!
//! A block knows whether it is in a seat, or was removed from the directory: both begin with an exchange of the same
//! word, so no block is in two seats, and none in a seat is removed.
//!
//! A block that has a range and is in no directory, new or removed, is [`Placed`]. Only such a block can be inserted, and only
//! the range of such a block is freed.

use super::prelude::*;

/// The place for a current block: it leads there with one load, under RCU.
///
/// # Invariants
///
/// It is null, or points to a block that is marked as seated for this seat. Such a block is not freed: only
/// [`Block::leave_directory`] lets it be, and a grace period passes then.
#[repr(transparent)]
pub(crate) struct Seat(Atomic<*mut Block>);

impl Seat {
    pub(crate) const fn new() -> Self {
        // INVARIANT: It is null.
        Self(Atomic::new(ptr::null_mut()))
    }

    /// Returns the block, as long as `_rcu` is held.
    #[inline(always)]
    pub(crate) fn get<'a>(&'a self, _rcu: &'a Guard) -> Option<&'a Block> {
        // Relaxed: all reads of the block depend on the address, see `replace()`.
        let block = self.0.read_once();
        // SAFETY: By the type invariants, it is null, or a block that was not freed when it was loaded. A block that
        // leaves the seat is freed a grace period later, so not while the RCU read lock is held.
        unsafe { block.as_ref() }
    }

    /// Puts `block` into the seat, or nothing. Returns the block that was there, as long as `_rcu` is held. A block that
    /// is in a seat already, or removed, is refused: the seat is empty then. `policy` calls this with the lock of the pool
    /// held.
    pub(crate) fn replace<'a>(&self, block: Option<&Block>, _rcu: &'a Guard) -> Option<&'a Block> {
        let block = block.filter(|block| {
            // Acquire: pairs with the release below.
            let seated = block.seat.cmpxchg(NOWHERE, SEATED, Acquire).is_ok();
            if !seated {
                mm::refuse("a block cannot be current", &[block.start()], &[]);
            }
            seated
        });
        let new = block.map_or(ptr::null_mut(), |block| ptr::from_ref(block).cast_mut());
        // INVARIANT: It was just marked as seated.
        // Full: a release is needed, so that a CPU that finds the block finds it initialized.
        let old = self.0.xchg(new, Full);
        // SAFETY: By the type invariants, it is null or a seated block. It is freed a grace period after the store below.
        let old = unsafe { old.as_ref() }?;
        // Release: the seat is left before.
        old.seat.store(NOWHERE, Release);
        Some(old)
    }
}

/// The seats of the kernel are there until shutdown, or have no block yet if the start fails.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
impl Drop for Seat {
    fn drop(&mut self) {
        self.replace(None, &Guard::new());
    }
}

impl Block {
    /// Marks the block as removed from the directory, unless it is in a seat.
    pub(super) fn leave_directory(&self) -> bool {
        // Acquire: pairs with the release in `Seat::replace()`.
        self.seat.cmpxchg(NOWHERE, REMOVED, Acquire).is_ok()
    }

    /// Undoes [`Block::leave_directory`].
    pub(super) fn return_to_directory(&self) {
        // Release: as in `Seat::replace()`.
        let _ = self.seat.cmpxchg(REMOVED, NOWHERE, Release);
    }
}

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
        let is_below = |low: Span, high: Span| low.next_addr() == Some(high.first());
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
