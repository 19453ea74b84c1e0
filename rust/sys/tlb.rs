// SPDX-License-Identifier: GPL-2.0

//! What makes freed ranges safe to reuse: the TLBs and the KASAN shadow. Those of the kernel are in `mm`; tests have some
//! without mappings, and record what is done to them.

use super::prelude::*;
use core::fmt;

/// Makes freed ranges safe to reuse. All functions run in sleepable context.
///
/// # Safety
///
/// [`Tlb::flush`] returns only when no TLB holds a translation of an address in `span` that was unmapped before the call:
/// the range is reused then.
pub(crate) unsafe trait Tlb {
    /// Flushes `span`, which contains `areas` lazily freed areas, from the TLBs of all CPUs.
    fn flush(&self, span: Span, areas: usize);

    /// Returns whether areas have KASAN shadow.
    fn has_shadow(&self) -> bool;

    /// Returns whether only the test that created the space uses it. False for the space of the kernel.
    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    fn is_test(&self) -> bool {
        false
    }

    /// Returns whether the placement of areas is randomised.
    fn is_randomized(&self) -> bool {
        false
    }

    /// Writes an address of the space for users. Task context.
    fn write_address(&self, addr: usize, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, "{}", mm::Restricted(addr))
    }

    /// Releases the KASAN shadow of a range that is about to become free.
    ///
    /// # Safety
    ///
    /// The range was flushed, and nobody uses an address in it before the call returns.
    unsafe fn release_shadow(&self, span: Span);

    /// Flushes the TLBs for the released KASAN shadow of all ranges in `span`.
    fn flush_shadow(&self, span: Span);
}

/// Proof that a TLB was flushed.
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
pub(crate) struct Done(());

/// Sees what is done to a TLB.
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
pub(crate) trait Watch {
    /// Calls `flush`, which flushes `span` with `areas` areas.
    fn flush(&self, span: Span, areas: usize, flush: impl FnOnce() -> Done) -> Done;

    /// The KASAN shadow of `span` is released.
    fn release_shadow(&self, _span: Span) {}

    /// The TLBs are flushed for the KASAN shadow of `span`.
    fn flush_shadow(&self, _span: Span) {}
}

/// A TLB, and what sees all that is done to it.
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
pub(crate) struct Watched<T, W> {
    pub(crate) tlb: T,
    pub(crate) watch: W,
}

#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
// SAFETY: The other TLB is flushed: without that, there is no proof to return.
unsafe impl<T: Tlb, W: Watch> Tlb for Watched<T, W> {
    #[inline(always)]
    fn has_shadow(&self) -> bool {
        self.tlb.has_shadow()
    }

    #[inline(always)]
    fn is_test(&self) -> bool {
        self.tlb.is_test()
    }

    fn is_randomized(&self) -> bool {
        self.tlb.is_randomized()
    }

    fn write_address(&self, addr: usize, out: &mut impl fmt::Write) -> fmt::Result {
        self.tlb.write_address(addr, out)
    }

    fn flush(&self, span: Span, areas: usize) {
        self.watch.flush(span, areas, || {
            self.tlb.flush(span, areas);
            Done(())
        });
    }

    unsafe fn release_shadow(&self, span: Span) {
        self.watch.release_shadow(span);
        // SAFETY: By the safety requirements.
        unsafe { self.tlb.release_shadow(span) };
    }

    fn flush_shadow(&self, span: Span) {
        self.watch.flush_shadow(span);
        self.tlb.flush_shadow(span);
    }
}

/// The TLB of a space in which a test maps nothing.
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) struct Unmapped {
    /// Whether there seems to be KASAN shadow.
    pub(crate) has_shadow: bool,
    /// Whether the placement of areas is randomised.
    pub(crate) is_randomized: bool,
}

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
// SAFETY: No TLB holds a translation of what was never mapped.
unsafe impl Tlb for Unmapped {
    fn has_shadow(&self) -> bool {
        self.has_shadow
    }

    fn is_test(&self) -> bool {
        true
    }

    fn is_randomized(&self) -> bool {
        self.is_randomized
    }

    /// These are no addresses of the kernel.
    fn write_address(&self, addr: usize, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, "{addr:#x}")
    }

    fn flush(&self, _span: Span, _areas: usize) {}

    unsafe fn release_shadow(&self, _span: Span) {}

    fn flush_shadow(&self, _span: Span) {}
}
