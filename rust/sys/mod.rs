// SPDX-License-Identifier: GPL-2.0

//! Bindings: what the allocator uses of the kernel, with interfaces that safe code cannot misuse.

pub(crate) mod grace;
#[cfg(CONFIG_VMAP_RUST_DEBUG_INFO)]
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod maple;
pub(crate) mod mm;
#[forbid(unsafe_code)]
pub(crate) mod per_cpu;
pub(crate) mod trace;
