// SPDX-License-Identifier: GPL-2.0

//! Maple tree of ranges, with operations that `kernel::maple_tree` does not have.
//!
//! This module adds RCU mode with lockless lookup, searches for the lowest and the highest gap in a window,
//! an erase that may fail but never sleeps, and a lock class of its own. It follows the conventions of
//! `rust/kernel/`.
//!
//! The types enforce two rules of the tree:
//!
//! - A store goes only to a range that was just found free: [`Guard::insert`] checks the range against the
//!   gap of the last search, and forgets that gap whenever the lock may have been dropped.
//! - A store allocates without waiting. If it fails, [`Guard::nomem`] allocates by the rules of
//!   `mas_nomem()`: it may drop the lock, so it takes `&mut self`, and the caller searches again.
//!
//! C header: [`include/linux/maple_tree.h`](srctree/include/linux/maple_tree.h)
//!
//! Reference: <https://docs.kernel.org/core-api/maple_tree.html>

use crate::{
    base::{
        fit::Gaps,
        range::Span, //
    },
    sys::mm::Gfp, //
};
use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::{
        rcu,
        LockClassKey, //
    },
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

/// A pointer-sized value that a tree can store.
///
/// # Safety
///
/// - [`Entry::into_raw`] does not return null or a value that the tree reserves: the two low bits are not
///   `0b10`.
/// - [`Entry::from_raw`] undoes [`Entry::into_raw`].
pub(crate) unsafe trait Entry: Copy + PartialEq {
    /// Returns the value to store.
    fn into_raw(self) -> *mut c_void;

    /// Converts a stored value back.
    ///
    /// # Safety
    ///
    /// `raw` was returned by [`Entry::into_raw`].
    unsafe fn from_raw(raw: *mut c_void) -> Self;
}

/// The reason why an entry was not stored.
#[derive(Debug, PartialEq)]
pub(crate) enum StoreError {
    /// No memory without waiting. Call [`Guard::nomem`], then search and store again.
    NoMemory,
    /// The range is not within the gap found last, or does not hold the expected entry.
    Mismatch,
}

/// A maple tree of ranges.
///
/// # Invariants
///
/// - `tree` is an initialized maple tree with `MT_FLAGS_ALLOC_RANGE`, `MT_FLAGS_USE_RCU` and its
///   internal lock.
/// - Every entry in it came from [`Entry::into_raw`] of an `E`.
#[pin_data(PinnedDrop)]
pub(crate) struct Tree<E: Entry> {
    #[pin]
    tree: Opaque<bindings::maple_tree>,
    _entries: PhantomData<E>,
}

// SAFETY: By the type invariants, the tree holds nothing but values of type `E`, and these are `Send`.
unsafe impl<E: Entry + Send> Send for Tree<E> {}
// SAFETY: Entries are stored with the lock of the tree held, and read under RCU or with the lock held. What
// another CPU stores or reads is a copy of an `E`, which is `Send`.
unsafe impl<E: Entry + Send> Sync for Tree<E> {}

#[pinned_drop]
impl<E: Entry> PinnedDrop for Tree<E> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants, the tree is initialized. Nobody else has a reference to it.
        unsafe { bindings::mtree_destroy(self.tree.get()) };
    }
}

/// Creates a state for a walk of `tree` from `first` to `last`, like `MA_STATE()` in C.
fn new_state(tree: *mut bindings::maple_tree, first: usize, last: usize) -> bindings::ma_state {
    bindings::ma_state {
        tree,
        index: first,
        last,
        node: ptr::null_mut(),
        min: 0,
        max: usize::MAX,
        alloc: ptr::null_mut(),
        status: bindings::maple_status_ma_start,
        mas_flags: 0,
        store_type: bindings::store_type_wr_invalid,
        ..Default::default()
    }
}

impl<E: Entry> Tree<E> {
    /// Where the maple tree of C is, in bytes.
    #[cfg(CONFIG_VMAP_RUST_DEBUG_INFO)]
    pub(crate) const TREE: usize = core::mem::offset_of!(Self, tree);

