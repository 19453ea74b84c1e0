// SPDX-License-Identifier: GPL-2.0

//! A seat: the place for the block from which a CPU allocates. It leads there with one load, under RCU.
//!
//! A block knows whether it is in a seat, or was removed from the directory: both begin with an exchange of the same
//! word, so no block is in two seats, and none in a seat is removed.

use super::prelude::*;

/// A place for a block.
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
        let block = self.0.load(Relaxed);
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
    /// Returns whether the block is in a seat. Others may change it.
    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    pub(crate) fn is_current(&self) -> bool {
        // Relaxed: for checks only.
        self.seat.load(Relaxed) == SEATED
    }

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
