// SPDX-License-Identifier: GPL-2.0

//! The allocator for scripts/bench native: the unchanged modules of the kernel, with `ffi`, on stand-ins of the bindings
//! that cost what those of the kernel cost. C calls it by the names of `ffi`; bench/native/rust.c is mm/vmalloc.c.

#![allow(dead_code, reason = "not every function has a caller here")]
#![feature(thread_local)]

#[path = "../../base/mod.rs"]
mod base;
#[path = "../../ffi.rs"]
mod ffi;
#[path = "../../kernel_space.rs"]
mod kernel_space;
#[forbid(unsafe_code)]
#[path = "../../policy/mod.rs"]
mod policy;
#[path = "../../state/mod.rs"]
mod state;
mod sys;

use std::alloc::{GlobalAlloc, Layout};

/// `module!` of the kernel: the parameters of the allocator, with their defaults.
mod module_parameters {
    /// A parameter that is off.
    pub(crate) struct Off;

    impl Off {
        pub(crate) fn value(&self) -> u8 {
            0
        }
    }

    #[allow(non_upper_case_globals, reason = "the name is that of the parameter")]
    pub(crate) static randomize: Off = Off;
}

/// Returns the number of live areas, or -1 if an invariant does not hold.
#[export_name = "vmap_rust_census"]
extern "C" fn census() -> isize {
    let checked = kernel_space::space().map(|space| space.validate());
    match checked {
        // CAST: There are fewer areas than addresses.
        Some(Ok(census)) => (census.busy + census.unlinked) as isize,
        _ => -1,
    }
}

extern "C" {
    fn kmalloc_noprof(size: usize, gfp: u32) -> *mut u8;
    fn kfree_sized(object: *mut u8, size: usize);
}

/// The slab of bench/native/shim.c.
struct Kmalloc;

// SAFETY: Objects have `size` bytes, do not overlap, and are aligned to the powers of two that divide `size`, up to a page.
unsafe impl GlobalAlloc for Kmalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: No requirements.
        unsafe { kmalloc_noprof(layout.pad_to_align().size(), 0) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: By the requirements of the trait, `alloc()` has returned the pointer for this layout.
        unsafe { kfree_sized(ptr, layout.pad_to_align().size()) }
    }
}

#[global_allocator]
static KMALLOC: Kmalloc = Kmalloc;
