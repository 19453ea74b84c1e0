// SPDX-License-Identifier: GPL-2.0

//! Bindings: what the allocator uses of the kernel, with interfaces that safe code cannot misuse. What others can use, too, is
//! in rust/kernel: `maple_tree` and `alloc::Flags::from_raw()` come with the series.

#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[path = "../check/tests/kernel.rs"]
mod for_tests;
pub(crate) mod grace;
pub(crate) mod maple;
pub(crate) mod mm;
#[forbid(unsafe_code)]
pub(crate) mod per_cpu;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
#[path = "../check/tests/sys.rs"]
mod tests;
pub(crate) mod trace;
