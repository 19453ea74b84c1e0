// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `mm`: allocations fail on demand, a lock is a mutex, and a report is a panic.

use super::per_cpu::CpuNumber;
pub(crate) use crate::cpu::{cond_resched, cpu_count, cpu_hint, OneCpu};
use crate::cpu::{Mutex, MutexGuard};
use kernel::{alloc::Flags, bindings, fault, prelude::*, sync::LockClassKey};

pub(crate) fn prefetch_for_write<T>(_: *const T) {}

/// A NUMA node. Memory has none.
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

    pub(crate) fn as_raw(self) -> bindings::gfp_t {
        self.0
    }

    pub(crate) fn flags(self) -> kernel::alloc::Flags {
        kernel::prelude::GFP_NOWAIT
    }

    pub(crate) fn may_block(self) -> bool {
        self.0 == bindings::GFP_KERNEL
    }
}

/// Returns another number at each call.
pub(crate) fn random() -> u32 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static STEPS: AtomicU64 = AtomicU64::new(1);
    crate::check::random::Random::new(STEPS.fetch_add(1, Ordering::Relaxed)).below(usize::MAX)
        as u32
}

pub(crate) fn refuse(what: &str, addresses: &[usize], numbers: &[usize]) {
    kernel::hooks::refuse(format!("refused: {what} {addresses:x?} {numbers:x?}"));
}

/// An address that is shown to users, here to anybody.
pub(crate) struct Restricted(pub(crate) usize);

impl std::fmt::Display for Restricted {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:#018x}", self.0)
    }
}

pub(crate) const LOCKS_EXCLUDE: bool = true;

pub(crate) fn fail_nth(nth: u32) -> u32 {
    fault::NTH.replace(nth)
}

/// Does nothing: each thread stays on its CPU.
pub(crate) fn stay_on_this_cpu() -> kernel::error::Result {
    Ok(())
}

pub(crate) const CAN_FAIL: bool = true;
pub(crate) const CAN_FAIL_ALL: bool = true;

pub(crate) fn fail_from(nth: u32) -> bool {
    fault::FROM.replace(nth) == 1
}

pub(crate) fn live_objects() -> Option<usize> {
    Some(bindings::LIVE_AREAS.get())
}

/// Returns `VMAP_RUST_SEED`, decimal or hexadecimal with 0x, or without it a new number at each call.
pub(crate) fn random_seed() -> u64 {
    use std::hash::BuildHasher;
    let Ok(seed) = std::env::var("VMAP_RUST_SEED") else {
        return std::hash::RandomState::new().hash_one(0);
    };
    let parsed = match seed.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => seed.parse(),
    };
    parsed.expect("VMAP_RUST_SEED is a number")
}

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
