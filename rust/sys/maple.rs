// SPDX-License-Identifier: GPL-2.0

//! Maple tree of ranges: `kernel::maple_tree`, with spans, for one kind of entries. It adds that a search of many steps
//! lets others have the lock in between.
//!
//! C header: [`include/linux/maple_tree.h`](srctree/include/linux/maple_tree.h)

use super::prelude::*;
use core::ops::RangeInclusive;
use kernel::{
    maple_tree::{
        InsertErrorKind,
        LockedMaState,
        MapleTreeRcu, //
    },
    sync::rcu,
    types::{
        ForeignOwnable,
        ForeignOwnableRcu, //
    }, //
};

/// A pointer-sized value that a tree can store: what is read from the tree is a copy.
pub(crate) trait Entry:
    'static
    + Copy
    + PartialEq
    + for<'a> ForeignOwnable<BorrowedMut<'a> = Self>
    + for<'a> ForeignOwnableRcu<RcuBorrowed<'a> = Self>
{
}

/// The reason why an entry was not stored.
#[derive(Debug, PartialEq)]
pub(crate) enum StoreError {
    /// No memory without waiting. Call [`Guard::nomem`], then search and store again.
    NoMemory,
    /// The range is not within the gap found last, or does not hold the expected entry.
    Mismatch,
}

impl From<InsertErrorKind> for StoreError {
    fn from(kind: InsertErrorKind) -> Self {
        match kind {
            InsertErrorKind::AllocError(_) => StoreError::NoMemory,
            _ => StoreError::Mismatch,
        }
    }
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
            state: self.tree.lock().into_ma_state(0, 0),
            steps: 0,
            flags: None,
        }
    }

    /// Returns the entry at `addr`, without the lock. It may be replaced at once, but memory that is freed
    /// after an RCU grace period stays valid while `rcu` is held.
    ///
    /// Any context in which RCU is watching.
    pub(crate) fn load(&self, addr: usize, rcu: &rcu::Guard) -> Option<E> {
        self.tree.load_rcu(addr, rcu)
    }

    /// Calls `wanted`, under the RCU read lock and without the lock of the tree, for the entries at or above
    /// `addr` in ascending order. Returns its first [`Some`].
    ///
    /// Task context only: the step to the next leaf retries until a concurrent writer is done.
    pub(crate) fn next<T>(&self, addr: usize, wanted: impl Fn(Span, E) -> Option<T>) -> Option<T> {
        let rcu = rcu::Guard::new();
        let mut entries = self.tree.iter_rcu(addr, &rcu);
        entries.find_map(|(range, entry)| wanted(span_of(range)?, entry))
    }
}

/// A locked tree.
#[must_use = "the lock unlocks immediately when the guard is unused"]
pub(crate) struct Guard<'tree, E: Entry> {
    state: LockedMaState<'tree, E>,
    /// Steps of a search since the lock was taken.
    steps: u32,
    /// Flags for the memory of stores, if not those of [`LockedMaState::store`].
    flags: Option<Flags>,
}

/// Steps of a search for which the lock is held. Each is a walk from the root or two.
const MAX_STEPS: u32 = 6;

impl<E: Entry> Guard<'_, E> {
    /// Returns the entry at `addr` and its range.
    fn entry_at(&mut self, addr: usize) -> Option<(Span, E)> {
        self.state.set_range(addr, addr);
        let entry = self.state.walk()?;
        Some((span_of(self.state.range())?, entry))
    }

    /// Returns the first entry at or above `addr`, and its range.
    pub(crate) fn entry_from(&mut self, addr: usize) -> Option<(Span, E)> {
        self.state.set_range(addr, addr);
        let entry = self.state.find(usize::MAX)?;
        Some((span_of(self.state.range())?, entry))
    }

    /// Lets stores of this guard fail rather than take memory from the reserves: `GFP_NOWAIT` may take it from there
    /// in a task that reclaims memory.
    pub(crate) fn spare_reserves(&mut self) {
        self.flags = Some(Gfp::RECLAIM.node_flags());
    }

    /// Stores a new entry at `span`, which is within the gap found last. If that fails, the tree is unchanged.
    ///
    /// The state remembers the gap of its last search, and [`LockedMaState::store`] writes only there: after any other call in
    /// between, or with a `span` that is elsewhere, it returns [`StoreError::Mismatch`].
    pub(crate) fn insert(&mut self, span: Span, entry: E) -> Result<(), StoreError> {
        let range = span.first()..=span.last();
        let stored = match self.flags {
            None => self.state.store(range, entry),
            Some(flags) => self.state.store_gfp(range, entry, flags),
        };
        stored.map_err(|err| err.cause.into())
    }

    /// Removes the entry `old`, whose range is exactly `span`. If that fails, the tree is unchanged.
    pub(crate) fn erase(&mut self, span: Span, old: E) -> Result<(), StoreError> {
        if self.entry_at(span.first()) != Some((span, old)) {
            return Err(StoreError::Mismatch);
        }
        let erased = match self.flags {
            None => self.state.erase_found(),
            Some(flags) => self.state.erase_found_gfp(flags),
        };
        match erased {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(StoreError::Mismatch),
            Err(_) => Err(StoreError::NoMemory),
        }
    }

    /// Removes all entries in `span` with one store, if each is wholly in it. If that fails, the tree is unchanged.
    pub(crate) fn erase_all(&mut self, span: Span) -> Result<(), StoreError> {
        let range = span.first()..=span.last();
        Ok(self.state.remove_range(range, self.flags)?)
    }

    /// Allocates nodes after [`StoreError::NoMemory`]. Returns false if there is no memory.
    ///
    /// Drops the lock and sleeps if `gfp` allows it: results of earlier searches are void.
    pub(crate) fn nomem(&mut self, gfp: Gfp) -> bool {
        self.state.nomem(gfp.node_flags())
    }

    /// Releases the lock and takes it again, so that others do not wait long. What was found may have changed.
    pub(crate) fn relock(&mut self) {
        self.steps = 0;
        self.state.relock();
    }
}

impl<E: Entry> Gaps for Guard<'_, E> {
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        let found = self.state.empty_area(bytes, window.first()..=window.last());
        found.ok().and_then(span_of)
    }

    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        let range = window.first()..=window.last();
        let found = self.state.empty_area_rev(bytes, range);
        found.ok().and_then(span_of)
    }

    fn gap_around(&mut self, addr: usize) -> Option<Span> {
        self.state.set_range(addr, addr);
        let is_free = self.state.walk().is_none();
        is_free.then(|| span_of(self.state.range())).flatten()
    }

    fn pause(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps >= MAX_STEPS {
            self.relock();
        }
    }
}
