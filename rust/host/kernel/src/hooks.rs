// SPDX-License-Identifier: GPL-2.0

//! What a test sees of the tree, and does to it, while the code under test runs.

use std::cell::{Cell, RefCell};

std::thread_local! {
    /// Number of searches for a gap of a size that this thread has made.
    pub static SEARCHES: Cell<usize> = const { Cell::new(0) };
    /// What others do before this thread takes the lock of a tree, the next one last.
    pub static MEANWHILE: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
    /// What others do when this thread has found an entry of a tree, before it uses the entry. Only for a thread that does
    /// not hold the lock of the tree.
    pub static FOUND: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// Counts a search.
pub fn search() {
    SEARCHES.set(SEARCHES.get() + 1);
}

/// Lets others do what is next in [`MEANWHILE`]. They may take locks, too.
pub fn before_lock() {
    let mut left = MEANWHILE.take();
    let next = left.pop();
    if let Some(others) = next {
        others();
    }
    MEANWHILE.set(left);
}

/// Lets others do what is in [`FOUND`], once.
pub fn after_find() {
    if let Some(others) = FOUND.take() {
        others();
    }
}
