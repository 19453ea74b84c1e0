// SPDX-License-Identifier: GPL-2.0

//! What may differ between the series of Linux that this is for.

use kernel::sync::barrier;

/// Orders loads before it with loads after it, as other CPUs see them.
#[inline(always)]
pub(crate) fn smp_rmb() {
    barrier::smp_mb(barrier::Read);
}

/// Returns whether a parameter is on. The kernel has none of type `bool`.
pub(crate) fn is_on(value: u8) -> bool {
    value != 0
}
