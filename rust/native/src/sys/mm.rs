// SPDX-License-Identifier: GPL-2.0

//! Stand-in of `mm`. Memory has no nodes and never runs out.

use super::per_cpu::CpuNumber;
use kernel::{alloc::Flags, bindings, error::Result, prelude::KBox};

extern "C" {
    /// The CPU of this thread, where the kernel has a per-CPU variable.
    #[thread_local]
    static cpu_number: u32;
    static nr_cpu_ids: u32;
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

pub(crate) fn random() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    static STEPS: AtomicUsize = AtomicUsize::new(0);
    STEPS.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed)
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
