// SPDX-License-Identifier: GPL-2.0

//! Bindings, in a kernel. A module of `sys`, whose private items it uses.

use super::mm::*;
use crate::{
    base::prelude::*,
    policy::listing::Line, //
};

#[kernel::prelude::kunit_tests(vmap_rust_mm)]
mod mm_tests {
    use super::*;
    use core::fmt::Write;

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

    /// Without `no_hash_pointers`, and for [`Restricted`] with the `kernel.kptr_restrict` of a kernel that starts.
    #[test]
    fn addresses_are_not_printed() -> Result {
        // SAFETY: It is written early in the boot.
        let no_hash = unsafe { bindings::no_hash_pointers };
        let addr = 0x1234_5000_usize;
        let (mut hashed, mut restricted) = (Line::new(), Line::new());
        write!(hashed, "{:?}", Hashed(&[addr, addr])).map_err(|_| EINVAL)?;
        write!(restricted, "{}", Restricted(addr)).map_err(|_| EINVAL)?;
        for line in [&hashed, &restricted] {
            let text = core::str::from_utf8(line.bytes()).map_err(|_| EINVAL)?;
            // Before the kernel has random numbers, there is no hash of an address.
            assert!(text.contains("0x") || text.contains("ptrval"));
            assert_eq!(text.contains("12345000"), no_hash);
        }
        Ok(())
    }

    #[test]
    fn reports_are_limited() {
        let limit = Limit::new();
        let printed = (0..100_000).filter(|_| limit.allows()).count();
        // CAST: It is a small number.
        assert!((Limit::FIRST as usize..100).contains(&printed));
    }
}