    /// Creates an empty tree with a lock of class `key`.
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        // INVARIANT: The flags are those of the type invariants, and there are no entries yet.
        pin_init!(Self {
            tree <- Opaque::ffi_init(|slot: *mut bindings::maple_tree| {
                // SAFETY: `slot` is valid for writes, and becomes an initialized tree.
                unsafe {
                    bindings::mt_init_flags(
                        slot,
                        bindings::MT_FLAGS_ALLOC_RANGE | bindings::MT_FLAGS_USE_RCU,
                    )
                };
                // SAFETY: The lock in an initialized tree is valid, and nobody else has a pointer to it.
                // CAST: Without SMP the lock has no size, and bindgen uses another type for it.
                let lock = unsafe { &raw mut (*slot).__bindgen_anon_1.ma_lock }.cast();
                // All trees initialized from Rust share one lock class, so give this one its own.
                // SAFETY: `lock` is valid and not in use; `name` and `key` are static.
                unsafe { bindings::__spin_lock_init(lock, name.as_char_ptr(), key.as_ptr()) };
            }),
            _entries: PhantomData,
        })
    }

    fn lock_ptr(&self) -> *mut bindings::spinlock_t {
        // SAFETY: By the type invariants, the tree is initialized and has an internal lock.
        let lock = unsafe { &raw mut (*self.tree.get()).__bindgen_anon_1.ma_lock };
        // CAST: Without SMP the lock has no size, and bindgen uses another type for it.
        lock.cast()
    }

    /// Locks the tree for searches and changes. Spins; any context that may take spinlocks.
    pub(crate) fn lock(&self) -> Guard<'_, E> {
        // SAFETY: By the type invariants, the tree is initialized, and so is its spinlock.
        unsafe { bindings::spin_lock(self.lock_ptr()) };
        // INVARIANT: The lock was just taken, and the state is new.
        Guard {
            tree: self,
            state: new_state(self.tree.get(), 0, 0),
            gap: None,
            steps: 0,
            spares_reserves: false,
            _not_send: NotThreadSafe,
        }
    }

    /// Returns the entry at `addr`, without the lock. It may be replaced at once, but memory that is freed
    /// after an RCU grace period stays valid while `_rcu` is held.
    ///
    /// Any context in which RCU is watching.
    pub(crate) fn load(&self, addr: usize, _rcu: &rcu::Guard) -> Option<E> {
        // SAFETY: By the type invariants, the tree is initialized and in RCU mode, in which
        // `mtree_load()` needs no lock.
        let raw = unsafe { bindings::mtree_load(self.tree.get(), addr) };
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the type invariants, this came from `into_raw()`.
        Some(unsafe { E::from_raw(raw) })
    }

    /// Calls `wanted`, under the RCU read lock and without the lock of the tree, for the entries at or above
    /// `addr` in ascending order. Returns its first [`Some`].
    ///
    /// Task context only: the step to the next leaf retries until a concurrent writer is done.
    pub(crate) fn next<T>(&self, addr: usize, wanted: impl Fn(Span, E) -> Option<T>) -> Option<T> {
        let _rcu = rcu::Guard::new();
        let mut state = new_state(self.tree.get(), addr, addr);
        loop {
            // SAFETY: `state` is for an initialized tree in RCU mode, under the RCU read lock.
            let raw = unsafe { bindings::mas_find(&raw mut state, usize::MAX) };
            if raw.is_null() {
                return None;
            }
            // SAFETY: By the type invariants, this came from `into_raw()`.
            let entry = unsafe { E::from_raw(raw) };
            let found = Span::new(state.index, state.last).and_then(|span| wanted(span, entry));
            if found.is_some() {
                return found;
            }
        }
    }
}

/// A locked tree.
///
/// # Invariants
///
/// - The lock of `tree` is held.
/// - `state` is for `tree`.
/// - If `gap` is [`Some`], it is free.
#[must_use = "the lock unlocks immediately when the guard is unused"]
pub(crate) struct Guard<'tree, E: Entry> {
    tree: &'tree Tree<E>,
    state: bindings::ma_state,
    gap: Option<Span>,
    /// Steps of a search since the lock was taken.
    steps: u32,
    /// Whether stores may take memory from the reserves, if the task may: reclaim may.
    spares_reserves: bool,
    _not_send: NotThreadSafe,
}

/// Steps of a search for which the lock is held. Each is a walk from the root or two.
const MAX_STEPS: u32 = 6;

impl<E: Entry> Drop for Guard<'_, E> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the lock is held.
        unsafe { bindings::spin_unlock(self.tree.lock_ptr()) };
        if !self.state.alloc.is_null() || !self.state.sheaf.is_null() {
            // SAFETY: The state is valid, and nobody uses it any more. The unused nodes of `nomem()`
            // belong to the state, not to the tree, so freeing them needs no lock.
            unsafe { bindings::mas_destroy(&raw mut self.state) };
        }
    }
}

