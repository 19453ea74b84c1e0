// SPDX-License-Identifier: GPL-2.0

//! A TLB of which all that is done is seen: by the checker, or by a test. A module of `state`.

use super::prelude::*;
use core::fmt;

/// Proof that a TLB was flushed, and how many page tables were freed.
pub(crate) struct Done(usize);

/// Sees what is done to a TLB.
pub(crate) trait Watch {
    /// Calls `flush`, which flushes `span` with `areas` areas.
    fn flush(&self, span: Span, areas: usize, flush: impl FnOnce() -> Done) -> Done;

    /// The page tables of `span` are taken.
    fn take_tables(&self, _span: Span) {}

    /// Page tables that were taken are flushed and freed.
    fn flush_tables(&self) {}

    /// The KASAN shadow of `span` is released.
    fn release_shadow(&self, _span: Span) {}

    /// The TLBs are flushed for the KASAN shadow of `span`.
    fn flush_shadow(&self, _span: Span) {}
}

/// A TLB, and what sees all that is done to it.
pub(crate) struct Watched<T, W> {
    pub(crate) tlb: T,
    pub(crate) watch: W,
}

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

    fn write_address(&self, addr: usize, out: &mut impl fmt::Write) -> fmt::Result {
        self.tlb.write_address(addr, out)
    }

    fn flush(&self, span: Span, areas: usize) -> usize {
        let flush = || Done(self.tlb.flush(span, areas));
        self.watch.flush(span, areas, flush).0
    }

    unsafe fn take_tables(&self, span: Span) {
        self.watch.take_tables(span);
        // SAFETY: By the safety requirements.
        unsafe { self.tlb.take_tables(span) };
    }

    fn flush_tables(&self) -> usize {
        self.watch.flush_tables();
        self.tlb.flush_tables()
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

    /// These are no addresses of the kernel.
    fn write_address(&self, addr: usize, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, "{addr:#x}")
    }

    fn flush(&self, _span: Span, _areas: usize) -> usize {
        0
    }

    unsafe fn release_shadow(&self, _span: Span) {}

    fn flush_shadow(&self, _span: Span) {}
}
