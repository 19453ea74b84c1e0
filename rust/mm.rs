// SPDX-License-Identifier: GPL-2.0

//! What the allocator needs of the rest of mm.
//!
//! C header: [`include/linux/vmap_area_ops.h`](srctree/include/linux/vmap_area_ops.h)

use crate::range::Span;
use kernel::{
    alloc,
    bindings,
    str::CStrExt as _, //
};

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
use kernel::prelude::*;

/// Allocation flags that came from C.
#[derive(Clone, Copy)]
pub(crate) struct Gfp(bindings::gfp_t);

impl Gfp {
    /// Do not wait for memory, and do not complain.
    pub(crate) const NOWAIT: Self = Self(bindings::GFP_NOWAIT);

    /// May sleep.
    #[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
    pub(crate) const KERNEL: Self = Self(bindings::GFP_KERNEL);

    /// Takes flags as C passes them.
    pub(crate) fn from_raw(raw: bindings::gfp_t) -> Self {
        Self(raw)
    }

    /// The flags as C wants them.
    pub(crate) fn as_raw(self) -> bindings::gfp_t {
        self.0
    }

    /// Returns the flags for metadata that Rust allocates: those of the request, so that its
    /// restrictions hold (`GFP_NOFS`, `__GFP_NORETRY`), but it may fail, without a warning: a request can
    /// be served without that memory.
    pub(crate) fn flags(self) -> alloc::Flags {
        const NOFAIL: bindings::gfp_t = 1 << bindings::___GFP_NOFAIL_BIT;
        alloc::Flags::from_raw(self.0 & !NOFAIL) | alloc::flags::__GFP_NOWARN
    }

    /// May an allocation with these flags sleep?
    pub(crate) fn may_block(self) -> bool {
        self.0 & (1 << bindings::___GFP_DIRECT_RECLAIM_BIT) != 0
    }
}

/// What makes a freed range safe to be reused. All in sleepable context.
pub(crate) trait Tlb {
    /// Flushes the TLB of all CPUs for `span`, in which are `areas` lazily freed areas.
    fn flush(&self, span: Span, areas: usize);

    /// Is there anything that goes with areas, besides the TLB?
    fn has_shadow(&self) -> bool;

    /// Is this not the kernel's own space, so that only the test that made it uses it?
    fn is_test(&self) -> bool {
        false
    }

    /// Are areas to be at places by chance, where that is cheap?
    fn is_randomized(&self) -> bool {
        false
    }

    /// Releases what else goes with an area that was flushed and is about to become free.
    fn release_shadow(&self, span: Span);

    /// Ends the release for all areas in `span`.
    fn flush_shadow(&self, span: Span);
}

/// The TLB and the KASAN shadow of the kernel. `vmap_purge_lock` is held for the TLB.
pub(crate) struct KernelTlb;

impl Tlb for KernelTlb {
    fn has_shadow(&self) -> bool {
        cfg!(CONFIG_KASAN_VMALLOC)
    }

    fn flush(&self, span: Span, areas: usize) {
        // SAFETY: Flushing more than needed is harmless. The C side checks the lock.
        unsafe { bindings::vmap_area_flush_tlb(span.first(), span.end(), areas) };
    }

    fn release_shadow(&self, span: Span) {
        if cfg!(CONFIG_KASAN_VMALLOC) {
            // SAFETY: The range of an area that nobody uses any more is page aligned and has
            // shadow of its own, or none.
            unsafe { bindings::vmap_area_release_shadow(span.first(), span.end()) };
        }
    }

    fn flush_shadow(&self, span: Span) {
        if cfg!(CONFIG_KASAN_VMALLOC) {
            // SAFETY: Flushing more than needed is harmless.
            unsafe { bindings::vmap_area_flush_shadow(span.first(), span.end()) };
        }
    }
}

/// Lets others run, between two steps of long work; sleepable context.
pub(crate) fn cond_resched() {
    // SAFETY: No locks of ours are held by callers, which are in sleepable context.
    unsafe { bindings::vmap_area_cond_resched() };
}

/// Name of the allocator that C has put in charge; [`None`] if that is the rb-trees.
pub(crate) fn ops_name() -> Option<&'static kernel::str::CStr> {
    // SAFETY: The pointer is written once, in `vmalloc_init()`, before there are other CPUs.
    let ops = unsafe { bindings::vmap_area_ops };
    // SAFETY: It is null or points to a table that is never freed or changed.
    let ops = unsafe { ops.as_ref() }?;
    // SAFETY: The name is a static string.
    Some(unsafe { kernel::str::CStr::from_char_ptr(ops.name) })
}

/// A number that tells CPUs apart: a hint, since the task may move to another one at once.
pub(crate) fn cpu_hint() -> usize {
    // CAST: A `u32` fits in a `usize` on all platforms of Linux.
    kernel::cpu::CpuId::current().as_u32() as usize
}

/// Number of CPUs that there can be, one at least.
pub(crate) fn cpu_count() -> usize {
    // CAST: As above.
    (kernel::cpu::nr_cpu_ids() as usize).max(1)
}