impl<E: Entry> Guard<'_, E> {
    /// Restarts the state for `first` to `last` and keeps its allocated nodes, like `mas_set_range()`.
    fn start_at(&mut self, first: usize, last: usize) -> *mut bindings::ma_state {
        self.state.status = bindings::maple_status_ma_start;
        self.state.node = ptr::null_mut();
        self.state.index = first;
        self.state.last = last;
        &raw mut self.state
    }

    /// Returns the entry at `addr` and its range.
    pub(crate) fn entry_at(&mut self, addr: usize) -> Option<(Span, E)> {
        let state = self.start_at(addr, addr);
        // SAFETY: By the type invariants, the lock is held and the state is for the tree.
        let raw = unsafe { bindings::mas_walk(state) };
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the invariants of `Tree`, this came from `into_raw()`.
        let entry = unsafe { E::from_raw(raw) };
        Some((Span::new(self.state.index, self.state.last)?, entry))
    }

    /// Returns the first entry at or above `addr`, and its range.
    pub(crate) fn entry_from(&mut self, addr: usize) -> Option<(Span, E)> {
        let state = self.start_at(addr, addr);
        // SAFETY: By the type invariants, the lock is held and the state is for the tree.
        let raw = unsafe { bindings::mas_find(state, usize::MAX) };
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the invariants of `Tree`, this came from `into_raw()`.
        let entry = unsafe { E::from_raw(raw) };
        Some((Span::new(self.state.index, self.state.last)?, entry))
    }

    /// Lets stores of this guard fail rather than take memory from the reserves. `mas_store()` allocates with
    /// `GFP_NOWAIT`, which may take it from there in a task that reclaims memory.
    pub(crate) fn spare_reserves(&mut self) {
        self.spares_reserves = true;
    }

    /// Stores `raw` at all addresses of `span`.
    fn store(&mut self, span: Span, raw: *mut c_void) -> Result<(), StoreError> {
        self.gap = None;
        // Always start at the root: a store that continues at a leaf allocates too many nodes and misses
        // spanning writes of the last slot (see `mas_erase()`).
        let spares_reserves = self.spares_reserves;
        let state = self.start_at(span.first(), span.last());
        if spares_reserves {
            // SAFETY: By the type invariants, the lock is held and the state is for the tree.
            return match unsafe { bindings::mas_preallocate(state, raw, Gfp::RECLAIM.as_raw()) } {
                0 => {
                    // SAFETY: By the type invariants, the lock is held and the state is for the tree. It
                    // has the nodes for storing `raw`.
                    unsafe { bindings::mas_store_prealloc(state, raw) };
                    Ok(())
                }
                _ => Err(StoreError::NoMemory),
            };
        }
        // SAFETY: By the type invariants, the lock is held and the state is for the tree.
        unsafe { bindings::mas_store(state, raw) };
        if self.state.status == bindings::maple_status_ma_error {
            Err(StoreError::NoMemory)
        } else {
            Ok(())
        }
    }

    /// Stores a new entry at `span`, which is within the gap found last. If that fails, the tree is
    /// unchanged.
    pub(crate) fn insert(&mut self, span: Span, entry: E) -> Result<(), StoreError> {
        if !self.gap.is_some_and(|gap| gap.covers(span)) {
            return Err(StoreError::Mismatch);
        }
        self.store(span, entry.into_raw())
    }

    /// Removes the entry `old`, whose range is exactly `span`. If that fails, the tree is unchanged.
    pub(crate) fn erase(&mut self, span: Span, old: E) -> Result<(), StoreError> {
        if self.entry_at(span.first()) != Some((span, old)) {
            return Err(StoreError::Mismatch);
        }
        self.store(span, ptr::null_mut())
    }

    /// Allocates nodes after [`StoreError::NoMemory`]. Returns false if there is no memory.
    ///
    /// Drops the lock and sleeps if `gfp` allows it: results of earlier searches are void.
    pub(crate) fn nomem(&mut self, gfp: Gfp) -> bool {
        self.gap = None;
        // SAFETY: By the type invariants, the lock is held; it is held again on return.
        unsafe { bindings::mas_nomem(&raw mut self.state, gfp.as_raw()) }
    }

    /// Releases the lock and takes it again, so that others do not wait long. What was found may have changed.
    pub(crate) fn relock(&mut self) {
        self.steps = 0;
        self.gap = None;
        // SAFETY: By the type invariants, the lock is held.
        unsafe { bindings::spin_unlock(self.tree.lock_ptr()) };
        // INVARIANT: The lock is held again. Each use of the state starts at the root, and no gap is known.
        // SAFETY: `lock_ptr()` is a valid, initialized spinlock.
        unsafe { bindings::spin_lock(self.tree.lock_ptr()) };
    }
}

impl<E: Entry> Gaps for Guard<'_, E> {
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        let state = self.start_at(window.first(), window.last());
        // SAFETY: By the type invariants, the lock is held and the state is for the tree.
        let err = unsafe { bindings::mas_empty_area(state, window.first(), window.last(), bytes) };
        // INVARIANT: `mas_empty_area()` has found the range free.
        self.gap = (err == 0)
            .then(|| Span::new(self.state.index, self.state.last))
            .flatten();
        self.gap
    }

    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        let state = self.start_at(window.first(), window.last());
        // SAFETY: By the type invariants, the lock is held and the state is for the tree.
        let err =
            unsafe { bindings::mas_empty_area_rev(state, window.first(), window.last(), bytes) };
        // INVARIANT: `mas_empty_area_rev()` has found the range free.
        self.gap = (err == 0)
            .then(|| Span::new(self.state.index, self.state.last))
            .flatten();
        self.gap
    }

    fn gap_around(&mut self, addr: usize) -> Option<Span> {
        let state = self.start_at(addr, addr);
        // SAFETY: By the type invariants, the lock is held and the state is for the tree.
        let raw = unsafe { bindings::mas_walk(state) };
        // INVARIANT: For a null slot `mas_walk()` sets the state to the range of the slot, and a gap is
        // exactly one slot.
        self.gap = raw
            .is_null()
            .then(|| Span::new(self.state.index, self.state.last))
            .flatten();
        self.gap
    }
    fn pause(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps < MAX_STEPS {
            return;
        }
        self.relock();
    }
}
