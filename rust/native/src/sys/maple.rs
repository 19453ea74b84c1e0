// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `maple`: lib/maple_tree.c, by the functions of bench/native/maple.c. There always is memory for a node.

use crate::{
    base::range::{Gaps, Span},
    sys::mm::Gfp,
};
use core::{cell::UnsafeCell, marker::PhantomData, ptr};
use kernel::{
    prelude::*,
    sync::{rcu, LockClassKey},
    types::ForeignOwnable,
};

pub(crate) trait Entry:
    'static + Copy + PartialEq + for<'a> ForeignOwnable<Borrowed<'a> = Self>
{
}

#[derive(Debug, PartialEq)]
pub(crate) enum StoreError {
    NoMemory,
    Mismatch,
}

type Found = unsafe extern "C" fn(*mut c_void, usize, *mut usize, *mut usize) -> *mut c_void;

extern "C" {
    fn native_tree_init(tree: *mut c_void);
    fn mtree_destroy(tree: *mut c_void);
    fn native_tree_load(tree: *mut c_void, at: usize) -> *mut c_void;
    fn native_tree_next(
        t: *mut c_void,
        at: usize,
        first: *mut usize,
        last: *mut usize,
    ) -> *mut c_void;
    fn native_tree_lock(tree: *mut c_void);
    fn native_tree_unlock(tree: *mut c_void);
    fn native_tree_walk(
        t: *mut c_void,
        at: usize,
        first: *mut usize,
        last: *mut usize,
    ) -> *mut c_void;
    fn native_tree_gap(
        t: *mut c_void,
        high: bool,
        size: usize,
        first: *mut usize,
        last: *mut usize,
    ) -> bool;
    fn native_tree_store(tree: *mut c_void, first: usize, last: usize, entry: *mut c_void);
}

/// Turns what C has found back into an entry.
fn entry_of<E: Entry>(raw: *mut c_void) -> Option<E> {
    // SAFETY: The tree has only values that `into_foreign()` has returned, and entries are copies.
    (!raw.is_null()).then(|| unsafe { E::borrow(raw) })
}

/// # Invariants
///
/// The words are a `struct maple_tree`, which `native_tree_init()` has made.
pub(crate) struct Tree<E: Entry>(UnsafeCell<[usize; 2]>, PhantomData<E>);

// SAFETY: The tree has a lock of its own, and readers use RCU.
unsafe impl<E: Entry + Send> Send for Tree<E> {}
// SAFETY: The tree has a lock of its own, and readers use RCU.
unsafe impl<E: Entry + Send> Sync for Tree<E> {}

impl<E: Entry> Tree<E> {
    pub(crate) fn new(_: &'static CStr, _: Pin<&'static LockClassKey>) -> Result<Self> {
        let tree = UnsafeCell::new([0; 2]);
        // SAFETY: bench/native/maple.c asserts the size. An empty tree that nobody has locked may be moved.
        unsafe { native_tree_init(tree.get().cast()) };
        // INVARIANT: It was just made.
        Ok(Self(tree, PhantomData))
    }

    fn raw(&self) -> *mut c_void {
        self.0.get().cast()
    }

    pub(crate) fn lock(&self) -> Guard<'_, E> {
        // SAFETY: By the type invariants.
        unsafe { native_tree_lock(self.raw()) };
        Guard {
            tree: self,
            gap: None,
        }
    }

    pub(crate) fn load(&self, addr: usize, _: &rcu::Guard) -> Option<E> {
        // SAFETY: By the type invariants, under RCU.
        entry_of(unsafe { native_tree_load(self.raw(), addr) })
    }

    /// Calls a search of C, under RCU or the lock. Returns what it has found, and its range.
    fn find(&self, search: Found, addr: usize) -> (Option<Span>, *mut c_void) {
        let (mut first, mut last) = (0, 0);
        // SAFETY: By the type invariants; the numbers are valid.
        let raw = unsafe { search(self.raw(), addr, &mut first, &mut last) };
        (Span::new(first, last), raw)
    }
}

impl<E: Entry> Drop for Tree<E> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, and nobody else has it.
        unsafe { mtree_destroy(self.raw()) };
    }
}

/// # Invariants
///
/// The lock of the tree is held.
pub(crate) struct Guard<'tree, E: Entry> {
    tree: &'tree Tree<E>,
    gap: Option<Span>,
}

impl<E: Entry> Guard<'_, E> {
    fn entry_at(&mut self, addr: usize) -> Option<(Span, E)> {
        let (span, raw) = self.tree.find(native_tree_walk, addr);
        Some((span?, entry_of(raw)?))
    }

    pub(crate) fn entry_from(&mut self, addr: usize) -> Option<(Span, E)> {
        let (span, raw) = self.tree.find(native_tree_next, addr);
        Some((span?, entry_of(raw)?))
    }

    fn store(&mut self, span: Span, raw: *mut c_void) {
        self.gap = None;
        // SAFETY: By the type invariants.
        unsafe { native_tree_store(self.tree.raw(), span.first(), span.last(), raw) };
    }

    pub(crate) fn insert(&mut self, span: Span, entry: E) -> Result<(), StoreError> {
        if !self.gap.is_some_and(|gap| gap.covers(span)) {
            return Err(StoreError::Mismatch);
        }
        self.store(span, entry.into_foreign());
        Ok(())
    }

    pub(crate) fn erase(&mut self, span: Span, old: E) -> Result<(), StoreError> {
        if self.entry_at(span.first()) != Some((span, old)) {
            return Err(StoreError::Mismatch);
        }
        self.store(span, ptr::null_mut());
        Ok(())
    }

    pub(crate) fn erase_all(&mut self, span: Span) -> Result<(), StoreError> {
        self.store(span, ptr::null_mut());
        Ok(())
    }

    pub(crate) fn spare_reserves(&mut self) {}

    pub(crate) fn nomem(&mut self, _: Gfp) -> bool {
        false
    }

    pub(crate) fn relock(&mut self) {
        self.gap = None;
        // SAFETY: By the type invariants.
        unsafe {
            native_tree_unlock(self.tree.raw());
            native_tree_lock(self.tree.raw());
        }
    }

    fn find_gap(&mut self, highest: bool, window: Span, bytes: usize) -> Option<Span> {
        let (mut first, mut last) = (window.first(), window.last());
        // SAFETY: By the type invariants; the numbers are valid.
        let found =
            unsafe { native_tree_gap(self.tree.raw(), highest, bytes, &mut first, &mut last) };
        self.gap = found.then(|| Span::new(first, last)).flatten();
        self.gap
    }
}

impl<E: Entry> Drop for Guard<'_, E> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants.
        unsafe { native_tree_unlock(self.tree.raw()) };
    }
}

impl<E: Entry> Gaps for Guard<'_, E> {
    fn lowest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        self.find_gap(false, window, bytes)
    }

    fn highest_gap(&mut self, window: Span, bytes: usize) -> Option<Span> {
        self.find_gap(true, window, bytes)
    }

    fn gap_around(&mut self, addr: usize) -> Option<Span> {
        let (span, raw) = self.tree.find(native_tree_walk, addr);
        self.gap = span.filter(|_| raw.is_null());
        self.gap
    }

    fn pause(&mut self) {
        self.relock();
    }
}
