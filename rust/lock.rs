// SPDX-License-Identifier: GPL-2.0

//! Data under a spinlock, in a box.
//!
//! A kernel lock must not move. The box lets policy modules keep locks in vectors without pinning. On the
//! build host a mutex has this interface.

use kernel::{
    prelude::*,
    sync::{
        lock::spinlock::SpinLockGuard,
        LockClassKey,
        SpinLock, //
    },
};

/// Proof that a lock is held.
pub(crate) type LockGuard<'a, T> = SpinLockGuard<'a, T>;

/// `T` under a spinlock.
pub(crate) struct Locked<T>(Pin<KBox<SpinLock<T>>>);

impl<T> Locked<T> {
    /// Puts `value` under a new lock of class `key`.
    pub(crate) fn new(
        value: T,
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> Result<Self> {
        Ok(Self(KBox::pin_init(
            SpinLock::new(value, name, key),
            GFP_NOWAIT,
        )?))
    }

    /// Takes the lock. Spins; any context that may take spinlocks.
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        self.0.lock()
    }

    /// Takes the lock unless that means waiting; any context.
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Releases the lock of a guard that was forgotten.
    ///
    /// # Safety
    ///
    /// The caller owns the lock: for each call, this task has called [`core::mem::forget`] once on a guard
    /// of it.
    pub(crate) unsafe fn unlock_forgotten(&self) {
        // SAFETY: By the safety requirements, this task owns the lock.
        drop(unsafe { SpinLockGuard::new(&self.0, ()) });
    }
}
