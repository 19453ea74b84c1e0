// SPDX-License-Identifier: GPL-2.0

//! The maple tree, the kernel's search tree for ranges of numbers: `kernel::maple_tree`, with spans, for one kind of entries.
//! It adds that nothing is overwritten, and that a search of many steps lets others have the lock in between.
//!
//! C header: [`include/linux/maple_tree.h`](srctree/include/linux/maple_tree.h)

use super::mm::Gfp;
use crate::base::prelude::*;
use core::ops::RangeInclusive;
use kernel::{
    maple_tree::{
        MapleTreeRcu,
        MapleTreeRcuGuard,
        MapleValue, //
    },
    sync::rcu, //
};

/// A pointer-sized value that a tree can store: what is read from the tree is a copy.
pub(crate) trait Entry: MapleValue + PartialEq {}

/// The reason why an entry was not stored.
#[derive(Debug, PartialEq)]
pub(crate) enum StoreError {
    /// No memory without waiting. Call [`Guard::nomem`], then search and store again.
    NoMemory,
    /// The range is not within the gap found last, or does not hold the expected entry.
    Mismatch,
}

fn span_of(range: RangeInclusive<usize>) -> Option<Span> {
    Span::new(*range.start(), *range.end())
}

/// A maple tree of ranges.
#[pin_data]
pub(crate) struct Tree<E: Entry> {
    #[pin]
    tree: MapleTreeRcu<E>,
}

impl<E: Entry> Tree<E> {
    /// Creates an empty tree with a lock of class `key`.
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self { tree <- MapleTreeRcu::new(name, key) })
    }

    /// Takes the tree lock, for searches and changes; any context that may take spinlocks.
    pub(crate) fn lock(&self) -> Guard<'_, E> {
        Guard {
            tree: ManuallyDrop::new(self.tree.lock()),
            gap: None,
            steps: 0,
            flags: None,
        }
    }

    /// Returns the entry at `addr`, without the lock. It may be replaced at once, but memory that is freed
    /// after an RCU grace period stays valid while `rcu` is held.
    ///
    /// Any context in which RCU is watching.
    pub(crate) fn load(&self, addr: usize, _: &rcu::Guard) -> Option<E> {
        self.tree.load(addr)
    }
}

/// A locked tree.
///
/// # Invariants
///
/// - If there is a `gap`, the tree has no entry in it.
/// - `tree` is dropped only by the drop of the guard.
#[must_use = "the lock unlocks immediately when the guard is unused"]
pub(crate) struct Guard<'tree, E: Entry> {
    tree: ManuallyDrop<MapleTreeRcuGuard<'tree, E>>,
    /// The gap that the last search has found, if nothing was done since.
    gap: Option<Span>,
    /// Steps of a search since the lock was taken.
    steps: u32,
    /// Flags for the memory of stores, if not those of [`MapleTreeRcuGuard::store`].
    flags: Option<Flags>,
}

/// Steps of a search for which the lock is held. Each is a walk from the root or two; for a percpu set, one for each member.
const MAX_STEPS: u32 = 6;

impl<E: Entry> Guard<'_, E> {
    /// Returns the first entry at or above `addr`, and its range.
    pub(crate) fn entry_from(&mut self, addr: usize) -> Option<(Span, E)> {
        let (range, entry) = self.tree.find(addr)?;
        Some((span_of(range)?, entry))
    }

    /// Lets stores of this guard fail rather than take memory from the reserves: `GFP_NOWAIT` may take it from there
    /// in a task that reclaims memory.
    pub(crate) fn spare_reserves(&mut self) {
        self.flags = Some(Gfp::RECLAIM.node_flags());
    }

    /// Writes an entry, or none, to `span`. If that fails, the tree is unchanged.
    fn write(&mut self, span: Span, entry: Option<E>) -> Result<(), StoreError> {
        self.gap = None;
        let range = span.first()..=span.last();
        let written = match self.flags {
            None => self.tree.store(range, entry),
            Some(flags) => self.tree.store_prealloc(range, entry, flags),
        };
        written.map_err(|err| match err {
            ENOMEM => StoreError::NoMemory,
            _ => StoreError::Mismatch,
        })
    }

    /// Stores a new entry at `span`, which is within the gap found last. If that fails, the tree is unchanged.
    ///
    /// After any other change in between, or with a `span` that is elsewhere, this returns [`StoreError::Mismatch`].
    pub(crate) fn insert(&mut self, span: Span, entry: E) -> Result<(), StoreError> {
        if !self.gap.is_some_and(|gap| gap.covers(span)) {
            return Err(StoreError::Mismatch);
        }
        self.write(span, Some(entry))
    }

    /// Removes the entry `old`, whose range is exactly `span`. If that fails, the tree is unchanged.
    pub(crate) fn erase(&mut self, span: Span, old: E) -> Result<(), StoreError> {
        let (range, entry) = self.tree.walk(span.first());
        if entry != Some(old) || span_of(range) != Some(span) {
            return Err(StoreError::Mismatch);
        }
        self.write(span, None)
    }

    /// Removes all entries in `span` with one store, if each is wholly in it. If that fails, the tree is unchanged.
    pub(crate) fn erase_all(&mut self, span: Span) -> Result<(), StoreError> {
        for addr in [span.first(), span.last()] {
            let (range, entry) = self.tree.walk(addr);
            if entry.is_some() && !span_of(range).is_some_and(|range| span.covers(range)) {
                return Err(StoreError::Mismatch);
            }
        }
        self.write(span, None)
    }

    /// Allocates nodes after [`StoreError::NoMemory`]. Returns false if there is no memory.
    ///
    /// Drops the lock and sleeps if `gfp` allows it: results of earlier searches are void.
    pub(crate) fn nomem(&mut self, gfp: Gfp) -> bool {
        self.gap = None;
        self.tree.nomem(gfp.node_flags())
    }

    /// Releases the lock and takes it again, so that others do not wait long. What was found may have changed.
    pub(crate) fn relock(&mut self) {
        self.steps = 0;
        self.gap = None;
        self.tree.relock();
    }
}

impl<E: Entry> Drop for Guard<'_, E> {
    // The unlock is not short: one copy for all that take the lock.
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: By the type invariants, it was not dropped before. Nobody uses the guard afterwards.
        unsafe { ManuallyDrop::drop(&mut self.tree) };
    }
}

impl<E: Entry> Gaps for Guard<'_, E> {
    // INVARIANT: The lock is held, so what is found here remains a gap until something is written or the lock is released,
    // which forgets the gap.
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        let range = window.first()..=window.last();
        self.gap = self.tree.empty_area(bytes, range).and_then(span_of);
        self.gap
    }

    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        let range = window.first()..=window.last();
        self.gap = self.tree.empty_area_rev(bytes, range).and_then(span_of);
        self.gap
    }

    fn gap_around(&mut self, addr: usize) -> Option<Span> {
        let (range, entry) = self.tree.walk(addr);
        self.gap = span_of(range).filter(|_| entry.is_none());
        self.gap
    }

    fn pause(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps >= MAX_STEPS {
            self.relock();
        }
    }
}
