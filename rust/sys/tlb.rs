// SPDX-License-Identifier: GPL-2.0

//! What makes freed ranges safe to reuse: the TLBs and the KASAN shadow. Those of the kernel are in `mm`; tests have some
//! without mappings, and record what is done to them.

use super::mm;
use crate::base::prelude::*;
#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
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

    /// Returns whether only a test uses the space.
    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
    fn is_test(&self) -> bool {
        false
    }

    /// Writes an address of the space for users. Task context.
    #[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
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

#[cfg(any(CONFIG_VMAP_RUST_DEBUG, CONFIG_VMAP_RUST_KUNIT_TEST))]
#[path = "../check/watched.rs"]
pub(crate) mod watched;
