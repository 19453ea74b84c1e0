// SPDX-License-Identifier: GPL-2.0

//! What serves a request, and what becomes of a freed range. No unsafe code: `vmap_rust.rs` forbids it for this
//! folder.

pub(crate) mod blocks;
pub(crate) mod blocks_check;
mod blocks_current;
mod blocks_limit;
mod blocks_purge;
mod blocks_refill;
pub(crate) mod cache;
mod cache_part;
#[cfg(CONFIG_VMAP_RUST_KUNIT_TEST)]
mod cache_tests;
pub(crate) mod callers;
pub(crate) mod census;
mod drain;
mod give_back;
pub(crate) mod lazy;
mod listing;
mod lookup;
pub(crate) mod percpu;
mod pool;
mod purge;
mod reserve;
pub(crate) mod space;
