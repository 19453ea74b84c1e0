// SPDX-License-Identifier: GPL-2.0

//! Batches: a CPU gathers the slots that it makes lazy, and notes many at once in the bitmaps of their blocks. So to retire an
//! area takes no atomic operation, and no line moves that other CPUs write.
//!
//! A batch is a ring. A task on its CPU adds slots with preemption disabled, so it is alone in that. Who notes them holds the
//! lock of the batch: that CPU when there are enough, and a purge, which comes to the batches of all CPUs first
//! (`docs/lock-free.md`).

use super::prelude::*;
use crate::sys::per_cpu::Own;

/// Slots in a batch: as many areas of one page have about [`MOST_NOTED`] pages.
pub(super) const LEN: usize = MOST_NOTED / 2;

/// Counts of slots wrap around.
const _: () = assert!(LEN.is_power_of_two());

/// Maximum of the number of lazy pages with which a CPU notes its batch, and adds them to the common count. With that, CPUs do so
/// rarely that its cache line hardly ever moves.
const MOST_NOTED: usize = 128;

/// Bytes that the batches of all CPUs together may hide, per power of two of the number of CPUs: a quarter of
/// `lazy_max_pages()` in mm/vmalloc.c.
const UNCOUNTED: usize = 8 << 20;

/// Returns with how many lazy pages of `page_size` bytes a CPU notes its batch.
///
/// `lazy_max_pages()` is proportional to `fls(online)`, which `ilog2(possible) / possible * online` does not exceed.
pub(super) fn lazy_batch(cpus: usize, page_size: usize) -> usize {
    // CAST: A logarithm fits in a `usize`.
    let log = cpus.checked_ilog2().unwrap_or(0).max(1) as usize;
    ((UNCOUNTED / page_size).wrapping_mul(log) / cpus.max(1)).min(MOST_NOTED)
}

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
    /// It waits, and the CPU is to note the batch.
    IsDue,
    /// There is no room: the batch is to be noted first.
    NoRoom(LazySlot),
    /// Its area is as large as a batch, so it is to be noted at once.
    Alone(LazySlot),
}

/// The slots that a CPU has made lazy and not yet noted in their blocks.
///
/// # Invariants
///
/// The elements from `noted` on up to `added`, both modulo [`LEN`], are each a [`LazySlot`] that the batch has.
pub(super) struct Batch {
    /// Numbers of pages: for kmemleak, an address would be a reference to the next area there.
    first_pages: CacheAligned<[Atomic<usize>; LEN]>,
    /// How many slots were added, and how many were not, as their areas are too large; the pages of those that were; and `pages`
    /// when the CPU was to note the batch last, though others may have noted it since. Only [`Batch::add`] writes them.
    added: Atomic<usize>,
    alone: Atomic<usize>,
    pages: Atomic<usize>,
    due_pages: Atomic<usize>,
    /// How many slots were noted, and pages, written under the lock.
    noted: Atomic<usize>,
    noted_pages: Atomic<usize>,
    lock: Locked<()>,
    /// With this many pages more, the CPU is to note the batch.
    most: usize,
}

impl Batch {
    /// Creates an empty batch, which its CPU is to note after each `most` pages.
    pub(super) fn new(most: usize) -> Result<Self> {
        // INVARIANT: No slot waits.
        Ok(Self {
            first_pages: CacheAligned::new([const { Atomic::new(0) }; LEN]),
            added: Atomic::new(0),
            alone: Atomic::new(0),
            pages: Atomic::new(0),
            due_pages: Atomic::new(0),
            noted: Atomic::new(0),
            noted_pages: Atomic::new(0),
            most,
            lock: Locked::new((), c"vmap_rust batch", static_lock_class!())?,
        })
    }

    /// Returns how many areas were retired, ever.
    pub(super) fn retired(&self) -> usize {
        // Relaxed: a statistic orders nothing.
        self.added.read_once().wrapping_add(self.alone.read_once())
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
        // Acquire: pairs with the release in `add()`.
        let end = self.added.load(Acquire);
        Taken {
            batch: self,
            // Relaxed: written under the lock.
            next: self.noted.read_once(),
            end,
            // Relaxed: a slot that is added meanwhile may count now, and not then.
            pages: self.pages.read_once(),
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
    /// [`Batch::pages`] after it.
    pages: usize,
    _lock: LockGuard<'a, ()>,
}

impl Taken<'_> {
    /// Returns how many pages the areas of the slots have.
    pub(super) fn pages(&self) -> usize {
        // Relaxed: written under the lock.
        self.pages.wrapping_sub(self.batch.noted_pages.read_once())
    }
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
        // Relaxed: it says when to note, and orders nothing.
        self.batch.noted_pages.write_once(self.pages);
        // Release: the elements were read, and the slots noted, before.
        self.batch.noted.store(self.next, Release);
    }
}

impl Own<'_, Batch> {
    /// Adds the slot of an area of `pages` pages.
    #[inline(always)]
    pub(super) fn add(&self, slot: LazySlot, pages: usize) -> Added {
        if pages >= self.most {
            let alone = self.alone.read_once().wrapping_add(1);
            self.alone.write_once(alone);
            return Added::Alone(slot);
        }
        let added = self.added.read_once();
        // Acquire: pairs with the release in the drop of `Taken`, which has read the element by then.
        let waiting = added.wrapping_sub(self.noted.load(Acquire));
        if waiting >= LEN {
            return Added::NoRoom(slot);
        }
        let pages = self.pages.read_once().wrapping_add(pages);
        self.pages.write_once(pages);
        // INVARIANT: The batch has the slot from the store of `added` on.
        self.first_pages[added % LEN].write_once(slot.first_page);
        // Release: pairs with the acquire in `take()`. The area was unmapped and vacated before.
        self.added.store(added.wrapping_add(1), Release);
        let more = pages.wrapping_sub(self.due_pages.read_once());
        if more < self.most && waiting < LEN - 1 {
            return Added::Waits;
        }
        self.due_pages.write_once(pages);
        Added::IsDue
    }
}
