// SPDX-License-Identifier: GPL-2.0

//! Memory that fails on demand: the `fail_nth` of this thread.

use std::cell::Cell;

std::thread_local! {
    /// The n-th allocation from now on fails; 0 if none does.
    pub static NTH: Cell<u32> = const { Cell::new(0) };
}

/// Is this the allocation that fails?
pub fn strikes() -> bool {
    NTH.with(|nth| {
        let left = nth.get();
        nth.set(left.saturating_sub(1));
        left == 1
    })
}
