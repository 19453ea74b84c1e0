// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::rcu` on the RCU of bench/native/shim.c.

use core::marker::PhantomData;

extern "C" {
    fn __rcu_read_lock();
    fn __rcu_read_unlock();
}

#[cfg_attr(feature = "calls", inline(never))]
#[cfg_attr(not(feature = "calls"), inline(always))]
fn rcu_read_lock() {
    // SAFETY: No requirements.
    unsafe { __rcu_read_lock() }
}

#[cfg_attr(feature = "calls", inline(never))]
#[cfg_attr(not(feature = "calls"), inline(always))]
fn rcu_read_unlock() {
    // SAFETY: A guard is dropped, whose creation has called `__rcu_read_lock()`.
    unsafe { __rcu_read_unlock() }
}

/// A reader.
pub struct Guard(PhantomData<*mut ()>);

impl Guard {
    /// Begins a read-side critical section.
    #[allow(clippy::new_without_default, reason = "as in the kernel")]
    #[inline(always)]
    pub fn new() -> Self {
        rcu_read_lock();
        Self(PhantomData)
    }
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        rcu_read_unlock();
    }
}
