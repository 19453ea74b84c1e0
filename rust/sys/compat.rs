// SPDX-License-Identifier: GPL-2.0

//! What differs between the series of Linux that this is for.

use core::borrow::Borrow;
use kernel::sync::barrier;

/// Orders loads before it with loads after it, as other CPUs see them.
#[inline(always)]
pub(crate) fn smp_rmb() {
    #[cfg(linux_7_2)]
    barrier::smp_rmb();
    #[cfg(not(linux_7_2))]
    barrier::smp_mb(barrier::Read);
}

/// Returns whether a parameter is on. Linux 7.2 has none of type `bool`, and gives a reference to the value; 7.3 gives the
/// value.
pub(crate) fn is_on(value: impl Borrow<u8>) -> bool {
    *value.borrow() != 0
}