/// Reports a request or a state that must not be: all the numbers each time, a warning with a
/// backtrace once. The caller refuses and goes on.
macro_rules! refuse {
    ($($arg:tt)*) => {
        $crate::mm::cold(|| {
            kernel::pr_err!("refused: {}\n", core::format_args!($($arg)*));
            $crate::mm::warn_once();
        })
    };
}
pub(crate) use refuse;

/// Calls `what`, out of the way of code that has to be fast: its stack and registers are not part of the
/// caller's.
#[cold]
#[inline(never)]
pub(crate) fn cold(what: impl FnOnce()) {
    what()
}

/// `WARN_ON_ONCE(1)` for [`refuse`].
pub(crate) fn warn_once() {
    use kernel::sync::atomic::{
        Atomic,
        Relaxed, //
    };

    static WARNED: Atomic<u32> = Atomic::new(0);

    // Relaxed: nothing else is published through it.
    if WARNED.xchg(1, Relaxed) == 0 {
        kernel::warn_on!(true);
    }
}

/// Makes the `nth` allocation of this task from now on fail, of those that may fail; 0 ends it.
/// Returns what was left of the count. [`CAN_FAIL`] says whether the kernel can do that.
///
/// See `should_fail_ex()` in lib/fault-inject.c.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) fn fail_nth(nth: u32) -> u32 {
    #[cfg(all(CONFIG_FAULT_INJECTION, CONFIG_FAILSLAB))]
    {
        // SAFETY: The current task is valid, and only it uses the field.
        unsafe {
            let task = bindings::get_current();
            core::mem::replace(&mut (*task).fail_nth, nth)
        }
    }
    #[cfg(not(all(CONFIG_FAULT_INJECTION, CONFIG_FAILSLAB)))]
    {
        let _ = nth;
        0
    }
}

/// Makes all allocations from the `nth` on fail; 0 ends it. False if that cannot be done: only on
/// the host.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) fn fail_from(_nth: u32) -> bool {
    false
}

/// Number of area objects that were allocated and not freed, where that is known: on the host.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) fn live_objects() -> Option<usize> {
    None
}

/// A number that nobody can guess. Any context.
pub(crate) fn random() -> usize {
    // SAFETY: No requirements.
    // CAST: A `u32` fits in a `usize` on all platforms of Linux.
    unsafe { bindings::get_random_u32() as usize }
}

/// A number that is another one on each boot.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) fn random_seed() -> u64 {
    // SAFETY: No requirements.
    unsafe { bindings::get_random_u64() }
}

/// Is a spinlock that is held not to be had? Without SMP it only keeps others from running.
///
/// See include/linux/spinlock_api_up.h.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) const LOCKS_EXCLUDE: bool = cfg!(any(CONFIG_SMP, CONFIG_DEBUG_SPINLOCK));

/// Keeps a test on the CPU it runs on, to its end: KUnit has a thread for each, see
/// `kunit_try_catch_run()` in lib/kunit/try-catch.c. Sleepable context.
///
/// What a space does for a request depends on the CPU: one that is new to it starts a block.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) fn stay_on_this_cpu() -> Result {
    #[cfg(CONFIG_SMP)]
    {
        let mut here = kernel::cpumask::CpumaskVar::new_zero(GFP_KERNEL)?;
        here.set(kernel::cpu::CpuId::current());
        // SAFETY: The current task and the mask are valid.
        kernel::error::to_result(unsafe {
            bindings::set_cpus_allowed_ptr(bindings::get_current(), here.as_raw())
        })?;
    }
    Ok(())
}

/// Does [`fail_nth`] work?
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) const CAN_FAIL: bool = cfg!(all(CONFIG_FAULT_INJECTION, CONFIG_FAILSLAB));

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[kernel::prelude::kunit_tests(vmap_rust_mm)]
mod tests {
    use super::*;

    const fn bit(bit: u32) -> bindings::gfp_t {
        1 << bit
    }

    const NOFAIL: bindings::gfp_t = bit(bindings::___GFP_NOFAIL_BIT);
    const NOWARN: bindings::gfp_t = bit(bindings::___GFP_NOWARN_BIT);
    const NORETRY: bindings::gfp_t = bit(bindings::___GFP_NORETRY_BIT);
    const IO: bindings::gfp_t = bit(bindings::___GFP_IO_BIT);
    const FS: bindings::gfp_t = bit(bindings::___GFP_FS_BIT);

    #[test]
    fn metadata_has_the_restrictions_of_its_request() {
        let kernel = bindings::GFP_KERNEL;
        for raw in [
            kernel,
            kernel | NORETRY,
            kernel & !FS,
            kernel & !FS & !IO | NORETRY,
            bindings::GFP_NOWAIT,
            bindings::GFP_ATOMIC,
            0,
        ] {
            assert_eq!(Gfp::from_raw(raw).flags().as_raw(), raw | NOWARN);
        }
        // It may fail: the request can be served without it.
        let made = Gfp::from_raw(kernel | NOFAIL).flags();
        assert_eq!(made.as_raw(), kernel | NOWARN);
    }
}
