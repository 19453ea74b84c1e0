// SPDX-License-Identifier: GPL-2.0

//! Checks: the record with which a running kernel compares its answers, and the allocator's own KUnit cases.

pub(crate) mod checked;
pub(crate) mod checker;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) mod fixtures;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) mod random;
mod record;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
mod tests;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
pub(crate) mod trace;
