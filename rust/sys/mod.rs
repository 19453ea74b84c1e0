// SPDX-License-Identifier: GPL-2.0

//! Bindings: what the allocator uses of the kernel, with interfaces that safe code cannot misuse.
//!
//! What others can use is in rust/kernel: `maple_tree` and `alloc::Flags::from_raw()` come with the series. What is here
//! has one user: spans, and a search that lets others have the lock (`maple`); per-CPU values that do not come from the
//! per-CPU allocator, as that one takes its memory from this allocator (`per_cpu`); locks on cache lines of their own
//! (`lock`). `grace` is of general use, and stays here until somebody else needs a box that is freed after a grace period.

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[path = "../check/tests/kernel.rs"]
mod for_tests;
pub(crate) mod grace;
pub(crate) mod lock;
pub(crate) mod maple;
pub(crate) mod mm;
#[forbid(unsafe_code)]
pub(crate) mod per_cpu;
#[forbid(unsafe_code)]
pub(crate) mod prelude;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[path = "../check/tests/sys.rs"]
mod tests;
pub(crate) mod tlb;
pub(crate) mod trace;
