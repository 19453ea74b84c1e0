// SPDX-License-Identifier: GPL-2.0

//! Allocations that fail on demand, per thread, like `/proc/self/fail-nth`.

use std::cell::Cell;

std::thread_local! {
    /// The n-th allocation from now on fails; 0 if none does.
    pub static NTH: Cell<u32> = const { Cell::new(0) };
}

std::thread_local! {
    /// From the n-th allocation on, all fail; 0 if none does.
    pub static FROM: Cell<u32> = const { Cell::new(0) };
}

/// Counts an allocation, and returns whether it fails.
pub fn strikes() -> bool {
    let one = NTH.with(|nth| {
        let left = nth.get();
        nth.set(left.saturating_sub(1));
        left == 1
    });
    let all = FROM.with(|from| {
        // Once the count is down to 1, all allocations fail.
        let left = from.get();
        from.set(if left > 1 { left - 1 } else { left });
        left == 1
    });
    one || all
}
