// SPDX-License-Identifier: GPL-2.0

//! Allocations that fail on demand, per thread, like `/proc/self/fail-nth`.

use std::cell::Cell;

std::thread_local! {
    /// The n-th allocation from now on fails; 0 if none does.
    pub static NTH: Cell<u32> = const { Cell::new(0) };
    /// From the n-th allocation on, all fail; 0 if none does.
    pub static FROM: Cell<u32> = const { Cell::new(0) };
}

/// Counts an allocation, and returns whether it fails.
pub fn strikes() -> bool {
    let (one, all) = (NTH.get(), FROM.get());
    NTH.set(one.saturating_sub(1));
    // Once the count is down to 1, all allocations fail.
    FROM.set(if all > 1 { all - 1 } else { all });
    one == 1 || all == 1
}
