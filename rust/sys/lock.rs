// SPDX-License-Identifier: GPL-2.0

//! Data under a spinlock, in a box, as a lock must not move. On the build host a mutex has this interface.

use super::per_cpu::CacheAligned;
use crate::base::prelude::*;
use kernel::sync::{
    lock::spinlock::SpinLockGuard,
    SpinLock, //
};

/// Proof that a lock is held.
pub(crate) type LockGuard<'a, T> = SpinLockGuard<'a, T>;

/// A lock on cache lines of its own: CPUs that take another lock, or use other data, do not slow it down.
#[pin_data]
struct Aligned<T> {
    #[pin]
    lock: SpinLock<T>,
    _align: CacheAligned<()>,
}

/// `T` under a spinlock.
pub(crate) struct Locked<T>(Pin<KBox<Aligned<T>>>);

/// A lock of those who watch the allocator. On the build host, no scheduler switches threads at it.
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
pub(crate) type Quiet<T> = Locked<T>;

impl<T> Locked<T> {
    /// Puts `value` under a new lock of class `key`.
    pub(crate) fn new(
        value: T,
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> Result<Self> {
        Ok(Self(KBox::pin_init(
            pin_init!(Aligned {
                lock <- SpinLock::new(value, name, key),
                _align: CacheAligned::new(()),
            }),
            GFP_NOWAIT,
        )?))
    }

    /// Takes the lock; any context that may take spinlocks.
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        self.0.lock.lock()
    }

    /// Takes the lock unless that means waiting; any context, with PREEMPT_RT except interrupts (`rt_mutex_trylock()`).
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        self.0.lock.try_lock()
    }

    /// Releases the lock of a guard that was forgotten.
    ///
    /// # Safety
    ///
    /// For each call, this task has called [`core::mem::forget`] once on a guard of it.
    pub(crate) unsafe fn unlock_forgotten(&self) {
        // SAFETY: By the safety requirements, this task owns the lock.
        drop(unsafe { SpinLockGuard::new(&self.0.lock, ()) });
    }
}
