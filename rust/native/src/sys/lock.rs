// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `lock`: the spinlock of bench/native/shim.c, which is that of the C side.

use crate::sys::per_cpu::CacheAligned;
use core::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
};
use kernel::{prelude::*, sync::LockClassKey};

extern "C" {
    fn _raw_spin_lock(lock: *mut u32);
    fn _raw_spin_trylock(lock: *mut u32) -> bool;
    fn _raw_spin_unlock(lock: *mut u32);
}

#[cfg_attr(feature = "calls", inline(never))]
#[cfg_attr(not(feature = "calls"), inline(always))]
fn spin_lock(lock: *mut u32) {
    // SAFETY: The lock is that of a `Locked`.
    unsafe { _raw_spin_lock(lock) }
}

#[cfg_attr(feature = "calls", inline(never))]
#[cfg_attr(not(feature = "calls"), inline(always))]
fn spin_unlock(lock: *mut u32) {
    // SAFETY: The lock is that of a `Locked`, and its guard is dropped or was forgotten.
    unsafe { _raw_spin_unlock(lock) }
}

struct Inner<T> {
    lock: UnsafeCell<u32>,
    value: UnsafeCell<T>,
}

/// `T` under a spinlock.
pub(crate) struct Locked<T>(KBox<CacheAligned<Inner<T>>>);

// SAFETY: Only the owner of the lock uses the value.
unsafe impl<T: Send> Send for Locked<T> {}
// SAFETY: Only the owner of the lock uses the value.
unsafe impl<T: Send> Sync for Locked<T> {}

pub(crate) type Quiet<T> = Locked<T>;

/// Proof that a lock is held.
///
/// # Invariants
///
/// The lock is held.
pub(crate) struct LockGuard<'a, T>(&'a Inner<T>);

impl<T> Locked<T> {
    pub(crate) fn new(value: T, _: &'static CStr, _: Pin<&'static LockClassKey>) -> Result<Self> {
        let inner = Inner {
            lock: UnsafeCell::new(0),
            value: UnsafeCell::new(value),
        };
        Ok(Self(KBox::new(CacheAligned::new(inner), GFP_NOWAIT)?))
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        spin_lock(self.0.lock.get());
        // INVARIANT: It was taken above.
        LockGuard(&self.0)
    }

    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        // SAFETY: The lock is that of a `Locked`.
        let taken = unsafe { _raw_spin_trylock(self.0.lock.get()) };
        // INVARIANT: It was taken above.
        taken.then(|| LockGuard(&self.0))
    }

    /// # Safety
    ///
    /// The guard of this lock was forgotten.
    pub(crate) unsafe fn unlock_forgotten(&self) {
        spin_unlock(self.0.lock.get());
    }
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        spin_unlock(self.0.lock.get());
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants, nobody else uses the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariants, nobody else uses the value.
        unsafe { &mut *self.0.value.get() }
    }
}
