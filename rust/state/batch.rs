// SPDX-License-Identifier: GPL-2.0

//! Batches: a CPU gathers the slots that it makes lazy, and notes many at once in the bitmaps of their blocks. So to retire an
//! area takes no atomic operation, and no line moves that other CPUs write.
//!
//! A batch is a ring. A task on its CPU adds slots with preemption disabled, so it is alone in that. Who notes them holds the
//! lock of the batch: that CPU when there are enough, and a purge, which comes to the batches of all CPUs first
//! (`docs/lock-free.md`).

use super::prelude::*;
use crate::sys::per_cpu::Own;

/// Slots in a batch: as many areas of one page have about the pages with which a CPU notes its batch.
pub(super) const LEN: usize = 64;

/// A slot that is lazy, and not noted in its block yet. A drop leaks it.
///
/// # Invariants
///
/// `first_page` is that of a slot, of a block of the directory that has this or whose batch has it. Its area was unmapped and
/// vacated. The slot is in no bitmap of the block, and only the owner of this may change that.
#[must_use = "dropping a slot leaks its range"]
pub(super) struct LazySlot {
    first_page: usize,
}

impl LazySlot {
    /// Makes a slot lazy.
    ///
    /// # Safety
    ///
    /// The area that was in the slot at `first_page`, of a block of the directory to which this is given, was vacated, once.
    #[inline(always)]
    pub(super) unsafe fn new(first_page: usize) -> Self {
        // INVARIANT: By the safety requirements; a vacated area has given up its slot.
        Self { first_page }
    }

    pub(super) fn start(&self) -> usize {
        self.first_page.wrapping_mul(PAGE_SIZE)
    }
}

/// What became of a slot that was to be added to a batch.
pub(super) enum Added {
    /// It waits.
    Waits,
    /// It waits, and it is time to note the batch.
    IsDue,
    /// There is no room: the batch is to be noted first.
    NoRoom(LazySlot),
}

/// The slots that a CPU has made lazy and not yet noted in their blocks.
///
/// # Invariants
///
/// The elements from `noted` on up to `added`, both modulo [`LEN`], are each a [`LazySlot`] that the batch has.
pub(super) struct Batch {
    /// Numbers of pages: for kmemleak, an address would be a reference to the next area there.
    first_pages: CacheAligned<[Atomic<usize>; LEN]>,
    /// How many slots were added, and the pages of areas since it was last time to note the batch. Only [`Batch::add`] writes
    /// them.
    added: Atomic<usize>,
    pages: Atomic<usize>,
    /// How many slots were noted, written under the lock.
    noted: Atomic<usize>,
    lock: Locked<()>,
}

impl Batch {
    pub(super) fn new() -> Result<Self> {
        // INVARIANT: No slot waits.
        Ok(Self {
            first_pages: CacheAligned::new([const { Atomic::new(0) }; LEN]),
            added: Atomic::new(0),
            pages: Atomic::new(0),
            noted: Atomic::new(0),
            lock: Locked::new((), c"vmap_rust batch", static_lock_class!())?,
        })
    }

    /// Returns how many slots were added, ever.
    pub(super) fn count(&self) -> usize {
        // Relaxed: a statistic orders nothing.
        self.added.read_once()
    }

    /// Returns whether slots wait that were added before the call, or are being noted.
    pub(super) fn is_waiting(&self) -> bool {
        // Acquire: pairs with the release in the drop of `Taken`. If all were noted, the caller sees them in their blocks.
        self.added.read_once() != self.noted.load(Acquire)
    }

    /// Takes all slots out, one after the other: each is to be noted before the next step but one, and the last ones before the
    /// drop. Takes the lock.
    pub(super) fn take(&self) -> Taken<'_> {
        let lock = self.lock.lock();
        Taken {
            batch: self,
            // Relaxed: written under the lock.
            next: self.noted.read_once(),
            // Acquire: pairs with the release in `add()`.
            end: self.added.load(Acquire),
            _lock: lock,
        }
    }
}

/// The slots of a batch, taken out of it.
///
/// # Invariants
///
/// The batch has the elements from `next` on up to `end`, and its lock is held.
pub(super) struct Taken<'a> {
    batch: &'a Batch,
    next: usize,
    end: usize,
    _lock: LockGuard<'a, ()>,
}

impl Iterator for Taken<'_> {
    type Item = LazySlot;

    #[inline(always)]
    fn next(&mut self) -> Option<LazySlot> {
        let nth = self.next;
        if nth == self.end {
            return None;
        }
        // INVARIANT: The batch has one less.
        self.next = nth.wrapping_add(1);
        // INVARIANT: It is an element that the batch had. Who holds the lock next begins behind it.
        Some(LazySlot {
            first_page: self.batch.first_pages[nth % LEN].read_once(),
        })
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // Release: the elements were read, and the slots noted, before.
        self.batch.noted.store(self.next, Release);
    }
}

impl Own<'_, Batch> {
    /// Adds the slot of an area of `pages` pages. With `most` pages it is time to note the batch.
    #[inline(always)]
    pub(super) fn add(&self, slot: LazySlot, pages: usize, most: usize) -> Added {
        let added = self.added.read_once();
        // Acquire: pairs with the release in the drop of `Taken`, which has read the element by then.
        let waiting = added.wrapping_sub(self.noted.load(Acquire));
        if waiting >= LEN {
            return Added::NoRoom(slot);
        }
        // INVARIANT: The batch has the slot from the store of `added` on.
        self.first_pages[added % LEN].write_once(slot.first_page);
        // Release: pairs with the acquire in `take()`. The area was unmapped and vacated before.
        self.added.store(added.wrapping_add(1), Release);
        let pages = self.pages.read_once().wrapping_add(pages);
        let is_due = pages >= most || waiting >= LEN - 1;
        self.pages.write_once(if is_due { 0 } else { pages });
        if is_due {
            Added::IsDue
        } else {
            Added::Waits
        }
    }
}
