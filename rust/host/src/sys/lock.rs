// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `lock`: a mutex.

use crate::cpu::{Mutex, MutexGuard};
use kernel::{prelude::*, sync::LockClassKey};

pub(crate) type LockGuard<'a, T> = MutexGuard<'a, T>;

pub(crate) struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub(crate) fn new(value: T, _: &'static CStr, _: Pin<&'static LockClassKey>) -> Result<Self> {
        Ok(Self(Mutex::new(value)))
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        self.0.lock().expect("no test panics with a lock held")
    }

    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    /// # Safety
    ///
    /// Never called: only C forgets guards.
    pub(crate) unsafe fn unlock_forgotten(&self) {
        unreachable!("only C forgets guards");
    }
}

/// Not [`Locked`], so that rust/explore does not switch threads here: the allocator would see other schedules.
pub(crate) struct Quiet<T>(std::sync::Mutex<T>);

impl<T> Quiet<T> {
    pub(crate) fn new(value: T, _: &'static CStr, _: Pin<&'static LockClassKey>) -> Result<Self> {
        Ok(Self(std::sync::Mutex::new(value)))
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        self.0.lock().expect("no test panics with a lock held")
    }

    pub(crate) fn try_lock(&self) -> Option<std::sync::MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}
