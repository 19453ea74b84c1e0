// SPDX-License-Identifier: GPL-2.0

//! Data under a spinlock, in memory of its own.
//!
//! A lock of the kernel must not move. This wraps one in a box, so that policy modules can have
//! locks in vectors and need no pinning; on the host the same interface is a mutex.

use kernel::{
    prelude::*,
    sync::{
        lock::spinlock::SpinLockGuard,
        LockClassKey,
        SpinLock, //
    },
};

/// What shows that a lock is held.
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

    /// Locks. Spins; any context that may take spinlocks.
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        self.0.lock()
    }

    /// Locks unless that means waiting; any context.
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Unlocks what was locked by a guard that was forgotten.
    ///
    /// # Safety
    ///
    /// The caller owns the lock: [`core::mem::forget`] was called on a guard of it by this task,
    /// once for each call.
    pub(crate) unsafe fn unlock_forgotten(&self) {
        // SAFETY: By the safety requirements.
        drop(unsafe { SpinLockGuard::new(&self.0, ()) });
    }
}
