// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `mm`. Memory has no nodes and never runs out. The spinlock is that of bench/native/shim.c, as on the C side.

use super::per_cpu::{CacheAligned, CpuNumber};
use core::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
};
use kernel::{alloc::Flags, bindings, prelude::*, sync::LockClassKey};

extern "C" {
    /// The CPU of this thread, where the kernel has a per-CPU variable.
    #[thread_local]
    static cpu_number: u32;
    #[thread_local]
    static mut preempt_count: i32;
    static nr_cpu_ids: u32;
    fn _raw_spin_lock(lock: *mut u32);
    fn _raw_spin_trylock(lock: *mut u32) -> bool;
    fn _raw_spin_unlock(lock: *mut u32);
}

#[cfg_attr(feature = "calls", inline(never))]
#[cfg_attr(not(feature = "calls"), inline(always))]
pub(crate) fn cpu_hint() -> CpuNumber {
    // SAFETY: It is set before a thread uses the allocator.
    // CAST: A `u32` fits in a `usize`.
    CpuNumber::new(unsafe { cpu_number } as usize)
}

pub(crate) fn cpu_count() -> usize {
    // SAFETY: It is set before the allocator starts.
    // CAST: A `u32` fits in a `usize`.
    unsafe { nr_cpu_ids as usize }
}

#[cfg_attr(feature = "calls", inline(never))]
#[cfg_attr(not(feature = "calls"), inline(always))]
pub(crate) fn prefetch_for_write<T>(at: *const T) {
    // SAFETY: A prefetch changes no memory, and faults at no address.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
}

/// Nobody else runs on this CPU: only the counter of preemption.
pub(crate) struct OneCpu;

impl OneCpu {
    #[cfg_attr(feature = "calls", inline(never))]
    #[cfg_attr(not(feature = "calls"), inline(always))]
    pub(crate) fn new() -> Self {
        // SAFETY: It belongs to this thread.
        unsafe { preempt_count += 1 };
        Self
    }
}

impl Drop for OneCpu {
    #[cfg_attr(feature = "calls", inline(never))]
    #[cfg_attr(not(feature = "calls"), inline(always))]
    fn drop(&mut self) {
        // SAFETY: It belongs to this thread.
        unsafe { preempt_count -= 1 };
    }
}

/// Nobody else runs on this CPU.
pub(crate) fn cond_resched() {}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Node;

impl Node {
    pub(crate) const ANY: Self = Self;

    pub(crate) fn of_cpu(_: CpuNumber) -> Self {
        Self
    }

    pub(crate) fn here() -> Self {
        Self
    }

    pub(crate) fn new_box<T>(self, value: T, flags: Flags) -> Result<KBox<T>> {
        KBox::new(value, flags)
    }

    pub(crate) fn new_array<T, const N: usize>(
        self,
        mut make: impl FnMut() -> T,
        flags: Flags,
    ) -> Result<KBox<[T; N]>> {
        KBox::new(core::array::from_fn(|_| make()), flags)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Gfp(bindings::gfp_t);

impl Gfp {
    pub(crate) const NOWAIT: Self = Self(bindings::GFP_NOWAIT);
    pub(crate) const RECLAIM: Self = Self(bindings::GFP_NOWAIT);
    pub(crate) const KERNEL: Self = Self(bindings::GFP_KERNEL);

    pub(crate) fn from_raw(raw: bindings::gfp_t) -> Self {
        Self(raw)
    }

    pub(crate) fn as_raw(self) -> bindings::gfp_t {
        self.0
    }

    pub(crate) fn flags(self) -> Flags {
        kernel::prelude::GFP_NOWAIT
    }

    pub(crate) fn may_block(self) -> bool {
        self.0 == bindings::GFP_KERNEL
    }
}

pub(crate) fn random() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static STEPS: AtomicU32 = AtomicU32::new(0);
    STEPS.fetch_add(0x9e37_79b9, Relaxed)
}

#[cold]
pub(crate) fn refuse(what: &str, addresses: &[usize], numbers: &[usize]) {
    eprintln!("native: refused: {what} {addresses:x?} {numbers:x?}");
    std::process::abort();
}

/// An address that is shown to users, here to anybody.
pub(crate) struct Restricted(pub(crate) usize);

impl std::fmt::Display for Restricted {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:#018x}", self.0)
    }
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
